"""The estimator: scikit-learn's conventions, exactness through every index library, the certificate, bad input."""

import warnings

import faiss
import hnswlib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator
from usearch.index import Index as UsearchIndex

from gnomon.retrieval.welfare_neighbors import (
    BruteIndex,
    InsufficientCandidatesWarning,
    WelfareNeighbors,
    from_callable,
    from_faiss,
    from_hnswlib,
    from_usearch,
    select,
)
from gnomon.retrieval.welfare_neighbors.indexes import build_index


@pytest.fixture(scope="module")
def collection():
    rng = np.random.default_rng(0)
    return rng.normal(size=(800, 12)).astype(np.float32), rng.integers(0, 9, 800)


def test_follows_the_conventions_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = check_estimator(WelfareNeighbors(n_neighbors=3), on_fail=None)
    failed = {check["check_name"] for check in checks if check["status"] == "failed"}
    assert failed == {"check_fit_score_takes_y"}  # our second argument is called attributes


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_pool_attribute_and_whole_collection_give_the_same(collection, metric):
    vectors, codes = collection
    index = BruteIndex(vectors, metric)
    similarity, ids = index.search(vectors[:20], len(vectors))
    whole = np.take_along_axis(ids, select(similarity, codes[ids], 6).indices, axis=1)
    for prefetch in ("pool", "attribute"):
        neighbours = WelfareNeighbors(6, metric=metric, prefetch=prefetch).fit(vectors, codes)
        _, found, details = neighbours.kneighbors(vectors[:20], return_details=True)
        assert details.certified.all()
        # 1 / (distance + delta) takes delta from the pool, so the l2 similarity is not quite the same in each.
        assert (found == whole).mean() == 1 if metric != "l2" else (found == whole).mean() > 0.95


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("kind", ["faiss", "hnswlib", "usearch"])
def test_graph_indexes_find_what_exact_search_finds(collection, metric, kind):
    vectors, _ = collection
    queries = vectors[:10] + 0.1
    exact, ids = BruteIndex(vectors, metric).search(queries, 50)
    found, found_ids = build_index(kind, vectors, metric, 0).search(queries, 50)
    assert (np.diff(found, axis=1) <= 1e-9).all()
    hits = np.mean([len(set(a) & set(b)) / 50 for a, b in zip(ids, found_ids, strict=True)])
    assert hits > 0.97
    # A graph index misses a neighbour now and then; the similarities it gives are those of the ones it found.
    for row, exact_row, exact_ids, row_ids in zip(found, exact, ids, found_ids, strict=True):
        known = dict(zip(exact_ids.tolist(), exact_row.tolist(), strict=True))
        both = [index for index, name in enumerate(row_ids.tolist()) if name in known]
        expected = [known[row_ids[index]] for index in both]
        assert row[both] == pytest.approx(expected, rel=1e-2)


def test_users_own_indexes(collection):
    vectors, codes = collection
    flat = faiss.IndexFlatL2(12)
    flat.add(vectors)
    graph = hnswlib.Index(space="l2", dim=12)
    graph.init_index(max_elements=800, random_seed=1)
    graph.add_items(vectors)
    small = UsearchIndex(ndim=12, metric="l2sq", dtype="f32")
    small.add(np.arange(800), vectors)
    expected = WelfareNeighbors(6, metric="l2").fit(vectors, codes).kneighbors(vectors[:20])[1]
    for index in (from_faiss(flat), from_hnswlib(graph), from_usearch(small)):
        found = WelfareNeighbors(6, index=index).fit(vectors, codes).kneighbors(vectors[:20])[1]
        assert (found == expected).mean() > 0.97
    assert graph.ef >= 200
    one = from_usearch(small).search(vectors[:1], 3)
    assert one[0].shape == one[1].shape == (1, 3)


def test_fewer_vectors_than_asked_for_are_marked_missing(collection):
    vectors, _ = collection
    flat = faiss.IndexIDMap(faiss.IndexFlatIP(12))
    flat.add_with_ids(vectors[:5], np.arange(5))
    similarity, ids = from_faiss(flat).search(vectors[:2], 20)
    assert ids.shape == (2, 5)
    assert (np.diff(similarity, axis=1) <= 0).all()


def test_metrics_that_are_no_similarity_are_refused():
    with pytest.raises(ValueError, match="METRIC_INNER_PRODUCT or METRIC_L2"):
        from_faiss(faiss.IndexFlat(4, faiss.METRIC_L1))
    with pytest.raises(ValueError, match="cos, ip or l2sq"):
        from_usearch(UsearchIndex(ndim=4, metric="hamming", dtype="b1"))


def test_the_pool_grows_until_the_answer_is_certain(collection):
    vectors, codes = collection
    options = {"pool_size": 10, "contrast": "none", "metric": lambda q, v: 5 + q @ v.T}
    fixed = WelfareNeighbors(8, expand="never", **options).fit(vectors, codes)
    grown = WelfareNeighbors(8, **options).fit(vectors, codes)
    few, many = (each.kneighbors(vectors[:20], return_details=True)[2] for each in (fixed, grown))
    assert few.certified.mean() < 1
    assert many.certified.mean() > few.certified.mean()
    assert many.pool_size.max() <= 80
    assert (many.pool_size[few.certified] == 10).all()
    whole = WelfareNeighbors(8, **{**options, "pool_size": 800}).fit(vectors, codes).kneighbors(vectors[:20])[1]
    found = grown.kneighbors(vectors[:20])[1]
    assert (found[many.certified] == whole[many.certified]).all()


def test_details_keep_what_the_answer_came_from(collection):
    vectors, codes = collection
    neighbours = WelfareNeighbors(5).fit(vectors, codes)
    similarity, ids, details = neighbours.kneighbors(vectors[:3], return_details=True)
    by_rank = BruteIndex(vectors).search(vectors[:3], 200)
    assert (np.take_along_axis(by_rank[1], details.rank, axis=1) == ids).all()
    assert np.take_along_axis(by_rank[0], details.rank, axis=1) == pytest.approx(similarity)
    assert (details.attributes[:, :, 0] == codes[ids]).all()
    assert (neighbours.kneighbors(vectors[:3], return_similarity=False) == ids).all()


def test_columns_are_classes_and_can_weigh_the_same(collection):
    vectors, codes = collection
    frame = pd.DataFrame({"seller": codes, "large": codes % 2 == 0})
    neighbours = WelfareNeighbors(6, weights="balanced").fit(vectors, frame)
    assert neighbours.classes_ == ("seller", "large")
    assert neighbours.attribute_names_[-1] == ("large", True)
    assert neighbours.kneighbors(vectors[:5])[1].shape == (5, 6)


def test_copies_are_returned_once():
    vectors = np.repeat(np.eye(3), 4, axis=0)
    labels = np.arange(12) % 4
    plain = WelfareNeighbors(3).fit(vectors, labels).kneighbors([[1.0, 0.5, 0.2]])[1]
    unique = WelfareNeighbors(3, dedupe=True).fit(vectors, labels).kneighbors([[1.0, 0.5, 0.2]])[1]
    assert len(np.unique(vectors[plain[0]], axis=0)) == 1
    assert sorted(unique[0].tolist()) == [0, 4, 8]


def test_too_few_candidates_warn_and_pad():
    neighbours = WelfareNeighbors(5, pool_size=5).fit(np.eye(3), [0, 1, 1])
    with pytest.warns(InsufficientCandidatesWarning, match="1 of 1 queries got fewer than 5 results"):
        similarity, ids = neighbours.kneighbors([[1.0, 0.1, 0.2]])
    assert ids[0, 3:].tolist() == [-1, -1]
    assert np.isneginf(similarity[0, 3:]).all()


def test_nearly_one_attribute_a_vector_warns(collection):
    with pytest.warns(UserWarning, match="nearly every vector is its own attribute"):
        WelfareNeighbors(3).fit(collection[0], np.arange(800))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool_size": 3}, "pool_size must be at least n_neighbors, got 3 for 10"),
        ({"metric": "manhattan"}, "metric must be one of cosine, ip, l2 or a function"),
        ({"index": "annoy"}, "index must be 'auto'"),
        ({"prefetch": "both"}, "prefetch must be one of"),
        ({"weights": "even"}, "weights must be None, 'balanced'"),
        ({"n_neighbors": 0}, "n_neighbors must be >= 1"),
        ({"index": "faiss", "metric": lambda q, v: q @ v.T}, "a function works with 'brute'"),
    ],
)
def test_bad_options(collection, options, message):
    vectors, codes = collection
    with pytest.raises(ValueError, match=message):
        WelfareNeighbors(**options).fit(vectors, codes).kneighbors(vectors[:1])


def test_bad_data(collection):
    vectors, codes = collection
    with pytest.raises(ValueError, match="attributes has 3 entries, X has 800"):
        WelfareNeighbors().fit(vectors, [1, 2, 3])
    with pytest.raises(NotFittedError):
        WelfareNeighbors().kneighbors(vectors)
    with pytest.raises(NotFittedError):
        clone(WelfareNeighbors().fit(vectors, codes)).kneighbors(vectors)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (([[0.9, 0.8]], [[1, 1]]), "returned id 1 twice for query 0"),
        (([[0.8, 0.9]], [[0, 1]]), "fall along each row"),
        (([[np.nan, 0.9]], [[0, 1]]), "without NaN"),
        (([[0.9]], [[0, 1]]), r"one shape \(1, count\)"),
        (([[0.9]], [[0.0]]), "integer ids"),
        (([[0.9, 0.8]], [[0, 5000]]), "returned id 5000, but 800 vectors"),
    ],
)
def test_an_index_that_misbehaves_is_caught(collection, answer, message):
    vectors, codes = collection
    neighbours = WelfareNeighbors(1, index=from_callable(lambda queries, count: answer)).fit(vectors, codes)
    with pytest.raises(ValueError, match=message):
        neighbours.kneighbors(vectors[:1])
