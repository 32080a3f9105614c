"""Separation by retraining: on training runs whose outcome is known."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.training.influence import calibrate, separation, separation_auc
from gnomon.training.influence.tradeoff import auc_from_mu


def noisy(seed, excluded):
    """A "training" whose query loss rises by one standard deviation for each helpful example left out."""
    return float(np.random.default_rng((seed, len(excluded))).normal(len(excluded & {0, 1}), 1))


def test_separation_is_recovered_with_its_sign():
    table = calibrate(noisy, {"helpful": [0, 1], "nothing": [5], "one": [0, 7]}, runs=400).set_index("group")
    assert table["separation"]["helpful"] == pytest.approx(2, abs=0.25)
    assert table["separation"]["nothing"] == pytest.approx(0, abs=0.25)
    assert (table["low"] < table["separation"]).all()
    assert (table["high"] > table["separation"]).all()
    assert table["auc"]["one"] == pytest.approx(float(auc_from_mu(1.0)), abs=0.04)
    assert table["size"].tolist() == [2, 1, 2]


def test_separation_of_two_samples():
    complete, without = np.array([1.0, 2.0, 3.0]), np.array([3.0, 4.0, 5.0])
    assert separation(complete, without) == pytest.approx(2.0)
    assert separation_auc(complete, without) == pytest.approx((8 + 0.5) / 9)


def test_bad_input():
    with pytest.raises(ValueError, match="at least 2 trainings"):
        calibrate(noisy, {"a": [0]}, runs=1)
    with pytest.raises(ValueError, match="training with seed 0 gave a loss that is not finite"):
        calibrate(lambda seed, excluded: float("nan"), {"a": [0]}, runs=2)
