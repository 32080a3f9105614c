"""Null generators: what the treatment would look like if the claimed structure were not there.

Random rotations are ``scipy.stats.ortho_group``; randomised models are :mod:`gnomon.models.randomize`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from gnomon.evidence._arrays import codes, finite


def permute_within(strata: ArrayLike, rng: np.random.Generator) -> Int[np.ndarray, " observation"]:
    """A uniformly random order in which every observation takes the place of one of its own stratum.

    Args:
        strata: Stratum of each observation.
        rng: Source of randomness.

    Returns:
        Indices to apply to any array of observations: ``values[permute_within(layers, rng)]``.
    """
    stratum, labels = codes(strata, "strata", length=len(np.asarray(strata)))
    order = np.arange(len(stratum))
    for one in range(len(labels)):
        members = np.flatnonzero(stratum == one)
        order[members] = rng.permutation(members)
    return order


def derangement(size: int, rng: np.random.Generator) -> Int[np.ndarray, " observation"]:
    """A uniformly random order in which nothing stays in place: every item gets another one's label.

    Raises:
        ValueError: If ``size`` is below 2: one item can only keep its label.
    """
    if size < 2:
        raise ValueError(f"a derangement needs at least 2 items, got {size}")
    while True:  # a random order has no fixed point with probability about 1/e, at least 1/3
        order = rng.permutation(size)
        if (order != np.arange(size)).all():
            return order


def gaussian_surrogate(
    samples: ArrayLike, size: int, rng: np.random.Generator
) -> Float[np.ndarray, "sample dimension"]:
    r"""Normal draws with the mean and covariance of the samples, and nothing else of them.

    With :math:`X - \bar x = U S V^\top` over N samples, a draw is :math:`\bar x + z S V^\top / \sqrt{N - 1}`,
    :math:`z \sim N(0, I)`; a covariance of deficient rank is kept as it is.

    Args:
        samples: (samples, dimensions), at least two samples.
        size: Number of draws.
        rng: Source of randomness.

    Raises:
        ValueError: If there are fewer than two samples, or a value is not finite.
    """
    observed = finite(samples, "samples", dimensions=2)
    if len(observed) < 2:
        raise ValueError(f"a covariance needs at least 2 samples, got {len(observed)}")
    centre = observed.mean(axis=0)
    _, scale, axes = np.linalg.svd(observed - centre, full_matrices=False)
    loadings = (scale[:, None] * axes) / (len(observed) - 1) ** 0.5
    return centre + rng.standard_normal((size, len(loadings))) @ loadings


def matched_random_sets(
    targets: ArrayLike,
    strata: ArrayLike,
    count: int,
    rng: np.random.Generator,
    *,
    exclude: Iterable[int] | None = None,
) -> Int[np.ndarray, "set position"]:
    """Random sets of pool items that match the targets stratum by stratum, position by position.

    Position j of every set is drawn, without replacement, from the stratum of ``targets[j]``, so the first j items of
    a set match the first j targets: prefixes of one set are nested matched sets for a dose-response curve.

    Args:
        targets: Distinct pool indices, in order of importance (heads, neurons).
        strata: Stratum of each pool item (its layer).
        count: Number of sets, drawn independently of each other.
        rng: Source of randomness.
        exclude: Pool indices that no set may contain; by default the targets.

    Returns:
        Pool indices.

    Raises:
        ValueError: If a target repeats or lies outside the pool, or a stratum has too few items left.

    >>> rng = np.random.default_rng(0)
    >>> matched_random_sets([0, 4], [0, 0, 0, 1, 1, 1], 3, rng)[:, 1] >= 3
    array([ True,  True,  True])
    """
    label = np.asarray(strata)
    chosen = np.asarray(targets, dtype=np.int64)
    if len(np.unique(chosen)) != len(chosen):
        raise ValueError("targets repeat an item")
    if ((chosen < 0) | (chosen >= len(label))).any():
        raise ValueError(f"targets must be indices of the pool of {len(label)} items")
    allowed = np.ones(len(label), dtype=bool)
    allowed[np.asarray(chosen if exclude is None else list(exclude), dtype=np.int64)] = False
    sets = np.empty((count, len(chosen)), dtype=np.int64)
    for stratum in np.unique(label[chosen]):
        positions = np.flatnonzero(label[chosen] == stratum)
        pool = np.flatnonzero((label == stratum) & allowed)
        if len(pool) < len(positions):
            raise ValueError(
                f"stratum {stratum!s} has {len(pool)} items outside the excluded ones, {len(positions)} needed"
            )
        sets[:, positions] = rng.permuted(np.tile(pool, (count, 1)), axis=1)[:, : len(positions)]
    return sets


def match_pairs(
    treated: ArrayLike, pool: ArrayLike, *, caliper: float = 0.25, scale: ArrayLike | None = None
) -> Int[np.ndarray, "pair 2"]:
    r"""One-to-one matching of treated items to pool items on covariates, none further apart than a caliper.

    As many pairs as possible, and among those the smallest total Euclidean distance of covariates divided by
    ``scale``; items without a partner inside the caliper are left out.

    Args:
        treated: (treated, covariates).
        pool: (pool, covariates).
        caliper: Largest distance of a pair, in units of ``scale``.
        scale: One a covariate; by default the standard deviation over both groups.

    Returns:
        Rows of (treated index, pool index), in order of the treated.

    Raises:
        ValueError: If the covariates differ in number, a scale is not positive, or a value is not finite.

    Source: Rosenbaum (1989), "Optimal matching for observational studies"; the assignment is scipy's.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    first, second = finite(treated, "treated", dimensions=2), finite(pool, "pool", dimensions=2)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"treated has {first.shape[1]} covariates, pool {second.shape[1]}")
    if scale is None:
        unit = np.vstack([first, second]).std(axis=0)
        unit[unit == 0] = 1.0  # a covariate that never varies matches everywhere
    else:
        unit = finite(scale, "scale")
    if (unit <= 0).any():
        raise ValueError(f"scale must be positive, got {unit.min():g}")
    distance = cdist(first / unit, second / unit)
    near = distance <= caliper
    # A pair outside the caliper costs more than all pairs inside together, so it is taken only if unavoidable.
    outside = (caliper + 1.0) * (min(distance.shape) + 1)
    rows, columns = linear_sum_assignment(np.where(near, distance, outside))
    kept = near[rows, columns]
    return np.column_stack([rows[kept], columns[kept]])
