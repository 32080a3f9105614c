"""What diverse retrieval would do on your own index: methods beside plain top-k and their controls, query by query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from gnomon.evidence import intervals, measures
from gnomon.retrieval.welfare_neighbors import metrics
from gnomon.retrieval.welfare_neighbors.attributes import Attributes, Missing, encode_attributes
from gnomon.retrieval.welfare_neighbors.baselines import matched_random_swap, quota, topk
from gnomon.retrieval.welfare_neighbors.indexes import Index, checked_pool
from gnomon.retrieval.welfare_neighbors.selection import select

METHODS = ("top-k", "nash", "quota", "quota-filled", "matched-random-swap", "shuffled-attributes")
READINGS = ("relevance_ratio", "recall", "entropy_bits", "distinct", "effective", "largest_share")


@dataclass(frozen=True)
class DiversityReport:
    """How methods answer the same queries.

    Args:
        per_query: One row a query, class of attributes and method: the readings.
        summary: Their means with 95 % intervals over queries.
        difference: Each method minus top-k, paired by query.
        exposure: Share of all results that each attribute gets, by method, with its share of the collection.
        gini: Gini coefficient of these shares by class and method: 0 if all attributes are shown equally.
        certified: Share of queries whose Nash answer no candidate beyond the pool could have changed, by class.
        pool_size: Candidates fetched a query.
    """

    per_query: pd.DataFrame
    summary: pd.DataFrame
    difference: pd.DataFrame
    exposure: pd.DataFrame
    gini: pd.DataFrame
    certified: dict[str, float]
    pool_size: int


def diversity_report(
    index: Index,
    queries: Float[np.ndarray, "query d"],
    attributes: Any,
    *,
    k: int = 10,
    pool_size: int = 200,
    limit: int = 2,
    p: float = 0.0,
    gamma: float = 0.1,
    methods: Sequence[str] = METHODS,
    missing: Missing = "group",
    seed: int = 0,
) -> DiversityReport:
    """Compare methods on the queries' pools; every class of attributes (column) is diversified and read by itself.

    Args:
        index: Where the vectors are; ids are positions in ``attributes``.
        queries: At least two.
        attributes: As :func:`~gnomon.retrieval.welfare_neighbors.encode_attributes` takes them.
        k: Results a query.
        pool_size: Candidates fetched.
        limit: Results a quota allows an attribute.
        p: Exponent of the welfare methods.
        gamma: Their smoothing.
        methods: Which of :data:`METHODS`; ``top-k`` is always measured.
        missing: What becomes of vectors without a label.
        seed: Of swaps and of shuffled labels.

    Raises:
        ValueError: If a method is unknown, there are fewer than two queries, or the pool is smaller than k.
    """
    if unknown := sorted(set(methods) - set(METHODS)):
        raise ValueError(f"unknown method {', '.join(unknown)}; known: {', '.join(METHODS)}")
    if len(queries) < 2:
        raise ValueError(f"intervals over queries need at least 2, got {len(queries)}")
    if pool_size < k:
        raise ValueError(f"pool_size must be at least k, got {pool_size} for {k}")
    encoded = encode_attributes(attributes, missing=missing)
    found, found_ids = index.search(queries, pool_size)
    similarity, ids = checked_pool(np.asarray(found), np.asarray(found_ids), len(queries))
    if ids.max(initial=-1) >= len(encoded):
        raise ValueError(f"the index returned id {ids.max()}, but attributes has {len(encoded)} entries")
    wanted = list(dict.fromkeys(["top-k", *methods]))
    rows, shown, certified = [], [], {}
    for number, name in enumerate(encoded.classes):
        codes, labels = _class_codes(encoded, number)
        pool_codes = np.where(ids >= 0, codes[ids], -1)
        rng = np.random.default_rng((seed, number))
        nash = select(np.where(ids >= 0, similarity, 0.0), pool_codes, k, p=p, gamma=gamma)
        certified[name] = float(np.mean(nash.certified))
        shuffled = np.where(ids >= 0, rng.permutation(codes)[ids], -1)
        collection = np.bincount(codes[codes >= 0], minlength=len(labels))
        for method in wanted:
            chosen = _answers(method, similarity, pool_codes, shuffled, nash.indices, k, limit, p, gamma, rng)
            counts = metrics.attribute_counts(pool_codes, chosen, len(labels))
            rows.append(_readings(similarity, chosen, counts).assign(attribute_class=name, method=method))
            shown.append(
                pd.DataFrame(
                    {
                        "attribute_class": name,
                        "method": method,
                        "attribute": [str(label) for label in labels],
                        "share": metrics.exposure(counts),
                        "collection": collection / collection.sum(),
                    }
                )
            )
    per_query, exposure = pd.concat(rows, ignore_index=True), pd.concat(shown, ignore_index=True)
    return DiversityReport(
        per_query,
        _summary(per_query),
        _differences(per_query),
        exposure,
        _gini(exposure),
        certified,
        ids.shape[1],
    )


def _answers(
    method: str,
    similarity: np.ndarray,
    codes: np.ndarray,
    shuffled: np.ndarray,
    nash: np.ndarray,
    k: int,
    limit: int,
    p: float,
    gamma: float,
    rng: np.random.Generator,
) -> Int[np.ndarray, "query k"]:
    known = np.where(codes >= 0, similarity, -np.inf)
    if method == "top-k":
        answer = topk(known, k)
    elif method == "nash":
        answer = nash
    elif method == "shuffled-attributes":
        answer = select(np.where(codes >= 0, similarity, 0.0), shuffled, k, p=p, gamma=gamma).indices
    elif method == "matched-random-swap":
        answer = matched_random_swap(known, codes, nash, rng)
    else:
        answer = quota(known, codes, k, limit=limit, fill=method == "quota-filled")
    missing = np.take_along_axis(codes, np.maximum(answer, 0), axis=1) < 0
    return np.where(missing, -1, answer)


def _readings(similarity: np.ndarray, chosen: np.ndarray, counts: np.ndarray) -> pd.DataFrame:
    known = np.where(np.isfinite(similarity), similarity, 0.0)
    return pd.DataFrame(
        {
            "query": np.arange(len(chosen)),
            "relevance_ratio": metrics.relevance_ratio(known, chosen),
            "recall": metrics.recall_at_k(known, chosen),
            "entropy_bits": metrics.attribute_entropy(counts),
            "distinct": metrics.distinct_count(counts),
            "effective": metrics.inverse_simpson(counts),
            "largest_share": metrics.largest_share(counts),
            "returned": counts.sum(axis=1),
        }
    )


def _summary(per_query: Any) -> pd.DataFrame:
    return _intervals(per_query, lambda rows, _, reading: rows[reading].to_numpy())


def _differences(per_query: Any) -> pd.DataFrame:
    base = per_query[per_query["method"] == "top-k"].set_index("attribute_class")
    others = per_query[per_query["method"] != "top-k"]
    return _intervals(
        others, lambda rows, name, reading: rows[reading].to_numpy() - base.loc[[name], reading].to_numpy()
    )


def _gini(exposure: Any) -> pd.DataFrame:
    shares = exposure.groupby(["attribute_class", "method"], sort=False)["share"]
    return shares.agg(lambda share: float(measures.gini(share))).rename("gini").reset_index()


def _intervals(per_query: Any, values: Any) -> pd.DataFrame:
    rows = []
    for (name, method), group in per_query.groupby(["attribute_class", "method"], sort=False):
        for reading in READINGS:
            seen = values(group, name, reading)
            estimate = intervals.mean(seen)
            rows.append(
                {
                    "attribute_class": name,
                    "method": method,
                    "reading": reading,
                    "value": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "sd": float(np.std(seen, ddof=1)),
                }
            )
    columns = ["attribute_class", "method", "reading", "value", "low", "high", "sd"]
    return pd.DataFrame(rows, columns=columns)


def _class_codes(encoded: Attributes, number: int) -> tuple[Int[np.ndarray, " vector"], list[Any]]:
    """Numbers of one class's attributes from 0, and their labels.

    Raises:
        ValueError: If a vector has several attributes of the class: there is no share to speak of.
    """
    members = np.flatnonzero(encoded.class_of == number)
    renumbered = np.full(encoded.count + 1, -1)
    renumbered[members] = np.arange(len(members))
    of_class = renumbered[encoded.codes]
    if ((of_class >= 0).sum(axis=1) > 1).any():
        raise ValueError("the report needs one label a vector and class; give several classes as columns, not as sets")
    labels: list[Any] = [encoded.names[member] for member in members]
    return of_class.max(axis=1), [label[1] if len(encoded.classes) > 1 else label for label in labels]
