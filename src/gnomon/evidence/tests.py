"""Tests for few units and many: sign-flip, prediction, McNemar, equivalence, slope.

p-values are two-sided unless ``alternative`` says otherwise. They are exact (all arrangements enumerated) when the
arrangements are few, else Monte Carlo with the observed arrangement counted in: (1 + #) / (1 + B). Permutation of
labels is in :mod:`gnomon.evidence.permutation`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from gnomon.evidence._arrays import codes, finite
from gnomon.evidence.intervals import Alternative, Estimate, Studentised, studentised_mean

PERMUTATIONS = 1999
MOST_FLIPPED = 24


def require_resolution(draws: int, claims: int) -> None:
    r"""Refuse a Monte-Carlo p that could not survive Holm's correction over ``claims`` claims.

    The smallest two-sided p of B draws is :math:`2/(1+B)`; Holm asks for :math:`.05/m`, hence :math:`B \ge 40m - 1`.

    Raises:
        ValueError: If ``draws`` is smaller than that.
    """
    needed = 40 * claims - 1
    if draws < needed:
        raise ValueError(
            f"{draws} null draws cannot resolve p for {claims} claims: at least {needed} needed "
            "(or prediction_test, which takes 10)"
        )


def monte_carlo_p(observed: float, draws: ArrayLike, *, claims: int, alternative: Alternative = "two-sided") -> float:
    """Rank p of one observed value among draws of its null: (1 + #) / (1 + B) a side, the smaller side doubled.

    Args:
        observed: The statistic on the data.
        draws: The statistic on B draws of the null.
        claims: Claims in the study's Holm family.
        alternative: ``greater`` counts draws at least as large as the observed value.

    Raises:
        ValueError: If ``B < 40 claims - 1``, or a value is not finite.

    Source: Phipson & Smyth (2010), "Permutation p-values should never be zero".
    """
    null = finite(draws, "draws")
    _require_finite(observed)
    require_resolution(len(null), claims)
    tails = {
        "greater": (1 + int((null >= observed).sum())) / (1 + len(null)),
        "less": (1 + int((null <= observed).sum())) / (1 + len(null)),
    }
    return min(1.0, 2 * min(tails.values())) if alternative == "two-sided" else tails[alternative]


@dataclass(frozen=True)
class PredictionTest:
    """One observed value against draws of a null: difference from their mean, and p."""

    difference: Estimate
    p: float
    draws: int


def prediction_test(
    observed: float, draws: ArrayLike, *, null: float = 0.0, alternative: Alternative = "two-sided"
) -> PredictionTest:
    r"""Test whether one observed value could be a further draw of a null of which there are few.

    .. math:: t_{K-1} = \frac{x - \bar d - \delta_0}{s_d \sqrt{1 + 1/K}}

    The null's draws are taken to be normal; with K expensive draws a rank p would stop at :math:`2/(1+K)`.

    Args:
        observed: The statistic on the treatment, x.
        draws: The statistic on K >= 10 independent draws of the null.
        null: Difference :math:`\delta_0` from the draws' mean that the test takes for no effect.
        alternative: Direction of the observed value from the draws.

    Raises:
        ValueError: If there are fewer than 10 draws or a value is not finite.
    """
    values = finite(draws, "draws")
    if len(values) < 10:
        raise ValueError(f"a prediction test needs at least 10 null draws, got {len(values)}")
    _require_finite(observed)
    mean = studentised_mean(values)
    further = Studentised(observed - mean.value, mean.standard_error * (len(values) + 1) ** 0.5, mean.degrees)
    return PredictionTest(further.interval(), further.p(null, alternative), len(values))


def sign_flip(
    differences: ArrayLike,
    *,
    null: float = 0.0,
    alternative: Alternative = "two-sided",
    resamples: int = PERMUTATIONS,
    seed: int = 0,
) -> float:
    r"""p-value of the sign-flip (paired randomisation) test that differences are symmetric about ``null``.

    All :math:`2^n` sign vectors are counted up to n = 24, by meeting in the middle; beyond, ``resamples`` are drawn.
    The smallest two-sided p is :math:`2^{1-n}`: 8 units reach .0078, 5 units only .0625. On differences of
    -1, 0 and 1 this is the exact McNemar test.

    Args:
        differences: Treatment - control, one a unit.
        null: Centre of symmetry under the null.
        alternative: Direction of the differences from ``null``.
        resamples: Random sign vectors for n > 24.
        seed: Seed of these.

    Source: Fisher (1935), "The Design of Experiments", section 21.
    """
    shifted = finite(differences, "differences") - null
    if alternative == "less":
        shifted = -shifted
    total = float(shifted.sum())
    # Sums that are equal in exact arithmetic must tie, in whatever order they were added.
    slack = 1e-12 * float(np.abs(shifted).sum())
    two_sided = alternative == "two-sided"
    reached = (abs(total) if two_sided else total) - slack
    if len(shifted) <= MOST_FLIPPED:
        half = len(shifted) // 2
        first, second = _signed_sums(shifted[:half]), np.sort(_signed_sums(shifted[half:]))
        above = int((len(second) - np.searchsorted(second, reached - first, side="left")).sum())
        return min(1.0, (2 if two_sided else 1) * above / 2 ** len(shifted))
    sums = _random_signs(len(shifted), resamples, seed) @ shifted
    return (1 + int(((np.abs(sums) if two_sided else sums) >= reached).sum())) / (1 + resamples)


def mcnemar(treatment_only: int, control_only: int, *, alternative: Alternative = "two-sided") -> float:
    """Exact McNemar p from the discordant pairs; valid only if the pair is the unit of analysis.

    Args:
        treatment_only: Pairs in which only the treatment succeeded.
        control_only: Pairs in which only the control did.
        alternative: ``greater``: the treatment succeeds more often.

    Source: McNemar (1947), "Note on the sampling error of the difference between correlated proportions".

    >>> mcnemar(8, 1)
    0.0390625
    """
    from scipy.stats import binomtest

    if min(treatment_only, control_only) < 0:
        raise ValueError(f"counts of pairs must be >= 0, got {treatment_only} and {control_only}")
    if treatment_only + control_only == 0:
        return 1.0
    return float(binomtest(treatment_only, treatment_only + control_only, alternative=alternative).pvalue)


@dataclass(frozen=True)
class Equivalence:
    """Result of two one-sided tests: the mean difference with its 95 % interval, and the larger of the two p."""

    difference: Estimate
    p: float
    n: int


def equivalence(differences: ArrayLike, margin: float, *, units: ArrayLike | None = None) -> Equivalence:
    r"""Test that a mean difference lies within :math:`\pm` ``margin`` (TOST on unit means, by Student's t).

    Args:
        differences: Treatment - control, one an observation.
        margin: Half-width within which a difference does not matter, in units of the statistic.
        units: Unit of analysis of each observation; its observations are averaged first.

    Raises:
        ValueError: If the margin is not positive, or there are fewer than 2 units.
    """
    if not margin > 0:
        raise ValueError(f"an equivalence needs a margin > 0, got {margin}")
    mean = studentised_mean(differences, units, name="differences")
    return Equivalence(mean.interval(), mean.equivalence_p(margin), int(mean.degrees) + 1)


def slopes(
    x: ArrayLike, y: ArrayLike, units: ArrayLike, *, log_log: bool = False, through_origin: bool = False
) -> Float[np.ndarray, " unit"]:
    r"""Least-squares slope of y on x within each unit (seed, chain, run), in sorted order of the unit labels.

    Args:
        x: One value an observation.
        y: One value an observation.
        units: Unit of each observation.
        log_log: Slope of log y on log x: the exponent of a power law.
        through_origin: No intercept: :math:`\sum xy / \sum x^2`.

    Raises:
        ValueError: If lengths differ, x does not vary within a unit, or a logarithm is undefined.

    >>> slopes([1, 2, 3, 1, 2, 3], [2, 4, 6, 5, 6, 7], ["a", "a", "a", "b", "b", "b"])
    array([2., 1.])
    """
    first, second = finite(x, "x"), finite(y, "y")
    if len(first) != len(second):
        raise ValueError(f"slopes need pairs: x has {len(first)} values, y {len(second)}")
    unit, names = codes(units, "units", length=len(first))
    if log_log:
        if min(first.min(), second.min()) <= 0:
            raise ValueError("a log-log slope needs positive x and y")
        first, second = np.log(first), np.log(second)
    if not through_origin:
        size = np.bincount(unit)
        first = first - (np.bincount(unit, first) / size)[unit]
        second = second - (np.bincount(unit, second) / size)[unit]
    squares = np.bincount(unit, first**2)
    flat = np.flatnonzero(squares <= 1e-24 * max(float((first**2).max()), 1e-300))
    if len(flat):
        raise ValueError(f"x does not vary within unit {names[flat[0]]!s}, so its slope is undefined")
    return np.bincount(unit, first * second) / squares


@dataclass(frozen=True)
class Slope:
    """Mean slope over units with its t interval and p."""

    estimate: Estimate
    p: float
    per_unit: tuple[float, ...]


def slope(
    x: ArrayLike,
    y: ArrayLike,
    units: ArrayLike,
    *,
    null: float = 0.0,
    alternative: Alternative = "two-sided",
    log_log: bool = False,
    through_origin: bool = False,
) -> Slope:
    """Trend of y in x: one least-squares slope a unit, then a t test over units that their mean is ``null``.

    Points of one run are not independent; runs are. Arguments and errors are those of :func:`slopes`.
    """
    per_unit = slopes(x, y, units, log_log=log_log, through_origin=through_origin)
    mean = studentised_mean(per_unit, name="slopes")
    return Slope(mean.interval(), mean.p(null, alternative), tuple(per_unit.tolist()))


def _require_finite(observed: float) -> None:
    if not math.isfinite(observed):
        raise ValueError(f"observed is not finite: {observed}")


def _signed_sums(values: Float[np.ndarray, " unit"]) -> Float[np.ndarray, " signs"]:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


@lru_cache(maxsize=16)
def _random_signs(units: int, resamples: int, seed: int) -> Float[np.ndarray, "draw unit"]:
    return np.random.default_rng((seed, units, resamples)).choice((-1.0, 1.0), size=(resamples, units))
