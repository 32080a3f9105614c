"""Refits under three nulls: nothing to correct, errors scattered over rows, and a tutor that sees another row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from gnomon.evidence.nulls import permute_within
from gnomon.learners.tutor_pupil.classifier import TutorPupilClassifier
from gnomon.learners.tutor_pupil.path import detection, failing_rows, row_losses, score
from gnomon.learners.tutor_pupil.regressor import TutorPupilRegressor
from gnomon.learners.tutor_pupil.tutor import Schedule, Tutoring, TutorWeights, train_tutors

Arm = Literal["treatment", "own-labels", "scattered-errors", "shuffled-input"]
TutorPupil = TutorPupilRegressor | TutorPupilClassifier

BLOCK = 50


def own_targets(outputs: Float[np.ndarray, "n q"], targets: np.ndarray) -> np.ndarray:
    """The pupil's own answers as targets: it is right everywhere and there is nothing to correct."""
    return outputs.argmax(1) if targets.ndim == 1 else outputs


def scattered_targets(
    outputs: Float[np.ndarray, "n q"], targets: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """As many errors of the same kinds as observed, on rows drawn at random.

    Classification permutes the true labels among the rows of each predicted class, which keeps the confusion matrix;
    regression permutes residuals within tenths of the prediction, which keeps how their spread depends on it.
    """
    if targets.ndim == 1:
        return targets[permute_within(outputs.argmax(1), random)]
    tenth = np.digitize(outputs[:, 0], np.quantile(outputs[:, 0], np.linspace(0.1, 0.9, 9)))
    return outputs + (targets - outputs)[permute_within(tenth, random)]


def null_fits(
    model: TutorPupil,
    X: Float[np.ndarray, "n columns"],
    targets: np.ndarray,
    counts: Mapping[Arm, int],
    random: np.random.Generator,
    *,
    schedule: Schedule | None = None,
) -> tuple[pd.DataFrame, dict[Arm, TutorWeights]]:
    """Refit the tutor at the model's penalty on its training rows under each arm, and score it on held-out rows.

    All refits train as stacks of up to fifty nets on common minibatches. A refit of ``scattered-errors`` is scored on
    rows with freshly scattered errors, where the expected gain is zero; ``shuffled-input`` is scored with shuffled
    input, where only a constant correction can help.

    Args:
        model: Fitted.
        X: Held-out rows.
        targets: Their targets as the model encodes them: values ``(n, q)`` or class indices ``(n,)``.
        counts: Refits by arm; ``treatment`` refits the real targets from other seeds.
        random: Of scatter, shuffles and seeds.
        schedule: Steps of a refit; the model's own by default.

    Returns:
        A row a refit: ``arm``, ``refit``, ``gain`` in task loss, ``score_gain`` in accuracy or R squared, mean and
        ``median`` size of corrections, their ``auroc`` for failing rows; and the refits' weights by arm.
    """
    tutoring, scoring = model.tutoring(torch.float32), model.tutoring()
    pupil = model.differentiable_pupil()
    frame = model.frame_
    schedule = model.schedule() if schedule is None else schedule
    train, train_targets = model.train_rows_, model.train_targets_
    train_outputs = pupil.outputs(frame.pupil_input(train))
    outputs = pupil.outputs(frame.pupil_input(X))
    arms: list[Arm] = [arm for arm, count in counts.items() for _ in range(count)]
    seed = int(random.integers(2**31 - 1))
    records: list[dict[str, object]] = []
    kept: dict[Arm, list[TutorWeights]] = {}
    for start in range(0, len(arms), BLOCK):
        block = arms[start : start + BLOCK]
        goals = np.stack([_targets(arm, train_outputs, train_targets, random) for arm in block])
        order = None
        if "shuffled-input" in block:
            straight = np.arange(len(train))
            order = np.stack([random.permutation(len(train)) if arm == "shuffled-input" else straight for arm in block])
        nets = model.untrained([seed + start + i for i in range(len(block))], torch.float32)
        rows = model.rows(train, goals, order=order, dtype=torch.float32)
        train_tutors(tutoring, nets, rows, [model.lambda_] * len(block), schedule, seed=seed)
        weights = TutorWeights.of(nets)
        seen = frame.standardize(X)
        for index, arm in enumerate(block):
            one = TutorWeights(
                tuple(layer[index : index + 1] for layer in weights.weights),
                tuple(layer[index : index + 1] for layer in weights.biases),
            )
            kept.setdefault(arm, []).append(one)
            shown = seen[random.permutation(len(X))] if arm == "shuffled-input" else seen
            record = _score(scoring, X, one(shown), outputs, _held_targets(arm, outputs, targets, random))
            records.append({"arm": arm, "refit": arms[: start + index].count(arm), **record})
    return pd.DataFrame(records), {arm: _joined(parts) for arm, parts in kept.items()}


def _targets(arm: Arm, outputs: np.ndarray, targets: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if arm == "own-labels":
        return own_targets(outputs, targets)
    return scattered_targets(outputs, targets, random) if arm == "scattered-errors" else targets


def _held_targets(arm: Arm, outputs: np.ndarray, targets: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return scattered_targets(outputs, targets, random) if arm == "scattered-errors" else targets


def _score(
    tutoring: Tutoring, X: np.ndarray, correction: np.ndarray, outputs: np.ndarray, targets: np.ndarray
) -> dict[str, float]:
    moved = tutoring.frame.pupil_input(tutoring.frame.move(X, correction))
    tutored = tutoring.pupil.outputs(moved)
    size = np.linalg.norm(correction, axis=1)
    return {
        "gain": float((row_losses(tutoring, outputs, targets) - row_losses(tutoring, tutored, targets)).mean()),
        "score_gain": score(tutored, targets) - score(outputs, targets),
        "size": float(size.mean()),
        "median": float(np.median(size)),
        "auroc": detection(size, failing_rows(outputs, targets)),
    }


def _joined(parts: list[TutorWeights]) -> TutorWeights:
    return TutorWeights(
        tuple(np.concatenate(layers) for layers in zip(*(part.weights for part in parts), strict=True)),
        tuple(np.concatenate(layers) for layers in zip(*(part.biases for part in parts), strict=True)),
    )


def random_pushes(
    model: TutorPupil,
    X: Float[np.ndarray, "n columns"],
    targets: np.ndarray,
    random: np.random.Generator,
    *,
    draws: int = 200,
) -> pd.DataFrame:
    """Move each row as far as the tutor does, in a random direction of the correctable features.

    Returns:
        A row a push (``arm`` random-direction) after the tutor's own (``treatment``): mean task ``loss``, ``score``,
        and the share of the pupil's failing rows that are ``fixed`` (now right, or the error at least halved).
    """
    tutoring = model.tutoring()
    frame = model.frame_
    outputs = tutoring.pupil.outputs(frame.pupil_input(X))
    failing = failing_rows(outputs, targets)
    correction = model.tutor_(frame.standardize(X))
    size = np.linalg.norm(correction, axis=1, keepdims=True)
    records = []
    for draw in range(draws + 1):
        push = correction
        if draw:
            direction = random.normal(size=correction.shape)
            push = size * direction / np.linalg.norm(direction, axis=1, keepdims=True)
        moved = tutoring.pupil.outputs(frame.pupil_input(frame.move(X, push)))
        records.append(
            {
                "arm": "random-direction" if draw else "treatment",
                "push": max(draw - 1, 0),
                "loss": float(row_losses(tutoring, moved, targets).mean()),
                "score": score(moved, targets),
                "fixed": float(_fixed(moved, outputs, targets)[failing].mean()) if failing.any() else float("nan"),
            }
        )
    return pd.DataFrame(records)


def _fixed(moved: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    if targets.ndim == 1:
        return moved.argmax(1) == targets
    return np.linalg.norm(moved - targets, axis=1) < 0.5 * np.linalg.norm(outputs - targets, axis=1)
