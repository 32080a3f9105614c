"""Estimates with confidence intervals: Student's t for means, Wilson and Clopper-Pearson for shares.

Bootstrap and jackknife intervals of other statistics are in :mod:`gnomon.evidence.resampling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from gnomon.evidence._arrays import codes, finite

Alternative = Literal["two-sided", "greater", "less"]


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval (95 % unless the maker says otherwise)."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"interval of {self.value:g} is reversed: low {self.low:g} > high {self.high:g}")

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Studentised:
    r"""A statistic with its standard error, referred to Student's t.

    .. math:: T = (\hat\theta - \theta) / \widehat{\mathrm{se}} \sim t_\nu

    Args:
        value: The statistic :math:`\hat\theta`.
        standard_error: Its standard error; zero when no unit differs from another.
        degrees: Degrees of freedom :math:`\nu`.
    """

    value: float
    standard_error: float
    degrees: float

    def interval(self, level: float = 0.95) -> Estimate:
        """The t interval."""
        if self.standard_error == 0:
            return Estimate(self.value, self.value, self.value)
        reach = float(stdtrit(self.degrees, (1 + level) / 2)) * self.standard_error
        return Estimate(self.value, self.value - reach, self.value + reach)

    def p(self, null: float = 0.0, alternative: Alternative = "two-sided") -> float:
        """p-value of the t test that the statistic is ``null``; without spread it is 1 at the null and 0 elsewhere."""
        distance = self.value - null
        if self.standard_error == 0:
            t = 0.0 if distance == 0 else float(np.copysign(np.inf, distance))
        else:
            t = distance / self.standard_error
        if alternative == "two-sided":
            return 2 * float(stdtr(self.degrees, -abs(t)))
        return float(stdtr(self.degrees, -t if alternative == "greater" else t))

    def equivalence_p(self, margin: float) -> float:
        r"""p-value of two one-sided t tests (TOST) that the statistic lies within :math:`\pm` ``margin``.

        Source: Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power approach".
        """
        return max(self.p(-margin, "greater"), self.p(margin, "less"))


def unit_means(values: ArrayLike, units: ArrayLike | None = None, *, name: str = "values") -> np.ndarray:
    """Mean of the observations of each unit of analysis, in sorted order of the unit labels.

    Args:
        values: One number an observation.
        units: The unit each observation belongs to; ``None``: every observation is a unit of its own.
        name: What the caller calls the values, for errors.
    """
    observed = finite(values, name)
    if units is None:
        return observed
    code, _ = codes(units, "units", length=len(observed))
    return np.bincount(code, observed) / np.bincount(code)


def studentised_mean(values: ArrayLike, units: ArrayLike | None = None, *, name: str = "values") -> Studentised:
    r"""Mean over units with its standard error :math:`s / \sqrt n` and :math:`n - 1` degrees of freedom.

    Raises:
        ValueError: If there are fewer than two units, or a value is not finite.
    """
    means = unit_means(values, units, name=name)
    if len(means) < 2:
        raise ValueError(f"{name}: an interval needs at least 2 units, got {len(means)}")
    return Studentised(float(means.mean()), _standard_error(means), len(means) - 1)


def studentised_difference(treatment: ArrayLike, control: ArrayLike) -> Studentised:
    r"""Difference of the means of two independent groups with Welch's standard error.

    .. math:: \widehat{\mathrm{se}}^2 = \frac{s_1^2}{n_1} + \frac{s_2^2}{n_2}, \qquad
        \nu = \widehat{\mathrm{se}}^4 \Big/ \left(\frac{(s_1^2/n_1)^2}{n_1-1} + \frac{(s_2^2/n_2)^2}{n_2-1}\right)

    Source: Welch (1947), "The generalization of Student's problem when several different population variances are
    involved".
    """
    first, second = studentised_mean(treatment, name="treatment"), studentised_mean(control, name="control")
    squares = first.standard_error**2, second.standard_error**2
    total = sum(squares)
    spread = squares[0] ** 2 / first.degrees + squares[1] ** 2 / second.degrees
    degrees = total**2 / spread if spread > 0 else first.degrees + second.degrees
    return Studentised(first.value - second.value, total**0.5, degrees)


def mean(values: ArrayLike, units: ArrayLike | None = None, *, level: float = 0.95) -> Estimate:
    """Mean over units of analysis with its t interval.

    Args:
        values: One number an observation.
        units: The unit (seed, cluster) each observation belongs to; observations of a unit are averaged first.
            ``None``: every observation is a unit.
        level: Confidence level.

    Raises:
        ValueError: If there are fewer than two units, or a value is not finite.

    >>> print(mean([9.0, 10.0, 11.0, 12.0, 13.0]))
    11 [9.04, 13]
    """
    return studentised_mean(values, units).interval(level)


def paired(treatment: ArrayLike, control: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Mean of treatment - control over units that have both, with its t interval.

    Raises:
        ValueError: If the arrays differ in length, or a value is not finite.
    """
    return studentised_mean(paired_differences(treatment, control)).interval(level)


def welch(treatment: ArrayLike, control: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Difference of the means of two independent groups of units, with Welch's t interval."""
    return studentised_difference(treatment, control).interval(level)


def paired_differences(treatment: ArrayLike, control: ArrayLike) -> np.ndarray:
    """Treatment - control, unit by unit.

    Raises:
        ValueError: If the arrays differ in length, or a value is not finite.
    """
    first, second = finite(treatment, "treatment"), finite(control, "control")
    if len(first) != len(second):
        raise ValueError(f"paired arms must have the same units: treatment has {len(first)}, control {len(second)}")
    return first - second


def wilson(successes: int, trials: int, *, level: float = 0.95) -> Estimate:
    """Share of successes with Wilson's score interval: close to its level on average, also for few trials.

    Raises:
        ValueError: If the counts are not ``0 <= successes <= trials`` with at least one trial.

    Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    return _share(successes, trials, level, "wilson")


def clopper_pearson(successes: int, trials: int, *, level: float = 0.95) -> Estimate:
    """Share of successes with the exact binomial interval: never below its level, and wider for it.

    Raises:
        ValueError: If the counts are not ``0 <= successes <= trials`` with at least one trial.

    Source: Clopper & Pearson (1934), "The use of confidence or fiducial limits illustrated in the case of the
    binomial".
    """
    return _share(successes, trials, level, "beta")


def _share(successes: int, trials: int, level: float, method: str) -> Estimate:
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"a share needs 0 <= successes <= trials and a trial, got {successes} of {trials}")
    from statsmodels.stats.proportion import proportion_confint

    low, high = np.asarray(proportion_confint(successes, trials, alpha=1 - level, method=method), dtype=np.float64)
    return Estimate(successes / trials, float(low), float(high))


def _standard_error(values: np.ndarray) -> float:
    # Equal values leave a rounding residue that would look like a tiny but real spread.
    if np.ptp(values) <= 1e-14 * np.abs(values).max():
        return 0.0
    return float(values.std(ddof=1)) / len(values) ** 0.5
