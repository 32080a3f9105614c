"""Every method over its knob on the same pools, read query by query: the rows behind the study's fronts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from gnomon.retrieval.welfare_neighbors import metrics
from gnomon.retrieval.welfare_neighbors.baselines import dpp_map, matched_random_swap, mmr, quota, topk
from gnomon.retrieval.welfare_neighbors.selection import select

GAMMA, BETA = 0.1, 1.0
"""The frozen defaults. They were chosen on another generator: other relations, cities and seeds."""

GAMMAS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
BETAS = (0.25, 0.5, 1.0, 2.0, 4.0)
TRADES = (0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.93, 0.97)
SHARPNESSES = (2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 250.0)
EXPONENTS = (-10.0, -1.0, -0.5, 0.0, 0.5, 1.0)

METHODS = (
    "top-k",
    "welfare",
    "raw-cosine",
    "quota-filled",
    "matched-random-swap",
    "shuffled-attributes",
    "mmr",
    "dpp",
    "p-mean",
    "scale",
)


@dataclass(frozen=True)
class Pools:
    """Candidates of some queries.

    Args:
        similarity: (queries, candidates), descending.
        attributes: One number a candidate.
        shuffled: The same with the labels dealt anew over the collection.
        vectors: Vectors of the candidates.
        count: Attributes of the collection.
        wanted: Attribute that each query names, -1 if none.
    """

    similarity: Float[np.ndarray, "query candidate"]
    attributes: Int[np.ndarray, "query candidate"]
    shuffled: Int[np.ndarray, "query candidate"]
    vectors: Float[np.ndarray, "query candidate d"]
    count: int
    wanted: Int[np.ndarray, " query"]


def quota_limits(k: int) -> tuple[int, ...]:
    """Eight limits from 1 to most of k, spaced evenly on a logarithmic scale where whole numbers allow.

    >>> quota_limits(10), quota_limits(50)
    ((1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 5, 7, 12, 20, 34))
    """
    return tuple(max(step + 1, round(k ** (0.9 * step / 7))) for step in range(8))


def sweep(method: str, pools: Pools, k: int, rng: np.random.Generator) -> pd.DataFrame:
    """Readings of one method at every setting of its knob, one row a query and setting.

    Raises:
        ValueError: If there is no such method.
    """
    parts = []
    for knob, second, chosen in _answers(method, pools, k, rng):
        parts.append(readings(pools, chosen).assign(knob=knob, second=second))
    return pd.concat(parts, ignore_index=True)


def readings(pools: Pools, chosen: Int[np.ndarray, "query k"]) -> pd.DataFrame:
    """Relevance, spread and, for queries that name an attribute, precision; NaN for those that do not."""
    counts = metrics.attribute_counts(pools.attributes, chosen, pools.count)
    precision = metrics.attribute_precision(pools.attributes, chosen, pools.wanted)
    return pd.DataFrame(
        {
            "query": np.arange(len(chosen)),
            "ratio": metrics.relevance_ratio(pools.similarity, chosen),
            "recall": metrics.recall_at_k(pools.similarity, chosen),
            "entropy": metrics.attribute_entropy(counts),
            "distinct": metrics.distinct_count(counts),
            "precision": np.where(pools.wanted >= 0, precision, np.nan),
        }
    )


def trends(swept: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Spearman correlation of the exponent with relevance and spread of each query, and the same with the exponents
    dealt at random (``permuted-p``). Where a reading never changes the correlation is taken for 0.
    """
    rows = []
    for query, rows_of_query in swept.groupby("query", sort=False):
        knobs = rows_of_query["knob"].to_numpy()
        for arm, exponents in (("treatment", knobs), ("permuted-p", rng.permutation(knobs))):
            rows.append(
                {
                    "query": query,
                    "arm": arm,
                    "rho_ratio": _spearman(exponents, rows_of_query["ratio"].to_numpy()),
                    "rho_entropy": _spearman(exponents, rows_of_query["entropy"].to_numpy()),
                }
            )
    return pd.DataFrame(rows)


def certificates(pools: Pools, k: int, sizes: tuple[int, ...], settings: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """Answers from the first L candidates beside those from all: is a certified one ever different?

    The broken certificate compares similarities in place of gains: it forgets that an attribute nobody has seen yet is
    worth more.
    """
    rows = []
    for name, options in settings.items():
        whole = select(pools.similarity, pools.attributes, k, n_attributes=pools.count, **options)
        for size in sizes:
            near = select(
                pools.similarity[:, :size], pools.attributes[:, :size], k, n_attributes=pools.count, **options
            )
            rows.append(
                pd.DataFrame(
                    {
                        "query": np.arange(len(pools.similarity)),
                        "setting": name,
                        "pool": size,
                        "certified": near.certified,
                        "broken_certified": near.similarity[:, -1] >= pools.similarity[:, size - 1],
                        "same": (near.indices == whole.indices).all(axis=1),
                        "welfare_ratio": near.welfare / whole.welfare,
                    }
                )
            )
    return pd.concat(rows, ignore_index=True)


def _answers(
    method: str, pools: Pools, k: int, rng: np.random.Generator
) -> Iterator[tuple[float, float, Int[np.ndarray, "query k"]]]:
    similarity, attributes = pools.similarity, pools.attributes

    def chosen(codes: Int[np.ndarray, "query candidate"] = attributes, **options: Any) -> Int[np.ndarray, "query k"]:
        return select(similarity, codes, k, **options).indices

    if method == "top-k":
        yield 0.0, 0.0, topk(similarity, k)
    elif method == "welfare":
        yield from ((gamma, BETA, chosen(gamma=gamma)) for gamma in GAMMAS)
    elif method == "raw-cosine":
        yield from ((gamma, 0.0, chosen(gamma=gamma, contrast="none")) for gamma in GAMMAS)
    elif method == "quota-filled":
        for limit in quota_limits(k):
            yield float(limit), 0.0, quota(similarity, attributes, k, limit=limit, fill=True)
    elif method == "matched-random-swap":
        for gamma in GAMMAS:
            yield gamma, BETA, matched_random_swap(similarity, attributes, chosen(gamma=gamma), rng)
    elif method == "shuffled-attributes":
        yield from ((gamma, BETA, chosen(pools.shuffled, gamma=gamma)) for gamma in GAMMAS)
    elif method == "mmr":
        yield from ((trade, 0.0, mmr(similarity, pools.vectors, k, trade=trade)) for trade in TRADES)
    elif method == "dpp":
        yield from ((a, 0.0, dpp_map(similarity, pools.vectors, k, sharpness=a)) for a in SHARPNESSES)
    elif method == "p-mean":
        yield from ((p, BETA, chosen(p=p)) for p in EXPONENTS)
    elif method == "scale":
        yield from ((gamma, beta, chosen(gamma=gamma, beta=beta)) for gamma in GAMMAS[::2] for beta in BETAS)
    else:
        raise ValueError(f"no method {method!r}; there are {', '.join(METHODS)}")


def _spearman(first: np.ndarray, second: np.ndarray) -> float:
    ranks = rankdata(first), rankdata(second)
    if np.ptp(ranks[0]) == 0 or np.ptp(ranks[1]) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])
