"""Do scores predict what retraining without the examples does?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float

from gnomon.evidence.intervals import studentised_difference
from gnomon.training.influence.result import InfluenceResult


def calibrate(
    train: Callable[[int, frozenset[int]], float],
    groups: Mapping[str, Iterable[int]],
    *,
    runs: int = 20,
    result: InfluenceResult | None = None,
) -> pd.DataFrame:
    """Retrain with and without each group, and set the separation that is found beside the score that predicted it.

    All runs must take the same number of *steps*. With equal epochs the runs without a group are shorter, and every
    group looks helpful.

    Args:
        train: From a seed and the ids to leave out to the query loss of the trained model. What the seed randomises
            (initial parameters, order, both) decides how large the separation is: name it when you report it.
        groups: Sets of ids by name.
        runs: Trainings a group, and as many with all examples.
        result: Scores to compare with.

    Returns:
        One row a group: ``group``, ``size``, ``separation`` (see :func:`separation`) with 95 % bounds ``low`` and
        ``high``, ``auc``, and ``mu_run`` where there is a result.

    Raises:
        ValueError: If there are fewer than 2 runs, or a training gives a loss that is not finite.
    """
    if runs < 2:
        raise ValueError(f"a separation needs at least 2 trainings an arm, got {runs}")

    def losses(excluded: frozenset[int]) -> np.ndarray:
        found = np.array([train(seed, excluded) for seed in range(runs)], dtype=np.float64)
        if not np.isfinite(found).all():
            raise ValueError(f"training with seed {int((~np.isfinite(found)).argmax())} gave a loss that is not finite")
        return found

    complete = losses(frozenset())
    rows = []
    for name, ids in groups.items():
        members = frozenset(int(one) for one in ids)
        without = losses(members)
        difference = studentised_difference(without, complete).interval()
        scale = _pooled_deviation(complete, without)
        row = {
            "group": name,
            "size": len(members),
            "separation": separation(complete, without),
            "low": difference.low / scale,
            "high": difference.high / scale,
            "auc": separation_auc(complete, without),
        }
        rows.append(row if result is None else {**row, "mu_run": result.group(members).mu_run})
    return pd.DataFrame(rows)


def separation(complete: Float[np.ndarray, " run"], without: Float[np.ndarray, " run"]) -> float:
    r"""Rise of the query loss without the group, in standard deviations of training.

    .. math:: d' = \frac{\overline{L}_{D \setminus S} - \overline{L}_D}{\sqrt{(s_D^2 + s_{D \setminus S}^2) / 2}}

    Positive: the group helped. It estimates the μ that ``mu_run`` predicts.
    """
    return float(np.mean(without) - np.mean(complete)) / _pooled_deviation(complete, without)


def separation_auc(complete: Float[np.ndarray, " run"], without: Float[np.ndarray, " run"]) -> float:
    """Share of pairs of runs in which the one without the group has the higher loss; ties count half."""
    difference = without[:, None] - complete[None, :]
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def _pooled_deviation(complete: np.ndarray, without: np.ndarray) -> float:
    return float(np.sqrt((np.var(complete, ddof=1) + np.var(without, ddof=1)) / 2))
