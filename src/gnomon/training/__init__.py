"""Instruments for training: what examples, their order and the optimiser's path leave behind in a model."""
