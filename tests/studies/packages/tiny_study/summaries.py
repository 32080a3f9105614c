"""The method of the last stage."""

import numpy as np


def slope(positions: np.ndarray) -> float:
    """Mean step."""
    return float(positions[-1] / len(positions))
