"""Checks at the boundary: arrays that are finite and of the right shape, labels turned into codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike


def finite(values: ArrayLike, name: str, *, dimensions: int = 1) -> Float[np.ndarray, ...]:
    """The values as a float64 array.

    Args:
        values: Anything numpy reads as numbers: a list, an array, a pandas column, a CPU tensor.
        name: What the caller calls them, for the error.
        dimensions: How many axes they must have.

    Raises:
        ValueError: If the number of axes differs, the array is empty, or a value is NaN or infinite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} axes, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty")
    bad = ~np.isfinite(array)
    if bad.any():
        first = tuple(int(index) for index in np.argwhere(bad)[0])
        where = first[0] if dimensions == 1 else first
        raise ValueError(f"{name} is not finite: {array[first]} at index {where}")
    return array


def codes(labels: Any, name: str, *, length: int) -> tuple[Int[np.ndarray, " observation"], np.ndarray]:
    """Each observation's label as an integer code, and the sorted distinct labels.

    Raises:
        ValueError: If there is not one label an observation.
    """
    array = np.asarray(labels)
    if array.shape != (length,):
        raise ValueError(f"{name} must give one label for each of {length} observations, got shape {array.shape}")
    distinct, code = np.unique(array, return_inverse=True)
    return code, distinct
