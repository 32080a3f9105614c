"""Tutored estimators: scikit-learn's contract, the closed forms, invariances and bad input."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from gnomon.learners.tutor_pupil import Domain, TutorPupilClassifier, TutorPupilRegressor
from gnomon.learners.tutor_pupil.path import Folds, validation_folds
from gnomon.learners.tutor_pupil.tutored import TutoredEstimator

FAST = {"max_steps": 500, "hidden": (32,), "learning_rate": 1e-2, "random_state": 0}

# The array API check skips itself unless SCIPY_ARRAY_API is set. Copies of a row fall into several folds and a weighted
# row into one, so that with a cross-validated penalty weights are not copies, as in every search of scikit-learn's.
_SKIPPED = {"check_array_api_input"}
_NOT_FOR_A_SEARCH = {"check_sample_weight_equivalence_on_dense_data"}


@parametrize_with_checks(
    [
        TutorPupilRegressor(lam=0.1, max_steps=10, random_state=0),
        TutorPupilClassifier(lam=0.1, max_steps=10, random_state=0),
        TutorPupilRegressor(max_steps=2, hidden=(4,), random_state=0),
        TutorPupilClassifier(max_steps=2, hidden=(4,), random_state=0),
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract(estimator, check):
    name = getattr(check, "func", check).__name__
    if name not in _SKIPPED and not (estimator.lam == "1se" and name in _NOT_FOR_A_SEARCH):
        check(estimator)


@pytest.fixture(scope="module")
def line():
    """A linear pupil whose residual is linear too, so that a tutor can be exact."""
    random = np.random.default_rng(0)
    x = random.normal(size=(250, 3))
    weights = np.array([1.0, -2.0, 0.5])
    pupil = Ridge(alpha=1e-9).fit(x, x @ weights)
    residual = 0.6 * x[:, 0] + 0.3
    return x, x @ weights + residual, pupil, weights, residual


@pytest.mark.parametrize("lam", [0.3, 1.0])
def test_linear_pupil_gives_the_closed_form(line, lam):
    x, y, pupil, weights, residual = line
    model = TutorPupilRegressor(pupil, lam=lam, scale=1.0, **FAST).fit(x, y)
    # eps = r w / (lambda' + |w|^2): the loss is divided by var(y), so lambda' = lambda var(y).
    penalty = lam * y.var()
    expected = residual[:, None] * weights / (penalty + weights @ weights)
    found = model.corrections(x)
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 0.05
    left = y - model.predict(x)
    np.testing.assert_allclose(left, residual * penalty / (penalty + weights @ weights), atol=0.05)


def test_a_free_correction_of_each_row_gives_the_closed_form_too(line):
    """The bound of 3.3: eps optimised row by row with y known, through the tutoring's own loss and penalty."""
    x, y, pupil, weights, residual = line
    model = TutorPupilRegressor(pupil, lam=0.5, scale=1.0, max_steps=1, random_state=0).fit(x[:50], y[:50])
    tutoring = model.tutoring()
    rows = torch.from_numpy(x[:50])
    corrections = torch.zeros(1, 50, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([corrections], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        task, _ = tutoring.losses(corrections, rows, torch.from_numpy(y[:50, None])[None])
        loss = (task + 0.5 * tutoring.penalty(corrections)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    expected = residual[:50, None] * weights / (0.5 * model.loss_.unit + weights @ weights)
    error = np.linalg.norm(corrections.detach().numpy()[0] - expected) / np.linalg.norm(expected)
    assert error < 0.02


def test_one_correctable_feature_gives_the_exact_inverse():
    """Ideal gas law, volume only: eps = n R T / P - V = -n b where the truth has a covolume."""
    random = np.random.default_rng(0)
    temperature, volume = random.uniform(250, 600, 500), random.uniform(0.2, 2, 500)
    x = pd.DataFrame({"T": temperature, "V": volume})
    y = 0.082 * temperature / (volume - 0.03)
    model = TutorPupilRegressor(
        lambda rows: 0.082 * rows[:, 0] / rows[:, 1],
        lam=1e-4,
        loss="relative",
        correctable=["V"],
        max_steps=800,
        hidden=(32, 32),
        random_state=0,
    ).fit(x, y)
    found = model.corrections(x)
    assert (found[:, 0] == 0).all()
    np.testing.assert_allclose(found[:, 1].mean(), -0.03, rtol=0.03)
    assert np.abs(model.predict(x) / y - 1).mean() < 0.005


def test_a_huge_penalty_leaves_the_pupil_alone(line):
    x, y, pupil, _, _ = line
    model = TutorPupilRegressor(pupil, lam=1e6, max_steps=50, random_state=0).fit(x, y)
    assert np.abs(model.predict(x) - pupil.predict(x)).max() < 1e-3 * y.std()


def test_an_untrained_tutor_is_the_pupil_bit_for_bit(line):
    x, y, pupil, _, _ = line
    model = TutorPupilRegressor(pupil, lam=1.0, max_steps=0, random_state=0).fit(x, y)
    np.testing.assert_array_equal(model.predict(x), pupil.predict(x))
    np.testing.assert_array_equal(model.correct(x), x)


def test_a_pupil_that_is_right_is_not_corrected(line):
    x, _, pupil, _, _ = line
    model = TutorPupilRegressor(pupil, lam="1se", random_state=0).fit(x, pupil.predict(x))
    assert model.already_right_
    assert not model.corrections(x).any()


def test_own_labels_at_zero_margin_move_nothing():
    x, y = make_moons(300, noise=0.2, random_state=0)
    pupil = LogisticRegression().fit(x, y)
    model = TutorPupilClassifier(pupil, lam=0.1, margin=0.0, max_steps=100, random_state=0).fit(x, pupil.predict(x))
    assert not model.corrections(x).any()


def test_rescaling_a_column_rescales_its_correction(line):
    x, y, _, weights, _ = line
    factor = np.array([1.0, 50.0, 1.0])

    def fitted(rows, coefficients):
        pupil = Ridge(alpha=0.0).fit(rows, rows @ coefficients)
        return TutorPupilRegressor(pupil, lam=0.5, scale="std", max_steps=60, random_state=0).fit(rows, y)

    plain, scaled = fitted(x, weights), fitted(x * factor, weights / factor)
    standard = plain.corrections(x, standardized=True)
    np.testing.assert_allclose(scaled.corrections(x * factor, standardized=True), standard, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(scaled.corrections(x * factor), plain.corrections(x) * factor, rtol=1e-4, atol=1e-6)


def test_permuting_features_permutes_corrections(line):
    """Up to training noise: the tutor's initial weights do not permute with the columns."""
    x, y, _, weights, _ = line
    order = [2, 0, 1]

    def fitted(rows, coefficients):
        pupil = Ridge(alpha=1e-9).fit(rows, rows @ coefficients)
        return TutorPupilRegressor(pupil, lam=0.5, scale=1.0, **FAST).fit(rows, y)

    straight = fitted(x, weights).corrections(x)
    permuted = fitted(x[:, order], weights[order]).corrections(x[:, order])
    assert np.linalg.norm(permuted - straight[:, order]) < 0.03 * np.linalg.norm(straight)


def test_the_pupil_is_never_changed(line):
    x, y, _, _, _ = line
    module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    TutorPupilRegressor(module, lam=0.1, max_steps=20, random_state=0).fit(x, y)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_pupil_fingerprint_sees_a_change(line):
    x, y, _, _, _ = line
    module = nn.Linear(3, 1)
    model = TutorPupilRegressor(module, lam=0.1, max_steps=1, random_state=0).fit(x, y)
    before = model.differentiable_pupil().fingerprint()
    with torch.no_grad():
        model.pupil_.weight.add_(1.0)
    assert model.differentiable_pupil().fingerprint() != before


def test_path_goes_from_large_to_small_and_takes_the_largest_good_penalty():
    x, y = make_moons(500, noise=0.15, random_state=0)
    pupil = DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, y)
    lambdas = (0.03, 3.0, 0.3)
    model = TutorPupilClassifier(pupil, lambdas=lambdas, max_steps=120, hidden=(16,), random_state=0).fit(x, y)
    path = model.path_
    assert path["lambda"].tolist() == [3.0, 0.3, 0.03]
    best = path.loc[path["task_loss"].idxmin()]
    within = path.loc[path["task_loss"] <= best["task_loss"] + best["se"], "lambda"]
    assert model.lambda_ == within.max()
    assert (path["size"].diff().dropna() >= -1e-9).all()


@pytest.mark.parametrize("penalty", ["l1", "l2", "mahalanobis", {"first": [0], "others": [1, 2]}])
def test_penalties_train(line, penalty):
    x, y, pupil, _, _ = line
    model = TutorPupilRegressor(pupil, lam=0.1, penalty=penalty, max_steps=60, random_state=0).fit(x, y)
    assert np.square(y - model.predict(x)).mean() < np.square(y - pupil.predict(x)).mean()


def test_l1_uses_fewer_features_than_l2(line):
    """The smallest l1 move of a linear pupil goes along its largest weight alone."""
    x, y, pupil, _, _ = line
    shares = {}
    for penalty in ("l1", "l2"):
        model = TutorPupilRegressor(pupil, lam=0.05, penalty=penalty, scale=1.0, **FAST).fit(x, y)
        energy = np.square(model.corrections(x)).sum(0)
        shares[penalty] = energy.max() / energy.sum()
    assert shares["l1"] > 0.97 > shares["l2"]


def test_smoothness_flattens_the_tutor(line):
    x, y, pupil, _, _ = line
    spread = []
    for smoothness in (0.0, 3.0):
        model = TutorPupilRegressor(
            pupil, lam=0.01, smoothness=smoothness, max_steps=150, hidden=(16,), random_state=0
        ).fit(x, y)
        spread.append(model.corrections(x).std(0).sum())
    assert spread[1] < 0.6 * spread[0]


@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_losses_of_regression(line, loss):
    x, y, pupil, _, _ = line
    model = TutorPupilRegressor(pupil, lam=0.01, loss=loss, normalize="pupil", max_steps=200, random_state=0).fit(x, y)
    assert np.square(y - model.predict(x)).mean() < 0.2 * np.square(y - pupil.predict(x)).mean()


def test_several_outputs():
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 3))
    y = np.column_stack([x[:, 0] + 0.5, x[:, 1] - x[:, 2]])
    pupil = Ridge().fit(x, np.column_stack([x[:, 0], x[:, 1] - x[:, 2]]))
    model = TutorPupilRegressor(pupil, lam=0.01, max_steps=200, random_state=0).fit(x, y)
    assert model.predict(x).shape == (200, 2)
    assert np.square(y - model.predict(x)).mean() < 0.2 * np.square(y - pupil.predict(x)).mean()


def test_bounds_and_integers_hold_and_stay_differentiable(line):
    x, y, pupil, _, _ = line
    low, high = x.min(0), x.max(0)
    model = TutorPupilRegressor(
        pupil, lam=0.01, bounds=Domain(low, high), scale=1.0, max_steps=150, random_state=0
    ).fit(x, y)
    corrected = model.correct(x)
    assert (corrected >= low).all()
    assert (corrected <= high).all()
    assert np.abs(model.corrections(x)).max() > 0
    whole = np.round(x * 3)
    counted = TutorPupilRegressor(
        Ridge().fit(whole, y),
        lam=0.01,
        bounds=Domain(np.full(3, -np.inf), np.full(3, np.inf), integers=(0,)),
        correctable=[0, 1, 2],
        max_steps=100,
        random_state=0,
    ).fit(whole, y)
    assert (counted.correct(whole)[:, 0] % 1 == 0).all()


def test_discrete_columns_do_not_move_unless_named():
    random = np.random.default_rng(0)
    group = np.eye(3)[random.integers(0, 3, 200)]
    x = np.column_stack([random.normal(size=200), group])
    domain = Domain(np.full(4, -np.inf), np.full(4, np.inf), one_hot=((1, 2, 3),))
    y = x @ [1.0, 0.0, 1.0, 2.0] + 0.5
    pupil = Ridge().fit(x, y - 0.5)
    model = TutorPupilRegressor(pupil, lam=0.1, bounds=domain, max_steps=50, random_state=0).fit(x, y)
    assert model.frame_.correctable.tolist() == [0]
    named = TutorPupilRegressor(
        pupil, lam=0.001, bounds=domain, correctable=[1, 2, 3], max_steps=50, random_state=0
    ).fit(x, y)
    moved = named.correct(x)[:, 1:]
    assert set(np.unique(moved)) == {0.0, 1.0}
    assert (moved.sum(1) == 1).all()


def test_context_is_seen_by_the_tutor_and_not_by_the_pupil():
    random = np.random.default_rng(0)
    x = pd.DataFrame(random.normal(size=(400, 2)), columns=["dose", "age"])
    y = x["dose"] + (x["age"] > 0) * 1.0
    pupil = Ridge().fit(x[["dose"]], x["dose"])
    model = TutorPupilRegressor(pupil, lam=0.01, context=["age"], **FAST).fit(x, y)
    assert np.square(y - model.predict(x)).mean() < 0.1
    assert (model.correct(x)[:, 1] == x["age"]).all()


def test_names_survive_and_set_output_works(line):
    x, y, _, _, _ = line
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    pupil = make_pipeline(StandardScaler(), Ridge()).fit(frame, x[:, 0])
    model = TutorPupilRegressor(pupil, lam=0.1, max_steps=10, random_state=0).fit(frame, y)
    corrected = model.set_output(transform="pandas").correct(frame)
    assert list(corrected.columns) == ["a", "b", "c"]
    assert model.get_feature_names_out().tolist() == ["a", "b", "c"]


def test_grid_search_and_pipeline(line):
    x, y, pupil, _, _ = line
    search = GridSearchCV(TutorPupilRegressor(pupil, max_steps=60, random_state=0), {"lam": [100.0, 0.01]}, cv=2).fit(
        x, y
    )
    assert search.best_params_ == {"lam": 0.01}
    assert search.best_estimator_.pupil_ is pupil  # a fitted pupil survives cloning


def test_every_row_validates_once_or_the_last_ones_do():
    targets, groups = np.zeros((60, 1)), np.arange(60) // 6
    folds = validation_folds(targets, groups)
    assert len(folds) == 5
    assert sorted(np.concatenate(folds)) == list(range(60))
    assert all(not set(groups[held]) & set(np.delete(groups, held)) for held in folds)
    (last,) = validation_folds(targets, split="time", share=0.25)
    assert last.tolist() == list(range(45, 60))
    labels = np.repeat([0, 1], [50, 10])
    assert [int(labels[held].sum()) for held in validation_folds(labels)] == [2] * 5


def test_every_penalty_of_the_path_trains_to_its_end():
    # Eight rows fail. A path that stopped as soon as so few make the first steps look like a loss would stand still.
    x, y = make_moons(120, noise=0.1, random_state=0)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, y)
    model = TutorPupilClassifier(tree, lambdas=(1.0, 0.3, 0.1), max_steps=60, learning_rate=0.03, random_state=0)
    path = model.fit(x, y).path_
    assert (np.diff(path["size"]) > 0).all()
    assert (path["null_size"] > 0).all()
    assert path["ratio"].between(1, 1e3).all()


def test_a_net_of_the_path_never_sees_the_rows_it_is_validated_on():
    held = [np.array([0, 3]), np.array([1, 2])]
    empty = np.zeros((4, 1))
    folds = Folds(held, empty, empty, empty, np.zeros(4, dtype=bool), np.array([1.0, 2.0, 3.0, 4.0]))
    weights = folds.training_weights()
    assert weights[0, [0, 3]].tolist() == weights[2, [0, 3]].tolist() == weights[1, [1, 2]].tolist() == [0, 0]
    np.testing.assert_allclose(weights.mean(1), 1.0)
    np.testing.assert_allclose(weights[0, 2] / weights[0, 1], 1.5)


def test_an_unfitted_pupil_is_cloned_with_a_warning(line):
    x, y, _, _, _ = line
    pupil = Ridge()
    with pytest.warns(UserWarning, match="Ridge was not fitted; a clone"):
        model = TutorPupilRegressor(pupil, lam=0.1, max_steps=5, random_state=0).fit(x, y)
    assert not hasattr(pupil, "coef_")
    assert hasattr(model.pupil_, "coef_")


def test_a_black_box_pupil_trains(line):
    x, y, pupil, _, _ = line
    model = TutorPupilRegressor(pupil, lam=0.01, pupil_kind="black-box", max_steps=80, random_state=0).fit(x, y)
    assert np.square(y - model.predict(x)).mean() < 0.5 * np.square(y - pupil.predict(x)).mean()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lam": -1.0}, "lam must be '1se' or a number > 0"),
        ({"lam": "1se", "lambdas": (1.0, 0.0)}, "lambdas must all be > 0"),
        ({"loss": "absolute"}, "loss must be one of"),
        ({"normalize": "none"}, "normalize must be"),
        ({"penalty": "l3"}, "penalty must be"),
        ({"penalty": {"a": [0, 1]}}, "penalty groups must hold each of the 3"),
        ({"scale": "iqr"}, "scale must be"),
        ({"scale": -1.0}, "scale must be > 0"),
        ({"correctable": ["height"]}, "correctable names column 'height'"),
        ({"context": [7]}, "context names column 7"),
        ({"bounds": {0: (-0.5, 0.5)}}, r"bounds exclude \d+ of 250 training rows"),
        ({"bounds": {0: (2.0, 1.0)}}, "bounds of 0 must rise"),
        ({"split": "blocks", "lam": "1se"}, "split must be"),
        ({"validation_fraction": 1.5, "lam": "1se"}, "validation_fraction must lie"),
        ({"context": [0]}, "the pupil takes 3 features, the data has 2"),
    ],
)
def test_bad_arguments_are_named(line, change, message):
    x, y, pupil, _, _ = line
    with pytest.raises(ValueError, match=message):
        TutorPupilRegressor(pupil, **{"lam": 0.1, "max_steps": 2, "random_state": 0, **change}).fit(x, y)


def test_bad_data_is_named(line):
    x, y, pupil, _, _ = line
    constant = x.copy()
    constant[:, 1] = 3.0
    with pytest.raises(ValueError, match="correctable column 1 is constant"):
        TutorPupilRegressor(pupil, lam=0.1, correctable=[0, 1]).fit(constant, y)
    with pytest.raises(ValueError, match="divides by y, which is 0 in 1 places"):
        TutorPupilRegressor(pupil, lam=0.1, loss="relative").fit(x, np.r_[0.0, y[1:]])
    classifier = LogisticRegression().fit(x, np.where(x[:, 0] > 0, "high", "low"))
    with pytest.raises(ValueError, match=r"y has classes \['low', 'middle'\], the pupil knows \['high', 'low'\]"):
        TutorPupilClassifier(classifier, lam=0.1).fit(x, np.where(x[:, 0] > 0, "middle", "low"))
    with pytest.raises(NotFittedError):
        TutorPupilRegressor().predict(x)


def test_divergence_is_an_error_that_names_step_and_penalty():
    x = np.random.default_rng(0).normal(size=(50, 1))

    def explosive(rows):
        return torch.exp(300 * (rows[:, 0] - 0.999 * rows[:, 0].detach()) + rows[:, 0])

    with pytest.raises(RuntimeError, match=r"diverged at step \d+.*lambda 0.001"):
        TutorPupilRegressor(explosive, lam=1e-3, learning_rate=1e3, max_steps=50, random_state=0).fit(x, x[:, 0])


def test_both_estimators_share_one_fit():
    assert TutorPupilRegressor.fit is TutorPupilClassifier.fit is TutoredEstimator.fit
