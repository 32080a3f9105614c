"""Does a drifting walk get further than a driftless one?"""

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from gnomon.evidence import Claim, Contrast, Estimate, Finding
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Gated, Missing, Unit
from tiny_study.summaries import slope
from tiny_study.walks import walk


class TinyStudy(Study):
    """Does a drifting walk get further than a driftless one?"""

    name = "tiny-walks"
    title = "Drift in random walks"
    wing = "tests"
    paper = Paper("On walks", "Nobody")
    claims = (
        Claim("drift", "A drifting walk goes further", "contrast", "mean step", controls=("driftless",)),
        Claim("spread", "A drifting walk spreads as much", "equivalence", "sd", controls=("driftless",), margin=0.5),
    )

    class Config(StudyConfig):
        """How many walks, how long, and what goes wrong."""

        seeds: int = 6
        steps: int = 50
        drift: float = 0.5
        pause: float = 0.0
        fault: str = ""

        presets: ClassVar = {"quick": {"seeds": 6, "claims": ("drift",)}, "full": {"seeds": 9}}

    def units(self, config):
        """Walks -> their slopes -> one summary an arm."""
        summaries = []
        for arm, drift in (("treatment", config.drift), ("driftless", 0.0)):
            slopes = []
            for seed in range(config.seeds):
                trouble = {"fault": config.fault} if config.fault and (arm, seed) == ("treatment", 1) else {}
                pause = {"pause": config.pause} if config.pause else {}
                base = Unit(
                    "walk",
                    {"arm": arm, "seed": seed, "steps": config.steps, "drift": drift, **pause, **trouble},
                    seconds=2,
                )
                slopes.append(Unit("slope", {"arm": arm, "seed": seed}, needs=(base,), seconds=1))
                yield base
            yield from slopes
            summaries.append(Unit("summary", {"arm": arm}, needs=tuple(slopes)))
        yield from summaries

    def measure_walk(self, unit, run):
        """One walk, as a table and as a large artifact."""
        time.sleep(unit.params.get("pause", 0.0))
        self._stumble(unit.params.get("fault", ""), unit.label)
        positions = walk(unit.params["steps"], unit.params["drift"], run.rng("walk", unit.params["seed"]))
        np.save(run.artifact("positions.npy"), positions)
        np.save(run.artifact("kept.npy", keep=unit.params["seed"] == 0), positions[:3])
        if unit.params.get("fault") == "bulk":
            run.artifact("bulk.bin").write_bytes(bytes(1_000_000))
        run.note("generator", {"kind": "PCG64"})
        return {
            "path": pd.DataFrame({"step": range(3), "position": positions[:3]}),
            "end": pd.DataFrame({"end": positions[-1:]}),
        }

    def measure_slope(self, unit, run):
        """Mean step of the walk it needs."""
        (base,) = unit.needs
        return pd.DataFrame({"slope": [slope(np.load(run.need(base).path / "positions.npy"))]})

    def measure_summary(self, unit, run):
        """Mean and spread over seeds."""
        slopes = pd.concat([run.need(need).tables["slope"] for need in unit.needs])["slope"]
        return pd.DataFrame({"mean": [slopes.mean()], "sd": [slopes.std()]})

    def _stumble(self, fault, label):
        if fault == "raise" and not Path(os.environ.get("TINY_FIXED", "/nowhere")).exists():
            raise RuntimeError(f"broken on purpose in {label}")
        if fault == "gate":
            raise Gated("accuracy .19, needs > .33")
        if fault == "missing" and not Path(os.environ.get("TINY_FIXED", "/nowhere")).exists():
            raise Missing("endpoint silent")
        if fault == "exit":
            raise SystemExit(3)
        if fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)

    def judge_drift(self, tables, config):
        """Difference of mean slopes."""
        slopes = tables["slope"]
        means = slopes.groupby("arm")["slope"].agg(["mean", "sem"])
        gap = means.loc["treatment", "mean"] - means.loc["driftless", "mean"]
        width = 2 * means["sem"].sum()
        n = int((slopes["arm"] == "treatment").sum())
        return Finding(
            self.claim("drift"),
            effect=_around(means.loc["treatment", "mean"], width),
            contrasts=(
                Contrast(
                    "driftless", _around(means.loc["driftless", "mean"], width), _around(gap, width), 0.001, n, "z"
                ),
            ),
            n=n,
        )

    def judge_spread(self, tables, config):
        """Difference of spreads."""
        spread = tables["summary"].set_index("arm")["sd"]
        gap = spread["treatment"] - spread["driftless"]
        return Finding(
            self.claim("spread"),
            effect=_around(spread["treatment"], 0.1),
            contrasts=(
                Contrast("driftless", _around(spread["driftless"], 0.1), _around(gap, 0.1), 0.01, config.seeds, "t"),
            ),
            n=config.seeds,
        )

    def charts(self, tables, findings):
        """See figures."""
        from tiny_study import figures

        return figures.charts(tables, findings)


def _around(value, half_width):
    return Estimate(float(value), float(value - half_width), float(value + half_width))
