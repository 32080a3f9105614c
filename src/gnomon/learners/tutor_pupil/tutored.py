"""The scikit-learn estimator around a tutor: what regressor and classifier have in common."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, _check_sample_weight, check_is_fitted, validate_data

from gnomon.learners.tutor_pupil.frames import make_frame
from gnomon.learners.tutor_pupil.losses import TaskLoss, make_penalty
from gnomon.learners.tutor_pupil.path import (
    DEFAULT_LAMBDAS,
    Folds,
    failing_rows,
    one_standard_error,
    penalty_path,
    validation_folds,
)
from gnomon.learners.tutor_pupil.pupils import DifferentiablePupil, Task, as_differentiable
from gnomon.learners.tutor_pupil.tutor import Rows, Schedule, Tutoring, TutorWeights, build_tutor, train_tutors
from gnomon.models.ensemble import StackedNets

ALREADY_RIGHT = 1e-12
_CHECKED_ROWS = 4096


class TutoredEstimator(TransformerMixin, BaseEstimator):
    """What regressor and classifier share: fitting a tutor, and correcting rows with it.

    They differ in targets, losses and the default pupil.
    """

    _task: Task
    _losses: tuple[str, ...]

    pupil: Any
    lam: float | str
    lambdas: Any
    penalty: Any
    loss: str
    smoothness: float
    context: Any
    correctable: Any
    scale: Any
    bounds: Any
    pupil_kind: Any
    tau: Any
    hidden: Any
    max_steps: int
    batch_size: int
    learning_rate: float
    n_seeds: int
    validation_fraction: float
    split: str
    device: str
    random_state: Any
    _differentiable: DifferentiablePupil | None

    def _store(self, arguments: dict[str, Any]) -> None:
        for name, value in arguments.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None):
        """Fit the tutor; the pupil stays as it is.

        Args:
            X: Rows, the pupil's features and any context.
            y: What the pupil should have said.
            sample_weight: Weight of each row.
            groups: Label of each row; rows of one group stay in one fold of the validation.

        Raises:
            ValueError: If an argument is out of range or does not fit the data.
            RuntimeError: If training diverges, or the pupil changed while the tutor trained.
        """
        X, y = self._validate(X, y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        if self.loss not in self._losses:
            raise ValueError(f"loss must be one of {self._losses}, got {self.loss!r}")
        random = check_random_state(self.random_state)
        self.frame_ = make_frame(
            X,
            getattr(self, "feature_names_in_", None),
            context=self.context,
            correctable=self.correctable,
            scale=self.scale,
            bounds=self.bounds,
            sample_weight=weight,
        )
        self.scale_ = self.frame_.scale
        self.pupil_ = self._fitted_pupil(self.frame_.pupil_input(X), y, weight)
        self.train_rows_ = X
        self._differentiable = None
        pupil = self.differentiable_pupil()
        before = pupil.fingerprint()
        targets = self.encode(y)
        self.train_targets_ = targets
        self.loss_ = self._task_loss(pupil.soft_outputs(self.frame_.pupil_input(X)), targets, weight)
        standardized = self.frame_.standardize(X)
        self.penalty_ = make_penalty(self.penalty, standardized[:, self.frame_.correctable])
        self._train(X, targets, np.ones(len(X)) if weight is None else weight, groups, random)
        if pupil.fingerprint() != before:
            raise RuntimeError("the pupil changed while its tutor was trained; a pupil must be fixed")
        return self

    def correct(self, X: Any) -> Any:
        """Corrected inputs in the user's units, ``(n, n_features_in_)``; context columns are as they were."""
        return self.transform(X)

    def transform(self, X: Any) -> Any:
        """:meth:`correct` under scikit-learn's name: a tutor is a step that may stand before its pupil."""
        X = self.checked(X)
        return self.frame_.move(X, self.tutor_(self.frame_.standardize(X)))

    def corrections(self, X: Any, *, standardized: bool = False) -> Float[np.ndarray, "n features"]:
        """What the tutor adds to each feature, before projection onto the bounds; zero where nothing may move."""
        X = self.checked(X)
        correction = np.zeros(X.shape)
        correction[:, self.frame_.correctable] = self.tutor_(self.frame_.standardize(X))
        return correction if standardized else correction * self.frame_.scale

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of :meth:`correct`: those of its input."""
        check_is_fitted(self, "tutor_")
        return np.asarray(_check_feature_names_in(self, input_features))

    def differentiable_pupil(self) -> DifferentiablePupil:
        """The pupil as a network; built on first use, not stored with the estimator."""
        check_is_fitted(self, "pupil_")
        made = getattr(self, "_differentiable", None)
        if made is None:
            seen = self.train_rows_[:_CHECKED_ROWS, self.frame_.pupil_columns]
            names = getattr(self, "feature_names_in_", None)
            made = as_differentiable(
                self.pupil_,
                kind=self.pupil_kind,
                tau=self.tau,
                check_on=seen,
                task=self._task,
                features=None if names is None else [str(names[c]) for c in self.frame_.pupil_columns],
            )
            self._differentiable = made
        return made

    def tutoring(self, dtype: torch.dtype = torch.float64) -> Tutoring:
        """Pupil, frame, loss and penalty, ready to train tutors with: what null fits share with the fit."""
        pupil = self.differentiable_pupil().in_dtype(dtype, self.device)
        return Tutoring(pupil, self.frame_, self.loss_, self.penalty_, self.smoothness)

    def schedule(self) -> Schedule:
        """The training schedule of a fit."""
        return Schedule(self.max_steps, self.batch_size, self.learning_rate)

    def __sklearn_clone__(self):
        """A clone keeps its fitted pupil: scikit-learn's default would make it an unfitted one."""
        settings = self.get_params(deep=False)
        pupil = settings.pop("pupil")
        keep = not isinstance(pupil, BaseEstimator) or _is_fitted(pupil)
        copied = {name: clone(value, safe=False) for name, value in settings.items()}
        fresh = type(self)(**copied).set_params(pupil=pupil if keep else clone(pupil))
        if hasattr(self, "_sklearn_output_config"):
            fresh._sklearn_output_config = dict(self._sklearn_output_config)
        return fresh

    def __getstate__(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_differentiable"}

    def _validate(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Targets as losses take them: values ``(n, q)`` or class indices ``(n,)``."""
        raise NotImplementedError

    def _task_loss(self, outputs: np.ndarray, targets: np.ndarray, weight: np.ndarray | None, /) -> TaskLoss:
        raise NotImplementedError

    def _default_pupil(self) -> Any:
        raise NotImplementedError

    def checked(self, X: Any) -> np.ndarray:
        """Rows as a float64 array, checked against those of the fit."""
        check_is_fitted(self, "tutor_")
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _corrected_pupil_input(self, X: Any) -> np.ndarray:
        X = self.checked(X)
        return self.frame_.pupil_input(self.frame_.move(X, self.tutor_(self.frame_.standardize(X))))

    def _fitted_pupil(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Any:
        pupil: Any = self._default_pupil() if self.pupil is None else self.pupil
        if isinstance(pupil, BaseEstimator):
            if not _is_fitted(pupil):
                if self.pupil is not None:
                    warnings.warn(
                        f"the pupil {type(pupil).__name__} was not fitted; a clone of it is fitted on the tutor's data",
                        stacklevel=3,
                    )
                fresh: Any = clone(pupil)
                pupil = fresh.fit(x, y, **({} if weight is None else {"sample_weight": weight}))
            takes = getattr(pupil, "n_features_in_", x.shape[1])
            if takes != x.shape[1]:
                raise ValueError(f"the pupil takes {takes} features, the data has {x.shape[1]} beside its context")
        return pupil

    def _train(
        self, X: np.ndarray, targets: np.ndarray, weight: np.ndarray, groups: Any, random: np.random.RandomState
    ) -> None:
        seed = int(random.randint(2**31 - 1))
        tutoring, schedule = self.tutoring(), self.schedule()
        seeds = [seed + replicate for replicate in range(self.n_seeds)]
        nets = self.untrained(seeds)
        outputs = tutoring.pupil.outputs(self.frame_.pupil_input(X))
        losses = self.loss_(torch.from_numpy(outputs), torch.from_numpy(targets)).numpy()
        self.already_right_ = bool(np.average(losses, weights=weight) < ALREADY_RIGHT)
        if self.already_right_:
            self.lambda_ = float(max(DEFAULT_LAMBDAS if self.lambdas is None else self.lambdas))
        else:
            kept = weight > 0
            X, targets, outputs, weight = X[kept], targets[kept], outputs[kept], weight[kept]
            if self.lam == "1se":
                groups = None if groups is None else np.asarray(groups)[kept]
                self.lambda_ = self._selected_lambda(X, targets, outputs, weight, groups, seed)
            elif isinstance(self.lam, str) or not self.lam > 0:
                raise ValueError(f"lam must be '1se' or a number > 0, got {self.lam!r}")
            else:
                self.lambda_ = float(self.lam)
            rows = self.rows(X, np.broadcast_to(targets, (self.n_seeds, *targets.shape)), weight)
            train_tutors(tutoring, nets, rows, [self.lambda_] * self.n_seeds, schedule, seed=seed)
        self.tutor_ = TutorWeights.of(nets)

    def untrained(self, seeds: list[int], dtype: torch.dtype = torch.float64) -> StackedNets:
        """A stack of tutors that correct nothing yet."""
        frame = self.frame_
        sizes = (len(frame.centre), len(frame.correctable), tuple(self.hidden))
        return StackedNets(lambda: build_tutor(*sizes), seeds, dtype=dtype).to(self.device)

    def rows(
        self,
        X: np.ndarray,
        targets: Float[np.ndarray, "replicate n *q"],
        weight: Float[np.ndarray, "*replicate n"] | None = None,
        *,
        order: np.ndarray | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Rows:
        """Rows as tensors, with one set of targets a replicate."""
        frame = self.frame_
        weight = np.ones(len(X)) if weight is None else weight / weight.mean(-1, keepdims=True)
        # Class indices stay integers; values follow the training dtype.
        goal = torch.from_numpy(np.array(targets))
        return Rows(
            torch.as_tensor(frame.pupil_input(X), dtype=dtype, device=self.device),
            torch.as_tensor(frame.standardize(X), dtype=dtype, device=self.device),
            (goal.to(dtype) if goal.is_floating_point() else goal.long()).to(self.device),
            torch.as_tensor(weight, dtype=dtype, device=self.device),
            None if order is None else torch.as_tensor(order, device=self.device),
        )

    def _selected_lambda(
        self, X: np.ndarray, targets: np.ndarray, outputs: np.ndarray, weight: np.ndarray, groups: Any, seed: int
    ) -> float:
        frame = self.frame_
        folds = Folds(
            validation_folds(targets, groups, share=self.validation_fraction, split=self.split, seed=seed),
            frame.pupil_input(X),
            frame.standardize(X),
            targets,
            failing_rows(outputs, targets),
            weight,
        )
        own = outputs if self._task == "regression" else outputs.argmax(1)
        goals = np.stack([*[targets] * len(folds.held), own])
        self.path_ = penalty_path(
            self.tutoring(torch.float32),
            self.untrained([seed] * len(goals), torch.float32),
            self.rows(X, goals, folds.training_weights(), dtype=torch.float32),
            folds,
            DEFAULT_LAMBDAS if self.lambdas is None else self.lambdas,
            self.schedule(),
            seed=seed,
        )
        return one_standard_error(self.path_)


def _is_fitted(estimator: BaseEstimator) -> bool:
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True
