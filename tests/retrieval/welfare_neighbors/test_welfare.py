"""The p-mean: closed forms, limits, and a case that overflows when powers are taken directly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.retrieval.welfare_neighbors.welfare import welfare

utilities = st.lists(st.floats(0, 100), min_size=1, max_size=6)


def test_closed_forms():
    assert welfare([3.0, 0.0], eta=1.0) == pytest.approx(2.0)
    assert welfare([3.0, 0.0], p=1, eta=1.0) == pytest.approx(2.5)
    assert welfare([3.0, 0.0], p=-1, eta=1.0) == pytest.approx(1.6)
    assert welfare([3.0, 0.0], p=-np.inf, eta=1.0) == pytest.approx(1.0)


def test_one_value_of_eta_for_each_query():
    assert welfare([[3.0, 0.0], [0.0, 0.0]], eta=[1.0, 2.0]) == pytest.approx([2.0, 2.0])


@given(utilities, st.floats(0.1, 10))
def test_nash_is_the_limit_at_zero_from_both_sides(served, eta):
    nash = welfare(served, 0, eta=eta)
    assert welfare(served, 1e-6, eta=eta) == pytest.approx(nash, rel=1e-5)
    assert welfare(served, -1e-6, eta=eta) == pytest.approx(nash, rel=1e-5)


@given(utilities, st.floats(0.01, 10), st.lists(st.floats(-50, 1), min_size=2, max_size=2))
def test_rises_with_p_and_is_homogeneous(served, eta, exponents):
    low, high = sorted(exponents)
    assert welfare(served, low, eta=eta) <= welfare(served, high, eta=eta) * (1 + 1e-9)
    scaled = welfare(3 * np.array(served), low, eta=3 * eta)
    assert scaled == pytest.approx(3 * welfare(served, low, eta=eta))


def test_powers_that_overflow_by_themselves():
    assert welfare([0.5, 0.0], p=-80, eta=1e-4) == pytest.approx(1e-4 * 2 ** (1 / 80))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"utilities": [1.0], "p": 1.5}, "p must be <= 1, got 1.5"),
        ({"utilities": [1.0], "p": np.nan}, "p must be <= 1"),
        ({"utilities": [1.0], "eta": 0.0}, "eta must be > 0"),
        ({"utilities": [-1.0]}, "finite and >= 0"),
        ({"utilities": 3.0}, "axis of attributes"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        welfare(**arguments)
