"""Where a corrected input may lie: boxes, integers and one-hot groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Domain:
    r"""The set of admissible inputs and the map :math:`\Pi` onto it.

    Bounds clip, integers round, one-hot groups go to their largest entry. While a tutor trains, the map is applied
    forward and the gradient passes straight through (through the softmax, for one-hot groups), because a clipped or
    rounded coordinate has no gradient of its own; :meth:`overshoot` is what keeps a tutor from running far outside.

    Args:
        low: Lower bound by column; ``-inf`` for none.
        high: Upper bound by column; ``inf`` for none.
        integers: Columns that hold whole numbers.
        one_hot: Groups of columns of which exactly one is 1.
    """

    low: np.ndarray
    high: np.ndarray
    integers: tuple[int, ...] = ()
    one_hot: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def unbounded(cls, n_features: int) -> Domain:
        """The whole space."""
        return cls(np.full(n_features, -np.inf), np.full(n_features, np.inf))

    @property
    def boxed(self) -> bool:
        """Whether any column has a bound."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    @property
    def discrete(self) -> tuple[int, ...]:
        """Columns that are integers or belong to a one-hot group: by default not correctable."""
        return tuple(sorted({*self.integers, *(column for group in self.one_hot for column in group)}))

    def project(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Nearest admissible inputs."""
        projected = np.clip(x, self.low, self.high)
        if self.integers:
            columns = list(self.integers)
            projected[:, columns] = np.round(projected[:, columns])
        for group in self.one_hot:
            columns = list(group)
            projected[:, columns] = np.eye(len(columns))[projected[:, columns].argmax(1)]
        return projected

    def project_through(self, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """The same map with straight-through gradients."""
        if not (self.boxed or self.integers or self.one_hot):
            return x
        projected = x.clamp(self._tensor(self.low, x), self._tensor(self.high, x))
        if self.integers:
            columns = list(self.integers)
            projected = projected.index_copy(
                -1, torch.tensor(columns, device=x.device), projected[..., columns].round()
            )
        passing = x
        for group in self.one_hot:
            columns = torch.tensor(group, device=x.device)
            logits = x[..., columns]
            hard = torch.nn.functional.one_hot(logits.argmax(-1), len(group)).to(x.dtype)
            projected = projected.index_copy(-1, columns, hard)
            passing = passing.index_copy(-1, columns, (4.0 * logits).softmax(-1))
        return passing + (projected - passing).detach()

    def overshoot(self, x: Float[Tensor, "*rows d"], scale: Float[Tensor, " d"]) -> Float[Tensor, "*rows"]:
        """Squared distance to the box, in standardised units."""
        if not self.boxed:
            return x.new_zeros(x.shape[:-1])
        clipped = x.clamp(self._tensor(self.low, x), self._tensor(self.high, x))
        return ((x - clipped) / scale).square().sum(-1)

    def at_bound(self, x: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, " n"]:
        """Rows with a coordinate at or beyond a bound."""
        return np.asarray(((x <= self.low) | (x >= self.high)).any(1))

    def outside(self, x: Float[np.ndarray, "n d"]) -> int:
        """How many rows the bounds exclude."""
        return int(((x < self.low) | (x > self.high)).any(1).sum())

    def columns(self, kept: np.ndarray) -> Domain:
        """The domain of a subset of columns, in their new positions."""
        position = {int(column): index for index, column in enumerate(kept)}
        return Domain(
            self.low[kept],
            self.high[kept],
            tuple(position[c] for c in self.integers if c in position),
            tuple(tuple(position[c] for c in group) for group in self.one_hot if all(c in position for c in group)),
        )

    @staticmethod
    def _tensor(bound: np.ndarray, like: Tensor) -> Tensor:
        return torch.as_tensor(bound, dtype=like.dtype, device=like.device)
