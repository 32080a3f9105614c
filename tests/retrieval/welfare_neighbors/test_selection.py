"""Selection against brute force, against itself in its other forms, and against what must hold by theory."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from gnomon.retrieval.welfare_neighbors.selection import select
from gnomon.retrieval.welfare_neighbors.welfare import welfare

EXPONENTS = (1.0, 0.5, 0.0, -0.5, -1.0, -10.0)
RAW = {"contrast": "none", "eta": 0.3}


def brute_force(similarity, sets, k, p, eta, count):
    """Largest welfare over all sets of k candidates."""
    return max(
        float(welfare(utilities_of(similarity, sets, chosen, count), p, eta=eta))
        for chosen in combinations(range(len(similarity)), k)
    )


def utilities_of(similarity, sets, chosen, count):
    served = np.zeros(count)
    for candidate in chosen:
        for attribute in sets[candidate]:
            served[attribute] += similarity[candidate]
    return served


@pytest.mark.parametrize("p", [*EXPONENTS, -400.0])
@pytest.mark.parametrize("eta", [1e-4, 0.1, 3.0])
def test_greedy_is_optimal_with_one_attribute_a_candidate(p, eta):
    rng = np.random.default_rng(int(1000 * eta))
    for _ in range(5):
        similarity, codes = rng.random(9), rng.integers(0, 4, 9)
        chosen = select(similarity, codes, 4, p=p, eta=eta, contrast="none", n_attributes=4)
        best = brute_force(similarity, [{code} for code in codes], 4, max(p, -300), eta, 4)
        reached = welfare(utilities_of(similarity, [{c} for c in codes], chosen.indices[0], 4), max(p, -300), eta=eta)
        assert reached >= best * (1 - 1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
def test_reported_welfare_and_utilities_are_those_of_the_chosen(p):
    rng = np.random.default_rng(1)
    similarity, codes = rng.random((5, 30)), rng.integers(-1, 7, (5, 30, 3))
    codes[..., 0] = rng.integers(0, 7, (5, 30))
    codes = np.where(np.diff(np.sort(codes), prepend=-2) == 0, -1, np.sort(codes))  # no attribute twice
    codes = -np.sort(-codes)
    chosen = select(similarity, codes, 6, p=p, n_attributes=9, **RAW)
    for query in range(5):
        sets = [{a for a in row if a >= 0} for row in codes[query]]
        served = utilities_of(similarity[query], sets, chosen.indices[query], 9)
        assert chosen.utilities.toarray()[query] == pytest.approx(served)
        assert chosen.welfare[query] == pytest.approx(float(welfare(served, p, eta=0.3)), rel=1e-12)
    assert (np.diff(chosen.gains) <= 1e-12).all()


def test_eight_gains_by_hand():
    # eta = 1: utilities start at 1. Candidate of similarity 1: log 2; then to an attribute at 2: log 1.5.
    nash = select([1.0, 1.0, 1.0, 1.0], [0, 0, 1, 1], 4, contrast="none", eta=1.0)
    assert nash.gains[0] == pytest.approx(np.log([2, 2, 1.5, 1.5]))
    assert nash.indices[0].tolist() == [0, 2, 1, 3]
    harmonic = select([1.0, 1.0, 1.0, 1.0], [0, 0, 1, 1], 4, p=-1, contrast="none", eta=1.0)
    assert harmonic.gains[0] == pytest.approx([1 / 2, 1 / 2, 1 / 2 - 1 / 3, 1 / 2 - 1 / 3])


def test_p_one_is_top_k():
    rng = np.random.default_rng(2)
    similarity = np.round(rng.random((20, 50)), 1)  # many ties
    chosen = select(similarity, rng.integers(0, 5, (20, 50)), 10, p=1, contrast="none", eta=1e-3)
    assert (chosen.indices == np.argsort(-similarity, axis=1, kind="stable")[:, :10]).all()


@pytest.mark.parametrize("p", [0.5, 0.0, -1.0, -10.0, -400.0])
def test_equal_similarities_give_distinct_attributes(p):
    codes = np.repeat(np.arange(6), 5)
    chosen = select(np.ones(30), codes, 6, p=p)
    assert len(set(codes[chosen.indices[0]])) == 6


@pytest.mark.parametrize("p", [0.5, 0.0, -1.0, -10.0])
def test_a_query_only_one_attribute_can_serve_gets_only_that(p):
    codes = np.repeat(np.arange(4), 10)
    chosen = select((codes == 2).astype(float), codes, 10, p=p, contrast="none")
    assert (codes[chosen.indices[0]] == 2).all()


def test_smoothing_runs_from_distinct_attributes_to_top_k():
    rng = np.random.default_rng(3)
    similarity, codes = 0.1 + rng.random(60), rng.integers(0, 5, 60)
    top = np.argsort(-similarity)[:8]
    assert set(select(similarity, codes, 8, eta=1e9, contrast="none").indices[0]) == set(top)
    tiny = select(similarity, codes, 5, eta=1e-12, contrast="none").indices[0]
    assert len(set(codes[tiny])) == 5


@given(st.integers(0, 10_000), st.floats(0.1, 20), st.floats(-5, 5))
@settings(max_examples=40, deadline=None)
def test_choice_is_invariant_to_affine_changes_and_to_the_size_of_the_pool(seed, scale, shift):
    rng = np.random.default_rng(seed)
    similarity, codes = np.sort(rng.normal(size=80))[::-1], rng.integers(0, 6, 80)
    expected = select(similarity, codes, 7).indices
    assert (select(scale * similarity + shift, codes, 7).indices == expected).all()
    smaller = select(similarity[:60], codes[:60], 7)
    if smaller.certified[0]:
        assert (smaller.indices == expected).all()


@given(st.integers(0, 10_000), st.floats(0.01, 100))
@settings(max_examples=30, deadline=None)
def test_relative_smoothing_ignores_the_scale_without_contrast(seed, scale):
    rng = np.random.default_rng(seed)
    similarity, codes = rng.random(50), rng.integers(0, 6, 50)
    expected = select(similarity, codes, 7, contrast="none").indices
    assert (select(scale * similarity, codes, 7, contrast="none").indices == expected).all()


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_names_of_attributes_and_order_of_candidates_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    similarity, codes = rng.random(50), rng.integers(0, 6, 50)
    expected = select(similarity, codes, 7).indices[0]
    renamed, order = rng.permutation(6), rng.permutation(50)
    assert (select(similarity, renamed[codes], 7).indices[0] == expected).all()
    assert (order[select(similarity[order], codes[order], 7).indices[0]] == expected).all()


def test_prefix_holds_for_a_fixed_eta_and_not_for_a_relative_one():
    rng = np.random.default_rng(4)
    similarity, codes = rng.random((200, 60)), rng.integers(0, 6, (200, 60))
    five, six = (select(similarity, codes, k, **RAW).indices for k in (5, 6))
    assert (six[:, :5] == five).all()
    five, fifty = (select(similarity, codes, k, contrast="none").indices for k in (5, 50))
    assert (fifty[:, :5] != five).any()


@pytest.mark.parametrize("p", [1.0, 0.5, 0.0, -1.0, -10.0, -300.0, -400.0])
@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_dense_heap_torch_and_one_query_at_a_time_agree(p, each, weighted):
    rng = np.random.default_rng(5)
    similarity = rng.random((12, 40))
    codes = np.stack([[rng.choice(9, each, replace=False) for _ in range(40)] for _ in range(12)])
    if each > 1:
        codes[rng.random(codes.shape) < 0.2] = -1
    # Without contrast: it gives the best two the same score, and sums over attributes break such ties by rounding.
    options = {"p": p, "weights": rng.random(9) if weighted else None, "n_attributes": 9, "contrast": "none"}
    dense = select(similarity, codes, 7, **options)
    heap = select(similarity, codes, 7, backend="heap", **options)
    tensors = select(torch.tensor(similarity), torch.tensor(codes), 7, **options)
    assert isinstance(tensors.indices, torch.Tensor)
    for other in (heap.indices, tensors.indices.numpy()):
        assert (other == dense.indices).all()
    assert heap.gains == pytest.approx(dense.gains, rel=1e-12)
    assert tensors.gains.numpy() == pytest.approx(dense.gains, rel=1e-12)
    one = [select(similarity[i], codes[i], 7, **options).indices[0] for i in range(12)]
    assert (np.stack(one) == dense.indices).all()


def test_a_set_of_one_is_a_single_attribute():
    rng = np.random.default_rng(6)
    similarity, codes = rng.random(30), rng.integers(0, 5, 30)
    expected = select(similarity, codes, 6).indices
    assert (select(similarity, [{int(code)} for code in codes], 6).indices == expected).all()
    indicator = sparse.csr_array((np.ones(30), (np.arange(30), codes)), shape=(30, 5))
    assert (select(similarity, indicator, 6).indices == expected).all()


@pytest.mark.parametrize("p", [0.5, 0.0, -1.0])
def test_several_attributes_reach_the_greedy_bound_of_the_transformed_gain(p):
    rng = np.random.default_rng(7)

    def objective(sets, chosen, eta):
        level = utilities_of(similarity, sets, chosen, 8) + eta
        return np.log(level).sum() if p == 0 else (level**p).sum() / p

    for _ in range(6):
        similarity = rng.random(10)
        sets = [{int(a), 4 + int(b)} for a, b in rng.integers(0, 4, (10, 2))]
        for eta in (0.05, 3.0):
            chosen = select(similarity, sets, 3, p=p, eta=eta, contrast="none").indices[0]
            start = objective(sets, (), eta)
            best = max(objective(sets, each, eta) for each in combinations(range(10), 3)) - start
            assert objective(sets, chosen, eta) - start >= (1 - 1 / np.e) * best


@pytest.mark.parametrize("p", [0.5, 0.0, -1.0, -5.0])
def test_an_alpha_approximate_oracle_costs_at_most_alpha(p):
    rng = np.random.default_rng(8)
    for _ in range(40):
        similarity, codes = rng.random(60), rng.integers(0, 5, 60)
        seen = rng.random(60) < 0.8
        alpha = 1.0
        for attribute in range(5):
            exact = -np.sort(-similarity[codes == attribute])[:4]
            ours = -np.sort(-similarity[(codes == attribute) & seen])[:4]
            alpha = min(alpha, *(np.pad(ours, (0, len(exact) - len(ours))) / exact))
        best = select(similarity, codes, 4, p=p, n_attributes=5, **RAW).welfare[0]
        found = select(similarity[seen], codes[seen], 4, p=p, n_attributes=5, **RAW).welfare[0]
        assert found >= alpha * best * (1 - 1e-12)


def test_certificate_is_never_wrong_and_often_given():
    rng = np.random.default_rng(9)
    given_out = 0
    for _ in range(300):
        similarity, codes = -np.sort(-rng.random(300)), rng.integers(0, 12, 300)
        full = select(similarity, codes, 8, contrast="none")
        pool = select(similarity[:60], codes[:60], 8, contrast="none")
        if pool.certified[0]:
            given_out += 1
            assert (pool.indices == full.indices).all()
    assert given_out > 20


def test_min_max_depends_on_the_pool_and_is_never_certified():
    chosen = select(np.linspace(1, 0, 50), np.arange(50) % 3, 5, contrast="minmax")
    assert not chosen.certified.any()


def test_too_few_candidates_are_padded():
    chosen = select([0.9, 0.5, 0.4], [0, 1, -1], 4)
    assert chosen.indices.tolist() == [[0, 1, -1, -1]]
    assert chosen.n_returned.tolist() == [2]
    assert np.isneginf(chosen.similarity[0, 2:]).all()
    assert np.isneginf(chosen.gains[0, 2:]).all()


def test_a_query_without_candidates_gets_none():
    chosen = select(np.array([[-np.inf, -np.inf], [0.5, -np.inf]]), np.array([[-1, -1], [0, -1]]), 2)
    assert chosen.indices.tolist() == [[-1, -1], [0, -1]]
    assert chosen.welfare[0] == pytest.approx(chosen.eta[0])


def test_tied_leaders_take_their_scale_from_the_first_candidate_below_them():
    similarity = [1.0] * 15 + [0.9] * 5
    chosen = select(similarity, [0] * 15 + [1] * 5, 10)
    assert chosen.tau == pytest.approx([0.1])
    assert (chosen.indices >= 15).sum() >= 1
    assert np.isfinite(select([0.5] * 6, [0, 0, 0, 1, 1, 2], 3).score).all()


def test_negative_similarities_are_clipped_and_counted():
    chosen = select([0.5, -0.2, -0.3], [0, 1, 2], 2, contrast="none")
    assert chosen.clipped.tolist() == [2]
    assert chosen.similarity[0].tolist() == [0.5, -0.2]
    assert chosen.score[0].tolist() == [0.5, 0.0]


def test_weights_steer_between_attributes():
    similarity, codes = np.full(20, 0.5), np.repeat([0, 1], 10)
    even = select(similarity, codes, 8, **RAW).utilities.toarray()[0]
    tilted = select(similarity, codes, 8, weights=[3.0, 1.0], **RAW).utilities.toarray()[0]
    assert even[0] == even[1]
    assert tilted[0] > tilted[1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"k": 0}, ValueError, "k must be >= 1"),
        ({"p": 1.1}, ValueError, "not concave"),
        ({"gamma": 0}, ValueError, "gamma must be a number > 0"),
        ({"tau": -1.0}, ValueError, "tau must be a number > 0"),
        ({"eta": 0.0}, ValueError, "eta must be > 0"),
        ({"contrast": "log"}, ValueError, "contrast must be"),
        ({"backend": "cuda"}, ValueError, "backend must be"),
        ({"similarity": [0.1, np.nan, 0.2]}, ValueError, "not finite: nan at query 0, candidate 1"),
        ({"attributes": [0, 1]}, ValueError, "entry for each of"),
        ({"attributes": [0.5, 1.0, 2.0]}, TypeError, "labels, not measurements: got 0.5"),
        ({"attributes": ["a", "b", "c"]}, TypeError, "encode_attributes"),
        ({"weights": [1.0]}, ValueError, "weights must be 3 finite"),
        ({"n_attributes": 2}, ValueError, "attribute 2 occurs"),
    ],
)
def test_bad_input(options, error, message):
    arguments = {"similarity": [0.3, 0.2, 0.1], "attributes": [0, 1, 2], "k": 2, **options}
    with pytest.raises(error, match=message):
        select(arguments.pop("similarity"), arguments.pop("attributes"), arguments.pop("k"), **arguments)
