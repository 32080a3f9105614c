"""The method: random walks."""

import numpy as np


def walk(steps: int, drift: float, rng: np.random.Generator) -> np.ndarray:
    """Positions of a random walk with drift."""
    return np.cumsum(rng.normal(drift, 1.0, steps))
