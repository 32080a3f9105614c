"""Instruments that study learners beside language models: kernels, operators, and models corrected at their inputs."""
