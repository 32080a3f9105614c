"""One protocol over nearest-neighbour indexes, and what each library returns turned into similarity.

faiss returns squared Euclidean distances, hnswlib and usearch return ``1 - cosine`` and ``1 - inner product``; all mark
what they did not find in ways of their own. Here a higher number is always better, candidates come in falling order,
and a missing one has id -1 and similarity -inf. Graph indexes explore at least as many nodes as candidates are asked
for: with fewer the tail of the list is silently poor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from gnomon.retrieval.welfare_neighbors.contrast import inverse_distance

Metric = Literal["cosine", "ip", "l2"]
Pool = tuple[Float[np.ndarray, "query candidate"], Int[np.ndarray, "query candidate"]]
Similarity = Callable[[Float[np.ndarray, "query d"], Float[np.ndarray, "vector d"]], Float[np.ndarray, "query vector"]]

METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")
_BLOCK = 1 << 24  # similarities held at once by exact search
_EXPLORED = 200  # nodes that a search of a graph built here visits at least


@runtime_checkable
class Index(Protocol):
    """Anything that finds candidates."""

    def search(self, queries: Float[np.ndarray, "query d"], count: int) -> Pool:
        """Similarity (queries, count), descending, and ids; -inf and -1 where there are no more."""
        ...


class BruteIndex:
    """Exact search by computing every similarity, in blocks of queries.

    Args:
        vectors: The collection.
        metric: ``cosine``, ``ip``, ``l2`` (similarity ``1 / (distance + delta)``), or a function from queries and
            vectors to a matrix of similarities.
    """

    def __init__(self, vectors: Float[np.ndarray, "vector d"], metric: Metric | Similarity = "cosine") -> None:
        self.metric = _known(metric)
        self.vectors = _unit(vectors) if metric == "cosine" else np.asarray(vectors)
        self._squares = None
        if metric == "l2":  # in float64: the squares of near vectors cancel
            self.vectors = self.vectors.astype(np.float64)
            self._squares = (self.vectors**2).sum(axis=1)

    def search(self, queries: Float[np.ndarray, "query d"], count: int) -> Pool:
        """The ``count`` most similar vectors, ties by their order in the collection."""
        count = min(count, len(self.vectors))
        rows = max(1, _BLOCK // len(self.vectors))
        parts = [self._search(queries[start : start + rows], count) for start in range(0, len(queries), rows)]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _search(self, queries: Float[np.ndarray, "query d"], count: int) -> Pool:
        closeness = self._closeness(queries)
        if count < closeness.shape[1]:
            ids = np.argpartition(-closeness, count - 1, axis=1)[:, :count]
            ids.sort(axis=1)
        else:
            ids = np.broadcast_to(np.arange(count), closeness.shape)
        found = np.take_along_axis(closeness, ids, axis=1)
        order = np.argsort(-found, axis=1, kind="stable")
        found, ids = np.take_along_axis(found, order, axis=1), np.take_along_axis(ids, order, axis=1)
        return (inverse_distance(np.sqrt(np.maximum(-found, 0))) if self.metric == "l2" else found), ids

    def _closeness(self, queries: Float[np.ndarray, "query d"]) -> Float[np.ndarray, "query vector"]:
        """What candidates are ranked by: the similarity, for ``l2`` the negative squared distance."""
        if callable(self.metric):
            return np.asarray(self.metric(queries, self.vectors))
        if self._squares is not None:
            return 2 * queries @ self.vectors.T - self._squares - (queries**2).sum(axis=1, keepdims=True)
        return (_unit(queries) if self.metric == "cosine" else queries) @ self.vectors.T


class _Adapted:
    """An index of another library: how to ask it, and how to read its answer."""

    def __init__(self, ask: Callable[[Any, int], tuple[Any, Any]], size: Callable[[], int], read: str) -> None:
        self._ask = ask
        self._size = size
        self._read = read

    def search(self, queries: Float[np.ndarray, "query d"], count: int) -> Pool:
        count = min(count, self._size())
        values, ids = self._ask(np.ascontiguousarray(queries, dtype=np.float32), count)
        values, ids = np.asarray(values, dtype=np.float64), np.asarray(ids).astype(np.int64)
        missing = (ids < 0) | ~np.isfinite(values)
        if self._read == "similarity":
            similarity = values
        elif self._read == "complement":
            similarity = 1.0 - values
        else:
            similarity = inverse_distance(np.where(missing, np.inf, np.sqrt(np.maximum(values, 0.0))))
        return np.where(missing, -np.inf, similarity), np.where(missing, -1, ids)


def from_faiss(index: Any) -> Index:
    """A faiss index with inner product or L2 metric; ``efSearch`` of an HNSW index is raised to the pool's size.

    Raises:
        ValueError: If the metric is neither.
    """
    import faiss

    if index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
        raise ValueError(f"the faiss index must have METRIC_INNER_PRODUCT or METRIC_L2, got {index.metric_type}")
    inner: Any = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index

    def ask(queries: np.ndarray, count: int) -> tuple[Any, Any]:
        if hasattr(inner, "hnsw"):
            inner.hnsw.efSearch = max(inner.hnsw.efSearch, count)
        return index.search(queries, count)

    read = "similarity" if index.metric_type == faiss.METRIC_INNER_PRODUCT else "squared"
    return _Adapted(ask, lambda: int(index.ntotal), read)


def from_hnswlib(index: Any) -> Index:
    """An ``hnswlib.Index``; its ``ef`` is raised to the pool's size."""

    def ask(queries: np.ndarray, count: int) -> tuple[Any, Any]:
        index.set_ef(max(index.ef, count))
        ids, distances = index.knn_query(queries, k=count)
        return distances, ids

    return _Adapted(ask, index.get_current_count, "squared" if index.space == "l2" else "complement")


def from_usearch(index: Any) -> Index:
    """A ``usearch.index.Index`` of metric ``cos``, ``ip`` or ``l2sq``; its expansion is raised to the pool's size.

    Raises:
        ValueError: If the metric is another.
    """
    from usearch.index import MetricKind

    reads = {MetricKind.Cos: "complement", MetricKind.IP: "complement", MetricKind.L2sq: "squared"}
    kind = index.metric_kind
    if kind not in reads:
        raise ValueError(f"the usearch index must have metric cos, ip or l2sq, got {kind}")

    def ask(queries: np.ndarray, count: int) -> tuple[Any, Any]:
        index.expansion_search = max(index.expansion_search, count)
        found = index.search(queries, count)
        keys = np.atleast_2d(found.keys).astype(np.int64)
        distances = np.atleast_2d(found.distances).astype(np.float64)
        counts = getattr(found, "counts", [keys.shape[1]])  # one query gives plain matches
        beyond = np.arange(keys.shape[1]) >= np.asarray(counts)[:, None]
        return np.where(beyond, np.inf, distances), np.where(beyond, -1, keys)

    return _Adapted(ask, lambda: len(index), reads[kind])


def from_callable(search: Callable[[Any, int], tuple[Any, Any]]) -> Index:
    """A function ``(queries, count) -> (similarity, ids)``, -1 marking a missing id.

    Its answers are checked: the search raises ValueError if shapes differ, similarities rise, or an id comes twice.
    """
    return _Called(search)


class _Called:
    """A function as an index."""

    def __init__(self, function: Callable[[Any, int], tuple[Any, Any]]) -> None:
        self._function = function

    def search(self, queries: Float[np.ndarray, "query d"], count: int) -> Pool:
        similarity, ids = self._function(queries, count)
        return checked_pool(np.asarray(similarity, dtype=np.float64), np.asarray(ids), len(queries))


def checked_pool(similarity: np.ndarray, ids: np.ndarray, queries: int) -> Pool:
    """A pool that an index returned, if it is one.

    Raises:
        ValueError: If shapes differ, ids are not whole numbers or repeat, or similarities are NaN or rise.
    """
    if similarity.ndim != 2 or similarity.shape != ids.shape or len(similarity) != queries:
        raise ValueError(
            f"an index must return similarities and ids of one shape ({queries}, count), "
            f"got {similarity.shape} and {ids.shape}"
        )
    if ids.dtype.kind not in "iu":
        raise ValueError(f"an index must return integer ids, got {ids.dtype}")
    ids = ids.astype(np.int64)
    known = np.where(ids >= 0, similarity, -np.inf)
    if np.isnan(known).any() or (known[:, 1:] > known[:, :-1]).any():
        raise ValueError("an index must return similarities that fall along each row, without NaN")
    ordered = np.sort(ids, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        query, place = np.argwhere(twice)[0]
        raise ValueError(f"an index returned id {ordered[query, place + 1]} twice for query {query}")
    return known, ids


def build_index(kind: str, vectors: Float[np.ndarray, "vector d"], metric: Metric | Similarity, seed: int) -> Index:
    """An index over the vectors: ``brute`` or the graph index of an installed library.

    Args:
        kind: ``brute``, ``faiss``, ``hnswlib`` or ``usearch``.
        vectors: The collection; ids are row numbers.
        metric: One of :data:`METRICS`; a function only with ``brute``.
        seed: Of hnswlib's levels.

    Raises:
        ValueError: If the kind is unknown, or a function is given as metric for a graph index.
        ImportError: If the library is not installed, naming the extra.
    """
    if kind == "brute":
        return BruteIndex(vectors, metric)
    if kind not in ("faiss", "hnswlib", "usearch"):
        raise ValueError(f"index must be 'auto', 'brute', 'faiss', 'hnswlib', 'usearch' or an Index, got {kind!r}")
    if not isinstance(_known(metric), str):
        raise ValueError(f"index {kind!r} needs a metric of {', '.join(METRICS)}; a function works with 'brute'")
    try:
        return _BUILDERS[kind](np.ascontiguousarray(vectors, dtype=np.float32), metric, seed)  # pyright: ignore
    except ImportError as error:
        raise ImportError(f"index {kind!r} is not installed: pip install 'gnomon[{kind}]'") from error


def _build_faiss(vectors: np.ndarray, metric: Metric, seed: int) -> Index:  # noqa: ARG001 - faiss has its own
    import faiss

    kind = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    graph = faiss.IndexHNSWFlat(vectors.shape[1], 16, kind)
    graph.hnsw.efSearch = _EXPLORED
    graph.add(_unit(vectors) if metric == "cosine" else vectors)  # pyright: ignore
    adapted = from_faiss(graph)
    return _Normalised(adapted) if metric == "cosine" else adapted


def _build_hnswlib(vectors: np.ndarray, metric: Metric, seed: int) -> Index:
    import hnswlib

    graph = hnswlib.Index(space=metric, dim=vectors.shape[1])
    graph.init_index(max_elements=len(vectors), ef_construction=200, M=16, random_seed=seed)
    graph.add_items(vectors)
    graph.set_ef(_EXPLORED)
    return from_hnswlib(graph)


def _build_usearch(vectors: np.ndarray, metric: Metric, seed: int) -> Index:  # noqa: ARG001 - usearch has its own
    from usearch.index import Index as Graph

    kind = {"cosine": "cos", "ip": "ip", "l2": "l2sq"}[metric]
    graph = Graph(ndim=vectors.shape[1], metric=kind, dtype="f32", expansion_search=_EXPLORED)  # not its half precision
    graph.add(np.arange(len(vectors)), vectors)
    return from_usearch(graph)


_BUILDERS = {"faiss": _build_faiss, "hnswlib": _build_hnswlib, "usearch": _build_usearch}


class _Normalised:
    """An inner-product index over unit vectors, asked with unit queries: cosine."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def search(self, queries: Float[np.ndarray, "query d"], count: int) -> Pool:
        return self._index.search(_unit(queries), count)


def _known(metric: Metric | Similarity) -> Metric | Similarity:
    if not callable(metric) and metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)} or a function, got {metric!r}")
    return metric


def _unit(vectors: np.ndarray) -> np.ndarray:
    array = np.asarray(vectors)
    norms = np.linalg.norm(array, axis=1, keepdims=True)
    return array / np.where(norms > 0, norms, 1.0)
