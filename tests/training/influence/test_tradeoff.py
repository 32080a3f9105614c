"""Gaussian trade-off curves: the identities that define them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from gnomon.training.influence import (
    auc_from_mu,
    compose,
    gaussian_tradeoff,
    mu_from_auc,
    mu_from_errors,
    total_variation,
)
from gnomon.training.influence.tradeoff import empirical_tradeoff

SIZES = st.floats(-4, 4)


@given(SIZES, st.floats(-3, 3))
def test_any_point_of_a_gaussian_curve_gives_its_size(mu, cut):
    assert mu_from_errors(norm.sf(cut), norm.cdf(cut - mu)) == pytest.approx(mu, abs=1e-8)


@given(SIZES)
def test_area_and_size_are_inverse(mu):
    assert mu_from_auc(auc_from_mu(mu)) == pytest.approx(mu, abs=1e-9)
    assert auc_from_mu(mu) == pytest.approx(1 - np.trapezoid(*_curve(mu)), abs=1e-4)


def _curve(mu):
    alpha = norm.cdf(np.linspace(-9, 9, 4001))
    return gaussian_tradeoff(alpha, mu), alpha


@given(SIZES, st.floats(0.001, 0.999))
def test_curves_are_symmetric(mu, alpha):
    assert gaussian_tradeoff(gaussian_tradeoff(alpha, mu), mu) == pytest.approx(alpha, abs=1e-7)


@given(st.floats(0, 5), st.integers(1, 50))
def test_equal_steps_compose_to_their_root(mu, steps):
    assert compose([mu] * steps) == pytest.approx(steps**0.5 * mu)


def test_no_influence_is_the_diagonal():
    alpha = np.linspace(0, 1, 11)
    np.testing.assert_allclose(gaussian_tradeoff(alpha, 0.0), 1 - alpha, atol=1e-12)
    assert total_variation(0.0) == 0
    assert compose([]) == 0


@given(SIZES, SIZES)
def test_order_of_curves_is_the_order_of_sizes(first, last):
    alpha = np.linspace(0.05, 0.95, 7)
    above = gaussian_tradeoff(alpha, first) >= gaussian_tradeoff(alpha, last)
    assert above.all() == (first <= last) or first == pytest.approx(last, abs=1e-6)


def test_total_variation_is_the_largest_gap_to_the_diagonal():
    alpha = np.linspace(0, 1, 100_001)
    assert (1 - alpha - gaussian_tradeoff(alpha, 1.5)).max() == pytest.approx(float(total_variation(1.5)), abs=1e-8)


def test_empirical_curve_approaches_the_gaussian_one():
    rng = np.random.default_rng(0)
    alpha, beta = empirical_tradeoff(rng.normal(0, 1, 20_000), rng.normal(1.3, 1, 20_000))
    assert np.abs(beta - gaussian_tradeoff(alpha, 1.3)).max() < 0.02
    assert (np.diff(alpha) >= 0).all()
    assert (np.diff(beta) <= 0).all()


def test_coarser_statistics_never_tell_more():
    rng = np.random.default_rng(1)
    null, alternative = rng.normal(0, 1, 5000), rng.normal(1, 1, 5000)
    alpha, beta = empirical_tradeoff(null, alternative)
    coarse_alpha, coarse_beta = empirical_tradeoff(np.round(null), np.round(alternative))
    assert (coarse_beta >= np.interp(coarse_alpha, alpha, beta) - 1e-9).all()


def test_errors_outside_the_unit_interval_are_refused():
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\], got -0.1"):
        gaussian_tradeoff([-0.1, 0.5], 1.0)
    with pytest.raises(ValueError, match="finite draws"):
        empirical_tradeoff([], [1.0])
