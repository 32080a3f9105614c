"""The whole study on a tiny model: units, tables, findings, figures."""

import numpy as np
import pytest

from gnomon.mechanisms.rope_heads.study import RopeHeads
from gnomon.report.figures import figure
from gnomon.studies.backends import InlineBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.runner import run_study


@pytest.fixture(scope="module")
def config(tiny_folder):
    return RopeHeads.Config(
        model=str(tiny_folder),
        prompts=5,
        length=24,
        chunk=3,
        copies=2,
        slots=4,
        steps=5,
        toy_seeds=6,
        sweep=(0.0, 1.0),
        ablation_draws=10,
        ablation_prompts=2,
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return run_study(
        RopeHeads(), config, runs_dir=folder / "runs", backend=InlineBackend(), cache=UnitCache(folder / "cache")
    )


def test_units_are_chunks_of_arms_toys_and_ablations(config):
    units = list(RopeHeads().units(config))
    stages = [unit.stage for unit in units]
    assert (stages.count("lm"), stages.count("toy"), stages.count("ablate")) == (2 * (1 + 2 + 2 + 1), 4 + 3, 12)
    # Parameters become columns, so one of them must not be a word in one unit and a number in another.
    assert {type(unit.params["heads"]) for unit in units if unit.stage == "ablate"} == {str}
    ablation = next(unit for unit in units if unit.stage == "ablate")
    assert [need.params["arm"] for need in ablation.needs] == ["treatment", "treatment"]
    assert len({tuple(sorted(map(str, unit.params.items()))) for unit in units}) == len(units)


def test_quick_leaves_out_what_it_does_not_decide():
    config = RopeHeads.Config.preset("quick")
    stages = {unit.stage for unit in RopeHeads().units(config.model_copy(update={"model": config.model}))}
    assert stages == {"lm", "toy"}


def test_no_unit_fails(run):
    assert [shortfall for shortfall in run.tables.shortfalls if shortfall.kind != "gated"] == []
    assert run.tables.counts["ablate"] == 12


def test_every_claim_gets_a_finding_and_the_exact_one_holds(run):
    findings = {finding.claim.name: finding for finding in run.findings}
    assert list(findings) == [claim.name for claim in RopeHeads.claims]
    exclusion = findings["exclusion"].exact
    assert (exclusion.instances, exclusion.violations) == ((1 + 2 + 2 + 1) * 5 * 36, 0)
    assert exclusion.broken_violations > 0
    assert "6 layers; an interval of quantiles needs at least 20" in findings["spread"].reason
    for name in ("frequency-arithmetic", "learned-frequency-use", "frequency-access", "mixed-task"):
        assert np.isfinite(findings[name].effect.value), name


def test_prompts_of_all_arms_are_the_same_and_copies_differ(run):
    heads = run.tables["lm.heads"]
    counts = heads.groupby(["arm", "copy"])["prompt"].nunique()
    assert (counts == 5).all()
    wide = heads.pivot_table(index=["prompt", "layer", "head"], columns=["arm", "copy"], values="zero")
    assert not np.allclose(wide["random-init", 0], wide["random-init", 1])
    assert not np.allclose(wide["treatment", 0], wide["shuffled-words", 0])


def test_figures_are_drawn_from_the_tables(run):
    drawn = RopeHeads().charts(run.tables, run.findings)
    assert {"plane", "frequency-use", "curve", "energy", "heads", "cutoffs", "frequency-access"} <= set(drawn)
    for name, chart in drawn.items():
        made = figure(name, chart)
        assert made.title
        assert made.caption
        assert made.svg.startswith("<svg")
