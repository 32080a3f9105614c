"""gnomon: instruments for studying AI systems. No finding without its control."""

__version__ = "0.1.0"
