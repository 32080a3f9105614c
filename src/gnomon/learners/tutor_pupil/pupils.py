"""A fixed model as a differentiable function of its inputs."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import joblib
import numpy as np
import torch
from jaxtyping import Float
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import Pipeline
from torch import Tensor, nn

from gnomon.learners.tutor_pupil.black_box import BlackBoxNetwork, distil
from gnomon.learners.tutor_pupil.networks import Gates, NotDifferentiable, network_of
from gnomon.learners.tutor_pupil.trees import RelaxedTrees

Kind = Literal["auto", "exact", "relaxed", "black-box", "surrogate"]
Task = Literal["regression", "classification"]

EXACT_TOLERANCE = 1e-5


class DifferentiablePupil(nn.Module):
    """The frozen pupil: a torch network to train through, and the original to score with.

    Attributes:
        network: Values ``(n, q)`` or class logits ``(n, k)``, differentiable in its input.
        task: ``regression`` or ``classification``.
        classes: Labels in the order of the logits; ``None`` for regression.
        kind_: ``exact``, ``relaxed``, ``black-box`` or ``surrogate``.
        agreement_: Share of rows on which network and original agree on the class, or their R squared; NaN unchecked.
    """

    def __init__(
        self,
        network: nn.Module,
        original: Any,
        task: Task,
        classes: np.ndarray | None,
        kind: str,
        *,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        self.network = network.eval().requires_grad_(False).to(device)
        # In a tuple: as an attribute, a module would be registered as a part of this one.
        self._original = (original,)
        self.task: Task = task
        self.classes = classes
        self.kind_ = kind
        self.agreement_ = float("nan")

    @property
    def original(self) -> Any:
        """What the user passed."""
        return self._original[0]

    def forward(self, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows q"]:
        """Outputs of a batch with any leading axes."""
        outputs = self.network(x.reshape(-1, x.shape[-1]))
        outputs = outputs.unsqueeze(-1) if outputs.dim() == 1 else outputs
        return outputs.reshape(*x.shape[:-1], outputs.shape[-1])

    def train(self, mode: bool = True) -> DifferentiablePupil:
        """A pupil never trains: its network stays in evaluation mode."""
        super().train(mode)
        self.network.eval()
        return self

    def in_dtype(self, dtype: torch.dtype, device: str = "cpu") -> DifferentiablePupil:
        """A copy whose network computes in another dtype, on another device."""
        moved = copy.copy(self)
        moved._modules = dict(self._modules)
        moved.network = copy.deepcopy(self.network).to(device=device, dtype=dtype)
        return moved

    def anneal(self, progress: float) -> None:
        """Narrow the gates of relaxed trees as training goes on; nothing happens to other pupils."""
        for module in self.network.modules():
            if isinstance(module, RelaxedTrees):
                module.anneal(progress)

    def soft_outputs(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n q"]:
        """The network's outputs."""
        like = next(iter(self.network.buffers()), next(iter(self.network.parameters()), None))
        batch = torch.as_tensor(x, dtype=torch.float64 if like is None else like.dtype)
        with torch.no_grad():
            return self(batch if like is None else batch.to(like.device)).double().cpu().numpy()

    def outputs(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n q"]:
        """The pupil's own outputs, to score with: values, or log-probabilities whose largest is its prediction."""
        if self.kind_ == "exact":
            return self.soft_outputs(x)
        return _estimator_outputs(self.original, self.task)(x)

    def predict(self, x: Float[np.ndarray, "n d"]) -> np.ndarray:
        """Values ``(n, q)``, or labels ``(n,)``: the original's own, wherever it has them."""
        if self.classes is not None:
            return self.classes[self.outputs(x).argmax(1)]
        if isinstance(self.original, BaseEstimator):
            return _estimator_outputs(self.original, "regression")(x)
        return self.outputs(x)

    def predict_proba(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Class probabilities."""
        probabilities = np.exp(log_softmax(self.outputs(x), axis=1))
        return probabilities / probabilities.sum(1, keepdims=True)

    def fingerprint(self) -> str:
        """Hash of everything the pupil computes with; a fit must leave it as it was."""
        if not isinstance(self.original, nn.Module):
            return str(joblib.hash(self.original)) if isinstance(self.original, BaseEstimator) else repr(self.original)
        digest = hashlib.sha256()
        for name, value in sorted(self.original.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def as_differentiable(
    pupil: Any,
    *,
    kind: Kind = "auto",
    tau: float | tuple[float, float] = 0.1,
    check_on: Float[np.ndarray, "n d"] | None = None,
    task: Task | None = None,
    features: Sequence[str] | None = None,
    device: str = "cpu",
) -> DifferentiablePupil:
    """A pupil whose outputs have a gradient in its inputs.

    Args:
        pupil: A fitted scikit-learn estimator or pipeline, a ``torch.nn.Module``, a function of a ``(n, d)`` tensor,
            or a sympy expression.
        kind: ``exact`` for linear models, Gaussian and centroid classifiers, multi-layer perceptrons and pipelines of
            these with scalers, PCA or polynomial features; ``relaxed`` for trees, forests and boosting;
            ``black-box`` for evolution-strategies gradients of anything with ``predict``; ``surrogate`` for a network
            distilled from it; ``auto`` for exact or relaxed.
        tau: Gate width of relaxed trees in standard deviations of the feature, or (first, last) to anneal.
        check_on: Rows on which agreement is measured; their spread sets the width of gates and smoothing, and a
            surrogate is distilled on them.
        task: Of a module, function or expression (default regression); estimators know theirs.
        features: Order of the symbols of a sympy expression; sorted by name if not given.
        device: Where the network computes; a module elsewhere is copied there.

    Raises:
        NotDifferentiable: If the pupil has no such form; the message says which kind to ask for.
        ValueError: If the network disagrees with an exact pupil by more than 1e-5, or rows are needed and missing.
    """
    rows = None if check_on is None else np.asarray(check_on, dtype=np.float64)
    made = _make(pupil, kind, tau, rows, task, features, device)
    if rows is not None:
        made.agreement_ = _agreement(made, rows)
    return made


def _make(
    pupil: Any, kind: Kind, tau: Any, rows: np.ndarray | None, task: Task | None, features: Any, device: str
) -> DifferentiablePupil:
    owner = getattr(pupil, "__self__", None)
    if isinstance(owner, BaseEstimator):
        raise NotDifferentiable(
            f"{type(owner).__name__}.{pupil.__name__} has no gradient in torch (a tree's is zero almost everywhere); "
            f"pass the estimator itself, with kind='black-box' if it is of a kind this package cannot differentiate"
        )
    if isinstance(pupil, BaseEstimator):
        return _of_estimator(pupil, kind, tau, rows, device)
    network = _as_module(pupil, features)
    task = task or "regression"
    classes = None
    if task == "classification":
        if rows is None:
            raise ValueError("check_on is needed to count the classes of a module or function")
        probe = network(torch.from_numpy(rows[:1]).to(_dtype(network)))
        classes = np.arange(probe.shape[-1])
    return DifferentiablePupil(network, pupil, task, classes, "exact", device=device)


def _of_estimator(pupil: Any, kind: Kind, tau: Any, rows: np.ndarray | None, device: str) -> DifferentiablePupil:
    if not (is_classifier(pupil) or is_regressor(pupil)):
        raise NotDifferentiable(f"{type(pupil).__name__} is neither a classifier nor a regressor")
    task: Task = "classification" if is_classifier(pupil) else "regression"
    classes = np.asarray(pupil.classes_) if task == "classification" else None
    scale = np.ones(pupil.n_features_in_) if rows is None else _spread(rows)
    if kind == "black-box":
        network: nn.Module = BlackBoxNetwork(_estimator_outputs(pupil, task), scale)
    elif kind == "surrogate":
        if rows is None:
            raise ValueError("kind='surrogate' distils the pupil on rows: pass check_on")
        network = distil(_estimator_outputs(pupil, task), rows, scale)
    else:
        network = network_of(pupil, Gates(scale, tau))
        found = "relaxed" if any(isinstance(module, RelaxedTrees) for module in network.modules()) else "exact"
        if kind not in ("auto", found):
            raise NotDifferentiable(f"{type(pupil).__name__} has a kind={found!r} form, not {kind!r}")
        kind = found
    return DifferentiablePupil(network, pupil, task, classes, kind, device=device)


class _Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Float[Tensor, "n d"]) -> Tensor:
        return self._function(x)


class _Expression(nn.Module):
    """A sympy expression over the columns of its input."""

    def __init__(self, expression: Any, features: Sequence[str] | None) -> None:
        super().__init__()
        import sympy

        symbols = {str(symbol): symbol for symbol in expression.free_symbols}
        order = sorted(symbols) if features is None else list(features)
        if absent := sorted(set(symbols) - set(order)):
            raise ValueError(f"the expression uses {absent}, which features {order} do not name")
        arguments = [symbols.get(name, sympy.Symbol(name)) for name in order]
        self._function = sympy.lambdify(arguments, expression, modules="torch")
        self._width = len(order)

    def forward(self, x: Float[Tensor, "n d"]) -> Tensor:
        if x.shape[-1] != self._width:
            raise ValueError(f"the expression takes {self._width} features, got {x.shape[-1]}")
        return self._function(*x.unbind(-1)) + torch.zeros_like(x[..., 0])


def _as_module(pupil: Any, features: Sequence[str] | None) -> nn.Module:
    if isinstance(pupil, nn.Module):
        return copy.deepcopy(pupil).double()
    if hasattr(pupil, "free_symbols"):
        return _Expression(pupil, features)
    if callable(pupil):
        return _Function(pupil)
    raise NotDifferentiable(
        f"a pupil is a fitted scikit-learn estimator, a torch module, a function of a tensor or a sympy expression, "
        f"got {type(pupil).__name__}"
    )


def _estimator_outputs(estimator: Any, task: Task):
    """The estimator's values ``(n, q)``, or log-probabilities ``(n, k)`` from whatever it offers.

    Probabilities of ``NearestCentroid`` are those of another model than its predictions, and are not used.
    """
    names = getattr(estimator, "feature_names_in_", None)

    def outputs(x: np.ndarray) -> np.ndarray:
        rows: Any = x
        if names is not None:
            import pandas as pd

            rows = pd.DataFrame(x, columns=names)
        if task == "regression":
            values = np.asarray(estimator.predict(rows), dtype=np.float64)
            return values.reshape(len(x), -1)
        if hasattr(estimator, "predict_proba") and not isinstance(_last_step(estimator), NearestCentroid):
            return np.log(np.asarray(estimator.predict_proba(rows), dtype=np.float64) + 1e-6)
        chosen = np.searchsorted(estimator.classes_, estimator.predict(rows))
        return np.log(np.eye(len(estimator.classes_))[chosen] + 1e-6)

    return outputs


def _agreement(pupil: DifferentiablePupil, rows: np.ndarray) -> float:
    soft = pupil.soft_outputs(rows)
    if not np.isfinite(soft).all():
        raise ValueError(f"the pupil's output is not finite on row {int((~np.isfinite(soft)).any(1).argmax())}")
    if not isinstance(pupil.original, BaseEstimator):
        return 1.0
    hard = _estimator_outputs(pupil.original, pupil.task)(rows)
    if pupil.task == "classification":
        agreement = float((soft.argmax(1) == hard.argmax(1)).mean())
    else:
        agreement = 1.0 - float(np.square(soft - hard).sum() / max(np.square(hard - hard.mean(0)).sum(), 1e-300))
    if pupil.kind_ == "exact":
        _check_exact(pupil, soft, hard)
    elif agreement < 0.98:
        warnings.warn(
            f"the {pupil.kind_} pupil agrees with {type(pupil.original).__name__} on {agreement:.3f} of the rows; "
            f"scores use the original, but a smaller tau (or another kind) may train better",
            stacklevel=3,
        )
    return agreement


def _check_exact(pupil: DifferentiablePupil, soft: np.ndarray, hard: np.ndarray) -> None:
    name = type(pupil.original).__name__
    last = _last_step(pupil.original)
    if pupil.task == "regression":
        gap = float(np.abs(soft - hard).max() / max(np.abs(hard).max(), 1.0))
    elif hasattr(last, "predict_proba") and not isinstance(last, NearestCentroid):
        shifted = np.exp(soft - soft.max(1, keepdims=True))
        gap = float(np.abs(shifted / shifted.sum(1, keepdims=True) - (np.exp(hard) - 1e-6)).max())
    else:
        gap = float((soft.argmax(1) != hard.argmax(1)).mean())
    if gap > EXACT_TOLERANCE:
        raise ValueError(f"the network of {name} differs from the estimator by {gap:.2g}, more than {EXACT_TOLERANCE}")


def _last_step(estimator: Any) -> Any:
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def _spread(rows: np.ndarray) -> np.ndarray:
    spread = rows.std(0)
    return np.where(spread > 0, spread, 1.0)


def _dtype(network: nn.Module) -> torch.dtype:
    like = next(iter(network.parameters()), next(iter(network.buffers()), None))
    return torch.float64 if like is None else like.dtype


__all__ = ["DifferentiablePupil", "Kind", "NotDifferentiable", "Task", "as_differentiable"]
