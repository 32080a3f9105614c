"""Speed, as a ratio to a named peer in the same process: ``python -m benchmarks [NAME]``."""
