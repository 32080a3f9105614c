r"""How good an answer is, query by query: relevance kept, and how its attributes are spread.

Relevance is measured on the raw similarity, never on a contrasted one. Recall punishes any diverse answer: k results of
similarity .99 beside a top k of .995 have recall 0 and relevance ratio .995.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from gnomon.evidence import measures

Chosen = Int[np.ndarray, "query k"]
PerQuery = Float[np.ndarray, " query"]


def relevance_ratio(similarity: Float[np.ndarray, "query candidate"], chosen: Chosen) -> PerQuery:
    r"""Similarity of the answer over that of the exact top k, :math:`\sum_{v \in S} \sigma / \sum_{v \in O} \sigma`.

    Args:
        similarity: Raw similarity of the pool, in which the exact top k must be.
        chosen: Positions in the pool; -1 adds nothing.
    """
    best = -np.sort(-similarity, axis=1)[:, : chosen.shape[1]]
    kept = np.where(chosen >= 0, np.take_along_axis(similarity, np.maximum(chosen, 0), axis=1), 0.0)
    return kept.sum(axis=1) / best.sum(axis=1)


def recall_at_k(similarity: Float[np.ndarray, "query candidate"], chosen: Chosen) -> PerQuery:
    """Share of the exact top k that is in the answer."""
    best = np.argsort(-similarity, axis=1, kind="stable")[:, : chosen.shape[1]]
    return (best[:, :, None] == chosen[:, None, :]).any(axis=2).mean(axis=1)


def attribute_counts(attributes: Int[np.ndarray, "query candidate"], chosen: Chosen, count: int) -> np.ndarray:
    """(queries, attributes) how many results of each answer carry an attribute."""
    codes = np.take_along_axis(attributes, np.maximum(chosen, 0), axis=1)
    held = (chosen >= 0) & (codes >= 0)
    query = np.broadcast_to(np.arange(len(chosen))[:, None], chosen.shape)
    flat = query[held] * count + codes[held]
    return np.bincount(flat, minlength=len(chosen) * count).reshape(len(chosen), count)


def attribute_entropy(counts: np.ndarray, *, base: measures.Base = "bits") -> PerQuery:
    """Entropy of the attributes' shares in each answer; at most :math:`\\log_2 \\min(k, c)` bits."""
    return _of_answers(counts, lambda known: measures.entropy(known, base=base))


def inverse_simpson(counts: np.ndarray) -> PerQuery:
    r"""Effective number of attributes, :math:`1 / \sum_\ell p_\ell^2`."""
    return _of_answers(counts, measures.inverse_simpson)


def distinct_count(counts: np.ndarray) -> PerQuery:
    """Attributes present in each answer."""
    return (counts > 0).sum(axis=1).astype(np.float64)


def largest_share(counts: np.ndarray) -> PerQuery:
    """Share of the most frequent attribute."""
    return _of_answers(counts, lambda known: known.max(axis=1) / known.sum(axis=1))


def attribute_precision(
    attributes: Int[np.ndarray, "query candidate"], chosen: Chosen, wanted: Int[np.ndarray, " query"]
) -> PerQuery:
    """Share of the results that carry the attribute the query names; -1 results count as without it."""
    codes = np.take_along_axis(attributes, np.maximum(chosen, 0), axis=1)
    return ((codes == wanted[:, None]) & (chosen >= 0)).mean(axis=1)


def exposure(counts: np.ndarray) -> Float[np.ndarray, " attribute"]:
    """Share of all results, over queries, that each attribute gets."""
    return counts.sum(axis=0) / counts.sum()


def _of_answers(counts: np.ndarray, measure) -> PerQuery:
    values = np.zeros(len(counts))
    answered = counts.sum(axis=1) > 0
    if answered.any():
        values[answered] = measure(counts[answered])
    return values
