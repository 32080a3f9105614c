"""Do rankings from different seeds agree?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

#: Weight that rank-biased overlap keeps from one depth to the next.
PERSISTENCE = 0.98


def stability(scores: Sequence[Mapping[int, float]], k: int) -> pd.DataFrame:
    """Agreement of every two rankings.

    Pairs of runs share runs and are not independent: resample runs, never pairs.

    Args:
        scores: One a run: score of each example by its id (``result.scores.set_index("index")["mu_run"]``).
        k: Size of the top.

    Returns:
        Columns ``first``, ``second`` (positions of the runs), ``jaccard`` of the two tops, ``spearman`` and ``rbo``
        (rank-biased overlap) of the whole rankings.

    Raises:
        ValueError: If there are fewer than two runs, their ids differ, or k is not between 1 and their number.
    """
    if len(scores) < 2:
        raise ValueError(f"agreement needs at least 2 runs, got {len(scores)}")
    tables = [pd.Series(dict(score)).sort_index() for score in scores]
    if any(not table.index.equals(tables[0].index) for table in tables):
        raise ValueError("the runs scored different examples")
    values = [table.to_numpy(dtype=np.float64) for table in tables]
    rows = [
        {
            "first": first,
            "second": second,
            "jaccard": jaccard(values[first], values[second], k),
            "spearman": rank_correlation(values[first], values[second]),
            "rbo": rank_biased_overlap(values[first], values[second]),
        }
        for first, second in itertools.combinations(range(len(values)), 2)
    ]
    return pd.DataFrame(rows)


def jaccard(first: Float[np.ndarray, " id"], second: Float[np.ndarray, " id"], k: int) -> float:
    """Overlap of two tops: shared over united; k / (2 n - k) for random rankings of n.

    Raises:
        ValueError: If k is not between 1 and n.
    """
    if not 1 <= k <= len(first):
        raise ValueError(f"the top must have between 1 and {len(first)} examples, got {k}")
    tops = [set(np.argsort(-values, kind="stable")[:k].tolist()) for values in (first, second)]
    return len(tops[0] & tops[1]) / len(tops[0] | tops[1])


def rank_correlation(first: Float[np.ndarray, " id"], second: Float[np.ndarray, " id"]) -> float:
    """Spearman's correlation of two rankings."""
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def rank_biased_overlap(
    first: Float[np.ndarray, " id"], second: Float[np.ndarray, " id"], *, persistence: float = PERSISTENCE
) -> float:
    r"""Overlap at every depth, the top counting most: :math:`(1-p) \sum_d p^{d-1} |A_d \cap B_d| / d`, extrapolated.

    Source: Webber, Moffat & Zobel (2010), "A similarity measure for indefinite rankings", equation 30.

    >>> rank_biased_overlap(np.array([3.0, 2.0, 1.0]), np.array([3.0, 2.0, 1.0]))
    1.0
    """
    ranks = [np.empty(len(values), dtype=np.int64) for values in (first, second)]
    for rank, values in zip(ranks, (first, second), strict=True):
        rank[np.argsort(-values, kind="stable")] = np.arange(len(values))
    # An example is shared from the depth on at which it has appeared in both.
    shared = np.cumsum(np.bincount(np.maximum(*ranks), minlength=len(first)))
    depth = np.arange(1, len(first) + 1)
    weights = persistence**depth
    overlap = (1 - persistence) / persistence * float((weights * shared / depth).sum())
    return overlap + float(weights[-1] * shared[-1] / depth[-1])
