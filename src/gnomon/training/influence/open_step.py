"""A step that is being observed: what its micro-batches have given so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from gnomon.training.influence.products import Direction


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
