"""Null generators: what they keep is kept exactly, what they destroy is uniform."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from gnomon.evidence.nulls import derangement, gaussian_surrogate, match_pairs, matched_random_sets, permute_within


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=20), st.integers(0, 100))
def test_permute_within_keeps_strata(strata, seed):
    order = permute_within(strata, np.random.default_rng(seed))
    assert sorted(order) == list(range(len(strata)))
    assert np.array(strata)[order].tolist() == strata


def test_permute_within_is_uniform():
    rng = np.random.default_rng(0)
    counts = Counter(tuple(permute_within([0, 1, 0, 1, 0], rng)) for _ in range(2400))
    assert len(counts) == 12
    assert chisquare(list(counts.values())).pvalue > 0.001


@given(st.integers(2, 30), st.integers(0, 100))
def test_derangement_moves_everything(size, seed):
    order = derangement(size, np.random.default_rng(seed))
    assert sorted(order) == list(range(size))
    assert (order != np.arange(size)).all()


def test_derangement_is_uniform():
    rng = np.random.default_rng(0)
    counts = Counter(tuple(derangement(4, rng)) for _ in range(1800))
    assert len(counts) == 9  # !4
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_gaussian_surrogate_keeps_mean_and_covariance_and_drops_the_rest():
    rng = np.random.default_rng(0)
    samples = rng.exponential(size=(300, 3)) @ np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.1]])
    drawn = gaussian_surrogate(samples, 60_000, rng)
    assert drawn.mean(axis=0) == pytest.approx(samples.mean(axis=0), abs=0.05)
    assert np.cov(drawn.T) == pytest.approx(np.cov(samples.T), rel=0.05, abs=0.05)
    skewness = ((drawn - drawn.mean(axis=0)) ** 3).mean(axis=0) / drawn.std(axis=0) ** 3
    assert np.abs(skewness).max() < 0.05  # 5 s.e. of a normal sample's skewness; the samples have about 2


def test_gaussian_surrogate_of_fewer_samples_than_dimensions_stays_in_their_span():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(4, 9))
    drawn = gaussian_surrogate(samples, 50, rng)
    assert np.linalg.matrix_rank(drawn - samples.mean(axis=0), tol=1e-8) == 3


LAYERS = np.repeat(np.arange(5), 6)


def test_matched_sets_match_every_prefix():
    targets = np.array([7, 0, 8, 29, 9])
    sets = matched_random_sets(targets, LAYERS, 200, np.random.default_rng(0))
    assert sets.shape == (200, 5)
    assert (LAYERS[sets] == LAYERS[targets]).all()  # position by position, hence for every prefix
    assert all(len(set(row)) == 5 for row in sets.tolist())
    assert not np.isin(sets, targets).any()


def test_matched_sets_are_uniform_over_what_is_allowed():
    sets = matched_random_sets([0, 1], [0] * 6, 3000, np.random.default_rng(0), exclude=[5])
    counts = Counter(map(tuple, sets.tolist()))
    assert set(counts) == set(itertools.permutations(range(5), 2))
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_match_pairs_finds_the_best_assignment():
    rng = np.random.default_rng(0)
    treated, pool = rng.normal(size=(4, 2)), rng.normal(size=(6, 2))
    pairs = match_pairs(treated, pool, caliper=10.0, scale=[1.0, 1.0])
    best = min(
        itertools.permutations(range(6), 4),
        key=lambda chosen: np.linalg.norm(treated - pool[list(chosen)], axis=1).sum(),
    )
    assert pairs.tolist() == [[i, j] for i, j in enumerate(best)]


@given(st.integers(0, 500))
def test_match_pairs_keeps_the_caliper_and_as_many_pairs_as_possible(seed):
    rng = np.random.default_rng(seed)
    treated, pool = rng.normal(size=(4, 1)), rng.normal(size=(4, 1))
    pairs = match_pairs(treated, pool, caliper=0.5, scale=[1.0])
    near = np.abs(treated - pool.T) <= 0.5
    assert near[pairs[:, 0], pairs[:, 1]].all()
    most = max(sum(near[i, j] for i, j in enumerate(chosen)) for chosen in itertools.permutations(range(4)))
    assert len(pairs) == most
    assert len(set(pairs[:, 0])) == len(set(pairs[:, 1])) == len(pairs)


def test_match_pairs_scales_by_the_spread_of_both_groups():
    treated, pool = np.array([[0.0, 1.0], [1000.0, 1.0]]), np.array([[990.0, 1.0], [10.0, 1.0]])
    assert match_pairs(treated, pool).tolist() == [[0, 1], [1, 0]]
    assert match_pairs(treated, pool, caliper=0.001).tolist() == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: derangement(1, rng), "a derangement needs at least 2 items, got 1"),
        (lambda rng: gaussian_surrogate([[1.0, 2.0]], 5, rng), "a covariance needs at least 2 samples, got 1"),
        (lambda rng: matched_random_sets([1, 1], LAYERS, 2, rng), "targets repeat an item"),
        (lambda rng: matched_random_sets([30], LAYERS, 2, rng), "targets must be indices of the pool of 30 items"),
        (
            lambda rng: matched_random_sets([0, 1, 2, 3], LAYERS, 2, rng),
            "stratum 0 has 2 items outside the excluded ones, 4 needed",
        ),
        (lambda rng: match_pairs([[1.0]], [[1.0, 2.0]]), "treated has 1 covariates, pool 2"),
        (lambda rng: match_pairs([[1.0]], [[1.0]], scale=[0.0]), "scale must be positive, got 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call(np.random.default_rng(0))
