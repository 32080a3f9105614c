"""Directions in parameter space: lengths, random ones, and the optimiser's metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gnomon.training.influence.open_step import NotFinite
from gnomon.training.influence.products import Direction


def random_direction(parameters: Mapping[str, nn.Parameter], seed: int) -> dict[str, Tensor]:
    """Independent normal numbers, one array a parameter."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(value.shape, generator=generator).to(value) for name, value in parameters.items()}


def in_metric_of(
    optimizer: torch.optim.Optimizer,
    direction: Direction,
    parameters: Mapping[str, nn.Parameter],
    *,
    adam: bool,
) -> Direction:
    """The direction scaled by the learning rates of parameter groups, relative to the first, and by Adam's diagonal."""
    owner = {id(value): name for name, value in parameters.items()}
    first = optimizer.param_groups[0]["lr"]
    scaled = dict(direction)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if (name := owner.get(id(parameter))) is not None:
                value = direction[name] * (group["lr"] / first if first else 1.0)
                scaled[name] = value / adam_denominator(optimizer.state.get(parameter, {}), group) if adam else value
    return scaled


def norm(direction: Direction) -> float:
    """Length over all parameters."""
    return float(torch.stack([torch.linalg.vector_norm(value).double() for value in direction.values()]).norm())


def with_norms_of(direction: Direction, like: Direction) -> dict[str, Tensor]:
    """The direction, with each parameter's part as long as the other's."""
    return {name: value * (like[name].norm() / value.norm().clamp_min(1e-30)) for name, value in direction.items()}


def adam_denominator(state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor:
    """What Adam divides a gradient by, bias corrected.

    Raises:
        NotFinite: Before Adam's first step, when there is nothing to divide by.
    """
    if "exp_avg_sq" not in state:
        raise NotFinite("Adam has no second moments before its first step")
    _, beta = group["betas"]
    return (state["exp_avg_sq"] / (1 - beta ** float(state["step"]))).sqrt() + group["eps"]
