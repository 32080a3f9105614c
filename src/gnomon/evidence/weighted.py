"""Rank statistics as functions of observation weights, for the bootstrap and the jackknife.

Each function takes the data once, sorts it once, and returns a statistic of weights (draws, observations) -> (draws,)
for :func:`~gnomon.evidence.resampling.bootstrap_weights`. With integer weights the result is that of the sample in
which each observation is repeated as often as its weight says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from gnomon.evidence._arrays import finite
from gnomon.evidence.resampling import StatisticOfWeights


def spearman(first: ArrayLike, second: ArrayLike) -> StatisticOfWeights:
    r"""Spearman's rank correlation of two variables: Pearson's on weighted midranks.

    The midrank of observation i is :math:`\sum_{x_j < x_i} w_j + \tfrac12 \sum_{x_j = x_i} w_j`, up to a constant.

    Raises:
        ValueError: If the lengths differ or a value is not finite.
    """
    x, y = finite(first, "first"), finite(second, "second")
    if len(x) != len(y):
        raise ValueError(f"spearman needs pairs: first has {len(x)} values, second {len(y)}")
    order_x, order_y = _Order.of(x), _Order.of(y)

    def statistic(weights: Float[np.ndarray, "draw observation"]) -> Float[np.ndarray, " draw"]:
        return _correlation(order_x.midranks(weights), order_y.midranks(weights), weights)

    return statistic


def auroc(scores: ArrayLike, labels: ArrayLike) -> StatisticOfWeights:
    r"""Area under the ROC curve: the weighted share of (positive, negative) pairs in which the positive scores higher.

    Ties count one half. Undefined (NaN) on a resample without positives or without negatives.

    Args:
        scores: Higher means more positive.
        labels: True or 1 for positives.

    Raises:
        ValueError: If the lengths differ, a score is not finite, or one class is absent.
    """
    score, positive = finite(scores, "scores"), finite(labels, "labels")
    if len(score) != len(positive):
        raise ValueError(f"auroc needs one label a score: {len(score)} scores, {len(positive)} labels")
    if set(np.unique(positive)) != {0.0, 1.0}:
        raise ValueError("auroc needs labels 0 and 1, both present")
    order = _Order.of(score)

    def statistic(weights: Float[np.ndarray, "draw observation"]) -> Float[np.ndarray, " draw"]:
        positives, negatives = weights * positive, weights * (1 - positive)
        won = (positives * order.midranks(negatives)).sum(axis=1)
        return won / (positives.sum(axis=1) * negatives.sum(axis=1))

    return statistic


def quantile_range(values: ArrayLike, low: float = 0.1, high: float = 0.9) -> StatisticOfWeights:
    """Distance between two quantiles, by default the inter-decile range.

    Linear interpolation between order statistics, as :func:`numpy.quantile`; weights are counts. Quantiles are not
    smooth in the weights, so there is no jackknife of them: at least 20 clusters.

    Raises:
        ValueError: If a value is not finite or not ``0 <= low < high <= 1``.
    """
    value = finite(values, "values")
    if not 0 <= low < high <= 1:
        raise ValueError(f"quantile_range needs 0 <= low < high <= 1, got {low} and {high}")
    order = np.argsort(value, kind="stable")
    ascending = value[order]

    def statistic(weights: Float[np.ndarray, "draw observation"]) -> Float[np.ndarray, " draw"]:
        counted = np.cumsum(weights[:, order], axis=1)

        def at(position: Float[np.ndarray, " draw"]) -> Float[np.ndarray, " draw"]:
            return ascending[np.minimum((counted <= position[:, None]).sum(axis=1), len(ascending) - 1)]

        def quantile(level: float) -> Float[np.ndarray, " draw"]:
            position = level * (counted[:, -1] - 1)
            below = np.floor(position)
            return at(below) + (position - below) * (at(below + 1) - at(below))

        return quantile(high) - quantile(low)

    return statistic


@dataclass(frozen=True)
class _Order:
    """Ascending order of a variable, with equal values grouped."""

    order: Int[np.ndarray, " observation"]
    starts: Int[np.ndarray, " group"]
    group_of: Int[np.ndarray, " observation"]

    @classmethod
    def of(cls, values: Float[np.ndarray, " observation"]) -> _Order:
        _, group_of, counts = np.unique(values, return_inverse=True, return_counts=True)
        return cls(np.argsort(values, kind="stable"), np.cumsum(counts) - counts, group_of)

    def midranks(self, weights: Float[np.ndarray, "draw observation"]) -> Float[np.ndarray, "draw observation"]:
        in_group = np.add.reduceat(weights[:, self.order], self.starts, axis=1)
        return (np.cumsum(in_group, axis=1) - in_group / 2)[:, self.group_of]


def _correlation(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> Float[np.ndarray, " draw"]:
    total = weights.sum(axis=1, keepdims=True)
    x = first - (weights * first).sum(axis=1, keepdims=True) / total
    y = second - (weights * second).sum(axis=1, keepdims=True) / total
    covariance = (weights * x * y).sum(axis=1)
    return covariance / np.sqrt((weights * x * x).sum(axis=1) * (weights * y * y).sum(axis=1))
