"""Summary measures against scipy, scikit-learn, definitions and their bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from gnomon.evidence.measures import (
    brier_score,
    effective_rank,
    entropy,
    expected_calibration_error,
    gini,
    herfindahl,
    inverse_simpson,
    log_loss,
    participation_ratio,
)

WEIGHTS = st.lists(st.floats(0, 1e6), min_size=1, max_size=12).filter(lambda values: max(values) > 1e-3)
RNG = np.random.default_rng(2)


@given(WEIGHTS)
def test_entropy_agrees_with_scipy(weights):
    assert entropy(weights) == pytest.approx(stats.entropy(weights), abs=1e-12)
    assert entropy(weights, base="bits") == pytest.approx(stats.entropy(weights, base=2), abs=1e-12)


@given(WEIGHTS)
def test_gini_is_half_the_relative_mean_difference(weights):
    x = np.array(weights)
    expected = np.abs(x[:, None] - x[None, :]).mean() / (2 * x.mean())
    assert gini(weights) == pytest.approx(expected, abs=1e-12)


@given(WEIGHTS, st.floats(1e-3, 1e3), st.randoms())
def test_measures_ignore_scale_and_order_and_keep_their_bounds(weights, scale, random):
    mixed = [weight * scale for weight in weights]
    random.shuffle(mixed)
    n = len(weights)
    bounds = {
        entropy: (0, np.log(n)),
        gini: (0, 1 - 1 / n),
        herfindahl: (1 / n, 1),
        inverse_simpson: (1, n),
        effective_rank: (1, n),
        participation_ratio: (1, n),
    }
    for measure, (low, high) in bounds.items():
        assert measure(mixed) == pytest.approx(measure(weights), rel=1e-9, abs=1e-9)
        assert low - 1e-9 <= measure(weights) <= high + 1e-9


def test_extremes():
    equal, monopoly = np.ones(5), np.array([0.0, 0.0, 3.0])
    assert [float(m(equal)) for m in (gini, herfindahl, inverse_simpson, effective_rank, participation_ratio)] == (
        pytest.approx([0.0, 0.2, 5.0, 5.0, 5.0])
    )
    assert [float(m(monopoly)) for m in (entropy, gini, herfindahl, effective_rank)] == pytest.approx([0, 2 / 3, 1, 1])
    assert entropy([1e308, 1e308]) == pytest.approx(np.log(2))


def test_batches_lie_along_the_last_axis():
    spectra = RNG.random((3, 4, 6))
    for measure in (entropy, gini, herfindahl, inverse_simpson, effective_rank, participation_ratio):
        assert measure(spectra).shape == (3, 4)
        assert measure(spectra)[1, 2] == pytest.approx(measure(spectra[1, 2]))


def test_participation_ratio_counts_the_directions_of_a_covariance():
    samples = RNG.normal(size=(5000, 8)) * np.array([1, 1, 1, 0, 0, 0, 0, 0])
    assert participation_ratio(np.abs(np.linalg.eigvalsh(np.cov(samples.T)))) == pytest.approx(3, abs=0.05)


def test_forecast_scores_agree_with_scikit_learn():
    forecast, happened = RNG.random(200), RNG.integers(0, 2, 200)
    assert brier_score(forecast, happened) == pytest.approx(metrics.brier_score_loss(happened, forecast))
    assert log_loss(forecast, happened) == pytest.approx(metrics.log_loss(happened, forecast))
    assert log_loss([0.0, 1.0], [1, 1]) == np.inf


def test_calibration_error_by_hand():
    # Bins (0, .5] and (.5, 1]: |.5 - .3| and |1 - .8|, two forecasts each.
    assert expected_calibration_error([0.1, 0.5, 0.7, 0.9], [0, 1, 1, 1], bins=2) == pytest.approx(0.2)
    assert expected_calibration_error([0.0, 1.0], [0, 1]) == 0.0
    assert expected_calibration_error([1.0, 0.0], [0, 1]) == 1.0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_one_bin_compares_the_means(pairs):
    forecast, happened = np.array(pairs, dtype=float).T
    expected = abs(forecast.mean() - happened.mean())
    assert expected_calibration_error(forecast, happened, bins=1) == pytest.approx(expected, abs=1e-12)
    assert expected_calibration_error(forecast, happened) >= expected - 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: entropy([0.5, -0.5]), "weights must be >= 0, got -0.5"),
        (lambda: gini([[1.0, 2.0], [0.0, 0.0]]), "weights are all zero, so they have no shares"),
        (lambda: effective_rank([1.0, np.nan]), "weights is not finite: nan at index 1"),
        (lambda: brier_score([0.5], [1, 0]), "one outcome a forecast: 1 probabilities, 2 outcomes"),
        (lambda: brier_score([1.5, 0.2], [1, 0]), r"probabilities must lie in \[0, 1\], got 0.2 to 1.5"),
        (lambda: log_loss([0.5], [0.5]), "outcomes must be 0 or 1"),
        (lambda: expected_calibration_error([0.5], [1], bins=0), "bins must be at least 1, got 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
