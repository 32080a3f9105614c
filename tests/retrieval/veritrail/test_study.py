"""The study: honest judges, and a tiny real run."""

from functools import lru_cache

import numpy as np
import pandas as pd
import pytest

from gnomon.evidence import Verdict
from gnomon.evidence.calibration import assert_calibrated
from gnomon.retrieval.veritrail import rulings
from gnomon.retrieval.veritrail.granularity import adjacent_groups
from gnomon.retrieval.veritrail.study import Veritrail
from gnomon.studies.backends import InlineBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.judging import judge as judge_all
from gnomon.studies.runner import run_study
from gnomon.studies.unit import Shortfall, Tables

STUDY = Veritrail()
CONTRASTS = sum(claim.kind != "exact" for claim in STUDY.claims)
DAGS, CLAIMS, DEPTH = 16, 12, 5
ERRORS = 5  # of the claims of a process

CELLS = pd.DataFrame(
    [(f"main-{dag:03d}", f"c{claim:02d}", claim >= ERRORS) for dag in range(DAGS) for claim in range(CLAIMS)],
    columns=["dag", "claim", "supports"],
).assign(setting="main", depth=DEPTH, near_duplicates=4, made_with="simulated")


def judged(*claims):
    def judge(frames):
        tables = Tables(frames)
        return [rulings.judge(STUDY.claim(claim), tables) for claim in claims]

    return judge


@lru_cache
def template(arms):
    return pd.concat([CELLS.assign(arm=arm) for arm in arms], ignore_index=True)


def verdicts(rng, kept, caught):
    """Claims under several arms: each arm keeps a share of the supported claims and catches one of the unsupported.

    Processes differ in how hard they are, and most claims are hard or easy for all arms alike, as one judge reads them.
    """
    easy = np.repeat(rng.normal(0, 0.04, DAGS), CLAIMS)
    true = CELLS["supports"].to_numpy()
    stages = np.where(true, 0, rng.integers(2, DEPTH + 1, len(true)))
    rate = np.array([np.where(true, kept[arm], caught[arm]) + easy for arm in kept])
    luck = np.where(rng.random(rate.shape) < 0.85, rng.random(len(true)), rng.random(rate.shape))
    right = luck < rate
    said = np.where(right == true, "supported", "unsupported").ravel()
    return template(tuple(kept)).assign(verdict=said, stage=np.tile(stages, len(kept)), named="")


def world(treatment, controls, *, better, at=0.76):
    """Verdicts in which the treatment is as good as its controls, or better by ``better`` on both classes."""

    def draw(rng):
        rate = {treatment: at + better, **dict.fromkeys(controls, at)}
        return {"process.claims": verdicts(rng, rate, rate)}

    return draw


@pytest.mark.parametrize(
    ("claim", "treatment", "controls", "better"),
    [
        ("beats-direct", "few", ("few-direct", "few-terminal-only", "few-flat-pool"), 0.2),
        ("short-reader", "short", ("short-direct",), 0.2),
        ("selection-matters", "treatment", ("random-evidence", "cosine-evidence"), 0.2),
        ("checks-matter", "treatment", ("no-number", "no-date", "no-name", "no-polarity", "no-order"), 0.2),
    ],
)
def test_judges_of_macro_f1_are_calibrated(claim, treatment, controls, better):
    assert_calibrated(
        judged(claim),
        null=world(treatment, controls, better=0.0),
        planted=world(treatment, controls, better=better),
        family=CONTRASTS,
    )


def test_judges_of_q_are_calibrated():
    def of_q(kept, caught):
        return lambda rng: {"process.claims": verdicts(rng, *({"treatment": t, "q=1": c} for t, c in (kept, caught)))}

    assert_calibrated(
        judged("q-precision", "q-recall"),
        null=of_q((0.7, 0.7), (0.7, 0.7)),
        planted=of_q((0.95, 0.55), (0.5, 0.9)),
        family=CONTRASTS,
    )


def located_world(share):
    """Errors whose stage is named right with a probability, by treatment and, half as often, in the rewired process."""
    last_two = (DEPTH - 1, DEPTH)

    def draw(rng):
        rows = verdicts(rng, {"treatment": 0.9, "rewired": 0.5}, {"treatment": 1.0, "rewired": 0.9})
        true = rows["stage"].to_numpy()
        guess = rng.integers(2, DEPTH + 1, len(rows))
        right = rng.random(len(rows)) < share
        by_position = np.where(np.isin(true, last_two), true, rng.choice(last_two, len(rows)))
        # Without an effect, the walk names what the rewired process allows too.
        named = np.where((rows["arm"] == "treatment") & right, true, np.where(share > 0, guess, by_position))
        rows["named"] = np.where(true > 0, named.astype(str), "")
        return {"process.claims": rows}

    return draw


def test_judges_of_localisation_are_calibrated():
    assert_calibrated(
        judged("locates", "locates-early"), null=located_world(0.0), planted=located_world(0.95), family=CONTRASTS
    )


def test_judge_of_provenance_is_calibrated():
    cells = CELLS[CELLS["supports"]]

    def paths(ours):
        def draw(rng):
            parts = [
                cells.assign(arm=arm, edge_f1=np.clip(rng.normal(centre, 0.3, len(cells)), 0, 1), root_found=True)
                for arm, centre in (("treatment", ours), ("rewired", 0.2), ("random-path", 0.2))
            ]
            rows = verdicts(rng, {"treatment": 0.9}, {"treatment": 0.9})
            return {"process.paths": pd.concat(parts), "process.claims": rows}

        return draw

    assert_calibrated(judged("provenance"), null=paths(0.2), planted=paths(0.7), family=CONTRASTS)


def test_judge_of_the_judge_is_calibrated():
    families = np.repeat([f"family-{number}" for number in range(10)], 12)
    supports = np.tile([True, False], 60)

    def pairs(signal):
        def draw(rng):
            hard = rng.normal(0, 0.5, len(supports))
            scores = {
                name: size * supports + hard + rng.normal(0, 0.7, len(supports))
                for name, size in (("treatment", signal), ("cosine", 0.5), ("recall", 0.5))
            }
            table = pd.DataFrame({"family": families, "supports": supports, **scores})
            return {"judge_check": table.assign(kind="num", right=True, made_with="simulated")}

        return draw

    assert_calibrated(judged("judge-discriminates"), null=pairs(0.5), planted=pairs(2.5), family=CONTRASTS)


def test_judge_of_cost_is_calibrated():
    def growth(exponent):
        def draw(rng):
            size = np.tile([80.0, 250.0, 900.0], 10)
            read = size**exponent * np.exp(rng.normal(0, 0.1, 30))
            table = {
                "replicate": np.repeat(range(10), 3),
                "chunks": 8,
                "source_sentences": size,
                "sentences_read": read,
            }
            return {"reading": pd.DataFrame(table)}

        return draw

    assert_calibrated(judged("cost"), null=growth(1.0), planted=growth(0.75), family=CONTRASTS)


def test_exact_claims_fall_with_one_violation_and_need_the_broken_variant_caught():
    walks = pd.DataFrame({"seed": 0, "topology": "rag", "wrong": False, "broken_wrong": [None, True, False]})
    cell = {"pattern": "11", "q": 1, "missed": 0.1, "invented": 0.05, "claims": 1000, "predicted": 0.5}
    cells = pd.DataFrame([{**cell, "supported": 490, "predicted_one_more": 0.7}])

    def verdict(claim, walks=walks, cells=cells):
        return judged(claim)({"oracle": walks, "noisy": cells})[0].verdict

    assert verdict("walk-exact") == verdict("markov-exact") == Verdict.SUPPORTED
    assert verdict("walk-exact", walks=walks.assign(wrong=[True, False, False])) == Verdict.CONTRADICTED
    assert verdict("markov-exact", cells=cells.assign(supported=700)) == Verdict.CONTRADICTED
    assert verdict("walk-exact", walks=walks.assign(broken_wrong=False)) == Verdict.INCONCLUSIVE
    assert verdict("markov-exact", cells=cells.assign(predicted_one_more=0.5)) == Verdict.INCONCLUSIVE


def test_too_many_claims_without_an_answer_or_an_invalid_judge_leave_the_claims_undecided():
    rates = {"short": 1.0, "short-direct": 0.5}
    rows = verdicts(np.random.default_rng(0), rates, rates)
    rows.loc[rows.index[::15], "verdict"] = "missing"
    finding = judged("short-reader")({"process.claims": rows})[0]
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert "missing: 7% of the claims" in finding.withheld
    gated = Shortfall("process", "process(0)", "gated", "judge not validated: AUROC 0.41, needs >= 0.7")
    findings = judge_all(STUDY, Tables({}, shortfalls=(gated,), counts={"process": 1}), STUDY.Config.preset("full"))
    assert "judge not validated" in next(f for f in findings if f.claim.name == "locates").withheld


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("veritrail")
    config = STUDY.Config(
        encoder="tf-idf", pairs=60, processes=6, chunks=4, facts=4, claims_each=8, depth=4, near_duplicates=1,
        crowding=(0, 3), depths=(3,), others=2, merged=2, oracle_seeds=1, noisy_blocks=1, noisy_processes=2,
        noisy_repeats=8, sizes=(8, 16), replicates=5,
    )  # fmt: skip
    return run_study(
        STUDY, config, preset="full", runs_dir=folder, backend=InlineBackend(), cache=UnitCache(folder / "cache")
    )


def test_a_tiny_run_judges_every_claim_and_draws_every_figure(tiny_run):
    findings = {finding.claim.name: finding for finding in tiny_run.findings}
    assert not [finding.withheld for finding in findings.values() if finding.withheld]
    assert findings["walk-exact"].verdict == Verdict.SUPPORTED
    assert "TF-IDF" in findings["judge-discriminates"].scope
    charts = STUDY.charts(tiny_run.tables, tiny_run.findings)
    assert {"location", "quality", "verdicts", "localisation", "trade", "ablations", "crowding", "depth", "granularity",
            "reading", "calibration", "walks", "noisy", "trail", "explore"} == set(charts)  # fmt: skip
    for name, chart in charts.items():
        if name != "explore":
            chart.to_dict()


def test_merging_stages_changes_the_numbers_and_not_the_walks(tiny_run):
    rows = tiny_run.tables["merged"]
    assert set(rows["stages"]) == set(range(2, 9))
    assert set(rows["arm"]) == {"treatment", "rewired"}
    right = rows["named"] == rows["stage"].astype(str)
    for _, labels in rows.assign(right=right).groupby(["process", "arm", "claim"]):
        named = labels.set_index("stages")["named"]
        assert named[2] in ("2", "")
        assert named.eq("").all() or named.ne("").all()  # an error that is found is found under all labels
        assert labels["right"].all() or not labels.set_index("stages")["right"][8]  # and right in all coarser ones
    fine = right[rows["stages"] == 8].groupby(rows["arm"]).mean()
    assert fine["rewired"] < fine["treatment"]


def test_a_merged_stage_has_the_number_of_its_run():
    groups = adjacent_groups(6)
    assert [len(each) for each in groups] == [2, 3, 4, 5, 6]
    for each in groups:
        assert [stage for run in each for stage in run] == [1, 2, 3, 4, 5, 6]
        lengths = [len(run) for run in each[1:]]
        assert max(lengths) - min(lengths) <= 1


def test_the_presets_plan_distinct_units_within_the_budget():
    for preset, seconds in (("quick", 110), ("full", 1_800)):
        units = STUDY.units(STUDY.Config.preset(preset))
        assert len({unit.identity for unit in units}) == len(units)
        assert sum(unit.seconds for unit in units) < seconds
