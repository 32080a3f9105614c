"""Mechanistic interpretability: what a trained network computes, and where."""
