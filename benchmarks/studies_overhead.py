"""What the study machinery costs a unit: a run of units that do nothing, against writing their tables by hand."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pandas as pd
import psutil

from gnomon.evidence import Claim, Finding
from gnomon.studies.backends import InlineBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.runner import run_study
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Unit

UNITS, ROUNDS = 200, 3


class Idle(Study):
    """What does a unit that does nothing cost?"""

    name = "idle"
    title = "Units that do nothing"
    wing = "benchmarks"
    paper = Paper("none", "none")
    claims = (Claim("nothing", "Nothing happens", "exact", "none"),)
    Config = StudyConfig

    def units(self, config):  # noqa: ARG002
        return [Unit("idle", {"index": index}) for index in range(UNITS)]

    def measure_idle(self, unit, run):  # noqa: ARG002
        return _table(unit.params["index"])

    def judge(self, tables, config):  # noqa: ARG002
        return [Finding(self.claims[0], withheld="there is nothing to judge")]

    def charts(self, tables, findings):  # noqa: ARG002
        return {}


def run() -> dict:
    """Seconds a unit, ours and by hand, and how much a run's memory grows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _by_hand(folder / "warm")
        _by_machinery(folder / "warm-run", folder / "warm-cache")
        before = psutil.Process().memory_info().rss
        rounds = [
            (_by_machinery(folder / f"runs-{index}", folder / f"cache-{index}"), _by_hand(folder / f"hand-{index}"))
            for index in range(ROUNDS)
        ]
        grown = psutil.Process().memory_info().rss - before
    # The fastest round is the least disturbed one.
    ours, peer = (min(seconds) for seconds in zip(*rounds, strict=True))
    return {
        "name": "studies_overhead",
        "ours": ours / UNITS,
        "peer": peer / UNITS,
        "ratio": ours / peer,
        "unit": "seconds a unit; peer: DataFrame.to_parquet in a loop",
        "overhead_ms": 1e3 * (ours - peer) / UNITS,
        "memory_mb": grown / 1e6,
    }


def _by_machinery(runs_dir: Path, cache: Path) -> float:
    started = time.perf_counter()
    run_study(Idle(), runs_dir=runs_dir, backend=InlineBackend(), cache=UnitCache(cache))
    return time.perf_counter() - started


def _by_hand(folder: Path) -> float:
    folder.mkdir()
    started = time.perf_counter()
    for index in range(UNITS):
        _table(index).to_parquet(folder / f"{index}.parquet")
    pd.concat([pd.read_parquet(folder / f"{index}.parquet") for index in range(UNITS)])
    return time.perf_counter() - started


def _table(index: int) -> pd.DataFrame:
    return pd.DataFrame({"value": [float(index)] * 10})
