"""The penalty path: how much the pupil gains, and how far inputs move, as corrections get cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.metrics import roc_auc_score

from gnomon.learners.tutor_pupil.tutor import Rows, Schedule, Tutoring, TutorWeights, train_tutors
from gnomon.models.ensemble import StackedNets

DEFAULT_LAMBDAS = tuple(np.logspace(1, -4, 12).round(8).tolist())
WARM_SHARE = 1 / 3


@dataclass(frozen=True)
class Held:
    """Validation rows in float64, to score with the original pupil.

    Args:
        x: The pupil's columns.
        seen: The tutor's standardised input.
        targets: Values ``(n, q)`` or class indices ``(n,)``.
        failing: Rows on which the pupil fails.
    """

    x: np.ndarray
    seen: np.ndarray
    targets: np.ndarray
    failing: np.ndarray


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
    validation: Rows,
    held: Held,
    lambdas: Sequence[float],
    schedule: Schedule,
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Train from the largest penalty to the smallest, each from the last one's weights.

    Replicate 0 learns the targets, replicate 1 the pupil's own outputs: how far it moves inputs although there is
    nothing to correct is the estimator's floor. After the first penalty a third of the steps suffices.

    Returns:
        A row a penalty, largest first: ``lambda``, validation ``task_loss`` and its standard error ``se``, ``score``
        (accuracy or R squared), mean ``size`` of the corrections, their ``auroc`` for failing rows, the floor's
        ``null_size``, ``ratio``, the quotient of the median sizes, and the pupil's own ``pupil_score``.

    Raises:
        ValueError: If a penalty is not positive.
    """
    ordered = sorted((float(value) for value in lambdas), reverse=True)
    if not ordered or ordered[-1] <= 0:
        raise ValueError(f"lambdas must all be > 0, got {list(lambdas)}")
    warm = Schedule(
        max(int(schedule.steps * WARM_SHARE), 1),
        schedule.batch_size,
        schedule.learning_rate,
        schedule.weight_decay,
    )
    pupil_score = score(tutoring.pupil.outputs(held.x), held.targets)
    records = []
    for index, value in enumerate(ordered):
        train_tutors(
            tutoring, nets, rows, [value, value], schedule if index == 0 else warm, seed=seed, validation=validation
        )
        records.append({"lambda": value, **_assess(tutoring, TutorWeights.of(nets), held), "pupil_score": pupil_score})
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
    import torch

    return tutoring.loss(torch.from_numpy(outputs), torch.from_numpy(targets)).numpy()


def _assess(tutoring: Tutoring, weights: TutorWeights, held: Held) -> dict[str, float]:
    corrections, floor = weights.each(held.seen)
    frame = tutoring.frame
    moved = held.x.copy()
    moved[:, frame.moving] += frame.scale[frame.correctable] * corrections
    outputs = tutoring.pupil.outputs(frame.domain.project(moved))
    losses = row_losses(tutoring, outputs, held.targets)
    size, floor_size = np.linalg.norm(corrections, axis=1), np.linalg.norm(floor, axis=1)
    floor_median = float(np.median(floor_size))
    return {
        "task_loss": float(losses.mean()),
        "se": float(losses.std(ddof=1) / np.sqrt(len(losses))) if len(losses) > 1 else float("inf"),
        "score": score(outputs, held.targets),
        "size": float(size.mean()),
        "auroc": detection(size, held.failing),
        "null_size": float(floor_size.mean()),
        "ratio": float(np.median(size)) / floor_median if floor_median > 0 else float("inf"),
    }
