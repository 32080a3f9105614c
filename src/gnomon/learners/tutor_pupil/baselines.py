"""What else a net of the same size could do with the same data: repair the output, stack, or replace the pupil."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gnomon.learners.tutor_pupil.frames import make_frame
from gnomon.learners.tutor_pupil.pupils import DifferentiablePupil, Kind, Task, as_differentiable
from gnomon.learners.tutor_pupil.tutor import TutorWeights, build_tutor
from gnomon.models.ensemble import StackedNets, train_stacked


class _NetOnPupil(BaseEstimator):
    """A net on the rows, on the pupil's outputs or on both, trained on squared or log loss."""

    _task: Task
    _sees_outputs = False
    _adds_to_outputs = False

    def __init__(
        self,
        pupil: Any,
        *,
        context: Any = None,
        pupil_kind: Kind = "auto",
        hidden: tuple[int, ...] = (64, 64),
        max_steps: int = 1500,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        random_state: Any = None,
    ) -> None:
        self.pupil = pupil
        self.context = context
        self.pupil_kind: Kind = pupil_kind
        self.hidden = hidden
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any):
        """Fit the net; the pupil stays as it is."""
        numeric = self._task == "regression"
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=numeric, multi_output=numeric)
        self.frame_ = make_frame(X, getattr(self, "feature_names_in_", None), context=self.context)
        self.pupil_ = self._pupil_network(X)
        self.flat_ = y.ndim == 1
        outputs = self._pupil_outputs(X)
        self.output_centre_, self.output_scale_ = outputs.mean(0), outputs.std(0) + 1e-12
        if self._task == "classification":
            assert self.pupil_.classes is not None
            self.classes_ = self.pupil_.classes
            targets = torch.from_numpy(np.searchsorted(self.classes_, y))
        else:
            values = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
            self.target_centre_, self.target_scale_ = values.mean(0), values.std(0) + 1e-12
            targets = torch.from_numpy(values)
        seen, base = torch.from_numpy(self._seen(X)), torch.from_numpy(self._base(X))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        sizes = (seen.shape[1], outputs.shape[1], tuple(self.hidden))
        nets = StackedNets(lambda: build_tutor(*sizes), [seed], dtype=torch.float64)
        unit = 1.0 if self._task == "classification" else float(np.square(self.target_scale_).sum())

        def objective(batch: torch.Tensor) -> torch.Tensor:
            given = base[batch] + self._gain() * nets.shared(seen[batch])
            if self._task == "classification":
                loss = -given.log_softmax(-1).gather(-1, targets[batch].view(1, -1, 1)).squeeze(-1)
            else:
                loss = (given - targets[batch]).square().sum(-1) / unit
            return loss.mean(1)

        train_stacked(
            nets,
            objective,
            len(X),
            steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
        )
        self.net_ = TutorWeights.of(nets)
        return self

    def outputs(self, X: Any) -> np.ndarray:
        """Values ``(n, q)`` or logits ``(n, k)``."""
        check_is_fitted(self, "net_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self._base(X) + self._gain().numpy() * self.net_(self._seen(X))

    def output_correction(self, X: Any) -> np.ndarray:
        """What the net adds, ``(n, q)``: its size is the output-side counterpart of a tutor's correction."""
        check_is_fitted(self, "net_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self._gain().numpy() * self.net_(self._seen(X))

    def _pupil_network(self, X: np.ndarray) -> DifferentiablePupil:
        return as_differentiable(self.pupil, kind=self.pupil_kind, check_on=self.frame_.pupil_input(X), task=self._task)

    def _pupil_outputs(self, X: np.ndarray) -> np.ndarray:
        return self.pupil_.outputs(self.frame_.pupil_input(X))

    def _gain(self) -> torch.Tensor:
        """The net works on standardised targets."""
        return torch.ones(1) if self._task == "classification" else torch.from_numpy(self.target_scale_)

    def _base(self, X: np.ndarray) -> np.ndarray:
        outputs = self._pupil_outputs(X)
        if self._adds_to_outputs:
            return outputs
        return np.zeros_like(outputs) + (0.0 if self._task == "classification" else self.target_centre_)

    def _seen(self, X: np.ndarray) -> np.ndarray:
        seen = self.frame_.standardize(X)
        if not self._sees_outputs:
            return seen
        return np.hstack([seen, (self._pupil_outputs(X) - self.output_centre_) / self.output_scale_])


class _RegressionBaseline(RegressorMixin, _NetOnPupil):
    _task = "regression"

    def predict(self, X: Any) -> np.ndarray:
        """Predicted values."""
        values = self.outputs(X)
        return values[:, 0] if self.flat_ else values


class _ClassificationBaseline(ClassifierMixin, _NetOnPupil):
    _task = "classification"

    def predict(self, X: Any) -> np.ndarray:
        """Predicted labels."""
        return self.classes_[self.outputs(X).argmax(1)]


class ResidualRegressor(_RegressionBaseline):
    """Output correction: ``f(x) + g(x)``."""

    _adds_to_outputs = True


class ResidualClassifier(_ClassificationBaseline):
    """Output correction: the pupil's logits plus ``g(x)``."""

    _adds_to_outputs = True


class StackRegressor(_RegressionBaseline):
    """A net on the row and the pupil's output."""

    _sees_outputs = True


class StackClassifier(_ClassificationBaseline):
    """A net on the row and the pupil's logits."""

    _sees_outputs = True


class BlackBoxRegressor(_RegressionBaseline):
    """A net on the row alone; the pupil only says how many outputs there are."""


class BlackBoxClassifier(_ClassificationBaseline):
    """A net on the row alone; the pupil only says which classes there are."""
