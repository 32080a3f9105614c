"""Task losses by row, and penalties on the size of a correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

RegressionLoss = Literal["squared", "huber", "relative"]
ClassificationLoss = Literal["satisficing", "log_loss"]

REGRESSION_LOSSES: tuple[str, ...] = ("squared", "huber", "relative")
CLASSIFICATION_LOSSES: tuple[str, ...] = ("satisficing", "log_loss")


@dataclass(frozen=True)
class TaskLoss:
    r"""Loss of each row, divided by a unit so that the penalty weight means the same on every problem.

    ========== =====================================================================================
    squared    :math:`\sum_q (y_q - f_q)^2 / u`, with u the target's variance by default
    huber      quadratic up to :math:`\sqrt u`, linear beyond, over u
    relative   :math:`\sum_q ((y_q - f_q) / y_q)^2`
    log_loss   :math:`-\log p_y`
    satisficing :math:`\max(0,\; m - (\ell_y - \max_{j \ne y} \ell_j) / u)`, with u the pupil's median top-2 logit gap
    ========== =====================================================================================

    The satisficing loss is zero once a row is right by the margin ``m`` and then pays for no further move; the log
    loss is never satisfied and also pushes rows that the pupil gets right, as far as its calibration happens to allow.

    Args:
        name: Which loss.
        unit: Divisor u, > 0.
        margin: m, in units of u; satisficing only.
    """

    name: str
    unit: float = 1.0
    margin: float = 0.25

    def __call__(self, outputs: Float[Tensor, "*rows q"], targets: Tensor) -> Float[Tensor, "*rows"]:
        """Loss by row; ``targets`` are values shaped like ``outputs``, or class indices ``(*rows,)``."""
        if self.name == "squared":
            return (outputs - targets).square().sum(-1) / self.unit
        if self.name == "huber":
            width = self.unit**0.5
            distance = (outputs - targets).abs() / width
            return torch.where(distance <= 1, distance.square(), 2 * distance - 1).sum(-1)
        if self.name == "relative":
            return ((outputs - targets) / targets).square().sum(-1)
        chosen = targets.unsqueeze(-1)
        if self.name == "log_loss":
            return -outputs.log_softmax(-1).gather(-1, chosen).squeeze(-1)
        own = outputs.gather(-1, chosen).squeeze(-1)
        rival = outputs.scatter(-1, chosen, -torch.inf).amax(-1)
        return (self.margin - (own - rival) / self.unit).clamp_min(0.0)


def top_two_gap(outputs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """Difference between the largest and the second largest output of each row."""
    ordered = np.partition(outputs, -2, axis=1)
    return ordered[:, -1] - ordered[:, -2]


@dataclass(frozen=True)
class Penalty:
    r"""Size of a correction in standardised units, by row.

    ============ ==============================================================
    l2           :math:`\sum_j \epsilon_j^2` (the paper's)
    l1           :math:`\sum_j |\epsilon_j|`
    group        :math:`\sum_g \sqrt{|g|}\, \lVert \epsilon_g \rVert_2`
    mahalanobis  :math:`\epsilon^\top \Sigma^{-1} \epsilon`: moves along the data's own covariance are cheap
    ============ ==============================================================

    Args:
        name: Which penalty.
        groups: Positions (among the correctable features) of each group; group only.
        precision: :math:`\Sigma^{-1}` of the standardised correctable features; mahalanobis only.
    """

    name: str
    groups: tuple[tuple[int, ...], ...] = ()
    precision: np.ndarray | None = None

    def __call__(self, correction: Float[Tensor, "*rows features"]) -> Float[Tensor, "*rows"]:
        """Penalty by row."""
        if self.name == "l2":
            return correction.square().sum(-1)
        if self.name == "l1":
            return correction.abs().sum(-1)
        if self.name == "group":
            # The square root has no gradient at zero, where every tutor starts.
            norms = [
                len(group) ** 0.5 * (correction[..., list(group)].square().sum(-1) + 1e-12).sqrt()
                for group in self.groups
            ]
            return torch.stack(norms).sum(0)
        precision = torch.as_tensor(self.precision, dtype=correction.dtype, device=correction.device)
        return ((correction @ precision) * correction).sum(-1)


def make_penalty(penalty: str | Mapping[str, Sequence[int]], standardized: Float[np.ndarray, "n features"]) -> Penalty:
    """A penalty by name, or a group penalty from ``{group: positions of its features}``.

    Args:
        penalty: ``"l2"``, ``"l1"``, ``"mahalanobis"``, or the groups of a group penalty.
        standardized: Training rows of the correctable features, for the covariance.

    Raises:
        ValueError: If the name is unknown or the groups do not cover each feature once.
    """
    if isinstance(penalty, Mapping):
        groups = tuple(tuple(int(position) for position in members) for members in penalty.values())
        covered = sorted(position for group in groups for position in group)
        if covered != list(range(standardized.shape[1])):
            raise ValueError(
                f"penalty groups must hold each of the {standardized.shape[1]} correctable features once, got {covered}"
            )
        return Penalty("group", groups=groups)
    if penalty == "mahalanobis":
        from sklearn.covariance import LedoitWolf

        return Penalty("mahalanobis", precision=np.asarray(LedoitWolf().fit(standardized).precision_))
    if penalty not in ("l2", "l1"):
        raise ValueError(f"penalty must be 'l2', 'l1', 'mahalanobis' or a dict of groups, got {penalty!r}")
    return Penalty(penalty)
