"""Small random instances whose optimum is known by trying everything: what greedy, broken greedy and chance reach."""

from __future__ import annotations

from itertools import combinations
from math import e

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from gnomon.retrieval.welfare_neighbors.selection import select
from gnomon.retrieval.welfare_neighbors.welfare import mean_of_levels

EXPONENTS = (1.0, 0.5, 0.0, -1.0, -10.0)
SMOOTHINGS = (1e-3, 0.05, 0.3, 1.0, 3.0)
BOUND = 1 - 1 / e
"""Share of the best gain that greedy reaches for monotone submodular objectives."""


def single_attribute(
    count: int, rng: np.random.Generator, *, size: int = 10, k: int = 4, kinds: int = 4
) -> pd.DataFrame:
    """Relative gap to the largest welfare, one attribute a candidate: greedy, and greedy made wrong on purpose.

    The broken variant takes the smallest gain for negative p, and for the other exponents ignores eta when it compares
    gains: the two mistakes that leave out a sign or a constant.

    Args:
        count: Instances.
        rng: Source of randomness.
        size: Candidates.
        k: Results.
        kinds: Attributes.
    """
    sets = np.array(list(combinations(range(size), k)))
    rows = []
    for index in range(count):
        similarity, codes = rng.random(size), rng.integers(0, kinds, size)
        p, eta = EXPONENTS[index % 5], SMOOTHINGS[index // 5 % 5]
        reached = _welfare_of(sets, similarity, codes[:, None], kinds, p, eta)
        chosen = select(similarity, codes, k, p=p, eta=eta, contrast="none", n_attributes=kinds)
        broken = _broken_greedy(similarity, codes, k, kinds, p, eta)
        found = _welfare_of(np.array([chosen.indices[0], broken]), similarity, codes[:, None], kinds, p, eta)
        gap, broken_gap = 1 - found / reached.max()
        rows.append({"instance": index, "exponent": p, "smoothing": eta, "gap": gap, "broken_gap": broken_gap})
    return pd.DataFrame(rows)


def several_attributes(
    count: int, rng: np.random.Generator, *, size: int = 12, k: int = 4, kinds: int = 4
) -> pd.DataFrame:
    """Share of the best gain of the transformed objective, two classes of attributes: greedy, quota, and chance.

    Args:
        count: Instances.
        rng: Source of randomness.
        size: Candidates.
        k: Results.
        kinds: Attributes of each class.
    """
    sets = np.array(list(combinations(range(size), k)))
    rows = []
    for index in range(count):
        similarity, codes = rng.random(size), rng.integers((0, kinds), (kinds, 2 * kinds), (size, 2))
        p, eta = EXPONENTS[1:][index % 4], SMOOTHINGS[1:][index // 4 % 4]
        gain = _gain_of(sets, similarity, codes, 2 * kinds, p, eta)
        chosen = select(similarity, codes[None], k, p=p, eta=eta, contrast="none")
        others = np.array([chosen.indices[0], _quota_greedy(similarity, codes, k)])
        greedy, quota = _gain_of(others, similarity, codes, 2 * kinds, p, eta) / gain.max()
        chance = gain[rng.integers(len(sets))] / gain.max()
        rows.append(
            {"instance": index, "exponent": p, "smoothing": eta, "greedy": greedy, "quota": quota, "random": chance}
        )
    return pd.DataFrame(rows)


def approximate_oracles(
    count: int, rng: np.random.Generator, *, size: int = 120, k: int = 6, kinds: int = 6
) -> pd.DataFrame:
    r"""Welfare through an index that misses candidates, over exact welfare, beside the index's measured
    :math:`\alpha`.

    :math:`\alpha` is the smallest ratio of the i-th similarity returned to the true i-th, over attributes and ranks up
    to k. The broken variant measures it on the ranking as a whole, as recall does, and not attribute by attribute.

    Args:
        count: Instances.
        rng: Source of randomness.
        size: Candidates.
        k: Results.
        kinds: Attributes.
    """
    rows = []
    for index in range(count):
        similarity, codes = rng.random(size), rng.integers(0, kinds, size)
        p, eta = EXPONENTS[index % 5], SMOOTHINGS[index // 5 % 5]
        seen = rng.random(size) < rng.uniform(0.5, 1.0)
        ratios = np.array([_rank_ratios(similarity, codes == kind, seen, k) for kind in range(kinds)])
        overall = _rank_ratios(similarity, np.ones(size, dtype=bool), seen, k)
        options = {"p": p, "eta": eta, "contrast": "none", "n_attributes": kinds}
        exact = select(similarity, codes, k, **options)
        found = select(similarity[seen], codes[seen], k, **options)
        rows.append(
            {
                "instance": index,
                "exponent": p,
                "smoothing": eta,
                "welfare_ratio": float(found.welfare[0] / exact.welfare[0]),
                "alpha": float(np.nanmin(ratios)),
                "alpha_overall": float(np.nanmin(overall)),
            }
        )
    return pd.DataFrame(rows)


def _rank_ratios(similarity: np.ndarray, members: np.ndarray, seen: np.ndarray, k: int) -> Float[np.ndarray, " k"]:
    """Returned over true similarity at each rank; 0 where nothing was returned, NaN where there is nothing."""
    true = -np.sort(-similarity[members])[:k]
    returned = -np.sort(-similarity[members & seen])[:k]
    ratios = np.full(k, np.nan)
    ratios[: len(true)] = np.pad(returned, (0, len(true) - len(returned))) / true
    return ratios


def _welfare_of(
    sets: Int[np.ndarray, "set k"], similarity: np.ndarray, codes: np.ndarray, kinds: int, p: float, eta: float
) -> Float[np.ndarray, " set"]:
    return mean_of_levels(np.log(_utilities(sets, similarity, codes, kinds) + eta), p)


def _gain_of(
    sets: Int[np.ndarray, "set k"], similarity: np.ndarray, codes: np.ndarray, kinds: int, p: float, eta: float
) -> Float[np.ndarray, " set"]:
    """Gain of the transformed objective over the empty set."""
    level = _utilities(sets, similarity, codes, kinds) / eta
    return (np.log1p(level) if p == 0 else np.expm1(p * np.log1p(level)) / p).sum(axis=1)


def _utilities(
    sets: Int[np.ndarray, "set k"], similarity: np.ndarray, codes: np.ndarray, kinds: int
) -> Float[np.ndarray, "set attribute"]:
    carries = np.zeros((len(similarity), kinds))
    np.put_along_axis(carries, codes, similarity[:, None], axis=1)
    return carries[sets].sum(axis=1)


def _broken_greedy(similarity: np.ndarray, codes: np.ndarray, k: int, kinds: int, p: float, eta: float) -> list[int]:
    level, left, chosen = np.zeros(kinds), list(range(len(similarity))), []
    for _ in range(k):
        before, after = level[codes[left]], level[codes[left]] + similarity[left]
        if p < 0:
            gain = (after + eta) ** p - (before + eta) ** p  # not divided by p: its sign is wrong
        else:
            gain = after**p - before**p if p else np.log(after / np.maximum(before, 1e-12))  # without eta
        best = left.pop(int(np.argmax(gain)))
        chosen.append(best)
        level[codes[best]] += similarity[best]
    return chosen


def _quota_greedy(similarity: np.ndarray, codes: np.ndarray, k: int) -> list[int]:
    """Most similar first, an attribute of no class twice; filled up by similarity."""
    order, used, chosen = np.argsort(-similarity), set(), []
    for candidate in order:
        if not used & set(codes[candidate].tolist()):
            chosen.append(int(candidate))
            used |= set(codes[candidate].tolist())
    return [*chosen, *(int(c) for c in order if int(c) not in chosen)][:k]
