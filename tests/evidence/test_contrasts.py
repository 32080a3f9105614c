"""From data to contrast in one line: each constructor against the tests and intervals it is made of."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from gnomon.evidence import Claim, Estimate, Finding, Verdict, holm
from gnomon.evidence.contrasts import (
    against_constant,
    against_draws,
    equivalent,
    equivalent_independent,
    from_bootstrap,
    independent,
    independent_sums,
    paired,
    paired_arms,
    paired_sums,
    paired_weights,
)
from gnomon.evidence.intervals import mean, studentised_mean
from gnomon.evidence.permutation import welch_permutation
from gnomon.evidence.resampling import bootstrap_crossed, bootstrap_sums, from_sums, multinomial_weights, unit_values
from gnomon.evidence.tests import sign_flip
from gnomon.evidence.weighted import auroc

RNG = np.random.default_rng(21)
FEW, FEW_CONTROL = RNG.normal(0.6, 0.2, 8), RNG.normal(0.5, 0.2, 8)
MANY, MANY_CONTROL = RNG.normal(0.6, 0.2, 40), RNG.normal(0.5, 0.2, 40)


def test_paired_few_units():
    contrast = paired("random-init", FEW, FEW_CONTROL)
    assert contrast.control == "random-init"
    assert contrast.estimate == mean(FEW_CONTROL)
    assert contrast.difference == mean(FEW - FEW_CONTROL)
    assert contrast.p == sign_flip(FEW - FEW_CONTROL)
    assert (contrast.n, contrast.test) == (8, "exact sign-flip; paired t interval")


def test_paired_many_units():
    contrast = paired("random-init", MANY, MANY_CONTROL)
    differences = np.column_stack([MANY - MANY_CONTROL, np.ones(40)])
    assert contrast.difference == bootstrap_sums(differences).interval()
    assert contrast.p == sign_flip(MANY - MANY_CONTROL)
    assert (contrast.n, contrast.test) == (40, "sign-flip; bootstrap interval")


def test_paired_options():
    differences = FEW - FEW_CONTROL
    by_t = paired("c", FEW, FEW_CONTROL, test="t", null=0.05, alternative="greater")
    assert by_t.p == pytest.approx(stats.ttest_1samp(differences, 0.05, alternative="greater").pvalue)
    assert by_t.test == "t; paired t interval"
    assert by_t.difference == mean(differences)  # the interval is of the difference, whatever the null
    units = np.repeat(np.arange(8), 2)
    twice = paired("c", np.repeat(FEW, 2), np.repeat(FEW_CONTROL, 2), units=units)
    assert twice == paired("c", FEW, FEW_CONTROL)


def test_five_units_can_pass_by_t_only():
    first, second = np.arange(5) + 10.0, np.arange(5) * 1.1
    assert paired("c", first, second).p == 2 / 32
    assert paired("c", first, second, test="t").p < 0.001


def test_independent():
    contrast = independent("resampled", FEW, FEW_CONTROL[:6])
    expected = stats.ttest_ind(FEW, FEW_CONTROL[:6], equal_var=False).confidence_interval()
    assert (contrast.difference.low, contrast.difference.high) == pytest.approx((expected.low, expected.high))
    assert contrast.p == welch_permutation(FEW, FEW_CONTROL[:6])
    assert (contrast.n, contrast.test) == (6, "permutation of Welch t; Welch t interval")
    by_t = independent("resampled", FEW, FEW_CONTROL[:6], test="t")
    assert by_t.p == pytest.approx(stats.ttest_ind(FEW, FEW_CONTROL[:6], equal_var=False).pvalue)
    grouped = independent(
        "resampled",
        np.repeat(FEW, 3),
        np.repeat(FEW_CONTROL, 2),
        treatment_units=np.repeat(np.arange(8), 3),
        control_units=np.repeat(np.arange(8), 2),
    )
    assert grouped.difference.value == pytest.approx(FEW.mean() - FEW_CONTROL.mean())
    assert grouped.n == 8


def test_against_draws():
    draws = RNG.normal(size=20)
    contrast = against_draws("random-sets", 3.0, draws)
    assert contrast.p == pytest.approx(stats.ttest_ind([3.0], draws).pvalue)
    assert contrast.estimate == mean(draws)
    assert (contrast.n, contrast.test) == (20, "prediction t")


def test_against_constant():
    contrast = against_constant("chance", FEW, 0.25)
    assert contrast.estimate == Estimate(0.25, 0.25, 0.25)
    assert contrast.difference.value == pytest.approx(FEW.mean() - 0.25)
    assert contrast.p == sign_flip(FEW - 0.25)


def test_equivalent():
    contrast = equivalent("original", FEW, FEW + 0.01 * RNG.normal(size=8), 0.1)
    assert contrast.p < 1e-6
    assert contrast.test == "TOST; t interval"
    shifted = equivalent("original", FEW, FEW_CONTROL, 0.05)
    assert shifted.p == pytest.approx(studentised_mean(FEW - FEW_CONTROL).equivalence_p(0.05))
    assert shifted.difference == mean(FEW - FEW_CONTROL)
    apart = equivalent_independent("original", MANY, MANY_CONTROL, 0.3)
    both = [
        stats.ttest_ind(MANY + 0.3, MANY_CONTROL, equal_var=False, alternative="greater").pvalue,
        stats.ttest_ind(MANY - 0.3, MANY_CONTROL, equal_var=False, alternative="less").pvalue,
    ]
    assert apart.p == pytest.approx(max(both))


def test_paired_sums_shares_weights_between_arms():
    shared = RNG.gamma(3.0, size=(40, 1))
    treatment = np.hstack([shared * 1.1, shared + 1])
    control = np.hstack([shared, shared + 1])
    contrast = paired_sums("random-init", treatment, control)
    weights = multinomial_weights(40, 999, 0)
    draws = [np.divide(*(w @ treatment)) - np.divide(*(w @ control)) for w in weights]
    assert (
        contrast.difference
        == bootstrap_sums(np.hstack([treatment, control]), lambda s: s[:, 0] / s[:, 1] - s[:, 2] / s[:, 3]).interval()
    )
    assert contrast.difference.low > np.min(draws)
    assert contrast.p == pytest.approx(
        2 * stats.t.sf(contrast.difference.value / (np.std(draws, ddof=1) * (40 / 39) ** 0.5), 39)
    )
    assert contrast.estimate == from_sums(control)
    assert (contrast.n, contrast.test) == (40, "t of bootstrap standard error; cluster bootstrap interval")


def test_paired_sums_below_twenty_clusters():
    treatment, control = RNG.gamma(3.0, size=(12, 2)), RNG.gamma(3.0, size=(12, 2))
    contrast = paired_sums("random-init", treatment, control)
    values = unit_values(treatment) - unit_values(control)
    assert contrast.difference.value == pytest.approx(values.mean())
    assert contrast.difference.high == pytest.approx(mean(values).high)
    assert contrast.p == sign_flip(values)
    clusters, strata = np.repeat(np.arange(12), 2), np.repeat(np.arange(12) % 2, 2)
    split = paired_sums("r", np.repeat(treatment / 2, 2, axis=0), np.repeat(control / 2, 2, axis=0), clusters=clusters)
    assert split.difference.high == pytest.approx(contrast.difference.high)
    stratified = paired_sums(
        "r", np.repeat(treatment, 2, axis=0), np.repeat(control, 2, axis=0), clusters=clusters, strata=strata
    )
    assert stratified.difference.value == pytest.approx(contrast.difference.value)
    assert stratified.difference != contrast.difference


def test_independent_sums():
    treatment, control = RNG.gamma(3.0, size=(9, 2)), RNG.gamma(3.0, size=(7, 2))
    contrast = independent_sums("resampled", treatment, control)
    assert contrast.difference.value == pytest.approx(
        treatment[:, 0].sum() / treatment[:, 1].sum() - control[:, 0].sum() / control[:, 1].sum()
    )
    assert contrast == independent("resampled", unit_values(treatment), unit_values(control))


@pytest.mark.parametrize("clusters", [12, 30])
def test_paired_weights_of_two_aurocs(clusters):
    labels, cluster = np.tile([0, 1, 0, 1], clusters), np.repeat(np.arange(clusters), 4)
    ours, theirs = 2 * labels + RNG.normal(size=4 * clusters), RNG.normal(size=4 * clusters)
    contrast = paired_weights("loss", auroc(ours, labels), auroc(theirs, labels), 4 * clusters, clusters=cluster)
    assert contrast.difference.value == pytest.approx(roc_auc_score(labels, ours) - roc_auc_score(labels, theirs))
    assert contrast.estimate.value == pytest.approx(roc_auc_score(labels, theirs))
    assert contrast.n == clusters
    assert contrast.p < 0.05


def test_an_undefined_statistic_leaves_the_finding_undecided():
    claim = Claim("c", "s", kind="contrast", statistic="ratio", controls=("null",))
    for clusters in (10, 30):
        empty = np.column_stack([np.ones(clusters), np.r_[1.0, np.zeros(clusters - 1)]])
        for contrast in (paired_sums("null", empty, empty), independent_sums("null", empty, empty)):
            finding = holm([Finding(claim, effect=from_sums(empty), contrasts=(contrast,))])[0]
            assert finding.reason == "contrast with null is undefined"
            assert finding.p_adjusted is None


def test_from_crossed_bootstrap():
    treatment, control = RNG.normal(0.5, 1, (30, 8)), RNG.normal(0, 1, (30, 8))
    sums = np.stack([treatment - control, np.ones((30, 8))], axis=-1)
    contrast = from_bootstrap("random-init", mean(control.mean(axis=1)), bootstrap_crossed(sums))
    assert contrast.difference.value == pytest.approx((treatment - control).mean())
    assert contrast.n == 8


def test_paired_arms_aligns_by_unit():
    table = pd.DataFrame(
        {
            "arm": ["treatment", "control", "control", "treatment", "treatment"],
            "seed": [2, 1, 2, 1, 1],
            "score": [5.0, 1.0, 2.0, 3.0, 4.0],
        }
    )
    arms = paired_arms(table, "score", unit="seed")
    assert list(arms) == ["control", "treatment"]
    assert arms["control"].tolist() == [1.0, 2.0]
    assert arms["treatment"].tolist() == [3.5, 5.0]
    with pytest.raises(ValueError, match=r"^arms are not paired: seed 2 has no arm control$"):
        paired_arms(table.drop(index=2), "score", unit="seed")
    with pytest.raises(ValueError, match=r"^score is not finite: nan at index 0$"):
        paired_arms(table.assign(score=np.nan), "score", unit="seed")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paired("c", FEW, FEW[:5]), "paired arms must have the same units: treatment has 8, control 5"),
        (
            lambda: paired_sums("c", np.ones((9, 2)), np.ones((8, 2))),
            r"paired arms must have the same shape: treatment \(9, 2\), control \(8, 2\)",
        ),
        (lambda: equivalent("c", FEW, FEW_CONTROL, -1.0), "an equivalence needs a margin > 0, got -1.0"),
        (lambda: against_draws("c", 1.0, FEW), "a prediction test needs at least 10 null draws, got 8"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


def test_contrasts_lead_to_verdicts():
    claim = Claim("lift", "It lifts", kind="contrast", statistic="score", controls=("control",), smallest=0.5)
    base = RNG.normal(size=12)
    verdicts = []
    for effect in (3.0, 0.0):
        lift = paired("control", base + effect + 0.3 * RNG.normal(size=12), base)
        verdicts.append(holm([Finding(claim, effect=mean(base), contrasts=(lift,), n=12)])[0].verdict)
    assert verdicts == [Verdict.SUPPORTED, Verdict.CONTRADICTED]
