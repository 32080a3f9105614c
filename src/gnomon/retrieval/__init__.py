"""Instruments that study retrieval: whom a search serves, and where a pipeline's sentences come from."""
