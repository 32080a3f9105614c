"""Baselines against a peer library and against plain loops."""

import numpy as np
import pytest
import pyversity

from gnomon.retrieval.welfare_neighbors import dpp_map, matched_random_swap, mmr, quota, select, topk


@pytest.fixture
def pool():
    rng = np.random.default_rng(0)
    vectors = np.abs(rng.normal(size=(4, 60, 8)))  # pyversity takes negative cosines for 0
    similarity = 0.3 + 0.5 * rng.random((4, 60))
    return similarity, vectors, rng.integers(0, 6, (4, 60))


@pytest.mark.parametrize("trade", [0.2, 0.5, 0.8])
def test_mmr_is_that_of_pyversity(pool, trade):
    similarity, vectors, _ = pool
    ours = mmr(similarity, vectors, 10, trade=trade)
    for query in range(4):
        peer = pyversity.mmr(vectors[query], similarity[query], k=10, diversity=1 - trade)
        assert ours[query].tolist() == peer.indices.tolist()


@pytest.mark.parametrize("diversity", [0.3, 0.7])
def test_dpp_is_that_of_pyversity(pool, diversity):
    similarity, vectors, _ = pool
    for query in range(4):
        # It weighs by exp of the z-score; the same kernel in our terms:
        sharpness = 2 * (1 - diversity) / (similarity[query].std() + 1e-6)
        ours = dpp_map(similarity[query : query + 1], vectors[query : query + 1], 8, sharpness=sharpness)
        peer = pyversity.dpp(vectors[query], similarity[query], k=8, diversity=diversity)
        assert ours[0].tolist() == peer.indices.tolist()


def test_extremes_of_mmr_and_dpp_are_top_k(pool):
    similarity, vectors, _ = pool
    best = topk(similarity, 7)
    assert (mmr(similarity, vectors, 7, trade=1.0) == best).all()
    assert (dpp_map(similarity, vectors, 7, sharpness=1e4) == best).all()
    with pytest.raises(ValueError, match="trade must lie"):
        mmr(similarity, vectors, 7, trade=2.0)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_quota_is_the_obvious_loop(pool, limit):
    similarity, _, codes = pool
    plain, filled = (quota(similarity, codes, 12, limit=limit, fill=fill) for fill in (False, True))
    for query in range(4):
        taken, rest = [], []
        for candidate in np.argsort(-similarity[query], kind="stable"):
            held = [c for c in taken if codes[query, c] == codes[query, candidate]]
            (rest if len(held) >= limit else taken).append(candidate)
        assert plain[query].tolist() == [*taken, *[-1] * 12][:12]
        assert filled[query].tolist() == [*taken, *rest][:12]


def test_quota_needs_a_limit(pool):
    similarity, _, codes = pool
    with pytest.raises(ValueError, match="limit must be >= 1"):
        quota(similarity, codes, 3, limit=0)


def test_matched_swap_gives_up_the_same_results_and_goes_no_deeper(pool):
    similarity, _, codes = pool
    chosen = select(similarity, codes, 8, contrast="none", gamma=0.01).indices
    swapped = matched_random_swap(similarity, codes, chosen, np.random.default_rng(1))
    best = topk(similarity, 8)
    rank = np.argsort(np.argsort(-similarity, axis=1), axis=1)
    for query in range(4):
        assert len(set(swapped[query])) == 8
        assert set(best[query]) - set(swapped[query]) == set(best[query]) - set(chosen[query])
        assert rank[query, swapped[query]].max() <= rank[query, chosen[query]].max()
    assert (swapped != chosen).any()


def test_a_swap_of_nothing_is_top_k(pool):
    similarity, _, codes = pool
    best = topk(similarity, 8)
    assert (np.sort(matched_random_swap(similarity, codes, best, np.random.default_rng(0))) == np.sort(best)).all()
