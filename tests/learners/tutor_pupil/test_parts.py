"""Losses, penalties, domains, nulls and diagnostics against closed forms and planted truths."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

from gnomon.learners.tutor_pupil import Domain, TutorPupilClassifier
from gnomon.learners.tutor_pupil.diagnostics import (
    alignment,
    feature_profile,
    gradient_corrections,
    output_gradients,
    region_overlap,
    region_tree,
    seed_cosine,
    support_ratio,
)
from gnomon.learners.tutor_pupil.formulas import evolved_formula, linear_coefficients, symbolic_summary, term_library
from gnomon.learners.tutor_pupil.losses import Penalty, TaskLoss, make_penalty, top_two_gap
from gnomon.learners.tutor_pupil.nulls import null_fits, random_pushes, scattered_targets
from gnomon.learners.tutor_pupil.path import failing_rows


def test_losses_by_hand():
    outputs = torch.tensor([[2.0, 1.0, 0.0]])
    label = torch.tensor([0])
    assert TaskLoss("satisficing", unit=2.0, margin=0.25)(outputs, label) == 0.0
    assert TaskLoss("satisficing", unit=2.0, margin=0.75)(outputs, label) == 0.25
    assert TaskLoss("satisficing", unit=2.0, margin=0.25)(outputs, torch.tensor([2])) == 1.25
    torch.testing.assert_close(
        TaskLoss("log_loss")(outputs, label), torch.nn.functional.cross_entropy(outputs, label, reduction="none")
    )
    value, target = torch.tensor([[3.0], [1.5]]), torch.tensor([[1.0], [1.0]])
    assert TaskLoss("squared", unit=4.0)(value, target).tolist() == [1.0, 0.0625]
    assert TaskLoss("huber", unit=1.0)(value, target).tolist() == [3.0, 0.25]
    assert TaskLoss("relative")(value, target).tolist() == [4.0, 0.25]
    assert top_two_gap(np.array([[3.0, 1.0, 2.5]])).tolist() == [0.5]


def test_penalties_by_hand():
    correction = torch.tensor([[3.0, 4.0, -1.0]])
    assert Penalty("l2")(correction) == 26
    assert Penalty("l1")(correction) == 8
    assert Penalty("group", groups=((0, 1), (2,)))(correction).item() == pytest.approx(2**0.5 * 5 + 1)
    precision = np.diag([1.0, 2.0, 3.0])
    assert Penalty("mahalanobis", precision=precision)(correction) == 9 + 32 + 3


def test_mahalanobis_makes_moves_along_the_data_cheap():
    x = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.95], [0.95, 1]], 500)
    penalty = make_penalty("mahalanobis", x)
    along, across = penalty(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64))
    assert along < 0.1 * across


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=4))
@settings(max_examples=30, deadline=None)
def test_projection_is_idempotent_and_agrees_with_its_differentiable_form(row):
    domain = Domain(np.array([-1.0, -np.inf, 0, 0]), np.array([1.0, np.inf, 1, 1]), (1,), ((2, 3),))
    x = np.array([row])
    once = domain.project(x)
    np.testing.assert_array_equal(domain.project(once), once)
    leaf = torch.from_numpy(x).requires_grad_(True)
    through = domain.project_through(leaf)
    np.testing.assert_allclose(through.detach().numpy()[:, :2], once[:, :2])
    through.sum().backward()
    assert torch.isfinite(leaf.grad).all()
    assert leaf.grad[0, 0] == 1.0  # clipped or not, the gradient passes
    assert once[0, 2:].sum() == 1


def test_overshoot_is_the_squared_distance_to_the_box():
    domain = Domain(np.array([0.0]), np.array([1.0]))
    beyond = domain.overshoot(torch.tensor([[1.5], [0.5], [-1.0]]), torch.tensor([0.5]))
    assert beyond.tolist() == [1.0, 0.0, 4.0]
    assert domain.at_bound(np.array([[1.5], [0.5]])).tolist() == [True, False]


def test_scattered_errors_keep_the_confusion_and_lose_the_place():
    random = np.random.default_rng(0)
    outputs = np.eye(3)[random.integers(0, 3, 3000)]
    targets = np.where(random.random(3000) < 0.2, random.integers(0, 3, 3000), outputs.argmax(1))
    scattered = scattered_targets(outputs, targets, random)

    def confusion(labels):
        return pd.crosstab(outputs.argmax(1), labels).to_numpy()

    np.testing.assert_array_equal(confusion(scattered), confusion(targets))
    wrong, scattered_wrong = targets != outputs.argmax(1), scattered != outputs.argmax(1)
    assert abs(np.corrcoef(wrong, scattered_wrong)[0, 1]) < 0.1


def test_scattered_residuals_stay_in_their_tenth():
    random = np.random.default_rng(0)
    outputs = random.normal(size=(5000, 1))
    targets = outputs + np.abs(outputs) * random.normal(size=(5000, 1))
    scattered = scattered_targets(outputs, targets, random)
    np.testing.assert_allclose(np.sort(scattered - outputs, axis=0), np.sort(targets - outputs, axis=0), atol=1e-9)
    large = np.abs(outputs[:, 0]) > 1.5
    ratio = (scattered - outputs)[large].std() / (targets - outputs)[large].std()
    assert ratio == pytest.approx(1, abs=0.25)


@pytest.fixture(scope="module")
def structured():
    """A logistic pupil that misses a curved boundary."""
    random = np.random.default_rng(0)
    x = random.normal(size=(800, 2))
    y = (x[:, 1] > 0.7 * x[:, 0] ** 2 - 0.5).astype(int)
    pupil = LogisticRegression().fit(x[:400], y[:400])
    model = TutorPupilClassifier(pupil, lam=0.1, max_steps=150, hidden=(16,), learning_rate=1e-2, random_state=0)
    return model.fit(x[:400], y[:400]), x[400:], y[400:]


def test_refits_separate_a_pattern_from_its_nulls(structured):
    model, x, y = structured
    counts = {"treatment": 3, "own-labels": 3, "scattered-errors": 12, "shuffled-input": 3}
    table, weights = null_fits(model, x, model.encode(y), counts, np.random.default_rng(0))
    assert table["arm"].value_counts().to_dict() == counts
    assert len(weights["scattered-errors"]) == 12
    real = table.loc[table["arm"] == "treatment", "score_gain"]
    for arm in ("own-labels", "scattered-errors", "shuffled-input"):
        assert table.loc[table["arm"] == arm, "score_gain"].max() < real.min()
    sizes = table.groupby("arm")["median"].mean()
    assert sizes["treatment"] > 2 * sizes["own-labels"]


def test_blocks_of_refits_make_no_difference_in_kind(structured):
    """More refits than fit in one stack: every one is there, and no two are alike."""
    model, x, y = structured
    quick = {"scattered-errors": 55}
    schedule = model.schedule().__class__(steps=3)
    table, _ = null_fits(model, x, model.encode(y), quick, np.random.default_rng(0), schedule=schedule)
    assert table["refit"].tolist() == list(range(55))
    assert table["size"].nunique() == 55


def test_a_random_push_is_as_long_and_less_use(structured):
    model, x, y = structured
    pushes = random_pushes(model, x, model.encode(y), np.random.default_rng(0), draws=20)
    assert len(pushes) == 21
    means = pushes.groupby("arm")["fixed"].mean()
    assert means["treatment"] > means["random-direction"] + 0.2


def test_failing_rows():
    assert failing_rows(np.eye(2), np.array([0, 0])).tolist() == [False, True]
    values = np.arange(8.0)[:, None]
    assert failing_rows(values, np.zeros((8, 1))).tolist() == [False] * 6 + [True] * 2


def test_gradients_and_smallest_corrections_of_a_linear_pupil(structured):
    model, x, _ = structured
    gradients = output_gradients(model.tutoring(), x)
    weights = model.pupil_.coef_[0] * model.scale_
    np.testing.assert_allclose(gradients[:, 1] - gradients[:, 0], np.broadcast_to(weights, (400, 2)), rtol=1e-9)
    one = gradients[:, 1:]
    change = np.full((400, 1), 0.3)
    expected = 0.3 * one[:, 0] / (0.2 + np.square(one[:, 0]).sum(1, keepdims=True))
    np.testing.assert_allclose(gradient_corrections(one, change, 0.2), expected, rtol=1e-9)


def test_alignment_is_one_for_linear_pupils_and_counts_the_share_elsewhere():
    gradients = np.zeros((10, 1, 3))
    gradients[:, 0, 0] = 2.0
    along, across = np.tile([1.0, 0, 0], (10, 1)), np.tile([0, 1.0, 0], (10, 1))
    assert alignment(gradients, along, classification=False) == pytest.approx(1)
    assert alignment(gradients, across, classification=False) == pytest.approx(0)
    assert alignment(gradients, along + across, classification=False) == pytest.approx(0.5)
    classes = np.random.default_rng(0).normal(size=(10, 3, 4))
    combined = classes[:, 1] - classes[:, 0] + 2 * (classes[:, 2] - classes[:, 0])
    assert alignment(classes, combined, classification=True) == pytest.approx(1)
    assert np.isnan(alignment(gradients, 0 * along, classification=False))


def test_region_tree_finds_a_planted_region():
    random = np.random.default_rng(0)
    x = random.uniform(size=(600, 3))
    size = np.where(x[:, 1] > 0.6, 1.0, 0.1) + 0.05 * random.normal(size=600)
    zeros = np.zeros(300)
    table = region_tree(x[:300], size[:300], x[300:], size[300:], zeros, zeros, ["a", "b", "c"], depth=1, n_boot=100)
    assert table["region"].tolist()[0].startswith("b > 0.6")
    assert table["size"].tolist() == pytest.approx([1.0, 0.1], abs=0.02)
    assert (table["low"] <= table["size"]).all()
    assert (table["size"] <= table["high"]).all()
    assert table["n"].sum() == 300


def test_feature_profile_counts_seeds_and_units():
    random = np.random.default_rng(0)
    by_seed = np.stack([np.column_stack([np.full(50, -0.5), 0.01 * random.normal(size=50)]) for _ in range(5)])
    by_seed += 0.001 * random.normal(size=by_seed.shape)
    table = feature_profile(by_seed, by_seed[0], np.array([2.0, 1.0]), ["x", "y"], n_boot=100)
    first = table.iloc[0]
    assert first["feature"] == "x"
    assert first["mean_units"] == pytest.approx(-1.0, abs=0.01)
    assert first["sign_agreement"] == 1.0
    assert first["energy"] > 0.99
    assert first["p_adjusted"] < 1e-6 < table.iloc[1]["p_adjusted"]


def test_seed_cosine_and_region_overlap():
    one = np.random.default_rng(0).normal(size=(20, 3))
    assert seed_cosine(np.stack([one, 2 * one])) == pytest.approx(1)
    assert seed_cosine(np.stack([one, -one])) == pytest.approx(-1)
    assert np.isnan(seed_cosine(one[None]))
    region = np.arange(10) < 4
    assert region_overlap(-np.arange(10.0), region) == 1
    assert region_overlap(np.arange(10.0), region) == 0


def test_support_ratio_grows_off_the_data():
    train = np.random.default_rng(0).normal(size=(300, 2))
    ratios = support_ratio(train, train[:20], train[:20] + 10)
    assert (ratios > 5).all()
    np.testing.assert_allclose(support_ratio(train, train[:20], train[:20]), 1)


def test_symbolic_summary_reads_the_planted_formula():
    random = np.random.default_rng(0)
    x = random.uniform(1, 3, (400, 2))
    correction = -0.03 + 0.5 / x[:, 1] + 0.001 * random.normal(size=400)
    table = symbolic_summary(correction, term_library(x, ["T", "V"]), n_boot=200)
    assert table["term"].tolist() == ["1", "1/V"]
    assert table["coefficient"].tolist() == pytest.approx([-0.03, 0.5], abs=0.003)
    assert (table["low"] < table["coefficient"]).all()
    assert table["r2"].iloc[0] > 0.99
    constant = symbolic_summary(np.full(50, 0.2), term_library(x[:50], ["T", "V"]), n_boot=50)
    assert constant["term"].tolist() == ["1"]
    np.testing.assert_allclose(linear_coefficients(correction, [1 / x[:, 1]]), [-0.03, 0.5], atol=0.002)


def test_library_leaves_out_what_is_not_defined():
    terms = term_library(np.array([[0.0, 1.0], [1.0, 2.0]]), ["a", "b"])
    assert set(terms) == {"a", "a^2", "b", "b^2", "1/b", "log b", "a*b", "a/b"}
    ridge = Ridge().fit(np.column_stack(list(terms.values())), [0.0, 1.0])
    assert np.isfinite(ridge.coef_).all()


def test_a_formula_is_evolved_where_no_term_fits():
    random = np.random.default_rng(0)
    x = np.column_stack([random.uniform(250, 600, 400), random.uniform(0.1, 2, 400)])
    correction = 0.02 * x[:, 1] * (x[:, 1] - 0.7)
    (found,) = evolved_formula(correction, x, ["T", "V"]).to_dict("records")
    assert found["r2"] > 0.95
    assert "V/" in found["term"]
    assert "T/" not in found["term"]
    assert evolved_formula(np.zeros(20), x[:20], ["T", "V"])["coefficient"].tolist() == [0.0]


def test_gplearn_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gplearn.genetic", None)
    with pytest.raises(ImportError, match=r"gplearn is not installed: pip install 'gnomon\[symbolic\]'"):
        evolved_formula(np.ones(10), np.ones((10, 1)), ["x"])
