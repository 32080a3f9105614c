"""Metrics against scikit-learn and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, precision_score, recall_score, roc_auc_score

from gnomon.retrieval.veritrail.metrics import (
    edge_f1,
    localisation_accuracy,
    located,
    verdict_auroc,
    verdict_quality,
)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=4).filter(lambda p: len({t for _, t in p}) == 2))
def test_verdict_quality_is_that_of_scikit_learn(pairs):
    called, true = np.array(pairs).T
    found = verdict_quality(called, true)
    assert found.macro_f1 == pytest.approx(f1_score(true, called, average="macro"))
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(true, called))
    assert found.recall == pytest.approx(recall_score(~true, ~called))
    if (~called).any():
        assert found.precision == pytest.approx(precision_score(~true, ~called))
    else:
        assert np.isnan(found.precision)


def test_auroc_is_that_of_scikit_learn_with_an_interval_over_processes():
    rng = np.random.default_rng(0)
    labels = rng.random(200) < 0.5
    scores = rng.normal(labels, 1.0)
    found = verdict_auroc(scores.tolist(), labels.tolist(), clusters=np.repeat(range(25), 8).tolist())
    assert found.value == pytest.approx(roc_auc_score(labels, scores))
    assert found.low < found.value < found.high


def test_a_stage_is_named_only_if_no_other_is():
    named = [{3}, {3, 4}, set(), {2}]
    assert located(named, [3, 3, 3, 3]).tolist() == [True, False, False, False]
    assert located(named, [3, 3, 3, 3], within=1).tolist() == [True, True, False, True]
    assert localisation_accuracy(named, [3, 3, 3, 3]).value == 0.25
    with pytest.raises(ValueError, match="one true stage an error: 4 found, 1 true"):
        located(named, [3])


def test_edges_of_paths():
    assert edge_f1({("a", "b"), ("b", "c")}, {("a", "b"), ("b", "c")}) == 1
    assert edge_f1({("a", "b")}, {("b", "c")}) == 0
    assert edge_f1(set(), set()) == 1
    with pytest.raises(ValueError, match="at least one"):
        verdict_quality([], [])
