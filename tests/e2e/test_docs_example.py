"""The study of docs/write-a-study.md: it runs, prints what the page prints, reuses its units, and judges fairly."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from gnomon.evidence import Verdict
from gnomon.evidence.calibration import assert_calibrated
from gnomon.studies.backends import InlineBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.runner import run_study
from gnomon.studies.unit import Tables

ROOT = Path(__file__).parents[2]
PRINTED = ROOT / "examples" / "bagging_study.out"


@pytest.fixture
def bagging(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    from bagging_study import Bagging

    return Bagging()


# --8<-- [start:calibration]
def simulated(lift):
    """Tables as `measure_fit` would leave them, in a world where bagging lifts accuracy by so much."""

    def world(rng):
        blocks = pd.Series(rng.normal(0.7, 0.05, 8))  # blocks differ in difficulty, for all arms alike
        means = {"treatment": blocks + lift, "single-tree": blocks, "no-resampling": blocks}
        rows = [
            pd.DataFrame({"arm": arm, "block": mean.index, "accuracy": mean + rng.normal(0, 0.03, 8)})
            for arm, mean in means.items()
        ]
        return Tables({"fit": pd.concat(rows)})

    return world


def test_the_judge_is_calibrated(bagging):
    config = bagging.Config.preset("quick")
    assert_calibrated(lambda tables: bagging.judge(tables, config), null=simulated(0.0), planted=simulated(0.1))


# --8<-- [end:calibration]


@pytest.mark.e2e
def test_the_file_prints_what_the_page_shows(tmp_path):
    environment = os.environ | {"GNOMON_RUNS": str(tmp_path / "runs"), "GNOMON_CACHE": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "bagging_study.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    *findings, run_folder = ran.stdout.splitlines()
    assert findings == PRINTED.read_text(encoding="utf-8").splitlines()
    assert (Path(run_folder) / "findings.json").exists()


def test_a_second_run_takes_every_unit_from_the_cache_and_is_drawn(bagging, tmp_path):
    config = bagging.Config(blocks=5, trees=5)
    cache = UnitCache(tmp_path / "cache")
    first, second = (
        run_study(bagging, config, runs_dir=tmp_path / "runs", backend=InlineBackend(), cache=cache) for _ in range(2)
    )
    assert not any(unit.cached for unit in first.units)
    assert all(unit.cached for unit in second.units)
    assert second.verify(bagging) == []
    charts = bagging.charts(second.tables, second.findings)
    assert charts.keys() == {"accuracy", "blocks"}
    assert all("no-resampling" in chart.to_json() for chart in charts.values())


def test_four_blocks_are_too_few_for_a_verdict(bagging):
    rows = [
        {"arm": arm, "block": b, "accuracy": 0.5 + 0.1 * (arm == "treatment")}
        for arm in ("treatment", "single-tree", "no-resampling")
        for b in range(4)
    ]
    (finding,) = bagging.judge(Tables({"fit": pd.DataFrame(rows)}), bagging.Config(blocks=4))
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert "4 units of analysis (block)" in finding.reason
