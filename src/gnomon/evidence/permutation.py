"""Permutation of labels: two independent groups, and any statistic of labels with strata, clusters and a maximum.

Exact when there are at most 20,000 arrangements, which are then all enumerated; else Monte Carlo with the observed
arrangement counted in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from gnomon.evidence._arrays import codes, finite
from gnomon.evidence.intervals import Alternative
from gnomon.evidence.tests import PERMUTATIONS, require_resolution

MOST_ENUMERATED = 20_000

StatisticOfLabels = Callable[[np.ndarray], np.ndarray]


def welch_permutation(
    treatment: ArrayLike,
    control: ArrayLike,
    *,
    null: float = 0.0,
    alternative: Alternative = "two-sided",
    resamples: int = PERMUTATIONS,
    seed: int = 0,
) -> float:
    r"""p-value of the permutation test of two independent groups with Welch's t as its statistic.

    Exact if the groups are exchangeable under the null, and asymptotically right for equal means with unequal
    variances. All arrangements are enumerated up to 20,000 (8 against 8 units), else ``resamples`` are drawn.

    Args:
        treatment: One value a unit.
        control: One value a unit.
        null: Difference of means under the null.
        alternative: Direction of treatment - control from ``null``.
        resamples: Random arrangements when they are too many.
        seed: Seed of these.

    Raises:
        ValueError: If a group has fewer than 2 units.

    Source: Janssen (1997), "Studentized permutation tests for non-i.i.d. hypotheses and the generalized
    Behrens-Fisher problem".
    """
    first, second = finite(treatment, "treatment") - null, finite(control, "control")
    if min(len(first), len(second)) < 2:
        raise ValueError(f"a permutation test needs 2 units a group, got {len(first)} and {len(second)}")
    pooled = np.concatenate([first, second])
    pooled = pooled - pooled.mean()  # sums of squares below cancel badly otherwise
    exact = math.comb(len(pooled), len(first)) <= MOST_ENUMERATED
    chosen = _two_groups(len(first), len(second), 0 if exact else resamples, seed)
    t = _oriented(_welch_t(chosen, pooled), alternative)
    reached = int((t >= t[0] - 1e-9 * abs(t[0]) if math.isfinite(t[0]) else t >= t[0]).sum())
    return reached / len(t)  # row 0 is the observed arrangement, so a Monte-Carlo p counts it in


@dataclass(frozen=True)
class PermutationTest:
    """Result of a permutation test.

    Args:
        statistic: On the data; the largest over the family if there is one.
        p: p-value; over the family if there is one.
        p_each: p-value of each member of the family against the null of the largest (family-wise); else ``(p,)``.
        arrangements: Arrangements behind them, the observed one included.
        exact: Whether these were all there are.
    """

    statistic: float
    p: float
    p_each: tuple[float, ...]
    arrangements: int
    exact: bool


def permutation_test(
    labels: ArrayLike,
    statistic: StatisticOfLabels,
    *,
    strata: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    alternative: Alternative = "two-sided",
    claims: int = 1,
    resamples: int = PERMUTATIONS,
    seed: int = 0,
) -> PermutationTest:
    r"""Permute labels within strata, and over whole clusters, and compare a statistic of them.

    A statistic with several columns (one a layer) is reduced to its maximum on every arrangement, the observed one
    included, which pays for having looked at all of them (max-T).

    Args:
        labels: One label an observation: an arm, a group, a number.
        statistic: From labels (draws, observations) to (draws,) or (draws, family); for a two-sided test it must be
            centred on zero under the null, as a difference or a correlation is.
        strata: Labels move only within a stratum.
        clusters: Observations of a cluster share a label and keep sharing it.
        alternative: Direction of the statistic.
        claims: Claims in the study's Holm family.
        resamples: Random arrangements when all of them are more than 20,000.
        seed: Seed of these.

    Raises:
        ValueError: If labels differ within a cluster, a cluster lies in two strata, or ``resamples < 40 claims - 1``.

    Source: Westfall & Young (1993), "Resampling-Based Multiple Testing" (max-T).
    """
    label = np.asarray(labels)
    cluster_of, _ = codes(np.arange(len(label)) if clusters is None else clusters, "clusters", length=len(label))
    stratum, _ = codes(np.zeros(len(label)) if strata is None else strata, "strata", length=len(label))
    _, members = np.unique(cluster_of, return_index=True)
    if (label[members][cluster_of] != label).any():
        raise ValueError("labels differ within a cluster, so clusters cannot be permuted")
    if (stratum[members][cluster_of] != stratum).any():
        raise ValueError("a cluster lies in more than one stratum")
    kinds = tuple(np.unique(label[members], return_inverse=True)[1].tolist())
    blocks = tuple(stratum[members].tolist())
    exact = _arrangement_count(kinds, blocks) <= MOST_ENUMERATED
    if not exact:
        require_resolution(resamples, claims)
    order = _all_orders(kinds, blocks) if exact else _random_orders(blocks, resamples, seed)
    values = np.asarray(statistic(label[members][order][:, cluster_of]), dtype=np.float64)
    family = _oriented(values.reshape(len(order), -1), alternative)
    largest = family.max(axis=1)
    # Equal statistics may differ in the last bits when the summation order differs.
    slack = 1e-12 * float(np.abs(family).max())
    p_each = tuple(float((largest >= one - slack).mean()) for one in family[0])
    leading = int(np.argmax(family[0]))
    return PermutationTest(
        float(values.reshape(len(order), -1)[0, leading]), p_each[leading], p_each, len(order), exact
    )


def _oriented(statistic: np.ndarray, alternative: Alternative) -> np.ndarray:
    """The statistic with evidence against the null pointing up."""
    if alternative == "two-sided":
        return np.abs(statistic)
    return statistic if alternative == "greater" else -statistic


def _welch_t(chosen: Float[np.ndarray, "draw unit"], pooled: Float[np.ndarray, " unit"]) -> Float[np.ndarray, " draw"]:
    squares = pooled**2
    first = chosen[0].sum()
    second = len(pooled) - first
    sum_first, square_first = chosen @ pooled, chosen @ squares
    sum_second, square_second = pooled.sum() - sum_first, squares.sum() - square_first
    variance_first = (square_first - sum_first**2 / first) / (first - 1)
    variance_second = (square_second - sum_second**2 / second) / (second - 1)
    variance = variance_first / first + variance_second / second
    # Two groups without spread leave rounding in place of zero; their t is infinite (or 0 if they agree).
    negligible = 1e-13 * squares.sum()
    difference = sum_first / first - sum_second / second
    difference = np.where(np.abs(difference) <= negligible**0.5 * 1e-6, 0.0, difference)
    variance = np.where(variance <= negligible, 0.0, variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(difference / np.sqrt(variance), nan=0.0, posinf=np.inf, neginf=-np.inf)


@lru_cache(maxsize=16)
def _two_groups(first: int, second: int, resamples: int, seed: int) -> Float[np.ndarray, "draw unit"]:
    """Indicators of the first group, the observed arrangement first; all arrangements if ``resamples`` is 0."""
    observed = np.concatenate([np.ones(first), np.zeros(second)])
    if resamples:
        rng = np.random.default_rng((seed, first, second, resamples))
        return np.vstack([observed, rng.permuted(np.tile(observed, (resamples, 1)), axis=1)])
    chosen = np.array(list(itertools.combinations(range(first + second), first)))
    arrangements = np.zeros((len(chosen), first + second))
    np.put_along_axis(arrangements, chosen, 1.0, axis=1)
    return arrangements  # combinations come in lexicographic order: the observed one is first


def _arrangement_count(kinds: tuple[int, ...], blocks: tuple[int, ...]) -> int:
    """Arrangements that :func:`_all_orders` lists."""
    total = 1
    for block in set(blocks):
        inside = [kind for kind, one in zip(kinds, blocks, strict=True) if one == block]
        if len(set(inside)) <= 2:
            total *= math.comb(len(inside), inside.count(inside[0]))
        else:
            total *= math.factorial(len(inside))
    return total


@lru_cache(maxsize=16)
def _all_orders(kinds: tuple[int, ...], blocks: tuple[int, ...]) -> Int[np.ndarray, "draw cluster"]:
    """Orders of clusters within blocks, the identity first: all that differ in the labels' places.

    Labels of three or more kinds are listed in all orders, each arrangement equally often.
    """
    by_block: list[list[tuple[int, ...]]] = []
    for block in sorted(set(blocks)):
        inside = [index for index, one in enumerate(blocks) if one == block]
        if len({kinds[index] for index in inside}) > 2:
            by_block.append(list(itertools.permutations(inside)))
            continue
        chosen = tuple(index for index in inside if kinds[index] == kinds[inside[0]])
        others = [index for index in inside if index not in chosen]
        orders: list[tuple[int, ...]] = []
        for places in sorted(itertools.combinations(inside, len(chosen)), key=lambda places: places != chosen):
            first, second = iter(chosen), iter(others)
            taken = set(places)
            orders.append(tuple(next(first) if index in taken else next(second) for index in inside))
        by_block.append(orders)
    positions = [index for block in sorted(set(blocks)) for index, one in enumerate(blocks) if one == block]
    listed = np.array([list(itertools.chain.from_iterable(choice)) for choice in itertools.product(*by_block)])
    arranged = np.empty_like(listed)
    arranged[:, positions] = listed
    return arranged


@lru_cache(maxsize=16)
def _random_orders(blocks: tuple[int, ...], resamples: int, seed: int) -> Int[np.ndarray, "draw cluster"]:
    """Random orders of clusters within blocks, after the identity."""
    rng = np.random.default_rng((seed, len(blocks), resamples))
    orders = np.tile(np.arange(len(blocks)), (resamples + 1, 1))
    for block in sorted(set(blocks)):
        inside = np.flatnonzero(np.array(blocks) == block)
        orders[1:, inside] = rng.permuted(np.tile(inside, (resamples, 1)), axis=1)
    return orders
