"""Intervals for means and shares against textbooks, scipy and statsmodels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.weightstats import ttost_ind, ttost_paired

from gnomon.evidence import Estimate
from gnomon.evidence.intervals import (
    Studentised,
    clopper_pearson,
    mean,
    paired,
    studentised_difference,
    studentised_mean,
    welch,
    wilson,
)

RNG = np.random.default_rng(5)
NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=12)

# Student (1908), "The probable error of a mean": additional hours of sleep under two drugs, ten patients.
DEXTRO = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
LAEVO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_students_sleep_data():
    sleep = studentised_mean(np.subtract(LAEVO, DEXTRO))
    assert sleep.value == pytest.approx(1.58)
    assert sleep.p() == pytest.approx(0.002833, abs=5e-7)
    estimate = paired(LAEVO, DEXTRO)
    assert (estimate.low, estimate.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)
    assert str(estimate) == "1.58 [0.7, 2.46]"
    apart = welch(LAEVO, DEXTRO)
    assert (apart.low, apart.high) == pytest.approx((-0.2054832, 3.3654832), abs=1e-6)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("null", [0.0, 0.3])
def test_t_agrees_with_scipy(alternative, null):
    first, second = RNG.normal(0.4, 1, 9), RNG.normal(0, 2, 14)
    one = stats.ttest_1samp(first, null, alternative=alternative)
    assert studentised_mean(first).p(null, alternative) == pytest.approx(one.pvalue, rel=1e-10)
    two = stats.ttest_ind(first - null, second, equal_var=False, alternative=alternative)
    assert studentised_difference(first, second).p(null, alternative) == pytest.approx(two.pvalue, rel=1e-10)


def test_intervals_agree_with_scipy():
    first, second = RNG.normal(0.4, 1, 9), RNG.normal(0, 2, 14)
    expected = stats.ttest_1samp(first, 0).confidence_interval(0.9)
    ours = mean(first, level=0.9)
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), rel=1e-10)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    ours = welch(first, second)
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), rel=1e-10)


def test_tost_agrees_with_statsmodels():
    first, second = RNG.normal(0.1, 1, 12), RNG.normal(0, 1, 12)
    ours = studentised_mean(first - second).equivalence_p(0.7)
    assert ours == pytest.approx(ttost_paired(first, second, -0.7, 0.7)[0], rel=1e-10)
    ours = studentised_difference(first, second[:8]).equivalence_p(0.7)
    assert ours == pytest.approx(ttost_ind(first, second[:8], -0.7, 0.7, usevar="unequal")[0], rel=1e-10)


def test_observations_of_a_unit_are_averaged_first():
    values, units = [1.0, 3.0, 10.0, 4.0, 6.0, 6.0], ["b", "b", "a", "c", "c", "c"]
    assert mean(values, units) == mean([10.0, 2.0, 16 / 3])


def test_wilson_textbook_example():
    # Newcombe (1998), Statistics in Medicine 17, table I: 81 of 263 and 0 of 20.
    assert str(wilson(81, 263)) == "0.308 [0.255, 0.366]"
    share = wilson(0, 20)
    assert (share.low, share.high) == pytest.approx((0.0, 0.1611), abs=5e-5)
    share = clopper_pearson(81, 263)
    assert (share.low, share.high) == pytest.approx((0.2527, 0.3676), abs=5e-5)
    share = clopper_pearson(0, 20)
    assert (share.low, share.high) == pytest.approx((0.0, 0.1684), abs=5e-5)


@given(st.integers(1, 60).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_shares_agree_with_scipy(counts):
    result = stats.binomtest(*counts)
    for ours, method in ((wilson(*counts), "wilson"), (clopper_pearson(*counts), "exact")):
        expected = result.proportion_ci(method=method)
        assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(NUMBERS, st.floats(-100, 100), st.floats(0.1, 10))
def test_t_interval_moves_and_scales_with_the_data(values, shift, scale):
    plain, moved = mean(values), mean(np.array(values) * scale + shift)
    expected = np.array([plain.value, plain.low, plain.high]) * scale + shift
    assert np.array([moved.value, moved.low, moved.high]) == pytest.approx(
        expected, abs=1e-6 * (1 + abs(expected).max())
    )


@given(NUMBERS)
def test_interval_excludes_zero_exactly_when_p_is_small(values):
    result = studentised_mean(values)
    estimate = result.interval()
    if abs(result.p() - 0.05) > 1e-9:
        assert (estimate.low > 0 or estimate.high < 0) == (result.p() < 0.05)


def test_without_spread_the_interval_is_a_point():
    same = studentised_mean([0.1 + 0.2] * 7)
    assert same == Studentised(same.value, 0.0, 6)
    assert same.value == pytest.approx(0.3)
    assert same.interval() == Estimate(same.value, same.value, same.value)
    assert (same.p(), same.p(null=same.value), same.p(1.0, "greater")) == (0.0, 1.0, 1.0)
    assert welch([1.0, 1.0, 1.0], [0.0, 0.0]) == Estimate(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean([1.0]), "values: an interval needs at least 2 units, got 1"),
        (lambda: mean([]), "values is empty"),
        (lambda: mean([1.0, np.nan, 2.0]), "values is not finite: nan at index 1"),
        (lambda: mean([[1.0, 2.0]]), r"values must have 1 axes, got shape \(1, 2\)"),
        (lambda: mean([1.0, 2.0], ["a"]), r"units must give one label for each of 2 observations, got shape \(1,\)"),
        (lambda: paired([1, 2, 3], [1, 2]), "paired arms must have the same units: treatment has 3, control 2"),
        (lambda: paired([1, np.inf], [1, 2]), "treatment is not finite: inf at index 1"),
        (lambda: wilson(3, 2), "a share needs 0 <= successes <= trials and a trial, got 3 of 2"),
        (lambda: clopper_pearson(0, 0), "a share needs 0 <= successes <= trials and a trial, got 0 of 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
