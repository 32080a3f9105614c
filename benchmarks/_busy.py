"""A study of units that keep one core busy for about a second, for benchmarks of the machinery around it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pandas as pd

from gnomon.evidence import Claim, Finding
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Unit

ROOT = Path(__file__).parents[1]
ROUNDS = 1_500_000


class Busy(Study):
    """How fast is a study whose units only compute?"""

    name = "busy"
    title = "Units that only compute"
    wing = "benchmarks"
    paper = Paper("none", "none")
    claims = (Claim("nothing", "Nothing happens", "exact", "none"),)

    class Config(StudyConfig):
        units: int = 20

    def units(self, config):
        return [Unit("hash", {"index": index}, seconds=1) for index in range(config.units)]

    def measure_hash(self, unit, run):  # noqa: ARG002
        digest = str(unit.params["index"]).encode()
        for _ in range(ROUNDS):
            digest = hashlib.sha256(digest).digest()
        return pd.DataFrame({"digest": [digest.hex()]})

    def judge(self, tables, config):  # noqa: ARG002
        return [Finding(self.claims[0], withheld="there is nothing to judge")]

    def charts(self, tables, findings):  # noqa: ARG002
        return {}


def site_environment(folder: Path) -> dict[str, str]:
    """Environment in which ``gnomon run busy`` works, with runs and cache inside the folder."""
    information = folder / "site" / "busy-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: busy\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[gnomon.studies]\nbusy = benchmarks._busy:Busy\n")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "site")]),
        "GNOMON_CACHE": str(folder / "cache"),
        "GNOMON_RUNS": str(folder / "runs"),
    }
