"""One record of a run in which several processes train together, each on its own part of the data.

All ranks hold the same parameters, so that the inner products of a step can be computed where the examples are and
brought together afterwards: mean and standard deviation are taken over the examples of all ranks. Rank 0 keeps the
record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gnomon.models.per_example import map_batch
from gnomon.training.influence.open_step import OpenStep


def rank() -> int:
    """This process's place in its group; 0 outside a group."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world() -> int:
    """Processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def share(examples: Any, ids: np.ndarray) -> tuple[Any, np.ndarray]:
    """The examples that this rank observes of a pool that all ranks have: every ``world()``-th."""
    if world() == 1:
        return examples, ids
    mine = torch.arange(rank(), len(ids), world())
    return map_batch(lambda tensor: tensor[mine.to(tensor.device)], examples), ids[mine.numpy()]


def gathered(step: OpenStep) -> list[OpenStep]:
    """The step as all ranks observed it, on rank 0; elsewhere an empty list. Every rank must call it.

    Raises:
        ValueError: If the ranks are not at the same step.
    """
    if world() == 1:
        return [step]
    parts: list[Any] = [None] * world()
    # On all ranks, so that each of them stops if one is elsewhere; directions stay: they are of the size of the model.
    dist.all_gather_object(parts, replace(step, directions=None))
    if len({part.step for part in parts}) > 1:
        raise ValueError(
            f"ranks must observe the same steps; they are at {', '.join(str(part.step) for part in parts)}"
        )
    return parts if rank() == 0 else []


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, if it is wrapped for data parallel training: the wrapper allows only its own backward pass."""
    return model.module if isinstance(model, DistributedDataParallel) else model
