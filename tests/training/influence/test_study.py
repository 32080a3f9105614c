"""The study: its judges on worlds without and with the effect, and a run as small as it gets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gnomon.evidence.calibration import assert_calibrated
from gnomon.evidence.verdict import Verdict
from gnomon.studies.backends import InlineBackend
from gnomon.studies.runner import run_study
from gnomon.studies.unit import Tables
from gnomon.training.influence.calibration import separation
from gnomon.training.influence.digit_runs import removal_sets
from gnomon.training.influence.judgements import (
    BATCH_SCORES,
    STABILITY_SCORES,
    _distances_from_gaussian,
    pairwise_overlap,
)
from gnomon.training.influence.poison import poison_distances
from gnomon.training.influence.stability import jaccard
from gnomon.training.influence.study import QUICK, Influence
from gnomon.training.influence.tradeoff import empirical_tradeoff, gaussian_tradeoff

SEEDS = 10
STUDY = Influence()
CONFIG = Influence.Config.preset("full", flipped=50)
FAMILY = {"quick": len(QUICK), "full": len(Influence.claims)}


def judged(claim):
    method = getattr(STUDY, f"judge_{claim.replace('-', '_')}")
    return lambda frames: method(Tables(frames), CONFIG)


def areas(rng, *, exact, baselines=0.99, shuffled=0.5, noise=0.003):
    scores = ["exact", "tracin", "mean-loss", "gradient-norm"]
    split = rng.normal(0, 0.003, (SEEDS, 1))
    trained = np.array([exact, *[baselines] * 3]) + split + rng.normal(0, noise, (SEEDS, 4))
    lost = shuffled + rng.normal(0, 0.02, (SEEDS, 4))
    common = {"seed": np.repeat(np.arange(SEEDS), 4), "score": scores * SEEDS, "precision": 0.9}
    arms = {"treatment": trained, "shuffled-labels": lost}
    return {
        "mislabel.areas": pd.concat([pd.DataFrame({**common, "arm": arm, "auc": x.ravel()}) for arm, x in arms.items()])
    }


def rankings(rng, *, exact_noise, noise=1.0, examples=500):
    truth = rng.normal(0, 1, examples)
    scores = {
        name: (truth + rng.normal(0, exact_noise if name == "exact" else noise, (SEEDS, examples))).ravel()
        for name in (*STABILITY_SCORES, *BATCH_SCORES)
    }
    rows = {"seed": np.repeat(np.arange(SEEDS), examples), "example": np.tile(np.arange(examples), SEEDS)}
    return {"train.scores": pd.DataFrame({**rows, "flipped": False, **scores})}


def retrained(rng, *, helpful=0.0, harmful=0.0, slope=0.0, runs=4, groups=20):
    names = ["complete", "most-helpful", "most-harmful", "random", "loss-matched", "highest-loss"]
    names += [f"group-{number:02d}" for number in range(groups)]
    predicted = np.concatenate([np.zeros((SEEDS, 6)), rng.normal(0, 2, (SEEDS, groups))], axis=1)
    moves = 0.02 * slope * predicted
    moves[:, 1] += helpful
    moves[:, 2] -= harmful
    level = rng.normal(0.6, 0.02, (SEEDS, 1, 1))
    losses = level + moves[:, :, None] + rng.normal(0, 0.02, (SEEDS, len(names), runs))
    return {
        "retrain": pd.DataFrame(
            {
                "seed": np.repeat(np.arange(SEEDS), len(names) * runs),
                "set": np.tile(np.repeat(names, runs), SEEDS),
                "loss": losses.ravel(),
                "mu_run": np.repeat(predicted.ravel(), runs),
            }
        )
    }


def curves(rng, *, outliers=0.0, shift=1.0, runs=200):
    rows = []
    for name in ("complete", "without-helpful", "without-harmful"):
        losses = rng.normal(0, 1, runs)
        if name != "complete":
            moved = rng.random(runs) < outliers if outliers else np.ones(runs, dtype=bool)
            losses = losses + moved * (3.5 if outliers else shift)
        rows.append(pd.DataFrame({"set": name, "loss": losses}))
    return {"curve": pd.concat(rows)}


def poisons(rng, *, treatment):
    arms = ["treatment", "unrelated-query", "random-direction", "clean-twins", "tracin", "mean-loss", "gradient-norm"]
    distance = rng.normal([treatment, *[2.0] * 6], 1.5, (SEEDS, 7))
    rows = {"seed": np.repeat(np.arange(SEEDS), 7), "arm": arms * SEEDS, "precision": 0.5, "auc": 0.5}
    found = pd.DataFrame({**rows, "distance": distance.ravel()})
    effect = pd.DataFrame({"seed": 0, "query": ["target", "unrelated"], "poisoned": [3.0, 5.0], "clean": [5.0, 5.0]})
    return {"poison.distance": found, "pretrained.distance": found, "pretrained.effect": effect}


WORLDS = {
    "mislabel-detection": (lambda r: areas(r, exact=0.5, noise=0.02), lambda r: areas(r, exact=0.99)),
    "mislabel-advantage": (lambda r: areas(r, exact=0.99), lambda r: areas(r, exact=0.998)),
    "seed-stability": (lambda r: rankings(r, exact_noise=1.0), lambda r: rankings(r, exact_noise=0.65)),
    "helpful-removal": (lambda r: retrained(r, groups=0), lambda r: retrained(r, helpful=0.04, groups=0)),
    "harmful-removal": (lambda r: retrained(r, groups=0), lambda r: retrained(r, harmful=0.04, groups=0)),
    "calibrated-direction": (retrained, lambda r: retrained(r, slope=0.5)),
    # A slope at the edge of what counts as calibrated is a world in which the claim is false.
    "calibrated-scale": (lambda r: retrained(r, slope=3.0), lambda r: retrained(r, slope=0.7)),
    "gaussian-curve": (lambda r: curves(r, outliers=0.1), curves),
    "poison-detection": (lambda r: poisons(r, treatment=2), lambda r: poisons(r, treatment=6)),
    "poison-in-pretrained": (lambda r: poisons(r, treatment=2), lambda r: poisons(r, treatment=8)),
}


@pytest.mark.parametrize("claim", WORLDS)
def test_judges_are_calibrated(claim):
    null, planted = WORLDS[claim]
    family = FAMILY["quick" if claim in QUICK else "full"]
    assert_calibrated(judged(claim), null=null, planted=planted, claims=[claim], family=family)


def test_every_claim_has_its_worlds():
    assert set(WORLDS) == {claim.name for claim in Influence.claims}


def test_no_gain_is_contradicted_and_not_left_open():
    rng = np.random.default_rng(0)
    finding = judged("mislabel-advantage")(areas(rng, exact=0.98))
    assert finding.verdict == Verdict.CONTRADICTED
    assert judged("seed-stability")(rankings(rng, exact_noise=1.4)).verdict == Verdict.CONTRADICTED


def test_largest_distance_from_the_gaussian_curve_is_that_of_the_drawn_curves():
    null, alternative = np.array([[0.0, 1.0, 2.0, 4.0]]), np.array([[1.5, 2.5, 3.0, 5.0, 6.0]])
    alpha, beta = empirical_tradeoff(null[0], alternative[0])
    gaps = np.abs(beta - gaussian_tradeoff(alpha, separation(null[0], alternative[0])))
    assert _distances_from_gaussian(null, alternative) == pytest.approx(gaps.max())


def test_overlap_of_pairs_is_jaccards():
    scores = rankings(np.random.default_rng(1), exact_noise=1.0)["train.scores"]
    found = pairwise_overlap(scores, "tracin", 15)
    runs = [rows.sort_values("example")["tracin"].to_numpy() for _, rows in scores.groupby("seed")]
    assert found[2, 7] == pytest.approx(jaccard(-runs[2], -runs[7], 15))


def test_negative_slopes_have_no_logarithm():
    finding = judged("calibrated-scale")(retrained(np.random.default_rng(2), slope=-0.5))
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert "slope of 10 of 10 runs is not positive" in finding.reason


def test_removal_sets_are_of_equal_size_and_as_named():
    rng = np.random.default_rng(3)
    scores = pd.DataFrame({"exact": rng.normal(0, 1, 100), "mean_loss": -rng.random(100)})
    sets = removal_sets(scores, 10, rng)
    assert {len(members) for name, members in sets.items() if name != "complete"} == {10}
    assert scores["exact"][sets["most-helpful"]].min() > scores["exact"].quantile(0.89)
    assert scores["exact"][sets["most-harmful"]].max() < scores["exact"].quantile(0.11)
    assert not set(sets["loss-matched"]) & set(sets["most-helpful"])
    gap = np.sort(scores["mean_loss"][sets["loss-matched"]]) - np.sort(scores["mean_loss"][sets["most-helpful"]])
    assert np.abs(gap).max() < 0.1
    more = removal_sets(scores, 10, rng, other_sizes=(5, 20))
    assert {name: len(more[name]) for name in ("most-helpful-5", "most-harmful-20", "random-20")} == {
        "most-helpful-5": 5,
        "most-harmful-20": 20,
        "random-20": 20,
    }
    assert set(more["most-harmful-5"]) < set(more["most-harmful"]) < set(more["most-harmful-20"])


def test_distance_of_poison_is_in_deviations_of_clean_examples():
    table = pd.DataFrame({"poisoned": [True, False, False, False], "twin": [False, True, False, False]})
    for column in (
        "exact",
        "unrelated",
        "stepwise",
        "random_direction",
        "tracin",
        "mean_loss",
        "grad_norm",
    ):
        table[column] = [5.0, 9.0, 1.0, 3.0]
    found = poison_distances(table, np.random.default_rng(0)).set_index("arm")
    assert found["distance"]["treatment"] == pytest.approx((5 - 2) / 2**0.5)
    assert found["distance"]["clean-twins"] == pytest.approx((9 - 2) / 2**0.5)
    assert found["precision"]["treatment"] == 0
    assert found["auc"]["treatment"] == 1  # above both clean examples, below the twin


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    sizes = {"seeds": 5, "examples": 200, "flipped": 20, "steps": 30, "scored_steps": 20, "retrained": 2}
    more = {"architectures": ("mlp", "conv"), "removed": (10, 40), "curve_runs": 20, "poison_steps": 20}
    config = Influence.Config(**sizes, **more, claims=())
    return run_study(STUDY, config, preset="tiny", runs_dir=tmp_path_factory.mktemp("runs"), backend=InlineBackend())


@pytest.mark.model
@pytest.mark.filterwarnings("ignore:examples were observed")
def test_a_tiny_run_answers_every_claim_and_draws_every_figure(tiny_run):
    assert tiny_run.status == "done"
    assert not tiny_run.shortfalls
    assert [finding.claim.name for finding in tiny_run.findings] == [claim.name for claim in Influence.claims]
    assert all(finding.effect is not None or finding.withheld for finding in tiny_run.findings)
    drawn = STUDY.charts(tiny_run.tables, tiny_run.findings)
    expected = {"mislabel", "self-scores", "stability", "removal", "removal-sizes", "calibration", "tradeoff", "poison"}
    assert set(drawn) == expected
    for chart in drawn.values():
        assert chart.to_dict()["title"]
