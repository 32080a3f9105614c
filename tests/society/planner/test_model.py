"""The problem's definition and what it refuses."""

import numpy as np
import pytest

from gnomon.society.planner.model import (
    CallableCost,
    HerdModel,
    LinearCost,
    PowerCost,
    belief_logodds,
    precision_logodds,
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": 0.5}, r"p must be in \(0.5, 1\), got 0.5"),
        ({"p": 1.0}, r"p must be in \(0.5, 1\), got 1.0"),
        ({"delta": 1.0}, r"delta must be in \[0, 1\), or 1 with a finite horizon, got 1.0"),
        ({"delta": -0.1}, "delta must be in"),
        ({"C": 0.0}, "C must be a finite number > 0"),
        ({"q_min": 0.8}, r"q_min must be in \[0.5, p\] = \[0.5, 0.7\], got 0.8"),
        ({"q_max": 0.6}, r"q_max must be in \[p, 1\] = \[0.7, 1\], got 0.6"),
        ({"horizon": 0}, "horizon must be an integer >= 1"),
        ({"objective": "greedy"}, "objective must be 'altruistic' or 'biased'"),
        ({"cost": CallableCost(lambda q: q)}, "cost must be zero at p=0.7"),
        ({"cost": CallableCost(lambda q: 0.7 - q)}, "cost must be finite and >= 0"),
        ({"cost": CallableCost(lambda q: np.where(q > 0.9, np.nan, 0.0))}, "cost must be finite"),
    ],
)
def test_values_out_of_range_are_named(change, message):
    fields = {"p": 0.7, "delta": 0.9, "cost": LinearCost(0.3)} | change
    with pytest.raises(ValueError, match=message):
        HerdModel(**fields)


@pytest.mark.parametrize("make", [lambda: LinearCost(-1), lambda: PowerCost(-1, 2), lambda: PowerCost(1, 0.5)])
def test_negative_costs_are_refused(make):
    with pytest.raises(ValueError, match="must be a finite number"):
        make()


def test_patience_of_one_needs_an_end():
    model = HerdModel(0.7, 1.0, LinearCost(0.3), horizon=20)
    assert model.rounds_weight == 20


@pytest.mark.parametrize("b", [-0.1, 1.1, float("nan")])
def test_beliefs_are_probabilities(b):
    with pytest.raises(ValueError, match=r"belief b must lie in \[0, 1\]"):
        belief_logodds([0.5, b])


def test_precisions_stay_in_the_allowed_range():
    with pytest.raises(ValueError, match=r"precision q must lie in \[0.5, 1\], got 0.3"):
        precision_logodds(0.3)
    with pytest.raises(ValueError, match=r"\[0.7, 1\], got 0.6"):
        precision_logodds(0.6, HerdModel(0.7, 0.9, LinearCost(0.3), q_min=0.7))
    assert precision_logodds(1.0) == np.inf


def test_blurring_is_free_for_the_altruist_and_costs_the_biased():
    altruistic = HerdModel(0.7, 0.9, LinearCost(1.0))
    biased = HerdModel(0.7, 0.9, LinearCost(1.0), objective="biased")
    assert altruistic.spend(0.5) == 0
    assert biased.spend(0.5) == pytest.approx(0.2)
    assert altruistic.spend(0.9) == biased.spend(0.9) == pytest.approx(0.2)
