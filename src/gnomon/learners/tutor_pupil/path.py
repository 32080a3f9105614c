"""The penalty path: how much the pupil gains, and how far inputs move, as corrections get cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from gnomon.learners.tutor_pupil.tutor import Rows, Schedule, Tutoring, TutorWeights, train_tutors
from gnomon.models.ensemble import StackedNets

DEFAULT_LAMBDAS = tuple(np.logspace(1, -4, 12).round(8).tolist())
WARM_SHARE = 1 / 3


@dataclass(frozen=True)
class Folds:
    """Rows to choose a penalty on: each is held out once, or never.

    Args:
        held: Rows that each fold holds out; its tutor trains on the others.
        x: The pupil's columns, in float64, to score with the original pupil.
        seen: The tutor's standardised input.
        targets: Values ``(n, q)`` or class indices ``(n,)``.
        failing: Rows on which the pupil fails.
        weights: Sample weights.
    """

    held: Sequence[Int[np.ndarray, " held"]]
    x: Float[np.ndarray, "n pupil"]
    seen: Float[np.ndarray, "n inputs"]
    targets: np.ndarray
    failing: Bool[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]

    def training_weights(self) -> Float[np.ndarray, "net n"]:
        """Sample weights each net trains with, one net a fold and one more for the first: 0 where held out, mean 1."""
        weights = np.tile(self.weights, (len(self.held) + 1, 1))
        for net, held in enumerate([*self.held, self.held[0]]):
            weights[net, held] = 0.0
        return weights / weights.mean(1, keepdims=True)


def validation_folds(
    targets: np.ndarray, groups: Any = None, *, share: float = 0.2, split: str = "random", seed: int = 0
) -> list[np.ndarray]:
    """Held-out rows of each fold: the last rows alone for a split in time, otherwise every row in one fold.

    Args:
        targets: Values ``(n, q)``, or class indices ``(n,)``, whose shares the folds then keep.
        groups: Label of each row; rows of one group stay in one fold.
        share: Of the rows that a fold holds out.
        split: ``"random"`` or ``"time"``.
        seed: Of the division.

    Raises:
        ValueError: If the share is not in (0, 1), the split has another name, or there are fewer than 5 rows.
    """
    if not 0 < share < 1:
        raise ValueError(f"validation_fraction must lie in (0, 1), got {share}")
    if split not in ("random", "time"):
        raise ValueError(f"split must be 'random' or 'time', got {split!r}")
    rows = np.arange(len(targets))
    if len(rows) < 5:
        raise ValueError(f"lam='1se' needs at least 5 samples to validate on, got {len(rows)}; pass a number instead")
    if split == "time":
        return [rows[round((1 - share) * len(rows)) :]]
    count = max(round(1 / share), 2)
    if groups is not None:
        divided: Any = GroupKFold(min(count, len(np.unique(groups))), shuffle=True, random_state=seed)
    elif targets.ndim == 1 and min(np.bincount(targets)[np.unique(targets)]) >= count:
        divided = StratifiedKFold(count, shuffle=True, random_state=seed)
    else:
        divided = KFold(min(count, len(rows)), shuffle=True, random_state=seed)
    return [held for _, held in divided.split(rows, targets, groups)]


def failing_rows(outputs: Float[np.ndarray, "n q"], targets: np.ndarray) -> np.ndarray:
    """Where a pupil fails: a wrong class; for regression, an absolute residual in the upper quarter."""
    if targets.ndim == 1:
        return outputs.argmax(1) != targets
    residual = np.linalg.norm(outputs - targets, axis=1)
    return residual > np.quantile(residual, 0.75)


def detection(size: Float[np.ndarray, " n"], failing: np.ndarray) -> float:
    """AUROC of a row's score for "the pupil fails here"; NaN if it fails everywhere or nowhere."""
    if failing.all() or not failing.any():
        return float("nan")
    return float(roc_auc_score(failing, size))


def penalty_path(
    tutoring: Tutoring,
    nets: StackedNets,
    rows: Rows,
    folds: Folds,
    lambdas: Sequence[float],
    schedule: Schedule,
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Train from the largest penalty to the smallest, each from the last one's weights, and validate across folds.

    One net a fold learns the targets. The last net of the stack leaves out the first fold and learns the pupil's own
    outputs: how far it moves inputs although there is nothing to correct is the estimator's floor. After the first
    penalty a third of the steps suffices. Only rows on which the pupil fails carry the choice, and they are few:
    validating every row once, not one part of them, is what makes the standard error small enough to choose by.

    Args:
        nets: One a fold, and one more.
        rows: All rows, with targets and weights of each net; weights are 0 on what its fold holds out.
        folds: Which rows each fold holds out.

    Returns:
        A row a penalty, largest first: validation ``task_loss`` over all held-out rows and its standard error ``se``,
        ``score`` (accuracy or R squared), mean ``size`` of the corrections, their ``auroc`` for failing rows, the
        floor's ``null_size``, their ``ratio``, and the pupil's own ``pupil_score``.

    Raises:
        ValueError: If a penalty is not positive.
    """
    ordered = sorted((float(value) for value in lambdas), reverse=True)
    if not ordered or ordered[-1] <= 0:
        raise ValueError(f"lambdas must all be > 0, got {list(lambdas)}")
    warm = replace(schedule, steps=max(int(schedule.steps * WARM_SHARE), 1))
    validated = np.concatenate(list(folds.held))
    pupil_score = score(tutoring.pupil.outputs(folds.x[validated]), folds.targets[validated])
    records = []
    for index, value in enumerate(ordered):
        train_tutors(tutoring, nets, rows, [value] * len(nets), schedule if index == 0 else warm, seed=seed)
        records.append({"lambda": value, **_assess(tutoring, TutorWeights.of(nets), folds), "pupil_score": pupil_score})
    return pd.DataFrame(records)


def one_standard_error(path: pd.DataFrame) -> float:
    """The largest penalty whose validation loss is within one standard error of the least."""
    best = path.loc[path["task_loss"].idxmin()]
    return float(path.loc[path["task_loss"] <= best["task_loss"] + best["se"], "lambda"].max())


def score(outputs: Float[np.ndarray, "n q"], targets: np.ndarray) -> float:
    """Accuracy for class indices, R squared for values."""
    if targets.ndim == 1:
        return float((outputs.argmax(1) == targets).mean())
    total = np.square(targets - targets.mean(0)).sum()
    return float(1 - np.square(outputs - targets).sum() / total) if total > 0 else float("nan")


def row_losses(tutoring: Tutoring, outputs: Float[np.ndarray, "n q"], targets: np.ndarray) -> np.ndarray:
    """Task loss of each row, in float64."""
    return tutoring.loss(torch.from_numpy(outputs), torch.from_numpy(targets)).numpy()


def _assess(tutoring: Tutoring, weights: TutorWeights, folds: Folds) -> dict[str, float]:
    by_net = weights.each(folds.seen)
    validated = np.concatenate(list(folds.held))
    corrections = np.concatenate([by_net[fold, held] for fold, held in enumerate(folds.held)])
    floor = by_net[-1, folds.held[0]]
    frame = tutoring.frame
    moved = folds.x[validated]
    moved[:, frame.moving] += frame.scale[frame.correctable] * corrections
    targets = folds.targets[validated]
    outputs = tutoring.pupil.outputs(frame.domain.project(moved))
    losses = row_losses(tutoring, outputs, targets)
    size, floor_size = np.linalg.norm(corrections, axis=1), np.linalg.norm(floor, axis=1)
    floor_mean = float(floor_size.mean())
    return {
        "task_loss": float(losses.mean()),
        "se": float(losses.std(ddof=1) / np.sqrt(len(losses))) if len(losses) > 1 else float("inf"),
        "score": score(outputs, targets),
        "size": float(size.mean()),
        "auroc": detection(size, folds.failing[validated]),
        "null_size": floor_mean,
        "ratio": float(size.mean()) / floor_mean if floor_mean > 0 else float("inf"),
    }
