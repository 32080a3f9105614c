"""Texts and tasks that several instruments share."""
