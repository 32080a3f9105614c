r"""Cluster bootstrap and jackknife of any statistic of weighted sums, vectorised over resamples.

A resample of clusters is a vector of integer weights: how often each cluster was drawn. A statistic that can be
computed from weighted sums over clusters (a ratio of sums, a correlation, a pooled accuracy) is then computed for
all resamples by one matrix product, and one that needs the observations themselves (Spearman, AUROC, a quantile)
takes the weights: :mod:`gnomon.evidence.weighted`. Weights are cached, so arms that name the same clusters and seed
are resampled together.

Percentile intervals of the mean are too short by :math:`\sqrt{(n-1)/n}` and by the normal in place of the t quantile;
here the tail levels are widened for it (Hesterberg's expanded percentile interval), and below 20 clusters t intervals
of jackknife unit values take their place.

Sources: Efron & Tibshirani (1993), "An Introduction to the Bootstrap"; Hesterberg (2015), "What teachers should know
about the bootstrap"; Owen (2007), "The pigeonhole bootstrap"; Davison & Hinkley (1997), "Bootstrap Methods".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit

from gnomon.evidence._arrays import codes, finite
from gnomon.evidence.intervals import Estimate, Studentised, studentised_mean

ENOUGH_CLUSTERS = 20
RESAMPLES = 999

StatisticOfSums = Callable[[Float[np.ndarray, "draw column"]], Float[np.ndarray, " draw"]]
StatisticOfWeights = Callable[[Float[np.ndarray, "draw observation"]], Float[np.ndarray, " draw"]]


def ratio(sums: Float[np.ndarray, "draw column"]) -> Float[np.ndarray, " draw"]:
    """First column over the second: a ratio of sums, such as a pooled mean from (total, count)."""
    return sums[:, 0] / sums[:, 1]


@dataclass(frozen=True)
class Bootstrap:
    """A statistic and its value on every resample.

    Args:
        value: The statistic on the data.
        draws: The statistic on each resample.
        clusters: Independent clusters that were resampled.
        strata: Strata within which they were.
    """

    value: float
    draws: Float[np.ndarray, " draw"]
    clusters: int
    strata: int = 1

    @property
    def degrees(self) -> int:
        """Degrees of freedom: clusters - strata."""
        return self.clusters - self.strata

    def interval(self, level: float = 0.95) -> Estimate:
        r"""Expanded percentile interval; NaN limits if the statistic is not finite on some resample.

        The tail level is :math:`\Phi(-\sqrt{n/\nu}\, t_{\nu,1-\alpha/2})` in place of :math:`\alpha/2`, with
        :math:`n` clusters and :math:`\nu` degrees of freedom.
        """
        if not np.isfinite(self.draws).all():
            return Estimate(self.value, np.nan, np.nan)
        reach = stdtrit(self.degrees, (1 + level) / 2) * (self.clusters / self.degrees) ** 0.5
        tail = float(ndtr(-reach))
        low, high = np.quantile(self.draws, (tail, 1 - tail))
        return Estimate(self.value, float(low), float(high))

    @property
    def studentised(self) -> Studentised:
        r"""The statistic with the bootstrap standard error, times :math:`\sqrt{n/\nu}` for the same reason."""
        defined = np.isfinite(self.draws).all()
        error = float(self.draws.std(ddof=1)) * (self.clusters / self.degrees) ** 0.5 if defined else np.nan
        return Studentised(self.value, error, self.degrees)


def bootstrap_sums(
    sums: ArrayLike,
    statistic: StatisticOfSums = ratio,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Bootstrap:
    """Bootstrap a statistic of column sums over clusters.

    Args:
        sums: (observations, columns): what each observation adds to each sum.
        statistic: From weighted sums (draws, columns) to (draws,).
        clusters: Cluster of each observation; ``None``: each is its own.
        strata: Stratum of each observation; clusters are drawn within strata.
        resamples: Number of resamples.
        seed: Arms with the same clusters, strata and seed get the same weights.

    Raises:
        ValueError: If there are fewer than 20 clusters (use :func:`unit_values`), a stratum has one cluster, a
            cluster lies in two strata, or a sum is not finite.
    """
    rows = finite(sums, "sums", dimensions=2)
    layout = _layout(len(rows), clusters, strata)
    totals = layout.collect(rows)
    _require_enough(layout.count)
    weights = layout.weights(resamples, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(totals.sum(axis=0, keepdims=True))[0])
        draws = np.asarray(statistic(weights @ totals), dtype=np.float64)
    return Bootstrap(value, draws, layout.count, layout.strata)


def bootstrap_weights(
    statistic: StatisticOfWeights,
    observations: int,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    nested: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Bootstrap:
    r"""Bootstrap a statistic of observation weights, such as those of :mod:`gnomon.evidence.weighted`.

    Args:
        statistic: From weights (draws, observations) to (draws,); called once with ones for the value.
        observations: How many there are.
        clusters: Cluster of each observation; its observations are drawn together.
        strata: Stratum of each observation.
        nested: Draw observations anew within each drawn cluster (two-level bootstrap). It counts the variance within
            clusters twice, so it is meant for statistics of the distribution within a cluster, and conservative.
        resamples: Number of resamples.
        seed: Arms with the same clusters, strata and seed get the same weights.

    Raises:
        ValueError: As :func:`bootstrap_sums`.
    """
    layout = _layout(observations, clusters, strata)
    _require_enough(layout.count)
    weights = layout.weights(resamples, seed)
    weights = layout.redraw_within(weights, seed) if nested else weights[:, layout.cluster_of]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(np.ones((1, observations)))[0])
        draws = np.asarray(statistic(weights), dtype=np.float64)
    return Bootstrap(value, draws, layout.count, layout.strata)


def bootstrap_crossed(
    sums: ArrayLike, statistic: StatisticOfSums = ratio, *, resamples: int = RESAMPLES, seed: int = 0
) -> Bootstrap:
    r"""Bootstrap a statistic of sums over two crossed factors (text windows x random draws), both resampled.

    The weight of a cell is the product of its row's and its column's weight (pigeonhole bootstrap). The variance is
    never underestimated in expectation; degrees of freedom are those of the smaller factor.

    Args:
        sums: (rows, columns, k): what each cell adds to each of k sums.
        statistic: From weighted sums (draws, k) to (draws,).
        resamples: Number of resamples.
        seed: Seed of both factors' weights.

    Raises:
        ValueError: If a factor has fewer than 5 levels or a sum is not finite.
    """
    cells = finite(sums, "sums", dimensions=3)
    rows, columns, _ = cells.shape
    if min(rows, columns) < 5:
        raise ValueError(f"each crossed factor needs at least 5 levels, got {rows} x {columns}")
    row_weights = multinomial_weights(rows, resamples, seed, 0)
    column_weights = multinomial_weights(columns, resamples, seed, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(cells.sum(axis=(0, 1))[None])[0])
        by_column = np.tensordot(row_weights, cells, axes=1)
        draws = np.asarray(statistic(np.einsum("bc,bck->bk", column_weights, by_column)), dtype=np.float64)
    return Bootstrap(value, draws, min(rows, columns))


def unit_values(
    sums: ArrayLike,
    statistic: StatisticOfSums = ratio,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
) -> Float[np.ndarray, " cluster"]:
    r"""One number a cluster whose mean is the statistic, so that tests made for means apply to it.

    With :math:`\hat\theta_{(i)}` the statistic without cluster :math:`i`,

    .. math:: u_i = \hat\theta + (n - 1)\,\bigl(\bar\theta_{(\cdot)} - \hat\theta_{(i)}\bigr)

    (with strata, the deviation is from the stratum's mean and scaled to its size). The standard error of the mean of
    the values is the delete-one jackknife's; the statistic must be smooth in the weights: a ratio or a correlation is,
    a quantile is not. A bounded statistic near its bound is better transformed first (Fisher's z).

    Args:
        sums: (observations, columns): what each observation adds to each sum.
        statistic: From weighted sums (draws, columns) to (draws,).
        clusters: Cluster of each observation; ``None``: each is its own.
        strata: Stratum of each observation.

    Returns:
        In sorted order of the cluster labels; all NaN if the statistic is not finite without some cluster.

    Source: Tukey (1958), "Bias and confidence in not quite large samples" (pseudo-values).

    >>> unit_values([[1.0, 2.0], [3.0, 2.0], [2.0, 2.0]]).round(3)
    array([0.5, 1.5, 1. ])
    """
    rows = finite(sums, "sums", dimensions=2)
    layout = _layout(len(rows), clusters, strata)
    totals = layout.collect(rows)
    return _linearise(lambda weights: statistic(weights @ totals), layout)


def unit_values_of_weights(
    statistic: StatisticOfWeights,
    observations: int,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
) -> Float[np.ndarray, " cluster"]:
    """As :func:`unit_values`, for a statistic of observation weights."""
    layout = _layout(observations, clusters, strata)
    return _linearise(lambda weights: statistic(weights[:, layout.cluster_of]), layout)


def from_sums(
    sums: ArrayLike,
    statistic: StatisticOfSums = ratio,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    seed: int = 0,
) -> Estimate:
    """A statistic of sums with its 95 % interval: bootstrap from 20 clusters on, jackknife t below.

    Arguments are those of :func:`bootstrap_sums`.
    """
    rows = finite(sums, "sums", dimensions=2)
    layout = _layout(len(rows), clusters, strata)
    if layout.count >= ENOUGH_CLUSTERS:
        return bootstrap_sums(rows, statistic, clusters=clusters, strata=strata, seed=seed).interval()
    values = unit_values(rows, statistic, clusters=clusters, strata=strata)
    return studentised_values(values, strata=layout.strata).interval()


def from_weights(
    statistic: StatisticOfWeights,
    observations: int,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    seed: int = 0,
) -> Estimate:
    """A statistic of weights with its 95 % interval: bootstrap from 20 clusters on, jackknife t below.

    Arguments are those of :func:`bootstrap_weights`.
    """
    layout = _layout(observations, clusters, strata)
    if layout.count >= ENOUGH_CLUSTERS:
        return bootstrap_weights(statistic, observations, clusters=clusters, strata=strata, seed=seed).interval()
    values = unit_values_of_weights(statistic, observations, clusters=clusters, strata=strata)
    return studentised_values(values, strata=layout.strata).interval()


def studentised_values(values: Float[np.ndarray, " cluster"], *, strata: int = 1) -> Studentised:
    """Mean of unit values with its standard error and clusters - strata degrees of freedom; NaN if they are."""
    if not np.isfinite(values).all():
        return Studentised(np.nan, np.nan, len(values) - strata)
    mean = studentised_mean(values)
    return Studentised(mean.value, mean.standard_error, len(values) - strata)


def multinomial_weights(units: int, resamples: int, seed: int, stream: int = 0) -> Float[np.ndarray, "draw unit"]:
    """How often each of ``units`` is drawn in each resample of ``units`` with replacement; read-only, cached.

    The same arguments give the same weights in every process.
    """
    if units * resamples > _CACHED_CELLS:
        return _draw_weights(units, resamples, seed, stream)
    return _cached_weights(units, resamples, seed, stream)


_CACHED_CELLS = 2_000_000  # 16 MB a matrix; larger ones are drawn anew rather than kept


def _draw_weights(units: int, resamples: int, seed: int, stream: int) -> Float[np.ndarray, "draw unit"]:
    rng = np.random.default_rng((seed, stream, units, resamples))
    drawn = rng.integers(units, size=(resamples, units)) + units * np.arange(resamples)[:, None]
    weights = np.bincount(drawn.ravel(), minlength=resamples * units).reshape(resamples, units).astype(np.float64)
    weights.flags.writeable = False
    return weights


_cached_weights = lru_cache(maxsize=32)(_draw_weights)


@dataclass(frozen=True)
class _Layout:
    """Which cluster each observation is in, and which stratum each cluster."""

    cluster_of: Int[np.ndarray, " observation"] | slice
    count: int
    stratum_of: Int[np.ndarray, " cluster"]
    strata: int

    def collect(self, rows: Float[np.ndarray, "observation column"]) -> Float[np.ndarray, "cluster column"]:
        if isinstance(self.cluster_of, slice):
            return rows
        totals = np.zeros((self.count, rows.shape[1]))
        np.add.at(totals, self.cluster_of, rows)
        return totals

    def weights(self, resamples: int, seed: int) -> Float[np.ndarray, "draw cluster"]:
        if self.strata == 1:
            return multinomial_weights(self.count, resamples, seed)
        weights = np.empty((resamples, self.count))
        for stratum in range(self.strata):
            members = np.flatnonzero(self.stratum_of == stratum)
            weights[:, members] = multinomial_weights(len(members), resamples, seed, stratum)
        return weights

    def redraw_within(self, weights: Float[np.ndarray, "draw cluster"], seed: int) -> np.ndarray:
        """Observation weights of a two-level resample.

        A cluster drawn c times contributes c samples of its m observations, together Multinomial(c m, 1/m).
        """
        if isinstance(self.cluster_of, slice):
            raise ValueError("a nested bootstrap needs clusters")
        rng = np.random.default_rng((seed, self.count, len(self.cluster_of)))
        redrawn = np.empty((len(weights), len(self.cluster_of)))
        for cluster in range(self.count):
            members = np.flatnonzero(self.cluster_of == cluster)
            drawn = weights[:, cluster].astype(np.int64) * len(members)
            redrawn[:, members] = rng.multinomial(drawn, np.full(len(members), 1 / len(members)))
        return redrawn

    def delete_one(self) -> Float[np.ndarray, "cluster cluster"]:
        """Jackknife weights: row i leaves out cluster i and raises the others of its stratum to make up for it."""
        sizes = np.bincount(self.stratum_of)[self.stratum_of]
        same = self.stratum_of[:, None] == self.stratum_of[None, :]
        weights = np.where(same, (sizes / (sizes - 1))[:, None], 1.0)
        np.fill_diagonal(weights, 0.0)
        return weights


def _layout(observations: int, clusters: ArrayLike | None, strata: ArrayLike | None) -> _Layout:
    if clusters is None:
        cluster_of, count = slice(None), observations
    else:
        cluster_of, labels = codes(clusters, "clusters", length=observations)
        count = len(labels)
    if count < 2:
        raise ValueError(f"an interval needs at least 2 clusters, got {count}")
    if strata is None:
        return _Layout(cluster_of, count, np.zeros(count, dtype=np.int64), 1)
    stratum, labels = codes(strata, "strata", length=observations)
    stratum_of = np.empty(count, dtype=np.int64)
    stratum_of[cluster_of] = stratum
    if (stratum_of[cluster_of] != stratum).any():
        raise ValueError("a cluster lies in more than one stratum")
    sizes = np.bincount(stratum_of)
    if (sizes < 2).any():
        alone = labels[np.flatnonzero(sizes < 2)[0]]
        raise ValueError(f"stratum {alone!s} has a single cluster, so its variance is unknown")
    return _Layout(cluster_of, count, stratum_of, len(labels))


def _require_enough(clusters: int) -> None:
    if clusters < ENOUGH_CLUSTERS:
        raise ValueError(
            f"a bootstrap interval needs at least {ENOUGH_CLUSTERS} clusters, got {clusters}; "
            "use a t interval (from_sums, from_weights and the contrasts choose it)"
        )


def _linearise(statistic: StatisticOfWeights, layout: _Layout) -> Float[np.ndarray, " cluster"]:
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(np.ones((1, layout.count)))[0])
        without = np.asarray(statistic(layout.delete_one()), dtype=np.float64)
    if not np.isfinite(without).all():
        return np.full(layout.count, np.nan)
    sizes = np.bincount(layout.stratum_of)
    deviation = (np.bincount(layout.stratum_of, without) / sizes)[layout.stratum_of] - without
    # The jackknife variance is the sum over strata of (n_h - 1)/n_h times squared deviations; this scale makes the
    # usual variance of the mean of n values equal to it. It is n - 1 without strata.
    own = sizes[layout.stratum_of]
    scale = np.sqrt(layout.count * (layout.count - 1) * (own - 1) / own)
    return value + scale * deviation
