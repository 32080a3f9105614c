"""The study: optimal planners on a crowd that learns from itself, and a language model in each of the two seats."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from gnomon.evidence import Claim, Finding
from gnomon.society.planner import rulings
from gnomon.society.planner.experiments import (
    KINKED,
    SHOWCASE,
    broken_settings,
    closed_forms,
    curves,
    evaluated_settings,
    finite_horizon,
    replaced_agents,
    simulated_paths,
    solved_settings,
)
from gnomon.society.planner.figures import charts
from gnomon.society.planner.roles import (
    AGENT_ARMS,
    PLANNER_ARMS,
    SCENARIOS,
    agent_records,
    cluster_estimates,
    planner_records,
)
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Gated, Tables, Unit, UnitRun

EXACT = (
    "value-convexity",
    "altruistic-phases",
    "myopic-threshold",
    "biased-phases",
    "altruistic-welfare",
    "biased-harm",
    "obfuscation-rule",
    "foresight",
)
_GATE = "the scripted Grether agent is recovered, and some weight's interval lies above .05"
_CLUSTER = "scenario x paraphrase"

TOLERATED = 0.05
"""Share of an arm's answers that may be missing before its cluster is left out."""


class Planner(Study):
    """How far can a mediator who may only set the precision of signals steer a herd, and at whose cost?"""

    name = "planner"
    title = "Steering the herd: a mediator who sets the precision of private signals"
    wing = "society"
    paper = Paper(
        "Steering the Herd: A Framework for LLM-based Control of Social Learning",
        "R. Arghal, K. He, S. Saeedi Bidokhti, S. Sarkar",
        arxiv="2504.02648",
        venue="ICLR 2026 (oral)",
    )
    claims = (
        Claim(
            "value-convexity",
            "The altruistic planner's value is convex in the public belief",
            kind="exact",
            statistic="rise of the value above its lower convex envelope, at most 1e-6",
            unit="setting",
            paper_ref="Theorem 2",
        ),
        Claim(
            "altruistic-phases",
            "From even odds outwards the altruistic planner buys certainty, then just enough precision, then none",
            kind="exact",
            statistic="phases in the order of the theorem",
            unit="setting",
            paper_ref="Theorem 3",
        ),
        Claim(
            "myopic-threshold",
            "Social learning pays for longer: the belief at which certainty is worth its price falls with patience",
            kind="exact",
            statistic="threshold of certainty, not above that of a less patient planner",
            unit="setting",
            paper_ref="Theorems 1, 3",
        ),
        Claim(
            "biased-phases",
            "The biased planner passes through five phases, blurring signals where belief already favours it",
            kind="exact",
            statistic="phases in the order of the theorem",
            unit="setting",
            paper_ref="Theorem 5",
        ),
        Claim(
            "altruistic-welfare",
            "The altruistic planner never lowers welfare, whatever the state of the world",
            kind="exact",
            statistic="welfare less that under the free precision, given the state",
            unit="setting, prior and state",
            paper_ref="section 5",
        ),
        Claim(
            "biased-harm",
            "The biased planner lowers welfare when the state is bad",
            kind="exact",
            statistic="welfare less that under the free precision, given the bad state",
            unit="setting and prior",
            paper_ref="section 5",
            paper_value="-40 to -50 %",
        ),
        Claim(
            "obfuscation-rule",
            "A rule that forbids precision below the free one leaves less harm when the state is bad",
            kind="exact",
            statistic="welfare under the rule less welfare without it, given the bad state",
            unit="setting and prior",
            paper_ref="ours",
        ),
        Claim(
            "foresight",
            "Ignoring social learning costs the planner value",
            kind="exact",
            statistic="optimal value less the myopic planner's, at the worst prior",
            unit="setting and objective",
            paper_ref="section 5",
        ),
        Claim(
            "agent-underreaction",
            "The model in the agent's seat under-reacts to signals that agree with the public belief",
            kind="contrast",
            statistic="weight on agreeing signals",
            controls=("bayesian",),
            unit=_CLUSTER,
            expect="less",
            gate=_GATE,
            paper_ref="NB1",
        ),
        Claim(
            "agent-overreaction",
            "The model in the agent's seat over-reacts to signals that contradict the public belief",
            kind="contrast",
            statistic="weight on contrary signals",
            controls=("bayesian",),
            unit=_CLUSTER,
            gate=_GATE,
            paper_ref="NB2",
        ),
        Claim(
            "agent-late-cascade",
            "The model in the agent's seat needs a stronger public belief before it ignores its signal",
            kind="contrast",
            statistic="weight on contrary signals less weight on the public belief",
            controls=("bayesian",),
            unit=_CLUSTER,
            gate=_GATE,
            paper_ref="NB3",
        ),
        Claim(
            "planner-tracks-optimum",
            "The model in the planner's seat sets precision by the public belief, as the optimum does",
            kind="contrast",
            statistic="distance from the optimal precision, share of the range",
            controls=("shuffled-belief", "constant"),
            unit=_CLUSTER,
            expect="less",
            gate="the scripted optimal planner passes the same test",
            paper_ref="section 6",
        ),
        Claim(
            "hybrid-brittle",
            "On the model's own agents its policy is worth more than the optimum for Bayesian agents",
            kind="contrast",
            statistic="biased planner's value a round",
            controls=("hybrid",),
            unit=_CLUSTER,
            gate=_GATE,
            paper_ref="section 6",
        ),
    )

    class Config(StudyConfig):
        """Grids, sizes, and the model; without a model only the exact claims are measured."""

        ps: tuple[float, ...] = (0.6, 0.7, 0.8, 0.9)
        ks: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
        deltas: tuple[float, ...] = (0.3, 0.6, 0.9, 0.95)
        powers: tuple[float, ...] = (1.0,)
        priors: tuple[float, ...] = (0.4, 0.5, 0.6)
        welfare_ks: tuple[float, ...] = (0.1, 0.3, 1.0)
        welfare_deltas: tuple[float, ...] = (0.6, 0.9)
        m: int = Field(default=20, ge=4, description="Lattice points per free move.")
        runs: int = Field(default=2000, ge=1, description="Simulated runs a planner, for the paths.")
        horizon: int = Field(default=0, ge=0, description="Rounds of the undiscounted planner; 0 leaves it out.")
        model: str = Field(default="", description="Model in both seats: a name for load(), or MODEL@URL.")
        paraphrases: int = Field(default=4, ge=1, le=4)
        presets: ClassVar = {
            "quick": {"claims": EXACT},
            "full": {
                "m": 40,
                "powers": (1.0, 2.0),
                "ks": (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0),
                "priors": (0.3, 0.4, 0.5, 0.6, 0.7),
                "welfare_ks": (0.1, 0.3, 1.0, 2.0),
                "welfare_deltas": (0.3, 0.6, 0.9),
                "runs": 10_000,
                "horizon": 20,
                "model": "smollm2",
            },
        }

    def units(self, config: Any) -> list[Unit]:
        """Solved settings, evaluated planners, pictures; with a model also its answers in both seats."""
        scale = (config.m / 20) ** 2
        settings = len(config.ks) * len(config.deltas)
        units = [Unit("oracle", {"m": config.m}, seconds=0.5 * scale)]
        for objective in ("altruistic", "biased"):
            for p in config.ps:
                for r in config.powers:
                    grid = {"p": p, "r": r, "objective": objective, "m": config.m, "ks": list(config.ks)}
                    myopic = [0.0] if objective == "altruistic" else []
                    deltas = [*myopic, *config.deltas]
                    units.append(Unit("solve", {**grid, "deltas": deltas}, seconds=0.03 * scale * settings))
                grid = {"p": p, "r": 1.0, "objective": objective, "m": config.m, "ks": list(config.ks)}
                units.append(Unit("broken", {**grid, "deltas": list(config.deltas)}, seconds=0.04 * scale * settings))
        for p in config.ps:
            grid = {"p": p, "m": config.m, "ks": list(config.welfare_ks), "deltas": list(config.welfare_deltas)}
            count = len(config.welfare_ks) * len(config.welfare_deltas) * len(config.priors)
            units.append(Unit("evaluate", {**grid, "priors": list(config.priors)}, seconds=0.15 * count))
        units.append(Unit("curves", {"m": 2 * config.m}, seconds=1.5 * scale))
        units.append(Unit("replace", {"m": config.m}, seconds=1.0))
        units += [
            Unit("simulate", {"prior": prior, "runs": config.runs, "rounds": 40, "m": config.m}, seconds=1.0)
            for prior in (0.4, 0.5)
        ]
        if config.horizon:
            units.append(Unit("horizon", {"rounds": config.horizon, "m": config.m}, seconds=4.0 * scale))
        return units + (self._model_units(config) if config.model else [])

    def _model_units(self, config: Any) -> list[Unit]:
        units = []
        # A server's weights cannot be re-initialised: that control is for local models.
        kept = [arm for arm in (*AGENT_ARMS, *PLANNER_ARMS) if arm != "random-init" or "@" not in config.model]
        for scenario in SCENARIOS:
            for paraphrase in range(config.paraphrases):
                cluster = {"scenario": scenario, "paraphrase": paraphrase, "model": config.model}
                asked = [
                    Unit("agent", {**cluster, "arm": arm}, seconds=25 if arm in ("treatment", "random-init") else 0.5)
                    for arm in AGENT_ARMS
                    if arm in kept
                ] + [
                    Unit("seat", {**cluster, "arm": arm}, seconds=1.0 if arm == "scripted" else 20)
                    for arm in PLANNER_ARMS
                    if arm in kept
                ]
                units += [*asked, Unit("estimate", cluster, needs=tuple(asked), seconds=3.0)]
        return units

    def measure_solve(self, unit: Unit, run: UnitRun) -> pd.DataFrame:  # noqa: ARG002 - nothing is random here
        """Phases, thresholds and defects, one row a setting."""
        at = unit.params
        return solved_settings(at["p"], at["r"], at["objective"], at["ks"], at["deltas"], m=at["m"])

    def measure_broken(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """The same checks on things made wrong on purpose."""
        at = unit.params
        rng = run.rng("permuted", at["objective"], int(100 * at["p"]))
        return broken_settings(at["p"], at["r"], at["objective"], at["ks"], at["deltas"], rng, m=at["m"])

    def measure_evaluate(self, unit: Unit, run: UnitRun) -> pd.DataFrame:  # noqa: ARG002
        """Exact welfare by state, one row a planner, setting and prior."""
        at = unit.params
        return evaluated_settings(at["p"], at["ks"], at["deltas"], at["priors"], m=at["m"])

    def measure_oracle(self, unit: Unit, run: UnitRun) -> pd.DataFrame:  # noqa: ARG002
        """The solver beside the closed forms."""
        return closed_forms(m=unit.params["m"])

    def measure_curves(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:  # noqa: ARG002
        """Policies and values at the showcase setting and at the one with the largest defect."""
        return {"showcase": curves(SHOWCASE, m=unit.params["m"]), "kinked": curves(KINKED, m=unit.params["m"])}

    def measure_replace(self, unit: Unit, run: UnitRun) -> pd.DataFrame:  # noqa: ARG002
        """Planners who take their agents for Bayesian, on agents who are not."""
        return replaced_agents(m=unit.params["m"])

    def measure_simulate(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Simulated beliefs and cascades; the planners share their luck."""
        at = unit.params
        seed = int(run.rng("runs").integers(2**31))
        return simulated_paths(at["prior"], at["runs"], at["rounds"], seed, m=at["m"])

    def measure_horizon(self, unit: Unit, run: UnitRun) -> pd.DataFrame:  # noqa: ARG002
        """Undiscounted planners with an end."""
        return finite_horizon(unit.params["rounds"], m=unit.params["m"])

    def measure_agent(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Answers in the agent's seat, one row a belief, precision and signal."""
        return agent_records(unit.params, run)

    def measure_seat(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Answers in the planner's seat, one row a belief and objective."""
        return planner_records(unit.params, run)

    def measure_estimate(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Slopes of every agent arm, deviations of every planner arm, and both played out exactly."""
        done = [run.need(need) for need in unit.needs]
        answers = {"agent": "logodds", "seat": "precision"}
        tables = {
            stage: pd.concat([part.tables[stage] for part in done if part.unit.stage == stage]) for stage in answers
        }
        for stage, column in answers.items():
            missing = {str(arm): np.mean(rows[column].isna()) for arm, rows in tables[stage].groupby("arm")}
            worst = max(missing, key=lambda arm: missing[arm])
            if missing[worst] > TOLERATED:
                raise Gated(f"{missing[worst]:.0%} of the {stage} answers of arm {worst} are missing")
            tables[stage] = tables[stage].dropna(subset=[column])
        return cluster_estimates(tables["agent"], tables["seat"])

    def judge_value_convexity(self, tables: Tables, config: Any) -> Finding:
        """Count the settings whose value is not convex."""
        return rulings.value_convexity(self.claim("value-convexity"), tables, config)

    def judge_altruistic_phases(self, tables: Tables, config: Any) -> Finding:
        """Count the settings whose phases are out of order."""
        return rulings.phases_in_order(self.claim("altruistic-phases"), tables, config, "altruistic")

    def judge_biased_phases(self, tables: Tables, config: Any) -> Finding:
        """Count the settings whose phases are out of order."""
        return rulings.phases_in_order(self.claim("biased-phases"), tables, config, "biased")

    def judge_myopic_threshold(self, tables: Tables, config: Any) -> Finding:
        """Count the settings in which patience raises the threshold."""
        return rulings.myopic_threshold(self.claim("myopic-threshold"), tables, config)

    def judge_altruistic_welfare(self, tables: Tables, config: Any) -> Finding:
        """Count the cases in which the altruistic planner lowers welfare."""
        return rulings.altruistic_welfare(self.claim("altruistic-welfare"), tables, config)

    def judge_biased_harm(self, tables: Tables, config: Any) -> Finding:
        """Count the cases in which the biased planner does no harm."""
        return rulings.biased_harm(self.claim("biased-harm"), tables, config)

    def judge_obfuscation_rule(self, tables: Tables, config: Any) -> Finding:
        """Count the cases in which the rule does not help."""
        return rulings.obfuscation_rule(self.claim("obfuscation-rule"), tables, config)

    def judge_foresight(self, tables: Tables, config: Any) -> Finding:
        """Count the cases in which looking ahead gains nothing."""
        return rulings.foresight(self.claim("foresight"), tables, config)

    def judge_agent_underreaction(self, tables: Tables, config: Any) -> Finding:
        """Weight on agreeing signals against the Bayesian's."""
        return rulings.agent_bias(self.claim("agent-underreaction"), tables, config, "gamma_agree")

    def judge_agent_overreaction(self, tables: Tables, config: Any) -> Finding:
        """Weight on contrary signals against the Bayesian's."""
        return rulings.agent_bias(self.claim("agent-overreaction"), tables, config, "gamma_contra")

    def judge_agent_late_cascade(self, tables: Tables, config: Any) -> Finding:
        """Weight on contrary signals less that on the belief, against the Bayesian's."""
        return rulings.agent_bias(self.claim("agent-late-cascade"), tables, config, "caution")

    def judge_planner_tracks_optimum(self, tables: Tables, config: Any) -> Finding:
        """Distance from the optimum against the same answers dealt to other beliefs."""
        return rulings.planner_tracks_optimum(self.claim("planner-tracks-optimum"), tables, config)

    def judge_hybrid_brittle(self, tables: Tables, config: Any) -> Finding:
        """The model's own policy against the Bayesian optimum, both on the estimated agents."""
        return rulings.hybrid_brittle(self.claim("hybrid-brittle"), tables, config)

    def charts(self, tables: Tables, findings: list[Finding]) -> dict[str, Any]:
        """Figures; see :mod:`gnomon.society.planner.figures`."""
        return charts(tables, findings)
