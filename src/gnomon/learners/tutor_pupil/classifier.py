"""A fixed classifier made right by moving its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from gnomon.learners.tutor_pupil.losses import CLASSIFICATION_LOSSES, TaskLoss, top_two_gap
from gnomon.learners.tutor_pupil.tutored import TutoredEstimator


class TutorPupilClassifier(ClassifierMixin, TutoredEstimator):
    r"""A fixed classifier made right by moving its inputs.

    As ``TutorPupilRegressor``, with two differences. The loss is ``"satisficing"``, zero once the right class
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
