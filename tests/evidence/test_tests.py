"""Small-sample tests against enumeration by hand, textbooks, scipy and statsmodels."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.weightstats import ttost_paired

from gnomon.evidence.tests import (
    equivalence,
    mcnemar,
    monte_carlo_p,
    prediction_test,
    require_resolution,
    sign_flip,
    slope,
    slopes,
)

RNG = np.random.default_rng(3)

# Darwin's maize, cross- minus self-fertilised heights in eighths of an inch: Fisher (1935), section 17 and 21.
DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def test_fishers_darwin_example():
    # "in 835 cases out of 32,768 the total deviation is as great or greater": 1,726 counting both signs, ties included.
    assert sign_flip(DARWIN) * 2**15 == pytest.approx(1726)
    assert sign_flip(DARWIN, alternative="greater") * 2**15 == pytest.approx(863)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_sign_flip_enumerates(alternative, values):
    sums = np.array([np.dot(signs, values) for signs in itertools.product((1, -1), repeat=len(values))])
    total = sum(values)
    extreme = {"two-sided": abs(sums) >= abs(total), "greater": sums >= total, "less": sums <= total}[alternative]
    assert sign_flip(values, alternative=alternative) == extreme.mean()


def test_sign_flip_agrees_with_scipy():
    values = RNG.normal(0.5, 1, 9)
    ours = sign_flip(values, null=0.2)
    theirs = stats.permutation_test((values - 0.2,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert ours == pytest.approx(theirs)


def test_sign_flip_on_binary_pairs_is_mcnemar():
    pairs = [1] * 9 + [-1] * 2 + [0] * 7
    assert sign_flip(pairs) == pytest.approx(mcnemar(9, 2))


def test_drawn_sign_flips_approach_the_exact_p():
    values = RNG.normal(0.25, 1, 24)
    exact, drawn = sign_flip(values), sign_flip(np.append(values, 0.0), resamples=20_000)
    assert drawn == pytest.approx(exact, abs=4 * (exact / 20_000) ** 0.5)


def test_sign_flip_floor_and_rounding():
    assert sign_flip([0.1] * 8) == 2**-7
    assert sign_flip([0.1, 0.2, -0.3]) == 1.0  # the sum is 5.6e-17 in floating point
    assert sign_flip(np.zeros(6)) == 1.0


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=10))
def test_sign_flip_one_sided_p_values_complement(values):
    greater, less = sign_flip(values, alternative="greater"), sign_flip(values, alternative="less")
    assert greater + less >= 1
    assert sign_flip(values) == pytest.approx(min(1.0, 2 * min(greater, less)))


def test_prediction_test_is_the_pooled_t_test_of_one_against_many():
    # With one treatment value all variance comes from the draws, so Student's pooled t is the prediction t.
    draws = RNG.normal(size=14)
    expected = stats.ttest_ind([2.1], draws)
    result = prediction_test(2.1, draws)
    assert result.p == pytest.approx(expected.pvalue)
    assert result.difference.value == pytest.approx(2.1 - draws.mean())
    interval = expected.confidence_interval()
    assert (result.difference.low, result.difference.high) == pytest.approx((interval.low, interval.high))
    assert result.draws == 14
    assert prediction_test(2.1, draws, null=0.5).p == pytest.approx(stats.ttest_ind([1.6], draws).pvalue)


def test_prediction_test_holds_its_level():
    rng = np.random.default_rng(0)
    rejected = sum(prediction_test(x[0], x[1:]).p < 0.05 for x in rng.normal(size=(2000, 11)))
    assert abs(rejected / 2000 - 0.05) < 3 * (0.05 * 0.95 / 2000) ** 0.5


def test_monte_carlo_p_counts_the_observed_value_in():
    draws = np.arange(199.0)
    assert monte_carlo_p(500.0, draws, claims=5, alternative="greater") == 1 / 200
    assert monte_carlo_p(500.0, draws, claims=5) == 2 / 200
    assert monte_carlo_p(198.0, draws, claims=5, alternative="greater") == 2 / 200
    assert monte_carlo_p(-1.0, draws, claims=5, alternative="less") == 1 / 200
    assert monte_carlo_p(99.0, draws, claims=5) == 1.0


def test_monte_carlo_p_refuses_what_holm_could_not_pass():
    require_resolution(279, 7)
    with pytest.raises(ValueError, match=r"^278 null draws cannot resolve p for 7 claims: at least 279 needed"):
        monte_carlo_p(1.0, np.zeros(278), claims=7)


@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_agrees_with_statsmodels(first, second):
    expected = statsmodels_mcnemar([[5, first], [second, 5]], exact=True).pvalue if first + second else 1.0
    assert mcnemar(first, second) == pytest.approx(expected)


def test_equivalence_by_units():
    differences, units = RNG.normal(0.05, 0.2, 30), np.repeat(np.arange(10), 3)
    means = differences.reshape(10, 3).mean(axis=1)
    result = equivalence(differences, 0.2, units=units)
    assert result.p == pytest.approx(ttost_paired(means, np.zeros(10), -0.2, 0.2)[0])
    assert (result.n, result.difference.value) == (10, pytest.approx(means.mean()))


def test_equivalence_at_its_margin_is_rarely_declared():
    rng = np.random.default_rng(0)
    declared = sum(equivalence(x, 1.0).p < 0.05 for x in rng.normal(1.0, 0.5, (2000, 10)))
    assert abs(declared / 2000 - 0.05) < 3 * (0.05 * 0.95 / 2000) ** 0.5


def test_slopes_agree_with_scipy():
    x, units = np.tile(np.arange(1.0, 7.0), 5), np.repeat(list("edcba"), 6)
    y = RNG.gamma(5.0, 1.0, 30)
    ours = slopes(x, y, units)
    assert ours == pytest.approx([stats.linregress(x[units == u], y[units == u]).slope for u in "abcde"])
    logs = slopes(x, y, units, log_log=True)
    assert logs == pytest.approx(
        [stats.linregress(np.log(x[units == u]), np.log(y[units == u])).slope for u in "abcde"]
    )
    through = slopes(x, y, units, through_origin=True)
    assert through == pytest.approx(
        [np.linalg.lstsq(x[units == u, None], y[units == u], rcond=None)[0][0] for u in "abcde"]
    )


@given(st.floats(-3, 3), st.floats(0.1, 10))
def test_log_log_slope_finds_the_exponent(exponent, factor):
    x, units = np.tile([1.0, 2.0, 4.0, 8.0], 3), np.repeat([0, 1, 2], 4)
    assert slopes(x, factor * x**exponent, units, log_log=True) == pytest.approx(np.full(3, exponent), abs=1e-9)


def test_slope_tests_over_units():
    x, units = np.tile(np.arange(10.0), 8), np.repeat(np.arange(8), 10)
    y = 0.3 * x + RNG.normal(size=8)[units] + RNG.normal(size=80)
    result = slope(x, y, units, null=0.1)
    expected = stats.ttest_1samp(slopes(x, y, units), 0.1)
    assert result.p == pytest.approx(expected.pvalue)
    assert (result.estimate.low, result.estimate.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert result.per_unit == tuple(slopes(x, y, units))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prediction_test(1.0, np.zeros(9)), "a prediction test needs at least 10 null draws, got 9"),
        (lambda: prediction_test(np.nan, np.zeros(10)), "observed is not finite: nan"),
        (lambda: monte_carlo_p(np.inf, np.zeros(99), claims=1), "observed is not finite: inf"),
        (lambda: sign_flip([1.0, np.nan]), "differences is not finite: nan at index 1"),
        (lambda: mcnemar(-1, 2), "counts of pairs must be >= 0, got -1 and 2"),
        (lambda: equivalence([1.0, 2.0], 0.0), "an equivalence needs a margin > 0, got 0.0"),
        (lambda: slopes([1, 2], [1], ["a", "a"]), "slopes need pairs: x has 2 values, y 1"),
        (
            lambda: slopes([1, 2, 3, 3], [1, 2, 3, 4], ["a", "a", "b", "b"]),
            "x does not vary within unit b, so its slope is undefined",
        ),
        (lambda: slopes([0, 1], [1, 2], ["a", "a"], log_log=True), "a log-log slope needs positive x and y"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
