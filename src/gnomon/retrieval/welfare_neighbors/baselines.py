"""What people use today, and the control that keeps a diverse answer honest.

Each takes a pool as :func:`~gnomon.retrieval.welfare_neighbors.select` does, with one attribute a candidate, and
returns positions (queries, k), -1 where results ran out. :func:`mmr` and :func:`dpp_map` know nothing of attributes and
need the candidates' vectors instead.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

Positions = Int[np.ndarray, "query k"]


def topk(similarity: Float[np.ndarray, "query candidate"], k: int) -> Positions:
    """The k most similar candidates; ties in the order of the pool."""
    return _padded(np.argsort(-np.asarray(similarity), axis=1, kind="stable")[:, :k], k)


def quota(
    similarity: Float[np.ndarray, "query candidate"],
    attributes: Int[np.ndarray, "query candidate"],
    k: int,
    *,
    limit: int,
    fill: bool = False,
) -> Positions:
    """The most similar candidates, at most ``limit`` of an attribute ("k'-colourful").

    Args:
        similarity: Of the pool.
        attributes: One number a candidate.
        k: Results wanted.
        limit: Results allowed an attribute.
        fill: Fill up by similarity once the quota leaves nobody; otherwise fewer than k come back.

    Raises:
        ValueError: If ``limit`` is below 1.

    Source: Anand et al. (2025), "Graph-Based Algorithms for Diverse Similarity Search".
    """
    if limit < 1:
        raise ValueError(f"limit must be >= 1, got {limit}")
    order = np.argsort(-np.asarray(similarity), axis=1, kind="stable")
    sorted_codes = np.take_along_axis(np.asarray(attributes), order, axis=1)
    within = np.empty_like(sorted_codes)
    for row, codes in zip(within, sorted_codes, strict=True):
        by_code = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[by_code], prepend=codes[by_code[0]] - 1))
        sizes = np.diff(np.append(starts, len(codes)))
        row[by_code] = np.arange(len(codes)) - np.repeat(starts, sizes)
    allowed = within < limit
    first = np.argsort(~allowed, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(order, first, axis=1)
    if not fill:
        chosen = np.where(np.take_along_axis(allowed, first, axis=1), chosen, -1)
    return _padded(chosen, k)


def mmr(
    similarity: Float[np.ndarray, "query candidate"],
    vectors: Float[np.ndarray, "query candidate d"],
    k: int,
    *,
    trade: float = 0.5,
) -> Positions:
    r"""Maximal marginal relevance: repeatedly the candidate with the largest

    .. math:: \lambda\,\sigma(q, v) - (1 - \lambda) \max_{u \in S} \cos(u, v).

    Args:
        similarity: Of the pool, on the scale of a cosine.
        vectors: The candidates' vectors.
        k: Results wanted.
        trade: :math:`\lambda` in [0, 1]; 1 is top-k.

    Source: Carbonell & Goldstein (1998), "The use of MMR".
    """
    if not 0 <= trade <= 1:
        raise ValueError(f"trade must lie in [0, 1], got {trade}")
    relevance, unit = np.asarray(similarity, dtype=np.float64), _unit(vectors)
    row = np.arange(len(relevance))
    nearest = np.zeros_like(relevance)
    taken = np.zeros(relevance.shape, dtype=bool)
    chosen = []
    for step in range(min(k, relevance.shape[1])):
        best = np.where(taken, -np.inf, trade * relevance - (1 - trade) * nearest).argmax(axis=1)
        chosen.append(best)
        taken[row, best] = True
        cosine = np.einsum("qcd,qd->qc", unit, unit[row, best])
        nearest = cosine if step == 0 else np.maximum(nearest, cosine)
    return _padded(np.stack(chosen, axis=1), k)


def dpp_map(
    similarity: Float[np.ndarray, "query candidate"],
    vectors: Float[np.ndarray, "query candidate d"],
    k: int,
    *,
    sharpness: float = 1.0,
) -> Positions:
    r"""Greedy most probable set of a determinantal point process with kernel
    :math:`L_{ij} = e^{a(\sigma_i + \sigma_j)/2} \cos(v_i, v_j)`.

    Args:
        similarity: Of the pool.
        vectors: The candidates' vectors.
        k: Results wanted.
        sharpness: a; large approaches top-k.

    Source: Chen, Zhang & Zhou (2018), "Fast greedy MAP inference for determinantal point process".
    """
    relevance, unit = np.asarray(similarity, dtype=np.float64), _unit(vectors)
    queries, candidates = relevance.shape
    quality = np.exp(0.5 * sharpness * (relevance - relevance.max(axis=1, keepdims=True)))
    row = np.arange(queries)
    volume = quality**2  # squared volume each candidate would add to the set
    factors = np.zeros((queries, min(k, candidates), candidates))
    taken = np.zeros(relevance.shape, dtype=bool)
    chosen = []
    for step in range(min(k, candidates)):
        best = np.where(taken, -np.inf, volume).argmax(axis=1)
        chosen.append(best)
        taken[row, best] = True
        kernel = quality * quality[row, best][:, None] * np.einsum("qcd,qd->qc", unit, unit[row, best])
        explained = np.einsum("qsc,qs->qc", factors[:, :step], factors[row, :step, best])
        root = np.sqrt(np.maximum(volume[row, best], 1e-12))[:, None]
        factors[:, step] = (kernel - explained) / root
        volume = volume - factors[:, step] ** 2
    return _padded(np.stack(chosen, axis=1), k)


def matched_random_swap(
    similarity: Float[np.ndarray, "query candidate"],
    attributes: Int[np.ndarray, "query candidate"],
    chosen: Positions,
    rng: np.random.Generator,
) -> Positions:
    """The same swaps as ``chosen`` made, with chance deciding who comes in.

    Top-k loses the results that ``chosen`` left out; for each comes a random candidate of another attribute, of those
    no deeper in the ranking than the deepest that ``chosen`` went. So both give up equally many results for candidates
    from the same stretch of the ranking, and what is left of a difference is owed to the choice.

    Args:
        similarity: Of the pool.
        attributes: One number a candidate.
        chosen: A method's answer on the same pool.
        rng: Source of randomness.
    """
    order = np.argsort(-np.asarray(similarity), axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    k = chosen.shape[1]
    swapped = np.full_like(chosen, -1)
    for query, row in enumerate(chosen):
        picked = rank[query, row[row >= 0]]
        codes = attributes[query, order[query]]
        free = list(range(k, int(picked.max(initial=0)) + 1))
        answer = list(range(min(k, len(codes))))
        for out in set(answer) - set(picked.tolist()):
            other = [place for place in free if codes[place] != codes[out]] or free
            if other:
                answer[out] = int(rng.choice(other))
                free.remove(answer[out])
        swapped[query, : len(answer)] = order[query, answer]
    return swapped


def _unit(vectors: Float[np.ndarray, "query candidate d"]) -> Float[np.ndarray, "query candidate d"]:
    array = np.asarray(vectors, dtype=np.float64)
    return array / np.maximum(np.linalg.norm(array, axis=-1, keepdims=True), np.finfo(np.float64).tiny)


def _padded(chosen: Positions, k: int) -> Positions:
    return np.pad(chosen, ((0, 0), (0, k - chosen.shape[1])), constant_values=-1)
