"""Weighted rank statistics are those of the sample with repeated observations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from gnomon.evidence.weighted import auroc, quantile_range, spearman

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 4)), min_size=4, max_size=15)


@given(ROWS)
def test_spearman_of_the_repeated_sample(rows):
    x, y, w = np.array(rows).T
    repeated = np.repeat(x, w), np.repeat(y, w)
    if len(np.unique(repeated[0])) < 2 or len(np.unique(repeated[1])) < 2:
        return
    ours = spearman(x, y)(w[None].astype(float))
    assert ours == pytest.approx([spearmanr(*repeated).statistic], abs=1e-12)


@given(ROWS)
def test_auroc_of_the_repeated_sample(rows):
    score, label, w = np.array(rows).T
    label = label % 2
    repeated = np.repeat(score, w), np.repeat(label, w)
    if len(set(repeated[1])) < 2:
        return
    assert auroc(score, label)(w[None].astype(float)) == pytest.approx(
        [roc_auc_score(repeated[1], repeated[0])], abs=1e-12
    )


@given(ROWS, st.floats(0, 0.45), st.floats(0.55, 1))
def test_quantile_range_of_the_repeated_sample(rows, low, high):
    x, _, w = np.array(rows).T
    if not w.sum():
        return
    expected = np.quantile(np.repeat(x, w), high) - np.quantile(np.repeat(x, w), low)
    assert quantile_range(x, low, high)(w[None].astype(float)) == pytest.approx([expected], abs=1e-9)


def test_draws_are_independent_of_each_other():
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=20), rng.normal(size=20), rng.integers(0, 3, (5, 20)).astype(float)
    for statistic in (spearman(x, y), auroc(x, y > 0), quantile_range(x)):
        assert statistic(w) == pytest.approx(np.concatenate([statistic(one[None]) for one in w]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spearman([1, 2], [1]), "spearman needs pairs: first has 2 values, second 1"),
        (lambda: auroc([1, 2], [1]), "auroc needs one label a score: 2 scores, 1 labels"),
        (lambda: auroc([1, 2], [1, 1]), "auroc needs labels 0 and 1, both present"),
        (lambda: auroc([np.nan, 2], [1, 0]), "scores is not finite: nan at index 0"),
        (lambda: quantile_range([1, 2], 0.9, 0.1), "quantile_range needs 0 <= low < high <= 1, got 0.9 and 0.1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
