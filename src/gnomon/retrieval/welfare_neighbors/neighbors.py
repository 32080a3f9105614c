"""Nearest neighbours that serve attributes, in the manner of ``sklearn.neighbors.NearestNeighbors``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from gnomon.retrieval.welfare_neighbors.attributes import Missing, encode_attributes
from gnomon.retrieval.welfare_neighbors.contrast import Contrast
from gnomon.retrieval.welfare_neighbors.indexes import Index, Metric, Pool, Similarity, build_index, checked_pool
from gnomon.retrieval.welfare_neighbors.selection import Selection, select

_DOUBLINGS = 3


class InsufficientCandidatesWarning(UserWarning):
    """Some query got fewer results than it asked for; the rest of its row is -1."""


@dataclass(frozen=True)
class WelfareDetails:
    """How each query's answer came about.

    Args:
        gains: (queries, k) what each result added to the objective.
        rank: (queries, k) rank of each result by similarity alone, 0 for the best; -1 where there is none.
        attributes: (queries, k, m) attribute numbers of each result; -1 for none.
        welfare: (queries,) p-mean over all attributes of the collection.
        eta: (queries,) smoothing.
        tau: (queries,) scale of the contrast.
        clipped: (queries,) negative similarities set to 0.
        pool_size: (queries,) candidates looked at.
        certified: (queries,) whether no candidate beyond the pool could have changed the answer (with an exact index).
    """

    gains: Float[np.ndarray, "query k"]
    rank: Int[np.ndarray, "query k"]
    attributes: Int[np.ndarray, "query k each"]
    welfare: Float[np.ndarray, " query"]
    eta: Float[np.ndarray, " query"]
    tau: Float[np.ndarray, " query"]
    clipped: Int[np.ndarray, " query"]
    pool_size: Int[np.ndarray, " query"]
    certified: Bool[np.ndarray, " query"]


class WelfareNeighbors(BaseEstimator):
    """Neighbours of a query that are similar to it and spread over attributes.

    The defaults diversify as far as the query allows: one that asks for an attribute keeps it.

    Args:
        n_neighbors: Results a query.
        p: At most 1: 1 is plain nearest neighbours, 0 Nash welfare, very negative serves the worst-off first.
        gamma: Smoothing relative to the query's top k; larger means closer to plain nearest neighbours.
        eta: Smoothing in absolute terms, in place of ``gamma``.
        contrast: ``exp``, ``minmax`` or ``none``; see :func:`~gnomon.retrieval.welfare_neighbors.contrast.contrasted`.
        tau: Scale of the contrast.
        weights: ``None``: every attribute counts once; ``balanced``: every class of attributes does; or one number an
            attribute.
        metric: ``cosine``, ``ip``, ``l2``, or a function from queries and vectors to a matrix of similarities.
        pool_size: Candidates fetched by similarity; ``auto`` is ``20 k``, at least 200 and at most 2,000.
        prefetch: ``pool``: one search; ``attribute``: the k best of every attribute, one search each, with which the
            answer of single attributes is exact.
        expand: ``auto`` doubles the pool of a query whose answer is not certified, up to three times; ``never``.
        index: ``auto`` and ``brute`` search exactly; ``faiss``, ``hnswlib`` and ``usearch`` build a graph; or any
            :class:`~gnomon.retrieval.welfare_neighbors.Index` over the same rows.
        missing: What becomes of vectors without attributes: ``group``, ``own`` or ``error``.
        dedupe: Never return a vector equal to an earlier one: copies with different attributes only look diverse.
        random_state: Seed of hnswlib's graph.

    Attributes:
        attribute_names_: Names of the attributes, by number.
        classes_: Names of the classes of attributes (the columns).
        attributes_: Numbers of the attributes of each vector.
        index_: What is searched; with ``prefetch="attribute"`` one index an attribute.
        n_features_in_: Dimension of the vectors.

    >>> colours = ["red", "red", "red", "blue"]
    >>> found = WelfareNeighbors(2).fit([[1, 0], [1, 0.1], [1, 0.2], [1, 0.4]], colours)
    >>> found.kneighbors([[1, 0]], return_similarity=False)
    array([[0, 3]])
    """

    contrast: Contrast
    tau: float | Literal["auto"]
    metric: Metric | Similarity
    pool_size: int | Literal["auto"]
    missing: Missing
    index_: Any

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        p: float = 0.0,
        gamma: float = 0.1,
        eta: float | None = None,
        contrast: Contrast = "exp",
        tau: float | Literal["auto"] = "auto",
        weights: Any = None,
        metric: Metric | Similarity = "cosine",
        pool_size: int | Literal["auto"] = "auto",
        prefetch: Literal["pool", "attribute"] = "pool",
        expand: Literal["auto", "never"] = "auto",
        index: str | Index = "auto",
        missing: Missing = "group",
        dedupe: bool = False,
        random_state: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.p = p
        self.gamma = gamma
        self.eta = eta
        self.contrast = contrast
        self.tau = tau
        self.weights = weights
        self.metric = metric
        self.pool_size = pool_size
        self.prefetch = prefetch
        self.expand = expand
        self.index = index
        self.missing = missing
        self.dedupe = dedupe
        self.random_state = random_state

    def fit(self, X: Any, attributes: Any) -> WelfareNeighbors:
        """Index the vectors and number their attributes.

        Args:
            X: (vectors, d), finite.
            attributes: Labels (vectors,) or (vectors, m), a data frame whose columns are classes, sets of labels, or a
                sparse 0/1 matrix.

        Raises:
            ValueError: If lengths differ, a number is not finite, or an option is unknown.
        """
        if attributes is None:
            raise ValueError("WelfareNeighbors requires y to be passed, but the target y is None: y are the attributes")
        for name, allowed in (("prefetch", ("pool", "attribute")), ("expand", ("auto", "never"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        vectors: Any = validate_data(self, X, dtype=(np.float64, np.float32))
        encoded = encode_attributes(attributes, missing=self.missing)
        if len(encoded) != len(vectors):
            raise ValueError(f"attributes has {len(encoded)} entries, X has {len(vectors)} vectors")
        if len(vectors) >= 20 and encoded.count > 0.9 * len(vectors):
            warnings.warn(
                f"{encoded.count} attributes for {len(vectors)} vectors: nearly every vector is its own attribute, "
                "so the result is plain nearest neighbours",
                UserWarning,
                stacklevel=2,
            )
        self.attribute_names_, self.classes_ = encoded.names, encoded.classes
        self.attributes_ = _without_copies(vectors, encoded.codes) if self.dedupe else encoded.codes
        self._omega = encoded.balanced_weights() if isinstance(self.weights, str) else self.weights
        if isinstance(self.weights, str) and self.weights != "balanced":
            raise ValueError(f"weights must be None, 'balanced' or numbers, got {self.weights!r}")
        if self.prefetch == "attribute" and not isinstance(self.index, str):
            raise ValueError("prefetch='attribute' builds one index an attribute; give index a name, not an index")
        kind = "brute" if self.index == "auto" else self.index
        if self.prefetch == "attribute":
            self._members = [np.flatnonzero((self.attributes_ == a).any(axis=1)) for a in range(encoded.count)]
            self.index_ = [
                build_index(str(kind), vectors[rows], self.metric, self.random_state) for rows in self._members
            ]
        elif isinstance(kind, str):
            self.index_ = build_index(kind, vectors, self.metric, self.random_state)
        else:
            self.index_ = kind
        self.n_samples_fit_ = len(vectors)
        return self

    def kneighbors(
        self, X: Any, n_neighbors: int | None = None, *, return_similarity: bool = True, return_details: bool = False
    ) -> Any:
        """The neighbours of each query, in the order in which they were chosen.

        Args:
            X: (queries, d).
            n_neighbors: Results wanted; ``None``: as at construction.
            return_similarity: Also return the raw similarities.
            return_details: Also return :class:`WelfareDetails`.

        Returns:
            ``indices``, or a tuple of ``similarity``, ``indices`` and details as asked for; (queries, k) each, padded
            with -inf and -1 if there are too few candidates (then :class:`InsufficientCandidatesWarning` is given).

        Raises:
            NotFittedError: Before ``fit``.
            ValueError: If the pool is smaller than k, or the index returns something that is no pool.
        """
        check_is_fitted(self)
        queries: Any = validate_data(self, X, reset=False, dtype=(np.float64, np.float32))
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        size = self._first_pool_size(k)
        pool = self._fetch(queries, k, size)
        chosen = self._select(pool, k)
        ids, details = _answer(chosen, pool)
        similarity = chosen.similarity
        if self.prefetch == "attribute":
            details.certified[:] = self.attributes_.shape[1] == 1
        else:
            details.certified[:] |= size >= self.n_samples_fit_
            for _ in range(_DOUBLINGS if self.expand == "auto" else 0):
                open_queries = np.flatnonzero(~details.certified)
                if not len(open_queries) or size >= self.n_samples_fit_:
                    break
                size = min(2 * size, self.n_samples_fit_)
                pool = self._fetch(queries[open_queries], k, size)
                chosen = self._select(pool, k)
                new_ids, new = _answer(chosen, pool)
                new.certified[:] |= size >= self.n_samples_fit_
                ids[open_queries], similarity[open_queries] = new_ids, chosen.similarity
                for name in WelfareDetails.__dataclass_fields__:
                    getattr(details, name)[open_queries] = getattr(new, name)
        if (ids < 0).any():
            warnings.warn(
                f"{int((ids < 0).any(axis=1).sum())} of {len(ids)} queries got fewer than {k} results",
                InsufficientCandidatesWarning,
                stacklevel=2,
            )
        returned = [*([similarity] if return_similarity else []), ids, *([details] if return_details else [])]
        return returned[0] if len(returned) == 1 else tuple(returned)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _first_pool_size(self, k: int) -> int:
        if k < 1:
            raise ValueError(f"n_neighbors must be >= 1, got {k}")
        if self.pool_size == "auto":
            return min(int(np.clip(20 * k, 200, 2000)), self.n_samples_fit_)
        if self.pool_size < k:
            raise ValueError(f"pool_size must be at least n_neighbors, got {self.pool_size} for {k}")
        return min(self.pool_size, self.n_samples_fit_)

    def _select(self, pool: Pool, k: int) -> Selection:
        similarity, ids = pool
        codes = np.where((ids >= 0)[:, :, None], self.attributes_[ids], -1)
        return select(
            np.where(ids >= 0, similarity, 0.0),
            codes,
            k,
            p=self.p,
            eta=self.eta,
            gamma=self.gamma,
            contrast=self.contrast,
            tau=self.tau,
            weights=self._omega,
            n_attributes=len(self.attribute_names_),
        )

    def _fetch(self, queries: Float[np.ndarray, "query d"], k: int, size: int) -> Pool:
        if self.prefetch == "pool":
            found, found_ids = self.index_.search(queries, size)
            similarity, ids = checked_pool(np.asarray(found), np.asarray(found_ids), len(queries))
            if ids.max(initial=-1) >= self.n_samples_fit_:
                raise ValueError(f"the index returned id {ids.max()}, but {self.n_samples_fit_} vectors were fitted")
            return similarity, ids
        parts = [index.search(queries, k) for index in self.index_]
        similarity = np.concatenate([part[0] for part in parts], axis=1)
        ids = np.concatenate(
            [np.where(part[1] >= 0, rows[part[1]], -1) for part, rows in zip(parts, self._members, strict=True)], axis=1
        )
        order = np.argsort(-np.where(ids >= 0, similarity, -np.inf), axis=1, kind="stable")
        similarity, ids = np.take_along_axis(similarity, order, axis=1), np.take_along_axis(ids, order, axis=1)
        return similarity, np.where(_seen_before(ids), -1, ids)


def _answer(chosen: Selection, pool: Pool) -> tuple[Int[np.ndarray, "query k"], WelfareDetails]:
    found = chosen.indices >= 0
    ids = np.where(found, np.take_along_axis(pool[1], np.maximum(chosen.indices, 0), axis=1), -1)
    details = WelfareDetails(
        gains=chosen.gains,
        rank=chosen.indices,  # the pool is in order of similarity
        attributes=chosen.attributes,
        welfare=chosen.welfare,
        eta=chosen.eta,
        tau=chosen.tau,
        clipped=chosen.clipped,
        pool_size=(pool[1] >= 0).sum(axis=1),
        certified=np.array(chosen.certified),
    )
    return ids, details


def _seen_before(ids: Int[np.ndarray, "query candidate"]) -> Bool[np.ndarray, "query candidate"]:
    """Whether an id stands further left in its row: a vector fetched for several of its attributes."""
    order = np.argsort(ids, axis=1, kind="stable")
    ordered = np.take_along_axis(ids, order, axis=1)
    seen = np.zeros(ids.shape, dtype=bool)
    repeats = np.pad(ordered[:, 1:] == ordered[:, :-1], ((0, 0), (1, 0)))
    np.put_along_axis(seen, order, repeats, axis=1)
    return seen


def _without_copies(vectors: np.ndarray, codes: Int[np.ndarray, "vector each"]) -> Int[np.ndarray, "vector each"]:
    """The attributes, taken from every vector that equals an earlier one: without attributes it is never chosen."""
    _, first = np.unique(vectors, axis=0, return_index=True)
    kept = np.zeros(len(vectors), dtype=bool)
    kept[first] = True
    return np.where(kept[:, None], codes, -1)
