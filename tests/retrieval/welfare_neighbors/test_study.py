"""The study: honest judges, what the hull and equal entropy mean, and a tiny real run."""

import numpy as np
import pandas as pd
import pytest

from gnomon.evidence import Verdict
from gnomon.evidence.calibration import assert_calibrated
from gnomon.retrieval.welfare_neighbors import rulings
from gnomon.retrieval.welfare_neighbors.study import WelfareNeighborsStudy
from gnomon.retrieval.welfare_neighbors.sweeps import GAMMA
from gnomon.studies.backends import InlineBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.runner import run_study
from gnomon.studies.unit import Tables

STUDY = WelfareNeighborsStudy()
QUICK = STUDY.Config.preset("quick")
CONTRASTS = sum(claim.kind != "exact" for claim in STUDY.claims)
FAMILIES = [f"family{index}" for index in range(10)]
WORLD = pd.DataFrame({"made_with": ["simulated"]})

# Precision of the city asked for, and entropy on broad queries: two settings between which equal spread lies.
CONTROLS = {
    ("top-k", 0.0): (0.86, 2.6),
    ("shuffled-attributes", GAMMA): (0.84, 2.6),
    ("quota-filled", 1.0): (0.10, 2.7),
    ("quota-filled", 2.0): (0.20, 2.5),
    ("raw-cosine", 0.02): (0.10, 2.7),
    ("raw-cosine", 3.2): (0.20, 2.5),
}
CELLS = pd.DataFrame(
    [
        (kind, method, knob, family)
        for kind in ("specific", "broad")
        for method, knob in [*CONTROLS, ("welfare", GAMMA), ("raw-cosine", GAMMA)]
        for family in FAMILIES
    ],
    columns=["kind", "method", "knob", "family"],
)


def plane(rng, *, precision=0.15, entropy=2.6, raw_precision=0.15):
    """Readings by family: what a family has in common, and noise of every setting."""
    centres = np.array([*CONTROLS.values(), (precision, entropy), (raw_precision, 2.6)])
    shape = (len(centres), len(FAMILIES), 2)
    values = centres[:, None] + rng.normal(0, 0.1, (1, *shape[1:])) + rng.normal(0, 0.04, shape)
    both = np.concatenate([values, values]).reshape(-1, 2)
    return {
        "select.readings": CELLS.assign(precision=both[:, 0], entropy=both[:, 1], ratio=0.99),
        "embed.world": WORLD,
    }


def judged(*claims):
    def judge(frames):
        tables = Tables(frames)
        return [getattr(STUDY, f"judge_{claim.replace('-', '_')}")(tables, QUICK) for claim in claims]

    return judge


def test_judges_of_specific_and_broad_queries_are_calibrated():
    # In the null world every method mixes precision and spread as the quota does.
    assert_calibrated(
        judged("stays-specific", "contrast-pays", "raw-cosine-stays-specific", "broad-diverse"),
        null=plane,
        planted=lambda rng: plane(rng, precision=0.4, entropy=2.8, raw_precision=0.3),
        family=CONTRASTS,
    )


LOST = np.linspace(0.001, 0.02, 8)
METHODS = ("top-k", "welfare", "matched-random-swap", "quota-filled", "mmr", "dpp", "shuffled-attributes")
UNITS = [f"u{index}" for index in range(10)]
SETTINGS = pd.DataFrame(
    [
        (method, unit, float(knob), lost)
        for method in METHODS
        for unit in UNITS
        for knob, lost in enumerate([0.0] if method == "top-k" else LOST)
    ],
    columns=["method", "unit", "knob", "lost"],
)


def fronts(rng, unit, *, gain):
    """Concave fronts of every method, the treatment's higher by ``gain`` bits once relevance is given up."""
    shared, noise = rng.normal(0, 0.1, len(UNITS)), rng.normal(0, 0.025, (len(METHODS), len(UNITS)))
    noise[0] = 0
    lost = SETTINGS["lost"].to_numpy()
    level = np.concatenate([np.repeat(row, 1 if index == 0 else len(LOST)) for index, row in enumerate(shared + noise)])
    lift = gain * ((SETTINGS["method"] == "welfare").to_numpy() & (lost > 0))
    return SETTINGS.rename(columns={"unit": unit}).assign(
        ratio=1 - lost, entropy=2.6 + level + 4 * np.sqrt(lost) + lift
    )


def test_judges_of_fronts_are_calibrated():
    def sentences(gain):
        return lambda rng: {
            "select.readings": fronts(rng, "family", gain=gain).assign(kind="broad"),
            "embed.world": WORLD,
        }

    def mixtures(gain):
        return lambda rng: {
            "mixture.readings": fronts(rng, "mixture", gain=gain).assign(kind="skewed"),
        }

    assert_calibrated(judged("front-sentences"), null=sentences(0.0), planted=sentences(0.1), family=CONTRASTS)
    # The judge of front-clusters is the same function on the other kind of mixture.
    assert_calibrated(judged("front-skewed"), null=mixtures(0.0), planted=mixtures(0.1), family=CONTRASTS)


def test_judges_of_the_exponent_are_calibrated():
    def world(rho):
        def draw(rng):
            count = len(FAMILIES) * 4
            arms = []
            for arm, centre in (("treatment", rho), ("permuted-p", 0.0)):
                values = {
                    "rho_ratio": np.clip(rng.normal(centre, 0.4, count), -1, 1),
                    "rho_entropy": np.clip(rng.normal(-centre, 0.4, count), -1, 1),
                }
                arms.append(pd.DataFrame({"family": np.repeat(FAMILIES, 4), "arm": arm, "kind": "broad", **values}))
            return {"select.trends": pd.concat(arms), "embed.world": WORLD}

        return draw

    assert_calibrated(judged("p-relevance", "p-spread"), null=world(0.0), planted=world(0.6), family=CONTRASTS)


@pytest.mark.parametrize(
    ("claim", "table", "good", "bad"),
    [
        ("greedy-exact", "brute.single", {"gap": 0.0, "broken_gap": 0.2}, {"gap": 1e-6}),
        ("multi-greedy", "brute.several", {"greedy": 0.9, "quota": 0.8, "random": 0.4}, {"greedy": 0.6}),
        ("ann-factor", "oracle", {"welfare_ratio": 0.9, "alpha": 0.8, "alpha_overall": 1.0}, {"welfare_ratio": 0.7}),
        (
            "certificate",
            "pool",
            {"certified": False, "broken_certified": True, "same": False, "setting": "contrast", "pool": 25},
            {"certified": True},
        ),
    ],
)
def test_exact_claims_fall_with_one_violation_and_need_the_broken_variant_caught(claim, table, good, bad):
    rows = pd.DataFrame([good] * 20)
    if claim == "certificate":
        rows.loc[:9, ["certified", "same"]] = True
    frames = {table: rows, "embed.world": WORLD}
    assert judged(claim)(frames)[0].verdict == Verdict.SUPPORTED
    broken = {"broken_gap": 0.0, "random": 1.0, "alpha_overall": 0.1, "broken_certified": False}
    unnoticed = rows.assign(**{name: value for name, value in broken.items() if name in rows})
    assert judged(claim)({**frames, table: unnoticed})[0].verdict == Verdict.INCONCLUSIVE
    for name, value in bad.items():
        rows.loc[19, name] = value
    assert judged(claim)(frames)[0].verdict == Verdict.CONTRADICTED


def test_a_hull_mixes_settings_and_leaves_out_what_mixtures_beat():
    start = np.array([0.0, 1.0])
    corners = rulings.hull(np.array([[0.1, 1.2], [0.2, 2.0], [0.3, 1.9], [0.4, 2.5]]), start)
    assert corners.tolist() == [[0.0, 1.0], [0.2, 2.0], [0.4, 2.5]]


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("welfare")
    config = STUDY.Config(
        encoder="tf-idf", sentences=400, cities=2, pool=80, pools=(15, 40), mixtures=6, points=400, centres=10,
        dimension=8, queries=4, mixture_k=8, mixture_pool=60, blocks=1, instances=25,
    )  # fmt: skip
    return run_study(
        STUDY, config, preset="quick", runs_dir=folder, backend=InlineBackend(), cache=UnitCache(folder / "cache")
    )


def test_a_tiny_run_judges_every_claim_and_draws_every_figure(tiny_run):
    findings = {finding.claim.name: finding for finding in tiny_run.findings}
    assert not [finding.withheld for finding in findings.values() if finding.withheld]
    for exact in ("greedy-exact", "multi-greedy", "ann-factor", "certificate"):
        assert findings[exact].verdict == Verdict.SUPPORTED
    assert "TF-IDF + SVD" in findings["broad-diverse"].scope
    charts = STUDY.charts(tiny_run.tables, tiny_run.findings)
    assert {"adaptivity", "front_sentences", "front_clusters", "front_skewed", "exponent", "scale", "pool", "greedy",
            "exposure", "specific", "fronts"} == set(charts)  # fmt: skip
    for chart in charts.values():
        chart.to_dict()


def test_the_presets_plan_disjoint_units_within_the_budget():
    for preset, seconds in (("quick", 100), ("full", 720)):
        units = STUDY.units(STUDY.Config.preset(preset))
        assert len({unit.identity for unit in units}) == len(units)
        assert sum(unit.seconds for unit in units) < seconds
