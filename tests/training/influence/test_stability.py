"""Agreement of rankings: bounds, and what random rankings give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.training.influence import stability
from gnomon.training.influence.stability import jaccard, rank_biased_overlap


@given(st.lists(st.floats(-9, 9), min_size=3, max_size=30, unique=True), st.data())
def test_a_ranking_agrees_with_itself_and_any_monotone_image(values, data):
    scores = np.array(values)
    k = data.draw(st.integers(1, len(values)))
    assert jaccard(scores, np.argsort(np.argsort(scores)).astype(float), k) == 1
    assert rank_biased_overlap(scores, scores) == pytest.approx(1)


def test_random_rankings_share_what_chance_gives():
    rng = np.random.default_rng(0)
    n, k = 200, 40
    found = np.mean([jaccard(rng.random(n), rng.random(n), k) for _ in range(400)])
    assert found == pytest.approx(k / (2 * n - k), abs=0.01)


def test_overlap_against_the_sum_by_hand():
    first, last = np.array([5.0, 4, 3, 2, 1]), np.array([4.0, 5, 1, 2, 3])
    orders = [np.argsort(-values).tolist() for values in (first, last)]
    shared = [len(set(orders[0][:d]) & set(orders[1][:d])) for d in range(1, 6)]
    p = 0.9
    expected = (1 - p) / p * sum(p**d * x / d for d, x in enumerate(shared, 1)) + p**5 * shared[-1] / 5
    assert rank_biased_overlap(first, last, persistence=p) == pytest.approx(expected)


def test_table_has_every_pair():
    rng = np.random.default_rng(1)
    runs = [dict(enumerate(rng.random(30))) for _ in range(4)]
    table = stability(runs, 5)
    assert len(table) == 6
    assert set(table) == {"first", "second", "jaccard", "spearman", "rbo"}
    assert table[["jaccard", "rbo"]].to_numpy().min() >= 0


def test_bad_input():
    with pytest.raises(ValueError, match="at least 2 runs, got 1"):
        stability([{0: 1.0}], 1)
    with pytest.raises(ValueError, match="different examples"):
        stability([{0: 1.0}, {1: 1.0}], 1)
    with pytest.raises(ValueError, match="between 1 and 2 examples, got 3"):
        stability([{0: 1.0, 1: 2.0}, {0: 1.0, 1: 0.0}], 3)
