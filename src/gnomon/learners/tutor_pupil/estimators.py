"""Estimators that correct a fixed model's inputs: scikit-learn's interface around the tutor."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names_in, _check_sample_weight, check_is_fitted, validate_data

from gnomon.learners.tutor_pupil.frames import make_frame
from gnomon.learners.tutor_pupil.losses import (
    CLASSIFICATION_LOSSES,
    REGRESSION_LOSSES,
    TaskLoss,
    make_penalty,
    top_two_gap,
)
from gnomon.learners.tutor_pupil.path import DEFAULT_LAMBDAS, Held, failing_rows, one_standard_error, penalty_path
from gnomon.learners.tutor_pupil.pupils import DifferentiablePupil, Task, as_differentiable
from gnomon.learners.tutor_pupil.tutor import (
    Frame,
    Rows,
    Schedule,
    Tutoring,
    TutorWeights,
    build_tutor,
    train_tutors,
)
from gnomon.models.ensemble import StackedNets

ALREADY_RIGHT = 1e-12
_CHECKED_ROWS = 4096


class _TutoredEstimator(TransformerMixin, BaseEstimator):
    """What regressor and classifier share; they differ in targets, losses and the default pupil."""

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
            groups: Label of each row; rows of one group stay on one side of the validation split.

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
            if self.lam == "1se":
                self.lambda_ = self._selected_lambda(X, targets, outputs, weight, groups, seed)
            elif isinstance(self.lam, str) or not self.lam > 0:
                raise ValueError(f"lam must be '1se' or a number > 0, got {self.lam!r}")
            else:
                self.lambda_ = float(self.lam)
            kept = weight > 0
            rows = self.rows(
                X[kept], np.broadcast_to(targets[kept], (self.n_seeds, *targets[kept].shape)), weight[kept]
            )
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
        weight: np.ndarray | None = None,
        *,
        order: np.ndarray | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Rows:
        """Rows as tensors, with one set of targets a replicate."""
        frame = self.frame_
        weight = np.ones(len(X)) if weight is None else weight / weight.mean()
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
        fit, held = self._split(X, targets, groups, seed)
        own = outputs if self._task == "regression" else outputs.argmax(1)
        both = np.stack([targets, own])
        frame = self.frame_
        self.path_ = penalty_path(
            self.tutoring(),
            self.untrained([seed, seed]),
            self.rows(X[fit], both[:, fit], weight[fit]),
            self.rows(X[held], both[:, held], weight[held]),
            Held(
                frame.pupil_input(X[held]),
                frame.standardize(X[held]),
                targets[held],
                failing_rows(outputs[held], targets[held]),
            ),
            DEFAULT_LAMBDAS if self.lambdas is None else self.lambdas,
            self.schedule(),
            seed=seed,
        )
        return one_standard_error(self.path_)

    def _split(self, X: np.ndarray, targets: np.ndarray, groups: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
        share = self.validation_fraction
        if not 0 < share < 1:
            raise ValueError(f"validation_fraction must lie in (0, 1), got {share}")
        if len(X) < 5:
            raise ValueError(f"lam='1se' needs at least 5 samples to validate on, got {len(X)}; pass a number instead")
        if self.split == "time":
            first = round((1 - share) * len(X))
            return np.arange(first), np.arange(first, len(X))
        if self.split != "random":
            raise ValueError(f"split must be 'random' or 'time', got {self.split!r}")
        if groups is not None:
            splitter: Any = GroupShuffleSplit(1, test_size=share, random_state=seed)
            return next(splitter.split(X, targets, groups))
        held = round(share * len(X))
        stratify = targets.ndim == 1 and min(np.bincount(targets)[np.unique(targets)]) > 1
        if stratify and min(held, len(X) - held) >= len(np.unique(targets)):
            return next(StratifiedShuffleSplit(1, test_size=share, random_state=seed).split(X, targets))
        return next(ShuffleSplit(1, test_size=share, random_state=seed).split(X))


def _is_fitted(estimator: BaseEstimator) -> bool:
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


class TutorPupilRegressor(RegressorMixin, _TutoredEstimator):
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
        validation_fraction: Share of rows the penalty is chosen on.
        split: ``"random"`` (stratified, or by ``groups``), or ``"time"``: the last rows validate.
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


class TutorPupilClassifier(ClassifierMixin, _TutoredEstimator):
    r"""A fixed classifier made right by moving its inputs.

    As :class:`TutorPupilRegressor`, with two differences. The loss is ``"satisficing"``, zero once the right class
    leads by ``margin`` times the pupil's median top-2 logit gap, or ``"log_loss"``, the paper's, which also moves rows
    that are right. Trees and forests train through their relaxation and are always scored as they are.

    Args:
        pupil: As for the regressor; ``None`` fits a logistic regression.
        loss: ``"satisficing"`` or ``"log_loss"``.
        margin: Lead the right class must have, in units of the median gap; satisficing only.
        lam, lambdas, penalty, smoothness, context, correctable, scale, bounds, pupil_kind, tau, hidden, max_steps,
            batch_size, learning_rate, n_seeds, validation_fraction, split, device, random_state: As for the regressor.

    Attributes:
        classes_: Labels, in the pupil's order.
    """

    _task = "classification"
    _losses = CLASSIFICATION_LOSSES
    margin: float

    def __init__(
        self,
        pupil=None,
        *,
        lam: float | str = "1se",
        lambdas=None,
        penalty="l2",
        loss="satisficing",
        margin=0.25,
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
        """The pupil's label on corrected inputs."""
        return self.differentiable_pupil().predict(self._corrected_pupil_input(X))

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """The pupil's class probabilities on corrected inputs."""
        return self.differentiable_pupil().predict_proba(self._corrected_pupil_input(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Class logits on corrected inputs; for two classes the second's lead, ``(n,)``."""
        outputs = self.differentiable_pupil().outputs(self._corrected_pupil_input(X))
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def _validate(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        return X, np.asarray(y)

    @property
    def classes_(self) -> np.ndarray:
        """Labels in the order of the pupil's outputs."""
        classes = self.differentiable_pupil().classes
        assert classes is not None
        return classes

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Labels as indices into ``classes_``.

        Raises:
            ValueError: If a label is not among the pupil's.
        """
        labels = np.unique(y)
        if not np.isin(labels, self.classes_).all():
            raise ValueError(f"y has classes {labels.tolist()}, the pupil knows {self.classes_.tolist()}")
        return np.searchsorted(self.classes_, y)

    def _task_loss(self, outputs: np.ndarray, _: np.ndarray, weight: np.ndarray | None, /) -> TaskLoss:
        if self.loss == "log_loss":
            return TaskLoss("log_loss")
        gap = float(np.quantile(top_two_gap(outputs), 0.5, weights=weight, method="inverted_cdf"))
        return TaskLoss("satisficing", unit=gap if gap > 0 else 1.0, margin=self.margin)

    def _default_pupil(self) -> LogisticRegression:
        return LogisticRegression(max_iter=1000)


__all__ = ["Frame", "TutorPupilClassifier", "TutorPupilRegressor"]
