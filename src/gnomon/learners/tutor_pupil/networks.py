"""Torch networks that compute what a fitted scikit-learn estimator computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn import discriminant_analysis as da
from sklearn import ensemble, linear_model, naive_bayes, neighbors, neural_network, preprocessing, svm, tree
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from torch import Tensor, nn

from gnomon.learners.tutor_pupil.trees import NodeTable, RelaxedTrees


class NotDifferentiable(TypeError):
    """The pupil has no useful gradient in its inputs; the message says what to do instead."""


@dataclass(frozen=True)
class Gates:
    """How wide the relaxed splits of trees are.

    Args:
        scale: Standard deviation of each feature.
        tau: Width in standard deviations, or (first, last) to anneal over training.
    """

    scale: np.ndarray
    tau: float | tuple[float, float] = 0.1


@singledispatch
def network_of(estimator: Any, _gates: Gates) -> nn.Module:
    """A float64 network with the estimator's outputs: values ``(n, q)``, or class logits ``(n, k)``.

    Register a function for your own estimator's class to make it a differentiable pupil.

    Args:
        estimator: Fitted.
        _gates: Width of relaxed splits, for those that have splits.

    Raises:
        NotDifferentiable: If the estimator's class is not registered.
    """
    raise NotDifferentiable(
        f"{type(estimator).__name__} has no differentiable form here; pass kind='black-box' (gradients from its "
        f"predictions, 32 calls a row) or kind='surrogate' (a network distilled from it)"
    )


class Affine(nn.Module):
    """``x W^T + b`` with fixed coefficients."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(np.array(weight, dtype=np.float64)))
        self.register_buffer("bias", torch.from_numpy(np.array(bias, dtype=np.float64)))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n q"]:
        """Outputs of a batch."""
        return x @ self.weight.T + self.bias


class QuadraticLogits(nn.Module):
    r"""Gaussian class log-densities :math:`c_k - \tfrac12 \lVert A_k (x - \mu_k) \rVert^2`: as of QDA."""

    means: Tensor
    factors: Tensor
    constant: Tensor

    def __init__(self, means: np.ndarray, factors: Sequence[np.ndarray], constant: np.ndarray) -> None:
        super().__init__()
        # Classes may have factors of different rank; rows of zeros add nothing to the norm.
        rank = max(factor.shape[0] for factor in factors)
        padded = np.zeros((len(factors), rank, means.shape[1]))
        for index, factor in enumerate(factors):
            padded[index, : factor.shape[0]] = factor
        self.register_buffer("means", torch.from_numpy(np.array(means, dtype=np.float64)))
        self.register_buffer("factors", torch.from_numpy(padded))
        self.register_buffer("constant", torch.from_numpy(np.array(constant, dtype=np.float64)))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Logits of a batch."""
        centred = x.unsqueeze(1) - self.means
        whitened = torch.einsum("nkd,krd->nkr", centred, self.factors)
        return self.constant - 0.5 * whitened.square().sum(-1)


class DiagonalLogits(nn.Module):
    r"""Gaussian class log-densities with diagonal factors, as of naive Bayes and centroids.

    .. math:: c_k - \tfrac12 \sum_j w_{kj} (x_j - \mu_{kj})^2
    """

    means: Tensor
    weights: Tensor
    constant: Tensor

    def __init__(self, means: np.ndarray, weights: np.ndarray, constant: np.ndarray) -> None:
        super().__init__()
        for name, value in {"means": means, "weights": weights, "constant": constant}.items():
            self.register_buffer(name, torch.from_numpy(np.array(value, dtype=np.float64)))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Logits of a batch."""
        # Expanded square: three matrix products instead of an (n, k, d) array.
        linear = x @ (self.weights * self.means).T
        return (
            self.constant + linear - 0.5 * (x.square() @ self.weights.T + (self.weights * self.means.square()).sum(1))
        )


class Powers(nn.Module):
    """Monomials of the inputs, as ``PolynomialFeatures`` orders them."""

    def __init__(self, powers: np.ndarray) -> None:
        super().__init__()
        self._columns = [np.repeat(np.arange(len(row)), row).tolist() for row in powers]

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
        """Monomials of a batch."""
        return torch.stack([x[:, columns].prod(1) for columns in self._columns], dim=1)


def _symmetric(weight: np.ndarray, bias: np.ndarray) -> Affine:
    """Two logits from one score: its softmax is the sigmoid of the score, its gap the score."""
    weight, bias = np.atleast_2d(weight), np.atleast_1d(bias)
    return Affine(np.vstack([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2]))


@network_of.register(linear_model.LinearRegression)
@network_of.register(linear_model.Ridge)
@network_of.register(linear_model.RidgeCV)
@network_of.register(linear_model.ElasticNet)
@network_of.register(linear_model.ElasticNetCV)
@network_of.register(linear_model.LassoCV)
@network_of.register(linear_model.BayesianRidge)
@network_of.register(linear_model.HuberRegressor)
@network_of.register(linear_model.SGDRegressor)
@network_of.register(svm.LinearSVR)
def _linear_regression(estimator: Any, _: Gates) -> nn.Module:
    return Affine(np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_))


@network_of.register(linear_model.LogisticRegression)
@network_of.register(linear_model.LogisticRegressionCV)
@network_of.register(linear_model.RidgeClassifier)
@network_of.register(svm.LinearSVC)
@network_of.register(da.LinearDiscriminantAnalysis)
def _linear_classifier(estimator: Any, _: Gates) -> nn.Module:
    weight, bias = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
    return _symmetric(weight, bias) if len(estimator.classes_) == 2 else Affine(weight, bias)


@network_of.register(naive_bayes.GaussianNB)
def _gaussian_naive_bayes(estimator: Any, _: Gates) -> nn.Module:
    constant = np.log(estimator.class_prior_) - 0.5 * np.log(2 * np.pi * estimator.var_).sum(1)
    return DiagonalLogits(estimator.theta_, 1 / estimator.var_, constant)


@network_of.register(da.QuadraticDiscriminantAnalysis)
def _quadratic_discriminant(estimator: Any, _: Gates) -> nn.Module:
    factors = [
        (rotation * spread**-0.5).T for rotation, spread in zip(estimator.rotations_, estimator.scalings_, strict=True)
    ]
    constant = np.log(estimator.priors_) - 0.5 * np.array([np.log(spread).sum() for spread in estimator.scalings_])
    return QuadraticLogits(estimator.means_, factors, constant)


@network_of.register(neighbors.NearestCentroid)
def _nearest_centroid(estimator: Any, _: Gates) -> nn.Module:
    if estimator.metric != "euclidean" or estimator.priors != "uniform":
        raise NotDifferentiable("NearestCentroid is a pupil only with metric='euclidean' and uniform priors")
    centroids = estimator.centroids_
    # Temperature: half the mean squared distance between centroids, so that logits are of order one.
    spread = np.square(centroids - centroids.mean(0)).sum(1).mean()
    # The square of x is common to all classes: without it the logits are linear and mean the same.
    return Affine(2 * centroids / spread, -np.square(centroids).sum(1) / spread)


@network_of.register(neural_network.MLPRegressor)
@network_of.register(neural_network.MLPClassifier)
def _multilayer_perceptron(estimator: Any, _: Gates) -> nn.Module:
    activations = {"identity": nn.Identity, "logistic": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}
    layers: list[nn.Module] = []
    for weight, bias in zip(estimator.coefs_[:-1], estimator.intercepts_[:-1], strict=True):
        layers += [Affine(weight.T, bias), activations[estimator.activation]()]
    weight, bias = estimator.coefs_[-1].T, estimator.intercepts_[-1]
    binary = estimator.out_activation_ == "logistic"
    if binary and len(weight) > 1:
        raise NotDifferentiable("a multi-label MLPClassifier is not a pupil: it has no single class to get right")
    return nn.Sequential(*layers, _symmetric(weight, bias) if binary else Affine(weight, bias))


@network_of.register(preprocessing.StandardScaler)
def _standard_scaler(estimator: Any, _: Gates) -> nn.Module:
    n = estimator.n_features_in_
    spread = np.ones(n) if estimator.scale_ is None else estimator.scale_
    mean = np.zeros(n) if not estimator.with_mean else estimator.mean_
    return Affine(np.diag(1 / spread), -mean / spread)


@network_of.register(preprocessing.MinMaxScaler)
def _min_max_scaler(estimator: Any, _: Gates) -> nn.Module:
    if estimator.clip:
        raise NotDifferentiable("MinMaxScaler(clip=True) has no gradient outside the range it was fitted on")
    return Affine(np.diag(estimator.scale_), estimator.min_)


@network_of.register(PCA)
def _pca(estimator: Any, _: Gates) -> nn.Module:
    components = estimator.components_
    if estimator.whiten:
        components = components / np.sqrt(estimator.explained_variance_)[:, None]
    return Affine(components, -components @ estimator.mean_)


@network_of.register(preprocessing.PolynomialFeatures)
def _polynomial_features(estimator: Any, _: Gates) -> nn.Module:
    return Powers(estimator.powers_)


@network_of.register(Pipeline)
def _pipeline(estimator: Pipeline, gates: Gates) -> nn.Module:
    networks: list[nn.Module] = []
    for _, step in estimator.steps:
        if step in (None, "passthrough"):
            continue
        networks.append(network_of(step, gates))
        if hasattr(step, "transform"):
            gates = replace(gates, scale=_scale_after(networks[-1], gates.scale))
    return nn.Sequential(*networks)


def _scale_after(network: nn.Module, scale: np.ndarray) -> np.ndarray:
    """Standard deviation of independent normal inputs after a transformer, by a fixed draw."""
    rows = np.random.default_rng(0).normal(size=(512, len(scale))) * scale
    spread = network(torch.from_numpy(rows)).numpy().std(0)
    return np.where(spread > 0, spread, 1.0)


def _node_table(grown: Any, value: np.ndarray) -> NodeTable:
    return NodeTable(grown.children_left, grown.children_right, grown.feature, grown.threshold, value)


def _frequencies(grown: Any) -> np.ndarray:
    counts = grown.value[:, 0, :]
    return counts / counts.sum(1, keepdims=True)


def _check_single_output(estimator: Any) -> None:
    if getattr(estimator, "n_outputs_", 1) > 1 and hasattr(estimator, "classes_"):
        raise NotDifferentiable("a classifier with several outputs is not a pupil: it has no single class to get right")


@network_of.register(tree.DecisionTreeClassifier)
def _classification_tree(estimator: Any, gates: Gates) -> nn.Module:
    _check_single_output(estimator)
    table = _node_table(estimator.tree_, _frequencies(estimator.tree_))
    return RelaxedTrees([table], gates.scale, tau=gates.tau, link="log-frequency")


@network_of.register(tree.DecisionTreeRegressor)
def _regression_tree(estimator: Any, gates: Gates) -> nn.Module:
    return RelaxedTrees([_node_table(estimator.tree_, estimator.tree_.value[:, :, 0])], gates.scale, tau=gates.tau)


@network_of.register(ensemble.RandomForestClassifier)
@network_of.register(ensemble.ExtraTreesClassifier)
def _classification_forest(estimator: Any, gates: Gates) -> nn.Module:
    _check_single_output(estimator)
    size = len(estimator.estimators_)
    tables = [_node_table(t.tree_, _frequencies(t.tree_) / size) for t in estimator.estimators_]
    return RelaxedTrees(tables, gates.scale, tau=gates.tau, link="log-frequency")


@network_of.register(ensemble.RandomForestRegressor)
@network_of.register(ensemble.ExtraTreesRegressor)
def _regression_forest(estimator: Any, gates: Gates) -> nn.Module:
    size = len(estimator.estimators_)
    tables = [_node_table(t.tree_, t.tree_.value[:, :, 0] / size) for t in estimator.estimators_]
    return RelaxedTrees(tables, gates.scale, tau=gates.tau)


@network_of.register(ensemble.GradientBoostingClassifier)
@network_of.register(ensemble.GradientBoostingRegressor)
def _gradient_boosting(estimator: Any, gates: Gates) -> nn.Module:
    if estimator.init is not None and estimator.init != "zero":
        raise NotDifferentiable(f"{type(estimator).__name__} is a pupil only with the default init or init='zero'")
    stages, width = estimator.estimators_.shape
    tables = [
        _node_table(grown.tree_, _in_column(estimator.learning_rate * grown.tree_.value[:, 0, 0], column, width))
        for stage in range(stages)
        for column, grown in enumerate(estimator.estimators_[stage])
    ]
    # A constant initial prediction has no public accessor.
    offset = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_), dtype=np.float32))[0]
    return RelaxedTrees(
        tables, gates.scale, tau=gates.tau, offset=offset.astype(np.float64), link=_boosting_link(estimator, width)
    )


@network_of.register(ensemble.HistGradientBoostingClassifier)
@network_of.register(ensemble.HistGradientBoostingRegressor)
def _histogram_gradient_boosting(estimator: Any, gates: Gates) -> nn.Module:
    if getattr(estimator, "loss", "log_loss") in ("gamma", "poisson"):
        raise NotDifferentiable("HistGradientBoostingRegressor is a pupil only with an identity link")
    # Node tables of histogram trees have no public accessor either.
    predictors = estimator._predictors
    width = len(predictors[0])
    tables = []
    for stage in predictors:
        for column, predictor in enumerate(stage):
            nodes = predictor.nodes
            if nodes["is_categorical"].any():
                raise NotDifferentiable("HistGradientBoosting with categorical splits has no relaxation")
            leaf = nodes["is_leaf"].astype(bool)
            left, right = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
            value = _in_column(nodes["value"], column, width)
            tables.append(NodeTable(left, right, nodes["feature_idx"], nodes["num_threshold"], value))
    offset = np.array(estimator._baseline_prediction, dtype=np.float64).reshape(-1)
    return RelaxedTrees(tables, gates.scale, tau=gates.tau, offset=offset, link=_boosting_link(estimator, width))


def _in_column(values: np.ndarray, column: int, width: int) -> np.ndarray:
    placed = np.zeros((len(values), width))
    placed[:, column] = values
    return placed


def _boosting_link(estimator: Any, width: int) -> Any:
    return "binary-logit" if hasattr(estimator, "classes_") and width == 1 else "identity"
