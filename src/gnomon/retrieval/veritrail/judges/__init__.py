"""Judges: who finds evidence on claims and rules on it."""
