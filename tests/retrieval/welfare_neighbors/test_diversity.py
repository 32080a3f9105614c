"""The report on a user's own index."""

import numpy as np
import pandas as pd
import pytest

from gnomon.retrieval.welfare_neighbors import BruteIndex, diversity_report


@pytest.fixture(scope="module")
def crowded():
    """Vectors in which the attribute goes with the place: plain top-k is full of one attribute."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, 1000)
    vectors = rng.normal(size=(5, 10))[codes] * 0.6 + rng.normal(size=(1000, 10))
    frame = pd.DataFrame({"seller": codes, "colour": rng.integers(0, 3, 1000)})
    return BruteIndex(vectors), vectors[:30] + 0.1, frame


def test_methods_are_compared_with_top_k_and_their_controls(crowded):
    report = diversity_report(*crowded, k=8)
    sellers = report.summary.query("attribute_class == 'seller'")
    wide = sellers.pivot_table(index="method", columns="reading", values="value")
    assert wide.loc["top-k", "relevance_ratio"] == 1
    assert wide.loc["nash", "entropy_bits"] > wide.loc["top-k", "entropy_bits"] + 0.2
    assert wide.loc["nash", "relevance_ratio"] > wide.loc["matched-random-swap", "relevance_ratio"]
    assert wide.loc["shuffled-attributes", "entropy_bits"] < wide.loc["nash", "entropy_bits"]
    gains = report.difference.query("attribute_class == 'seller' and method == 'nash' and reading == 'entropy_bits'")
    assert float(gains["low"].iloc[0]) > 0
    assert report.exposure.groupby(["attribute_class", "method"])["share"].sum().to_numpy() == pytest.approx(
        np.ones(12)
    )
    assert set(report.gini["attribute_class"]) == {"seller", "colour"}
    assert set(report.certified) == {"seller", "colour"}


def test_bad_input(crowded):
    index, queries, frame = crowded
    with pytest.raises(ValueError, match="unknown method best"):
        diversity_report(index, queries, frame, methods=["best"])
    with pytest.raises(ValueError, match="at least 2, got 1"):
        diversity_report(index, queries[:1], frame)
    with pytest.raises(ValueError, match="pool_size must be at least k"):
        diversity_report(index, queries, frame, pool_size=5)
    with pytest.raises(ValueError, match="but attributes has 10 entries"):
        diversity_report(index, queries, frame[:10])
    with pytest.raises(ValueError, match="one label a vector and class"):
        diversity_report(index, queries, [{"a", "b"}] * 1000)
