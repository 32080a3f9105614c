"""The study: its units, its judges on simulated worlds, and its figures from a run of a few steps."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from gnomon.evidence.calibration import assert_calibrated
from gnomon.learners.tutor_pupil import judgements
from gnomon.learners.tutor_pupil.claims import CLAIMS
from gnomon.learners.tutor_pupil.figures import charts
from gnomon.learners.tutor_pupil.study import TutorPupil
from gnomon.learners.tutor_pupil.worlds import COVOLUME, WORLDS, make_world
from gnomon.report.figures import figure
from gnomon.studies.unit import Tables

DRAWS = 10
CLAIM = {claim.name: claim for claim in CLAIMS}


# One claim for every judge; claims that share a judge differ in the world they read.
JUDGED = (
    "tree-gain",
    "tree-structure",
    "tree-location",
    "tree-over-output",
    "covolume",
    "covolume-value",
    "digits-beyond-black-box",
    "digits-direction",
    "latent-gain",
    "planted-direction",
    "context",
    "predation-rate",
    "pendulum-free-run",
)
# Standard deviations between draws, about those of the quick run; "common" is what the arms of a draw share.
NOISE = {"score": 0.006, "auroc": 0.03, "cosine": 0.05, "share": 0.05, "common": 0.005}


def template(key, values, worlds=("",), draws=DRAWS, **columns):
    """A row for each world, draw and value of the key."""
    index = pd.MultiIndex.from_product([worlds, range(draws), values], names=["world", "draw", key])
    return index.to_frame(index=False).assign(**columns)


GAIN_WORLDS = ("moons-tree", "scorecard-context", "scorecard")
TEMPLATES = {
    "draw.refits": template("arm", ("treatment", "own-labels", "scattered-errors", "shuffled-input"), GAIN_WORLDS),
    "draw.scores": template(
        "model", ("pupil", "tutored", "tutored-log-loss", "residual", "stack", "black-box"),
        ("moons-tree", "digits-centroid"),
    ),
    "draw.markers": template("marker", ("correction", "residual", "margin"), ("moons-tree",)),
    "draw.recovery": template(
        "quantity",
        ("seed_cosine", "alignment", "cosine", "cosine_gradient", "cosine_scattered"),
        ("moons-tree", "planted", "scorecard-context"),
    ),
    "draw.pushes": template("arm", ("treatment", "random-direction"), ("digits-centroid",)),
    "latent.scores": template(
        "model",
        ("treatment", "pupil", "reconstruction", "random-direction", "network-on-code", "logistic-on-code"),
    ),
    "constants": template("quantity", ("covolume", "temperature_move"), ("covolume-gas", "ideal-gas")),
    "dynamics.recovery": template("arm", ("treatment", "own-labels"), system="predators", quantity="slope"),
    "dynamics.errors": template("model", ("tutored", "pupil"), system="pendulum"),
}  # fmt: skip
MOVED = {"treatment", "tutored", "correction", "cosine"}


def drawn(random, name, key, effect, noise):
    """Effect on the treatment's rows (not in the world without context), noise, and what a draw's arms share."""
    table = TEMPLATES[name]
    treated = table[key].isin(MOVED).to_numpy() & (table["world"] != "scorecard").to_numpy()
    common = NOISE["common"] * random.normal(size=DRAWS)[table["draw"]]
    return table, effect * treated + common + noise * random.normal(size=len(table))


def world(effect):
    """Tables of a run in which every claim holds, or none does; equivalences then lie at their margin."""
    off = 0.0 if effect else COVOLUME / 10

    def draw(random):
        frames = {}
        table, value = drawn(random, "draw.refits", "arm", 0.05 * effect, NOISE["score"])
        frames["draw.refits"] = table.assign(score_gain=value, gain=value, size=0.1 + value, auroc=0.5 + 4 * value)
        table, value = drawn(random, "draw.scores", "model", 0.03 * effect, NOISE["score"])
        frames["draw.scores"] = table.assign(score=0.9 + value)
        table, value = drawn(random, "draw.markers", "marker", 0.2 * effect, NOISE["auroc"])
        frames["draw.markers"] = table.assign(auroc=0.6 + value)
        table, value = drawn(random, "draw.recovery", "quantity", 0.3 * effect, NOISE["cosine"])
        frames["draw.recovery"] = table.assign(value=0.3 + value)
        table, value = drawn(random, "draw.pushes", "arm", 0.4 * effect, NOISE["share"])
        frames["draw.pushes"] = table.assign(fixed=0.1 + value)
        table, value = drawn(random, "latent.scores", "model", 0.06 * effect, NOISE["score"])
        frames["latent.scores"] = table.assign(score=0.9 + value)
        table, value = drawn(random, "dynamics.recovery", "arm", 1.0 if effect else 0.5, NOISE["share"])
        slope = table.assign(value=value)
        frames["dynamics.recovery"] = pd.concat([slope, slope.assign(quantity="saturation")])
        table, value = drawn(random, "dynamics.errors", "model", -0.6 * effect, 0.1)
        frames["dynamics.errors"] = table.assign(free_run=10**value)
        table = TEMPLATES["constants"]
        shift = (COVOLUME - off) * ((table["world"] == "covolume-gas") & (table["quantity"] == "covolume"))
        frames["constants"] = table.assign(value=shift + 0.001 * random.normal(size=len(table)))
        arms = ["treatment", *["scattered-errors"] * 199]
        gains = np.r_[0.1 * effect, np.zeros(199)] + 0.01 * random.normal(size=200)
        frames["null"] = pd.DataFrame({"world": "moons-tree", "arm": arms, "gain": gains})
        frames["detail.summary"] = pd.DataFrame({"world": ["moons-tree"], "reading": ["structured"]})
        return Tables(frames)

    return draw


def no_covolume(random):
    """The null of the claim that there is a covolume at all: both gases are ideal."""
    table = TEMPLATES["constants"]
    return Tables({"constants": table.assign(value=0.001 * random.normal(size=len(table)))})


def judge_all(tables):
    return [judgements.judge(CLAIM[name], tables) for name in JUDGED]


def test_no_judge_supports_a_null_world():
    """At most 5 % of draws, plus three standard errors."""
    assert_calibrated(judge_all, null=world(0), claims=set(JUDGED) - {"covolume"})
    assert_calibrated(lambda tables: judgements.judge(CLAIM["covolume"], tables), null=no_covolume)


def test_every_judge_supports_a_planted_world():
    """At least 80 % of draws, under Holm's correction for the whole study."""
    assert_calibrated(judge_all, planted=world(1), family=len(CLAIMS))


def test_every_claim_has_a_judge_and_every_judge_is_tested():
    assert set(judgements._JUDGES) == set(CLAIM)
    tested = {judgements._JUDGES[name].__qualname__ for name in JUDGED}
    assert {judge.__qualname__ for judge in judgements._JUDGES.values()} == tested


def test_a_missing_table_withholds_the_finding():
    finding = judgements.judge(CLAIM["tree-gain"], Tables({}))
    assert finding.withheld == "no unit of stage draw was run"
    partial = Tables({"draw.refits": TEMPLATES["draw.refits"].assign(score_gain=0.0)})
    assert "no rows for world=moons-forest" in judgements.judge(CLAIM["forest-gain"], partial).withheld


def test_readings_say_flexibility_when_the_black_box_is_better():
    table = TEMPLATES["draw.scores"]
    better = table.assign(score=np.where(table["model"] == "black-box", 0.98, 0.95))
    reading = judgements.judge(CLAIM["digits-beyond-black-box"], Tables({"draw.scores": better})).reading
    assert reading.startswith("performance from flexibility")


def test_presets_and_units():
    study = TutorPupil()
    for preset in ("quick", "full"):
        config = study.Config.preset(preset)
        units = list(study.units(config))
        labels = [unit.label for unit in units]
        assert len(set(labels)) == len(labels)
        assert all(need in units for unit in units for need in unit.needs)
        assert set(config.claims) <= set(CLAIM)
    quick = study.Config.preset("quick")
    assert sum(unit.seconds for unit in study.units(quick)) <= 120


def test_quick_decides_what_it_names_and_withholds_the_rest():
    study = TutorPupil()
    config = study.Config.preset("quick")
    findings = study.judge(world(1)(np.random.default_rng(0)), config)
    assert [finding.claim.name for finding in findings] == list(CLAIM)
    withheld = {finding.claim.name for finding in findings if finding.withheld == "not decided by this preset"}
    assert withheld == set(CLAIM) - set(config.claims)


@pytest.mark.parametrize("name", WORLDS)
def test_worlds_hold_what_they_promise(name):
    drawn_world = make_world(name, np.random.default_rng(0))
    assert drawn_world.train_x.shape[1] == drawn_world.test_x.shape[1] == len(drawn_world.names)
    again = make_world(name, np.random.default_rng(0))
    np.testing.assert_array_equal(again.train_x, drawn_world.train_x)


@pytest.mark.parametrize("name", ["digits-centroid", "scorecard"])
def test_no_draw_tests_on_the_pilot(name):
    pilot = make_world(name, np.random.default_rng(0), pilot=True)
    chosen = {row.tobytes() for row in np.vstack([pilot.train_x, pilot.test_x])}
    for seed in range(3):
        drawn_world = make_world(name, np.random.default_rng(seed))
        assert not chosen & {row.tobytes() for row in np.vstack([drawn_world.train_x, drawn_world.test_x])}


def test_an_unknown_world_is_named():
    with pytest.raises(ValueError, match="no world 'mars'"):
        make_world("mars", np.random.default_rng(0))


class Bench:
    """What ``measure`` needs of a run, in memory."""

    def __init__(self):
        self.done = {}

    def rng(self, *stream):
        return np.random.default_rng([hash(part) % 2**32 for part in map(str, stream)])

    def need(self, unit):
        return self.done[unit.label]


@pytest.fixture(scope="module")
def tiny_run():
    """Every unit of a run with a handful of steps, measured in this process."""
    study = TutorPupil()
    config = study.Config(
        worlds=("moons-tree", "planted"), draws=5, nulls=10, steps=3, hidden=(4,), lambdas=(1.0, 0.1), latent=False,
        gases=("covolume-gas",),
    )  # fmt: skip
    run, frames = Bench(), {}
    seen = set()
    for unit in study.units(config):
        kind = (unit.stage, unit.params.get("world"), unit.params.get("system"), unit.params.get("arm"))
        if kind in seen:
            continue
        seen.add(kind)
        measured = study.measure(unit, run)
        named = measured if isinstance(measured, dict) else {"": measured}
        tables = {f"{unit.stage}.{name}".rstrip("."): table for name, table in named.items()}
        run.done[unit.label] = SimpleNamespace(tables=tables)
        scalars = {name: value for name, value in unit.params.items() if not isinstance(value, list)}
        for name, table in tables.items():
            added = {column: value for column, value in scalars.items() if column not in table}
            frames.setdefault(name, []).append(table.assign(**added))
    return Tables({name: pd.concat(parts) for name, parts in frames.items()})


def test_measured_tables_hold_what_judges_and_figures_read(tiny_run):
    drawn_charts = charts(tiny_run, [])
    assert {"performance", "penalty-path", "corrections", "covolume", "features", "regions", "roc", "pendulum",
            "predators", "scattered-null"} <= set(drawn_charts)  # fmt: skip
    for name, chart in drawn_charts.items():
        assert figure(name, chart).description
    assert not tiny_run["draw.refits"].isna().any().any()


def test_figures_of_a_run_without_tables_are_left_out():
    assert charts(Tables({}), []) == {}
