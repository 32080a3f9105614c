"""The study: are a pupil's failures structured, and does moving its inputs show where, how far and along what?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pandas as pd
from pydantic import Field

from gnomon.evidence import Finding
from gnomon.learners.tutor_pupil import judgements
from gnomon.learners.tutor_pupil.claims import CLAIMS
from gnomon.learners.tutor_pupil.experiments import measure_dynamics, measure_latent
from gnomon.learners.tutor_pupil.measure import (
    Budget,
    measure_constants,
    measure_detail,
    measure_draw,
    measure_scatter,
    penalty_table,
)
from gnomon.learners.tutor_pupil.worlds import make_world
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Tables, Unit, UnitRun

BLOCK = 50
GASES = {
    "covolume-gas": ("covolume-gas", "ideal-gas"),
    "van-der-waals": ("van-der-waals", "van-der-waals-clean", "van-der-waals-noisy"),
}


class TutorPupil(Study):
    """Where and how does a fixed model fail, and would any flexible model have found as much in noise?"""

    name = "tutor-pupil"
    title = "Where a trusted model fails, by the smallest change to its inputs"
    wing = "learners"
    paper = Paper(
        "The Tutor-Pupil Augmentation: Enhancing Learning and Interpretability via Input Corrections",
        "anonymous in the sources used",
        url="https://openreview.net/forum?id=TvP90DWijM",
    )
    claims = CLAIMS

    class Config(StudyConfig):
        """Settings of a run."""

        presets: ClassVar = {
            "quick": {
                "claims": (
                    "tree-gain",
                    "tree-structure",
                    "tree-location",
                    "tree-over-output",
                    "covolume",
                    "covolume-value",
                    "digits-gain",
                    "digits-direction",
                ),
                "worlds": ("moons-tree", "digits-centroid"),
                "gases": ("covolume-gas",),
                "lambdas": (3.0, 1.0, 0.3, 0.1, 0.03, 0.01),
                "steps": 150,
                "hidden": (32, 32),
                "systems": (),
                "latent": False,
            },
            "full": {},
        }

        worlds: tuple[str, ...] = Field(
            (
                "moons-tree",
                "moons-forest",
                "digits-centroid",
                "digits-logistic-weak",
                "digits-logistic",
                "planted",
                "scorecard",
                "scorecard-context",
            ),
            description="Worlds measured with nulls and baselines.",
        )
        gases: tuple[str, ...] = Field(("covolume-gas", "van-der-waals"), description="Gases whose constants are read.")
        systems: tuple[str, ...] = Field(("predators", "pendulum"), description="Dynamical pupils.")
        latent: bool = Field(True, description="Also correct digits in an autoencoder's code.")
        draws: int = Field(10, ge=5, description="Splits or data sets of each world.")
        nulls: int = Field(199, ge=10, description="Scattered-error refits for the test of structure.")
        lambdas: tuple[float, ...] = Field(
            (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001),
            description="Penalties of the path.",
        )
        steps: int = Field(400, ge=1, description="Optimiser steps of every net.")
        hidden: tuple[int, ...] = Field((64, 64), description="Widths of every net.")

    def units(self, config: Config) -> Iterable[Unit]:
        """A path a world; draws, refits under the null and one detailed report at the penalty it chose."""
        budget = {"steps": config.steps, "hidden": list(config.hidden)}
        cost = config.steps * (1 + sum(config.hidden) / 64) / 1000
        for world in (*config.worlds, *config.gases):
            path = Unit("path", {"world": world, "lambdas": list(config.lambdas), **budget}, seconds=6 * cost)
            yield path
            yield Unit("detail", {"world": world, **budget}, needs=(path,), seconds=14 * cost)
            if world in GASES:
                for draw in range(config.draws):
                    for gas in GASES[world]:
                        yield Unit("constants", {"world": gas, "draw": draw, **budget}, needs=(path,), seconds=2 * cost)
                continue
            for draw in range(config.draws):
                yield Unit("draw", {"world": world, "draw": draw, **budget}, needs=(path,), seconds=6 * cost)
            if world == "moons-tree":
                for block, start in enumerate(range(0, config.nulls, BLOCK)):
                    size = min(BLOCK, config.nulls - start)
                    params = {"world": world, "block": block, "refits": size, **budget}
                    yield Unit("null", params, needs=(path,), seconds=12 * cost)
        for draw in range(config.draws):
            if config.latent:
                yield Unit("latent", {"draw": draw, "steps": config.steps}, seconds=25)
            for system in config.systems:
                arms = ("treatment", "own-labels") if system == "predators" else ("treatment",)
                for arm in arms:
                    params = {"system": system, "draw": draw, "arm": arm, "steps": config.steps}
                    yield Unit("dynamics", params, seconds=8)

    def measure_path(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """The penalty path on the world's pilot."""
        world = make_world(unit.params["world"], run.rng("pilot", unit.params["world"]), pilot=True)
        return penalty_table(world, _budget(unit), tuple(unit.params["lambdas"]), seed=0)

    def measure_draw(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Scores, refits, markers, pushes and recovered numbers of one split or data set."""
        name, draw = unit.params["world"], unit.params["draw"]
        # The scorecards share a stream: with and without context they see the same patients.
        world = make_world(name, run.rng("world", name.removesuffix("-context"), draw))
        return measure_draw(world, _budget(unit), _chosen_penalty(unit, run), run.rng("fits", name, draw))

    def measure_constants(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Constants of a gas, at the penalty chosen on the real one."""
        world = make_world(unit.params["world"], run.rng("gas", unit.params["draw"]))
        return measure_constants(world, _budget(unit), _chosen_penalty(unit, run), seed=unit.params["draw"])

    def measure_null(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """A block of scattered-error refits on the first split, each beside a refit of the real targets."""
        name = unit.params["world"]
        world = make_world(name, run.rng("world", name, 0))
        random = run.rng("scatter", name, unit.params["block"])
        return measure_scatter(world, _budget(unit), _chosen_penalty(unit, run), unit.params["refits"], random)

    def measure_detail(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """The whole report on the first split, and the rows behind the figures."""
        name = unit.params["world"]
        world = make_world(name, run.rng("world", name.removesuffix("-context"), 0))
        return measure_detail(world, _budget(unit), _chosen_penalty(unit, run), run.rng("detail", name))

    def measure_latent(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """One split of the digits corrected in an autoencoder's code."""
        return measure_latent(unit.params["steps"], run.rng("latent", unit.params["draw"]))

    def measure_dynamics(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """One data set of a dynamical pupil."""
        system, draw = unit.params["system"], unit.params["draw"]
        return measure_dynamics(
            system,
            draw,
            unit.params["steps"],
            run.rng("dynamics", system, draw),
            nothing_to_find=unit.params["arm"] == "own-labels",
        )

    def judge(self, tables: Tables, config: Config) -> list[Finding]:
        """One finding for every claim."""
        decided = config.claims or [claim.name for claim in self.claims]
        return [
            judgements.judge(claim, tables)
            if claim.name in decided
            else Finding(claim, withheld="not decided by this preset")
            for claim in self.claims
        ]

    def charts(self, tables: Tables, findings: list[Finding]) -> dict[str, Any]:
        """Figures P1 to P9, as far as their tables were measured."""
        from gnomon.learners.tutor_pupil.figures import charts

        return charts(tables, findings)


def _budget(unit: Unit) -> Budget:
    return Budget(unit.params["steps"], tuple(unit.params["hidden"]))


def _chosen_penalty(unit: Unit, run: UnitRun) -> float:
    """The penalty chosen on the pilot under the default loss."""
    path = run.need(unit.needs[0]).tables["path"]
    return float(path.loc[path["chosen"] & (path["loss"] != "log_loss"), "lambda"].iloc[0])
