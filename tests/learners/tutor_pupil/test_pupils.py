"""Differentiable pupils against the estimators they stand for."""

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import discriminant_analysis, ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from torch import nn

from gnomon.learners.tutor_pupil import NotDifferentiable, as_differentiable
from gnomon.learners.tutor_pupil.trees import RelaxedTrees


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 4)) * [1, 2, 0.5, 1] + [0, 1, 0, -1]
    score = x[:, 0] + 0.5 * x[:, 1] * x[:, 2]
    return x, score + 0.1 * random.normal(size=240), np.digitize(score, [-0.5, 0.7])


EXACT_CLASSIFIERS = [
    linear_model.LogisticRegression(),
    linear_model.RidgeClassifier(),
    svm.LinearSVC(),
    naive_bayes.GaussianNB(),
    discriminant_analysis.LinearDiscriminantAnalysis(),
    discriminant_analysis.QuadraticDiscriminantAnalysis(),
    neighbors.NearestCentroid(),
    neural_network.MLPClassifier(hidden_layer_sizes=(8,), max_iter=2000, random_state=0),
    make_pipeline(StandardScaler(), PolynomialFeatures(2), linear_model.LogisticRegression(max_iter=2000)),
    make_pipeline(MinMaxScaler(), PCA(3), neighbors.NearestCentroid()),
]
EXACT_REGRESSORS = [
    linear_model.LinearRegression(),
    linear_model.Ridge(),
    linear_model.Lasso(0.01),
    linear_model.ElasticNet(0.01),
    svm.LinearSVR(max_iter=20000),
    neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=4000, tol=1e-3, random_state=0),
    make_pipeline(PCA(3, whiten=True), linear_model.Ridge()),
]


def _id(estimator):
    return type(estimator[-1] if hasattr(estimator, "steps") else estimator).__name__


@pytest.mark.parametrize("estimator", EXACT_REGRESSORS, ids=_id)
def test_exact_regressors_agree(estimator, table):
    x, y, _ = table
    pupil = as_differentiable(estimator.fit(x, y), check_on=x)
    assert pupil.kind_ == "exact"
    np.testing.assert_allclose(pupil.soft_outputs(x)[:, 0], estimator.predict(x), atol=1e-8)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("estimator", EXACT_CLASSIFIERS, ids=_id)
def test_exact_classifiers_agree(estimator, classes, table):
    x, _, labels = table
    y = np.minimum(labels, classes - 1)
    pupil = as_differentiable(estimator.fit(x, y), check_on=x)
    assert pupil.kind_ == "exact"
    assert pupil.agreement_ == 1.0
    np.testing.assert_array_equal(pupil.predict(x), estimator.predict(x))
    if hasattr(estimator, "predict_proba") and _id(estimator) != "NearestCentroid":
        np.testing.assert_allclose(pupil.predict_proba(x), estimator.predict_proba(x), atol=1e-8)


def test_the_chain_rule_includes_the_scaler(table):
    x, y, _ = table
    pipeline = make_pipeline(StandardScaler(), linear_model.Ridge()).fit(x, y)
    rows = torch.from_numpy(x[:3]).requires_grad_(True)
    as_differentiable(pipeline)(rows).sum().backward()
    expected = pipeline[-1].coef_ / pipeline[0].scale_
    np.testing.assert_allclose(rows.grad.numpy(), np.broadcast_to(expected, (3, 4)), rtol=1e-10)


TREES = [
    tree.DecisionTreeClassifier(max_depth=4, random_state=0),
    tree.DecisionTreeRegressor(max_depth=4, random_state=0),
    ensemble.RandomForestClassifier(7, max_depth=5, random_state=0),
    ensemble.RandomForestRegressor(7, max_depth=5, random_state=0),
    ensemble.ExtraTreesClassifier(7, max_depth=5, random_state=0),
    ensemble.GradientBoostingClassifier(n_estimators=8, random_state=0),
    ensemble.GradientBoostingRegressor(n_estimators=8, random_state=0),
    ensemble.HistGradientBoostingClassifier(max_iter=8, random_state=0),
    ensemble.HistGradientBoostingRegressor(max_iter=8, random_state=0),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("estimator", TREES, ids=_id)
def test_trees_are_exact_in_the_limit_of_narrow_gates(estimator, classes, table):
    x, values, labels = table
    classifies = hasattr(estimator, "predict_proba")
    estimator.fit(x, np.minimum(labels, classes - 1) if classifies else values)
    # Rows are moved off the thresholds, at which a float32 tree and a float64 gate may differ.
    rows = x + 1e-4
    pupil = as_differentiable(estimator, tau=1e-9, check_on=rows)
    assert pupil.kind_ == "relaxed"
    if classifies:
        soft = torch.from_numpy(pupil.soft_outputs(rows)).softmax(-1).numpy()
        np.testing.assert_allclose(soft, estimator.predict_proba(rows), atol=2e-5)
    else:
        np.testing.assert_allclose(pupil.soft_outputs(rows)[:, 0], estimator.predict(rows), atol=1e-8)


def test_relaxed_tree_equals_its_recursive_form(table):
    x, y, _ = table
    grown = tree.DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)
    nodes, scale, tau = grown.tree_, x.std(0), 0.2

    def recursive(row, node=0):
        left, right = nodes.children_left[node], nodes.children_right[node]
        if left < 0:
            return nodes.value[node, 0, 0]
        j = nodes.feature[node]
        gate = 1 / (1 + np.exp(-(nodes.threshold[node] - row[j]) / (tau * scale[j])))
        return gate * recursive(row, left) + (1 - gate) * recursive(row, right)

    rows = x[:20]
    with pytest.warns(UserWarning, match="agrees with DecisionTreeRegressor"):
        pupil = as_differentiable(grown, tau=tau, check_on=x)
    np.testing.assert_allclose(pupil.soft_outputs(rows)[:, 0], [recursive(row) for row in rows], rtol=1e-10)


@given(tau=st.floats(0.01, 2.0))
@settings(max_examples=20, deadline=None)
def test_relaxed_class_probabilities_sum_to_one(tau):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3))
    grown = tree.DecisionTreeClassifier(max_depth=5, random_state=0).fit(x, random.integers(0, 3, 60))
    logs = as_differentiable(grown, tau=tau).soft_outputs(x)
    np.testing.assert_allclose(np.exp(logs).sum(1), 1.0, atol=1e-5)


def test_gates_narrow_from_first_to_last_tau(table):
    x, y, _ = table
    pupil = as_differentiable(tree.DecisionTreeRegressor(max_depth=2).fit(x, y), tau=(0.3, 0.03))
    (relaxed,) = [module for module in pupil.network.modules() if isinstance(module, RelaxedTrees)]
    widths = []
    for progress in (0.0, 0.5, 1.0):
        pupil.anneal(progress)
        widths.append(relaxed.tau)
    np.testing.assert_allclose(widths, [0.3, 0.3 * 0.1**0.5, 0.03])
    with pytest.raises(ValueError, match="tau must be > 0"):
        as_differentiable(tree.DecisionTreeRegressor(max_depth=2).fit(x, y), tau=0.0)


def test_a_bare_predict_is_refused_with_a_hint(table):
    x, y, _ = table
    grown = tree.DecisionTreeRegressor(max_depth=2).fit(x, y)
    with pytest.raises(NotDifferentiable, match=r"DecisionTreeRegressor.predict has no gradient.*pass the estimator"):
        as_differentiable(grown.predict)
    with pytest.raises(NotDifferentiable, match=r"KNeighborsRegressor has no differentiable form.*kind='black-box'"):
        as_differentiable(neighbors.KNeighborsRegressor().fit(x, y))
    with pytest.raises(NotDifferentiable, match="neither a classifier nor a regressor"):
        as_differentiable(KMeans(2, n_init=1, random_state=0).fit(x))
    with pytest.raises(NotDifferentiable, match="kind='exact' form, not 'relaxed'"):
        as_differentiable(linear_model.Ridge().fit(x, y), kind="relaxed")
    with pytest.raises(NotDifferentiable, match="a pupil is a fitted scikit-learn estimator"):
        as_differentiable(3)


def test_evolution_gradient_is_unbiased_for_a_linear_function(table):
    x, y, _ = table
    ridge = linear_model.Ridge().fit(x, y)
    pupil = as_differentiable(ridge, kind="black-box", check_on=x)
    rows = torch.from_numpy(np.repeat(x[:1], 4000, axis=0)).requires_grad_(True)
    pupil(rows).sum().backward()
    gradients = rows.grad.numpy()
    error = gradients.std(0) / len(gradients) ** 0.5
    assert (np.abs(gradients.mean(0) - ridge.coef_) < 4 * error).all()


def test_surrogate_follows_its_pupil(table):
    x, y, _ = table
    pupil = as_differentiable(neighbors.KNeighborsRegressor(15).fit(x, y), kind="surrogate", check_on=x)
    assert pupil.agreement_ > 0.98
    with pytest.raises(ValueError, match="pass check_on"):
        as_differentiable(neighbors.KNeighborsRegressor().fit(x, y), kind="surrogate")


def test_sympy_functions_and_modules():
    x = np.random.default_rng(0).uniform(1, 2, (20, 2))
    temperature, volume = sympy.symbols("T V")
    law = as_differentiable(0.082 * temperature / volume, features=("T", "V"), check_on=x)
    np.testing.assert_allclose(law.soft_outputs(x)[:, 0], 0.082 * x[:, 0] / x[:, 1])
    with pytest.raises(ValueError, match=r"uses \['V'\]"):
        as_differentiable(temperature / volume, features=("T",))
    with pytest.raises(ValueError, match="takes 2 features, got 3"):
        law(torch.ones(4, 3))
    module = nn.Linear(2, 3)
    pupil = as_differentiable(module, task="classification", check_on=x)
    assert pupil.classes.tolist() == [0, 1, 2]
    assert all(not parameter.requires_grad for parameter in pupil.parameters())
    assert module.weight.requires_grad  # the user's own module is not touched
    with pytest.raises(ValueError, match="check_on is needed"):
        as_differentiable(module, task="classification")


def test_a_pupil_that_is_not_finite_is_refused():
    x = np.array([[1.0], [0.0]])
    with pytest.raises(ValueError, match="not finite on row 1"):
        as_differentiable(lambda rows: 1 / rows[:, 0], check_on=x)
