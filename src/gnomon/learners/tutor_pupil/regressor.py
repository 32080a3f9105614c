"""A fixed regressor made right by moving its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.utils.validation import validate_data

from gnomon.learners.tutor_pupil.losses import REGRESSION_LOSSES, TaskLoss
from gnomon.learners.tutor_pupil.tutored import TutoredEstimator


class TutorPupilRegressor(RegressorMixin, TutoredEstimator):
    r"""A fixed regressor made right by moving its inputs.

    A tutor :math:`t` sees a row and proposes a correction :math:`\epsilon = t(x)`; the prediction is the pupil's on the
    corrected row, :math:`f(x + S \epsilon)`. The penalty :math:`\lambda \lVert \epsilon \rVert^2` keeps corrections
    small, so where and how far inputs must move shows where the pupil fails. For a linear pupil, squared loss and
    :math:`r = E[y|x] - f(x)` the optimum is :math:`\epsilon = r w / (\lambda + \lVert w \rVert^2)`: the direction is
    the pupil's own gradient, the data determine its signed size.

    Args:
        pupil: Fitted estimator, torch module, function of a tensor or sympy expression; never refitted. ``None`` fits
            a ridge regression; an unfitted estimator is cloned and fitted, with a warning.
        lam: Penalty weight, or ``"1se"``: the largest of ``lambdas`` within one standard error of the least
            validation loss.
        lambdas: The path; twelve from 10 to 1e-4 by default.
        penalty: ``"l2"``, ``"l1"``, ``"mahalanobis"`` or a dict from group to positions of correctable features.
        loss: ``"squared"``, ``"huber"`` or ``"relative"``.
        normalize: Divide the loss by the target's ``"variance"`` or by the ``"pupil"``'s own training loss.
        smoothness: Weight of the tutor's squared Jacobian norm.
        context: Columns the tutor sees and the pupil does not take.
        correctable: Columns that may move; by default all the pupil's that vary and are not discrete.
        scale: Unit of each column: ``"robust"`` (interquartile range / 1.349), ``"std"``, or numbers.
        bounds: ``{column: (low, high)}`` or a :class:`~gnomon.learners.tutor_pupil.domain.Domain`.
        pupil_kind: How to differentiate the pupil (see ``as_differentiable``).
        tau: Gate width of relaxed trees.
        hidden: Widths of the tutor's layers.
        max_steps: Optimiser steps of a fit.
        batch_size: Rows a step.
        learning_rate: Initial rate, falling to zero along a cosine.
        n_seeds: Tutors trained side by side; the correction is their mean.
        validation_fraction: Share of rows a fold holds out while the penalty is chosen: .2 makes five folds.
        split: ``"random"`` (stratified, or by ``groups``), or ``"time"``: the last rows validate, once.
        device: Where tutors train.
        random_state: Of split, initial weights and minibatches.

    Attributes:
        path_: The penalty path (only with ``lam="1se"``; see ``penalty_path``).
        lambda_: Penalty used.
        pupil_: The pupil, as fitted.
        tutor_: Trained weights.
        frame_: Columns, units and bounds.
        scale_: Unit of each column.
        train_rows_, train_targets_: What it was fitted on, kept (as nearest neighbours do) for null fits.
    """

    _task = "regression"
    _losses = REGRESSION_LOSSES
    normalize: str

    def __init__(
        self,
        pupil=None,
        *,
        lam: float | str = "1se",
        lambdas=None,
        penalty="l2",
        loss="squared",
        normalize="variance",
        smoothness=0.0,
        context=None,
        correctable=None,
        scale="robust",
        bounds=None,
        pupil_kind="auto",
        tau=0.1,
        hidden=(64, 64),
        max_steps=1500,
        batch_size=256,
        learning_rate=3e-3,
        n_seeds=1,
        validation_fraction=0.2,
        split="random",
        device="cpu",
        random_state=None,
    ):
        self._store(locals())

    def predict(self, X: Any) -> np.ndarray:
        """The pupil's prediction on corrected inputs, in float64."""
        values = self.differentiable_pupil().predict(self._corrected_pupil_input(X))
        return values[:, 0] if self.flat_ else values

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _validate(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self.flat_ = y.ndim == 1
        return X, np.asarray(y, dtype=np.float64)

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Values as a column for each output."""
        return np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def _task_loss(self, outputs: np.ndarray, targets: np.ndarray, weight: np.ndarray | None, /) -> TaskLoss:
        if outputs.shape != targets.shape:
            raise ValueError(f"the pupil gives {outputs.shape[1]} outputs, y has {targets.shape[1]}")
        if self.loss == "relative":
            if (targets == 0).any():
                raise ValueError(f"loss='relative' divides by y, which is 0 in {int((targets == 0).sum())} places")
            return TaskLoss("relative")
        if self.normalize == "variance":
            unit = np.average(np.square(targets - np.average(targets, axis=0, weights=weight)), axis=0, weights=weight)
        elif self.normalize == "pupil":
            unit = np.average(np.square(targets - outputs), axis=0, weights=weight)
        else:
            raise ValueError(f"normalize must be 'variance' or 'pupil', got {self.normalize!r}")
        return TaskLoss(self.loss, unit=float(unit.sum()) or 1.0)

    def _default_pupil(self) -> Ridge:
        return Ridge()
