"""A step that is being observed: what its micro-batches have given so far, and the observation they end in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from gnomon.training.influence.products import Direction
from gnomon.training.influence.record import Observation


@dataclass
class OpenStep:
    """A step whose micro-batches are still coming."""

    step: int
    lr: float
    directions: list[Direction] | None = None
    query_losses: list[float] = field(default_factory=list)
    query_norms: list[float] = field(default_factory=list)
    index: list[Int[np.ndarray, " example"]] = field(default_factory=list)
    dots: list[Float[np.ndarray, "example query"]] = field(default_factory=list)
    mean: list[Float[np.ndarray, "example query"]] = field(default_factory=list)
    std: list[Float[np.ndarray, "example query"]] = field(default_factory=list)
    losses: list[Float[np.ndarray, " example"]] = field(default_factory=list)
    squared_norms: list[Float[np.ndarray, " example"]] = field(default_factory=list)
    skipped: bool = False

    def add(self, ids: np.ndarray, dots: Tensor, losses: Tensor, norms: Tensor | None) -> None:
        """Take the numbers of some examples.

        Raises:
            NotFinite: Naming the first example whose loss or product is not a number.
        """
        products, lost = dots.detach().float().cpu().numpy(), losses.detach().float().cpu().numpy()
        finite = np.isfinite(products).all(1) & np.isfinite(lost)
        if not finite.all():
            raise NotFinite(f"loss or gradient of example {ids[~finite][0]} is not finite")
        self.index.append(ids)
        self.dots.append(products)
        self.losses.append(lost)
        unknown = np.full(len(ids), np.nan, dtype=np.float32)
        self.squared_norms.append(unknown if norms is None else norms.detach().float().cpu().numpy())


def observation(parts: Sequence[OpenStep], *, batch_size: int | None) -> Observation:
    """What the parts of one step, micro-batches and ranks, have observed together.

    An example that a distributed sampler dealt to two ranks, to make their shares equal, counts once.

    Args:
        parts: Of the same step and the same queries; at least one has examples.
        batch_size: Examples in the optimiser step, if not as many as were observed.
    """

    def joined(name: str) -> np.ndarray:
        return np.concatenate([array for part in parts for array in getattr(part, name)])

    drawn = joined("index")
    _, first = np.unique(drawn, return_index=True)
    kept = np.sort(first)
    dots = joined("dots")[kept]
    if any(part.mean for part in parts):
        mean, std = joined("mean")[kept], joined("std")[kept]
    else:
        wide = dots.astype(np.float64)
        mean, std = wide.mean(0, keepdims=True), wide.std(0, keepdims=True, ddof=1 if len(wide) > 1 else 0)
    return Observation(
        step=parts[0].step,
        lr=parts[0].lr,
        batch_size=batch_size or len(drawn),
        index=drawn[kept],
        dots=dots,
        mean=mean,
        std=std,
        losses=joined("losses")[kept],
        squared_norms=joined("squared_norms")[kept],
        query_losses=np.array(parts[0].query_losses),
        query_norms=np.array(parts[0].query_norms),
    )


@dataclass(frozen=True)
class GradientRows:
    """Gradients as rows, written out or sketched, with the products of :class:`PerExampleGradients`."""

    rows: Tensor
    losses: Tensor

    def gram(self, other: GradientRows) -> Float[Tensor, "example other"]:
        """Inner products with other rows."""
        return self.rows @ other.rows.T

    def squared_norms(self) -> Float[Tensor, " example"]:
        """Squared lengths."""
        return self.rows.square().sum(1)


class NotFinite(ArithmeticError):
    """A loss or gradient that is not a number; the message names the example."""
