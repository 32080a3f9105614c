"""What a recorder can be asked for, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from gnomon.models.per_example import batch_size


def check(
    query: Any, target: str, pool: Any, every: int, precondition: str, batch_size: int | None, method: str
) -> None:
    """Refuse arguments that contradict each other.

    Raises:
        ValueError: Naming the argument.
    """
    if target not in ("query", "self"):
        raise ValueError(f"target must be 'query' or 'self', got {target!r}")
    if (query is None) == (target == "query"):
        raise ValueError("target='query' needs query=; target='self' takes none")
    if every < 1:
        raise ValueError(f"every must be at least 1, got {every}")
    if pool is not None and batch_size is None:
        raise ValueError("with a pool, batch_size= must say how many examples an optimiser step has")
    if precondition not in ("none", "adam"):
        raise ValueError(f"precondition must be 'none' or 'adam', got {precondition!r}")
    if target == "self" and (precondition != "none" or method in ("jvp", "double-vjp")):
        raise ValueError("target='self' needs method 'ghost', 'vmap' or 'project' and precondition 'none'")


def named_queries(query: Any) -> dict[str, Any]:
    """Queries by name: a mapping of batches, or one batch (which may itself be a mapping of tensors)."""
    if query is None:
        return {}
    several = isinstance(query, Mapping) and not any(isinstance(value, Tensor) for value in query.values())
    named = dict(query) if several else {"query": query}
    for name, batch in named.items():
        if batch_size(batch) == 0:
            raise ValueError(f"query {name!r} is empty")
    return named


def checked_ids(index: ArrayLike, batch: Any) -> np.ndarray:
    """Ids as whole numbers.

    Raises:
        ValueError: If they are not one an example, or one is negative.
    """
    values = np.asarray(index.cpu() if isinstance(index, Tensor) else index)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer) or len(values) != batch_size(batch):
        raise ValueError(f"ids must be {batch_size(batch)} whole numbers, one an example; got shape {values.shape}")
    if len(values) and values.min() < 0:
        raise ValueError(f"ids must not be negative, got {values.min()}")
    return values.astype(np.int64)
