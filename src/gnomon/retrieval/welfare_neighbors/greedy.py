r"""Greedy maximisation of p-mean welfare: one marginal gain for every p, three ways to search for its maximum.

Adding a result of similarity :math:`s` to an attribute whose smoothed utility is :math:`b` raises
:math:`\tfrac1p \sum_\ell (u_\ell + \eta)^p` (for p = 0, :math:`\sum_\ell \log(u_\ell + \eta)`) by

.. math:: g(b, s) = \frac{(b + s)^p - b^p}{p}, \qquad g(b, s) = \log\Bigl(1 + \frac sb\Bigr)\ \text{for } p = 0.

Dividing by p makes greedy an argmax for negative p as well. Similarities arrive divided by :math:`\eta`, so that every
:math:`b` starts at 1. Candidates are compared by a *key*, an increasing function of the gain: for general p its
logarithm,

.. math:: \log g = p \log b + \log \frac{e^{p \log(1 + s/b)} - 1}{p},

which neither overflows nor cancels; for one attribute a candidate and p = 0 the ratio :math:`s / b`. With several
attributes a candidate's gain is the sum over them. Below p = -300 powers tell levels apart by order alone, and the
candidate is taken whose poorest attribute is poorest (the egalitarian rule). Equal keys go to the larger similarity,
then to the earlier candidate.

Gains never rise while results are added (the objective is monotone and submodular for p <= 1), which the heap uses.

Sources: Barman et al. (2026), Algorithms 1-3; Minoux (1978), "Accelerated greedy algorithms for maximizing submodular
set functions".
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int

EGALITARIAN = -300.0
_FLOOR = -1e300  # key of a candidate that adds nothing: below all others, above those already taken
_CHUNK = 1 << 15  # candidates worked on at once, so that a step stays in the processor's cache


def gain_key(similarity: Any, levels: Sequence[Any], weights: Sequence[Any] | None, p: float, xp: Any = np) -> Any:
    """Key of adding each candidate: increasing in the gain, the same for arrays and tensors.

    Args:
        similarity: Scaled similarity of the candidates, any shape.
        levels: For each of a candidate's attributes, the smoothed utility of that attribute.
        weights: For each, the attribute's weight (0 where a candidate has fewer attributes); ``None``: all 1.
        p: At most 1.
        xp: numpy or torch.
    """
    if p == 1:
        return similarity * (len(levels) if weights is None else sum(weights))
    if p < EGALITARIAN:
        present = (
            levels if weights is None else [xp.where(w > 0, b, np.inf) for w, b in zip(weights, levels, strict=True)]
        )
        poorest = present[0]
        for level in present[1:]:
            poorest = xp.minimum(poorest, level)
        return -poorest
    if p == 0:
        if weights is None and len(levels) == 1:
            return similarity / levels[0]
        gains = [xp.log1p(similarity / level) for level in levels]
        return sum(gains if weights is None else [w * gain for w, gain in zip(weights, gains, strict=True)])
    key = None
    for index, level in enumerate(levels):
        log_gain = p * xp.log(level) + xp.log(abs(xp.expm1(p * xp.log1p(similarity / level))) / abs(p))
        if weights is not None:
            log_gain = log_gain + xp.log(weights[index])
        key = log_gain if key is None else xp.logaddexp(key, log_gain)
    return key


def gain_of_key(key: Any, similarity: Any, p: float, *, ratio: bool, xp: Any = np) -> Any:
    """The gain behind a key, with eta as the unit of utility; under the egalitarian rule the similarity itself."""
    if p < EGALITARIAN:
        return similarity
    if p == 0:
        return xp.log1p(key) if ratio else key
    return key if p == 1 else xp.exp(key)


def greedy_dense(
    similarity: Any, attributes: Any, k: int, p: float, weights: Any = None, *, xp: Any = np
) -> tuple[Any, Any]:
    """Greedy for many queries at once: O(k L m) each, no loop over queries.

    Args:
        similarity: (queries, candidates), scaled by eta, descending in each row.
        attributes: (queries, candidates, attributes a candidate), -1 for none; a candidate with none is absent.
        k: Results wanted.
        p: At most 1.
        weights: Weight of each attribute, indexed by its number; ``None``: all 1.
        xp: numpy or torch; the arrays are its own.

    Returns:
        Positions (queries, k), -1 where candidates ran out, and gains (queries, k), -inf there.
    """
    if xp is not np:
        return _dense(similarity, attributes, k, p, weights, xp)
    rows = max(1, _CHUNK // max(1, attributes[0].size)) if len(attributes) else 1
    parts = [
        _dense(similarity[start : start + rows], attributes[start : start + rows], k, p, weights, np)
        for start in range(0, max(len(similarity), 1), rows)
    ]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _dense(similarity: Any, attributes: Any, k: int, p: float, weights: Any, xp: Any) -> tuple[Any, Any]:
    queries, _, each = attributes.shape
    codes = [attributes[:, :, j] for j in range(each)]
    if xp is np:
        codes = [np.ascontiguousarray(code) for code in codes]
    levels = [xp.ones_like(similarity) for _ in codes]
    taken = codes[0] < 0
    for code in codes[1:]:
        taken = taken & (code < 0)
    shares = _shares(codes, taken, weights, xp)
    ratio = p == 0 and each == 1 and shares is None
    # In the ratio form a taken candidate is one of similarity -inf: no mask has to be applied at every step.
    open_similarity = xp.where(taken, -np.inf, similarity) if ratio else similarity
    row = xp.arange(queries) if xp is np else xp.arange(queries, device=similarity.device)
    positions, gains = [], []
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(k):
            key = gain_key(open_similarity, levels, shares, p, xp)
            if not ratio:
                key = xp.where(taken, -np.inf, xp.where(key > _FLOOR, key, _FLOOR))
            best = key.argmax(axis=1)  # of equal keys the first, which is the most similar
            best_key, chosen = key[row, best], similarity[row, best]
            found = best_key > -np.inf
            positions.append(xp.where(found, best, -1))
            gains.append(xp.where(found, gain_of_key(best_key, chosen, p, ratio=ratio, xp=xp), -np.inf))
            if ratio:
                open_similarity[row, best] = -np.inf
            else:
                taken[row, best] = True
            added = xp.where(found, chosen, 0.0)[:, None]
            for picked in [code[row, best][:, None] for code in codes]:
                for code, level in zip(codes, levels, strict=True):
                    level += (code == picked) * added
    return xp.stack(positions, 1), xp.stack(gains, 1)


def greedy_heap(
    similarity: Float[np.ndarray, " candidate"],
    attributes: Int[np.ndarray, "candidate each"],
    k: int,
    p: float,
    weights: Float[np.ndarray, " attribute"] | None = None,
) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Greedy for one query with a heap of gains that may be out of date: a gain only falls, so one that is still on
    top after it was computed anew is the largest.

    With one attribute a candidate, only the most similar remaining candidate of each attribute can be next, and the
    cost after grouping is O(c + k log c) for c attributes. Arguments and results as :func:`greedy_dense`, one row.
    """
    single = attributes.shape[1] == 1
    if single and p == 0 and weights is None:
        return _greedy_by_ratio(similarity.tolist(), attributes[:, 0].tolist(), k)
    positions, gains = np.full(k, -1), np.full(k, -np.inf)
    queues = _queues(attributes[:, 0]) if single else [np.flatnonzero((attributes >= 0).any(axis=1))]
    heads = [queue[:1] if single else queue for queue in queues]
    following = {int(a): int(b) for queue in queues for a, b in pairwise(queue)} if single else {}
    levels: dict[int, float] = {}

    def key_of(position: int) -> float:
        codes = [int(code) for code in attributes[position] if code >= 0]
        held = [np.float64(levels.get(code, 1.0)) for code in codes]
        shares = None if weights is None else [weights[code] for code in codes]
        with np.errstate(divide="ignore", invalid="ignore"):
            key = float(gain_key(similarity[position], held, shares, p))
        return key if key > _FLOOR else _FLOOR

    heap = [(-key_of(int(position)), int(position), 0) for head in heads for position in head]
    heapq.heapify(heap)
    step = 0
    while heap and step < k:
        negative_key, position, computed = heapq.heappop(heap)
        if computed < step and not single:  # a lone attribute's gain changes only when its own head is taken
            heapq.heappush(heap, (-key_of(position), position, step))
            continue
        positions[step] = position
        gains[step] = gain_of_key(-negative_key, similarity[position], p, ratio=False)
        for code in attributes[position]:
            if code >= 0:
                levels[int(code)] = levels.get(int(code), 1.0) + float(similarity[position])
        step += 1
        if single and position in following:
            heapq.heappush(heap, (-key_of(following[position]), following[position], step))
    return positions, gains


def _greedy_by_ratio(
    similarity: list[float], codes: list[int], k: int
) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """The commonest case, one attribute a candidate and p = 0, in plain numbers: arrays of one element are slow.

    A candidate's ratio is at most its similarity, so the pool is read only as far as a better one may still lie.
    """
    levels: dict[int, float] = {}
    behind: dict[int, deque[int]] = {}  # for each attribute with a candidate on the heap, those read after it
    heap: list[tuple[float, int]] = []
    positions, ratios, read = [], [], 0
    while len(positions) < k:
        while read < len(codes) and (not heap or -heap[0][0] < similarity[read]):
            code = codes[read]
            if code in behind:
                behind[code].append(read)
            elif code >= 0:
                behind[code] = deque()
                heapq.heappush(heap, (-(similarity[read] / levels.get(code, 1.0)), read))
            read += 1
        if not heap:
            break
        negative_ratio, position = heap[0]
        positions.append(position)
        ratios.append(-negative_ratio)
        code = codes[position]
        level = levels[code] = levels.get(code, 1.0) + similarity[position]
        if behind[code]:
            following = behind[code].popleft()
            heapq.heapreplace(heap, (-(similarity[following] / level), following))
        else:
            heapq.heappop(heap)
            del behind[code]
    short = k - len(positions)
    return np.array([*positions, *[-1] * short]), np.concatenate([np.log1p(ratios), np.full(short, -np.inf)])


def _queues(codes: Int[np.ndarray, " candidate"]) -> list[Int[np.ndarray, " member"]]:
    """Positions of each attribute's candidates, most similar first."""
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    return np.split(order, cuts) if len(order) else []


def _shares(codes: Sequence[Any], absent: Any, weights: Any, xp: Any) -> list[Any] | None:
    """Weight of each of a candidate's attributes, or ``None`` if all are 1."""
    ragged = any(bool(((code < 0) & ~absent).any()) for code in codes)
    if weights is None and not ragged:
        return None
    given = [1.0 if weights is None else weights[xp.where(code < 0, 0, code)] for code in codes]
    return [xp.where(code < 0, 0.0, weight) for code, weight in zip(codes, given, strict=True)]
