"""One line from data to a :class:`~gnomon.evidence.verdict.Contrast`, for the common designs.

===========================================  =====================================================================
:func:`paired`                               each unit was measured under both arms
:func:`independent`                          the arms have different units
:func:`against_draws`                        one observed value, K draws of a null
:func:`against_constant`                     units against a known number (chance, zero)
:func:`equivalent`, `equivalent_independent` "makes no difference": two one-sided tests at a margin
:func:`paired_sums`, `independent_sums`      the statistic is a ratio, or any smooth function, of sums over units
:func:`paired_weights`                       the statistic needs the observations: Spearman, AUROC, quantiles
:func:`from_bootstrap`                       any other bootstrap: crossed, nested, of your own
===========================================  =====================================================================

The arms' values come in the order treatment, control; ``name`` is the control's. :func:`paired_arms` takes them from
a tidy table, aligned by unit. ``null`` is the difference under the null hypothesis: ``claim.sign * claim.margin`` for
a claim with a margin.

>>> lift = paired("random-init", [0.61, 0.58, 0.66, 0.63, 0.60, 0.64], [0.50, 0.49, 0.53, 0.52, 0.47, 0.51])
>>> print(lift.difference, lift.p, lift.test)
0.117 [0.0995, 0.134] 0.03125 exact sign-flip; paired t interval
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from gnomon.evidence import resampling
from gnomon.evidence._arrays import codes, finite
from gnomon.evidence.intervals import (
    Alternative,
    Estimate,
    Studentised,
    mean,
    paired_differences,
    studentised_difference,
    studentised_mean,
    unit_means,
)
from gnomon.evidence.permutation import welch_permutation
from gnomon.evidence.resampling import (
    ENOUGH_CLUSTERS,
    Bootstrap,
    StatisticOfSums,
    StatisticOfWeights,
    ratio,
)
from gnomon.evidence.tests import MOST_FLIPPED, prediction_test, sign_flip
from gnomon.evidence.verdict import Contrast

if TYPE_CHECKING:
    import pandas as pd

Test = Literal["randomisation", "t"]


def paired_arms(table: pd.DataFrame, value: str, *, unit: str, arm: str = "arm") -> dict[str, np.ndarray]:
    """Unit means of a column for each arm, aligned: position i of every array is the same unit.

    Args:
        table: Tidy rows with the three columns; several rows of a unit and arm are averaged.
        value: Column of the statistic.
        unit: Column of the unit of analysis.
        arm: Column of the arm's name.

    Raises:
        ValueError: If some unit lacks an arm, so that the arms are not paired.
    """
    values = finite(table[value].to_numpy(), value)
    unit_of, units = codes(table[unit].to_numpy(), unit, length=len(values))
    arm_of, arms = codes(table[arm].to_numpy(), arm, length=len(values))
    cell = arm_of * len(units) + unit_of
    counts = np.bincount(cell, minlength=len(arms) * len(units)).reshape(len(arms), len(units))
    if not counts.all():
        missing_arm, missing_unit = np.argwhere(counts == 0)[0]
        raise ValueError(f"arms are not paired: {unit} {units[missing_unit]!s} has no {arm} {arms[missing_arm]!s}")
    means = np.bincount(cell, values, minlength=counts.size).reshape(counts.shape) / counts
    return {str(name): means[index] for index, name in enumerate(arms)}


def paired(
    name: str,
    treatment: ArrayLike,
    control: ArrayLike,
    *,
    units: ArrayLike | None = None,
    null: float = 0.0,
    test: Test = "randomisation",
    alternative: Alternative = "two-sided",
    seed: int = 0,
) -> Contrast:
    """Mean difference of arms measured on the same units.

    From 20 units on the interval is a bootstrap over units, below it is Student's t. p is from the sign-flip test,
    exact up to 24 units.

    Args:
        name: The control arm.
        treatment: One value an observation.
        control: The same observations under the control.
        units: Unit of analysis of each observation, if there are several a unit.
        null: Difference under the null.
        test: ``t`` takes p from the paired t test: with 5 units the sign-flip test cannot go below .0625.
        alternative: Direction of the difference from ``null``.
        seed: Seed of the bootstrap and of random sign vectors.
    """
    differences = unit_means(paired_differences(treatment, control), units)
    difference, interval = _mean_difference(differences, seed)
    p, by = _unit_p(differences, null, test, alternative, seed)
    return Contrast(name, mean(control, units), difference, p, len(differences), f"{by}; {interval}")


def independent(
    name: str,
    treatment: ArrayLike,
    control: ArrayLike,
    *,
    treatment_units: ArrayLike | None = None,
    control_units: ArrayLike | None = None,
    null: float = 0.0,
    test: Test = "randomisation",
    alternative: Alternative = "two-sided",
    seed: int = 0,
) -> Contrast:
    """Difference of the means of arms with different units: Welch's t interval, permutation p of Welch's t.

    The permutation test is exact up to 8 against 8 units; 5 against 5 reach p = .0079, 4 against 4 only .029.

    Args:
        name: The control arm.
        treatment: One value an observation.
        control: One value an observation.
        treatment_units: Unit of analysis of each treatment observation, if there are several a unit.
        control_units: The same for the control.
        null: Difference under the null.
        test: ``t`` takes p from Welch's t test.
        alternative: Direction of the difference from ``null``.
        seed: Seed of random arrangements.
    """
    first = unit_means(treatment, treatment_units, name="treatment")
    second = unit_means(control, control_units, name="control")
    difference = studentised_difference(first, second)
    if test == "t":
        p, by = difference.p(null, alternative), "Welch t"
    else:
        p, by = (
            welch_permutation(first, second, null=null, alternative=alternative, seed=seed),
            "permutation of Welch t",
        )
    return Contrast(
        name, mean(second), difference.interval(), p, min(len(first), len(second)), f"{by}; Welch t interval"
    )


def against_draws(
    name: str, observed: float, draws: ArrayLike, *, null: float = 0.0, alternative: Alternative = "two-sided"
) -> Contrast:
    """One observed value against K >= 10 independent draws of a null (random sets, re-initialised copies).

    The difference is from the draws' mean, its interval that of a further draw; the draws are taken to be normal.
    """
    result = prediction_test(observed, draws, null=null, alternative=alternative)
    return Contrast(name, mean(draws), result.difference, result.p, result.draws, "prediction t")


def against_constant(
    name: str,
    treatment: ArrayLike,
    constant: float,
    *,
    units: ArrayLike | None = None,
    null: float = 0.0,
    test: Test = "randomisation",
    alternative: Alternative = "two-sided",
    seed: int = 0,
) -> Contrast:
    """Mean over units against a number that is known, such as the chance level; as :func:`paired`."""
    values = finite(treatment, "treatment")
    contrast = paired(
        name,
        values,
        np.full(len(values), constant),
        units=units,
        null=null,
        test=test,
        alternative=alternative,
        seed=seed,
    )
    return Contrast(
        name, Estimate(constant, constant, constant), contrast.difference, contrast.p, contrast.n, contrast.test
    )


def equivalent(
    name: str, treatment: ArrayLike, control: ArrayLike, margin: float, *, units: ArrayLike | None = None
) -> Contrast:
    """Two one-sided paired t tests that the mean difference lies within ``margin``; for equivalence claims.

    Args:
        name: The control arm.
        treatment: One value an observation.
        control: The same observations under the control.
        margin: ``claim.margin``.
        units: Unit of analysis of each observation, if there are several a unit.
    """
    differences = unit_means(paired_differences(treatment, control), units)
    return _equivalent(name, studentised_mean(differences), mean(control, units), margin, len(differences))


def equivalent_independent(name: str, treatment: ArrayLike, control: ArrayLike, margin: float) -> Contrast:
    """Two one-sided Welch t tests that the means of independent arms differ by less than ``margin``."""
    first, second = finite(treatment, "treatment"), finite(control, "control")
    return _equivalent(name, studentised_difference(first, second), mean(second), margin, min(len(first), len(second)))


def paired_sums(
    name: str,
    treatment: ArrayLike,
    control: ArrayLike,
    statistic: StatisticOfSums = ratio,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    null: float = 0.0,
    alternative: Alternative = "two-sided",
    seed: int = 0,
) -> Contrast:
    """Difference of a statistic of sums between arms measured on the same clusters.

    From 20 clusters on: bootstrap interval with both arms under the same weights, and the t test of the bootstrap
    standard error. Below: t interval and exact sign-flip of jackknife unit values.

    Args:
        name: The control arm.
        treatment: (observations, columns): what each observation adds to each sum.
        control: The same observations under the control.
        statistic: From weighted sums (draws, columns) to (draws,); by default first column over second.
        clusters: Cluster (unit of analysis) of each observation; ``None``: each is its own.
        strata: Stratum of each observation.
        null: Difference under the null.
        alternative: Direction of the difference from ``null``.
        seed: Seed of the weights.

    Raises:
        ValueError: If the arms' shapes differ, or as :func:`~gnomon.evidence.resampling.bootstrap_sums`.
    """
    first, second = (
        finite(treatment, "treatment", dimensions=2),
        finite(control, "control", dimensions=2),
    )
    if first.shape != second.shape:
        raise ValueError(f"paired arms must have the same shape: treatment {first.shape}, control {second.shape}")
    columns = first.shape[1]

    def difference(sums: np.ndarray) -> np.ndarray:
        return statistic(sums[:, :columns]) - statistic(sums[:, columns:])

    both = np.hstack([first, second])
    estimate = resampling.from_sums(second, statistic, clusters=clusters, strata=strata, seed=seed)
    if _count(clusters, len(both)) >= ENOUGH_CLUSTERS:
        drawn = resampling.bootstrap_sums(both, difference, clusters=clusters, strata=strata, seed=seed)
        return from_bootstrap(name, estimate, drawn, null=null, alternative=alternative)
    values = resampling.unit_values(both, difference, clusters=clusters, strata=strata)
    return _from_unit_values(name, estimate, values, _strata(strata), null, alternative, seed)


def independent_sums(
    name: str,
    treatment: ArrayLike,
    control: ArrayLike,
    statistic: StatisticOfSums = ratio,
    *,
    treatment_clusters: ArrayLike | None = None,
    control_clusters: ArrayLike | None = None,
    null: float = 0.0,
    alternative: Alternative = "two-sided",
    seed: int = 0,
) -> Contrast:
    """Difference of a smooth statistic of sums between arms with different clusters.

    :func:`independent` on the arms' jackknife unit values (:func:`~gnomon.evidence.resampling.unit_values`).
    """
    first = resampling.unit_values(treatment, statistic, clusters=treatment_clusters)
    second = resampling.unit_values(control, statistic, clusters=control_clusters)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        estimate = resampling.studentised_values(second).interval()
        return _undefined(name, estimate, min(len(first), len(second)))
    return independent(name, first, second, null=null, alternative=alternative, seed=seed)


def paired_weights(
    name: str,
    treatment: StatisticOfWeights,
    control: StatisticOfWeights,
    observations: int,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    null: float = 0.0,
    alternative: Alternative = "two-sided",
    seed: int = 0,
) -> Contrast:
    """Difference of two statistics of the same weighted observations, such as the AUROC of two scores.

    Interval and p as :func:`paired_sums`; statistics are those of :mod:`gnomon.evidence.weighted`.

    Args:
        name: The control arm.
        treatment: From weights (draws, observations) to (draws,).
        control: The same statistic of the control's values.
        observations: How many there are.
        clusters: Cluster (unit of analysis) of each observation; ``None``: each is its own.
        strata: Stratum of each observation.
        null: Difference under the null.
        alternative: Direction of the difference from ``null``.
        seed: Seed of the weights.
    """

    def difference(weights: np.ndarray) -> np.ndarray:
        return treatment(weights) - control(weights)

    estimate = resampling.from_weights(control, observations, clusters=clusters, strata=strata, seed=seed)
    if _count(clusters, observations) >= ENOUGH_CLUSTERS:
        drawn = resampling.bootstrap_weights(difference, observations, clusters=clusters, strata=strata, seed=seed)
        return from_bootstrap(name, estimate, drawn, null=null, alternative=alternative)
    values = resampling.unit_values_of_weights(difference, observations, clusters=clusters, strata=strata)
    return _from_unit_values(name, estimate, values, _strata(strata), null, alternative, seed)


def from_bootstrap(
    name: str,
    estimate: Estimate,
    difference: Bootstrap,
    *,
    null: float = 0.0,
    alternative: Alternative = "two-sided",
) -> Contrast:
    """A bootstrapped difference: its percentile interval, and p from t with the bootstrap standard error.

    Args:
        name: The control arm.
        estimate: The statistic on the control.
        difference: Bootstrap of treatment - control.
        null: Difference under the null.
        alternative: Direction of the difference from ``null``.
    """
    return Contrast(
        name,
        estimate,
        difference.interval(),
        difference.studentised.p(null, alternative),
        difference.clusters,
        "t of bootstrap standard error; cluster bootstrap interval",
    )


def _mean_difference(differences: np.ndarray, seed: int) -> tuple[Estimate, str]:
    if len(differences) < ENOUGH_CLUSTERS:
        return mean(differences), "paired t interval"
    sums = np.column_stack([differences, np.ones(len(differences))])
    return resampling.bootstrap_sums(sums, seed=seed).interval(), "bootstrap interval"


def _unit_p(values: np.ndarray, null: float, test: Test, alternative: Alternative, seed: int) -> tuple[float, str]:
    if test == "t":
        return studentised_mean(values).p(null, alternative), "t"
    exact = "exact " if len(values) <= MOST_FLIPPED else ""
    return sign_flip(values, null=null, alternative=alternative, seed=seed), f"{exact}sign-flip"


def _from_unit_values(
    name: str, estimate: Estimate, values: np.ndarray, strata: int, null: float, alternative: Alternative, seed: int
) -> Contrast:
    if not np.isfinite(values).all():
        return _undefined(name, estimate, len(values))
    difference = resampling.studentised_values(values, strata=strata).interval()
    p = sign_flip(values, null=null, alternative=alternative, seed=seed)
    test = "exact sign-flip of jackknife unit values; jackknife t interval"
    return Contrast(name, estimate, difference, p, len(values), test)


def _undefined(name: str, estimate: Estimate, units: int) -> Contrast:
    """A contrast whose statistic is not finite without some cluster: its finding stays undecided."""
    return Contrast(name, estimate, Estimate(np.nan, np.nan, np.nan), np.nan, units, "undefined")


def _equivalent(name: str, difference: Studentised, estimate: Estimate, margin: float, units: int) -> Contrast:
    if not margin > 0:
        raise ValueError(f"an equivalence needs a margin > 0, got {margin}")
    return Contrast(name, estimate, difference.interval(), difference.equivalence_p(margin), units, "TOST; t interval")


def _count(clusters: ArrayLike | None, observations: int) -> int:
    return observations if clusters is None else len(np.unique(np.asarray(clusters)))


def _strata(strata: ArrayLike | None) -> int:
    return 1 if strata is None else len(np.unique(np.asarray(strata)))
