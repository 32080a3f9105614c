"""Simulated coverage of 95 % intervals: 93-97 % on normal data from 5 to 100 clusters, >= 90 % on skewed data from 20.

The standard error of a coverage is .007 at 1,000 draws.
"""

import numpy as np
import pytest

from gnomon.evidence.intervals import mean, paired, welch
from gnomon.evidence.resampling import bootstrap_sums, from_sums, from_weights
from gnomon.evidence.weighted import auroc


def coverage(interval, truth, draws):
    estimates = [interval(np.random.default_rng((7, draw))) for draw in range(draws)]
    return sum(estimate.low <= truth <= estimate.high for estimate in estimates) / draws


def pooled(values):
    return np.column_stack([values, np.ones(len(values))])


def clustered(rng, clusters):
    """Cluster labels and values with intraclass correlation 1/2 and 3 to 8 observations a cluster."""
    labels = np.repeat(np.arange(clusters), rng.integers(3, 9, clusters))
    return labels, rng.normal(size=clusters)[labels] + rng.normal(size=len(labels))


@pytest.mark.parametrize("n", [5, 8, 12, 19, 20, 30, 50, 100])
def test_normal_units(n):
    assert 0.93 <= coverage(lambda rng: mean(rng.normal(size=n)), 0.0, 3000) <= 0.97
    if n >= 20:  # below, from_sums of a mean is the t interval
        assert 0.93 <= coverage(lambda rng: from_sums(pooled(rng.normal(size=n))), 0.0, 1000) <= 0.97


@pytest.mark.parametrize("n", [5, 8, 20, 100])
def test_normal_clusters_of_unequal_size(n):
    def by_unit(rng):
        labels, values = clustered(rng, n)
        return mean(values, labels)

    def by_observation(rng):
        labels, values = clustered(rng, n)
        return from_sums(pooled(values), clusters=labels)

    assert 0.93 <= coverage(by_unit, 0.0, 1000) <= 0.97
    assert 0.93 <= coverage(by_observation, 0.0, 1000) <= 0.97


@pytest.mark.parametrize("n", [5, 12, 40])
def test_arms(n):
    assert 0.93 <= coverage(lambda rng: paired(rng.normal(1, 1, n), rng.normal(0, 3, n)), 1.0, 1000) <= 0.97
    assert 0.93 <= coverage(lambda rng: welch(rng.normal(1, 1, n), rng.normal(0, 3, n + 3)), 1.0, 1000) <= 0.97


@pytest.mark.parametrize("n", [20, 30, 100])
def test_skewed_units(n):
    assert coverage(lambda rng: from_sums(pooled(rng.exponential(size=n))), 1.0, 1000) >= 0.90
    assert coverage(lambda rng: from_sums(np.exp(rng.normal(0, 0.7, (n, 2)))), 1.0, 1000) >= 0.90


def test_strata():
    for n in (12, 30):
        strata = np.arange(n) % 3

        def interval(rng, n=n, strata=strata):
            return from_sums(pooled(rng.normal(size=n) + 5 * strata), strata=strata)

        assert 0.93 <= coverage(interval, 5.0, 1000) <= 0.97


def test_auroc_of_clustered_scores():
    labels, clusters = np.tile([0, 1, 0, 1], 30), np.repeat(np.arange(30), 4)

    def interval(rng):
        scores = rng.normal(size=120) + labels + 0.5 * rng.normal(size=30)[clusters]
        return from_weights(auroc(scores, labels), 120, clusters=clusters)

    assert 0.91 <= coverage(interval, 0.73645, 300) <= 0.99  # Phi(1 / sqrt(2.5)); standard error .013


def test_ignoring_clusters_is_what_the_cluster_bootstrap_repairs():
    def naive(rng):
        _, values = clustered(rng, 30)
        return bootstrap_sums(pooled(values)).interval()

    assert coverage(naive, 0.0, 400) < 0.85
