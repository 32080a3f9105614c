"""Metrics by hand."""

import numpy as np
import pytest

from gnomon.retrieval.welfare_neighbors import metrics

SIMILARITY = np.array([[1.0, 0.8, 0.6, 0.4], [0.5, 0.5, 0.4, 0.1]])
CODES = np.array([[0, 0, 1, 2], [1, 1, 1, 1]])


def test_relevance_and_recall():
    chosen = np.array([[0, 2], [3, -1]])
    assert metrics.relevance_ratio(SIMILARITY, chosen) == pytest.approx([1.6 / 1.8, 0.1])
    assert metrics.recall_at_k(SIMILARITY, chosen) == pytest.approx([0.5, 0.0])


def test_spread():
    chosen = np.array([[0, 1, 2, 3], [0, 1, -1, -1]])
    counts = metrics.attribute_counts(CODES, chosen, 4)
    assert counts.tolist() == [[2, 1, 1, 0], [0, 2, 0, 0]]
    assert metrics.attribute_entropy(counts) == pytest.approx([1.5, 0.0])
    assert metrics.attribute_entropy(counts, base="nats") == pytest.approx([1.5 * np.log(2), 0.0])
    assert metrics.inverse_simpson(counts) == pytest.approx([1 / (0.25 + 2 * 0.0625), 1.0])
    assert metrics.distinct_count(counts).tolist() == [3.0, 1.0]
    assert metrics.largest_share(counts) == pytest.approx([0.5, 1.0])
    assert metrics.exposure(counts) == pytest.approx([2 / 6, 3 / 6, 1 / 6, 0.0])


def test_precision_counts_missing_results_against_the_method():
    chosen = np.array([[0, 1], [0, -1]])
    assert metrics.attribute_precision(CODES, chosen, np.array([0, 1])).tolist() == [1.0, 0.5]


def test_an_answer_without_results_has_no_spread():
    counts = metrics.attribute_counts(CODES, np.full((2, 2), -1), 3)
    assert metrics.attribute_entropy(counts).tolist() == [0.0, 0.0]
    assert metrics.largest_share(counts).tolist() == [0.0, 0.0]
