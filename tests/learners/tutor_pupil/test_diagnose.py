"""The report's readings on planted truths, and the way to a file and back."""

import json

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

from gnomon.learners.tutor_pupil import TutorPupilClassifier, TutorPupilRegressor, diagnose, load, save
from gnomon.learners.tutor_pupil.cli import app

QUICK = {"max_steps": 200, "hidden": (24,), "learning_rate": 1e-2, "random_state": 0}


@pytest.fixture(scope="module")
def moons():
    x, y = make_moons(1600, noise=0.15, random_state=0)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(x[:800], y[:800])
    model = TutorPupilClassifier(tree, lam=0.3, max_steps=200, hidden=(32, 32), random_state=0)
    return model.fit(x[:800], y[:800]), x[800:], y[800:]


@pytest.fixture(scope="module")
def report(moons):
    model, x, y = moons
    return diagnose(model, x, y, n_null=20, n_boot=200, feature_names=["across", "up"])


def test_a_pattern_is_structured(report):
    assert report.reading == "structured"
    assert report.gain.low > 0
    assert report.p_scattered == pytest.approx(1 / 21)
    assert report.size_ratio > 2
    assert report.seed_cosine > 0.5
    scores = report.scores.set_index("model")["score"]
    assert scores["tutored"] > scores["pupil"] + 0.015
    assert set(report.features["feature"]) == {"across", "up"}
    assert report.detection.set_index("marker")["auroc"]["correction size"] > 0.75
    assert "across" in str(report)


def test_the_report_is_plain_data(report):
    plain = json.loads(json.dumps(report.to_dict(), default=float))
    assert plain["reading"] == "structured"
    assert plain["gain"]["low"] <= plain["gain"]["value"]
    assert len(plain["null"]) == 5 + 20 + 5 + 5


def test_scattered_errors_are_nothing():
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 2))
    y = x[:, 0] + 0.3 * random.normal(size=600)
    pupil = Ridge(alpha=1e-9).fit(x, x[:, 0])
    model = TutorPupilRegressor(pupil, lam=0.3, **QUICK).fit(x[:300], y[:300])
    assert diagnose(model, x[300:], y[300:], n_null=20, n_boot=200).reading == "none"


def test_a_unit_error_is_a_constant_offset():
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 2))
    y = x @ [1.0, 0.5] + 1.0 + 0.1 * random.normal(size=600)
    pupil = Ridge(alpha=1e-9).fit(x, x @ [1.0, 0.5])
    model = TutorPupilRegressor(pupil, lam=0.01, **QUICK).fit(x[:300], y[:300])
    found = diagnose(model, x[300:], y[300:], n_null=20, n_boot=200)
    assert found.reading == "constant offset"
    assert any("the feature profile adds nothing" in reason for reason in found.reasons)
    assert any("one shift for all rows gives" in reason and "x0 +" in reason for reason in found.reasons)


def test_a_right_pupil_has_nothing_to_report():
    x = np.random.default_rng(0).normal(size=(100, 2))
    pupil = Ridge().fit(x, x[:, 0])
    model = TutorPupilRegressor(pupil, lam=0.1, **QUICK).fit(x[:50], pupil.predict(x[:50]))
    found = diagnose(model, x[50:], pupil.predict(x[50:]), n_null=3, n_boot=50)
    assert found.reading == "none"
    assert found.symbolic.empty


def test_nothing_is_structured_without_its_controls(moons):
    model, x, y = moons
    found = diagnose(model, x, y, nulls=("own-labels", "shuffled-input"), n_boot=50)
    assert found.reading == "none"
    assert "nothing can be called structured without scattered-errors" in found.reasons


def test_formulas_can_be_evolved(moons):
    model, x, y = moons
    found = diagnose(model, x[:200], y[:200], nulls=(), n_boot=50, formulas="gplearn")
    assert set(found.symbolic["feature"]) <= {"x0", "x1"}
    assert found.symbolic["r2"].notna().all()


def test_bad_requests_are_named(moons):
    model, x, y = moons
    with pytest.raises(ValueError, match="nulls must be among"):
        diagnose(model, x, y, nulls=("bootstrap",))
    with pytest.raises(ValueError, match="at least 10 held-out rows"):
        diagnose(model, x[:5], y[:5])
    with pytest.raises(ValueError, match="X has 800 rows, y has 3"):
        diagnose(model, x, y[:3])


def test_a_tutor_survives_its_file(moons, tmp_path):
    model, x, _ = moons
    save(model, tmp_path / "tutor.skops")
    again = load(tmp_path / "tutor.skops")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(again.corrections(x), model.corrections(x))


def test_files_that_cannot_be_trusted_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        load(tmp_path / "absent.skops")
    (tmp_path / "text.skops").write_text("not a model")
    with pytest.raises(ValueError, match="not a skops file"):
        load(tmp_path / "text.skops")
    skops.io.dump(pd.Series([1.0]), tmp_path / "series.skops")
    with pytest.raises(ValueError, match=r"types that are not trusted: .*pandas\.Series"):
        load(tmp_path / "series.skops")


def test_only_scikit_learn_pupils_can_be_saved(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = TutorPupilRegressor(lambda rows: torch.sin(rows[:, 0]), lam=0.1, max_steps=2, random_state=0)
    with pytest.raises(ValueError, match="this pupil is a function"):
        save(model.fit(x, x[:, 0]), tmp_path / "tutor.skops")


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(300, 3)), columns=["age", "dose", "site"])
    table["y"] = ((table["age"] + 0.8 * table["dose"] ** 2) > 0.6).astype(int)
    skops.io.dump(LogisticRegression().fit(table[["age", "dose"]], table["y"]), tmp_path / "model.skops")
    table.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path


def run(files, *arguments):
    command = ["diagnose", "--pupil", str(files / "model.skops"), "--data", str(files / "data.csv"), "--target", "y"]
    return CliRunner().invoke(app, [*command, *arguments], catch_exceptions=True)


def test_the_verb_prints_a_report(files):
    result = run(files, "--lam", "0.1", "--steps", "60", "--nulls", "5", "--context", "site")
    assert result.exit_code == 0, result.output
    for part in ("scores", "regions", "features", "nulls", "the pupil scores", "held out"):
        assert part in result.output


def test_the_verb_prints_json_and_saves_the_tutor(files):
    result = run(files, "--lam", "0.1", "--steps", "20", "--nulls", "3", "--json", "--save", str(files / "t.skops"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["lambda"] == 0.1
    assert isinstance(load(files / "t.skops"), TutorPupilClassifier)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("--lam", "small"), ValueError, "--lam must be '1se' or a number"),
        (("--formulas", "verse"), ValueError, "--formulas must be one of terms, gplearn, got 'verse'"),
        (("--context", "height"), ValueError, "has no column 'height'"),
        (("--data", "absent.csv"), FileNotFoundError, "no file absent.csv"),
        (("--pupil", "absent.skops"), FileNotFoundError, "no file absent.skops"),
    ],
)
def test_the_verb_names_what_is_wrong(files, arguments, error, message):
    result = run(files, *arguments)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
