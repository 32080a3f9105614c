"""The study's figures: pure functions of its tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gnomon.evidence import Finding, intervals
from gnomon.report.charts import bars, dose_response, forest
from gnomon.report.elements import table as table_element
from gnomon.society.planner import crowd_figures as crowd
from gnomon.society.planner import optimum_figures as optimum
from gnomon.society.planner.convexity import lower_envelope
from gnomon.society.planner.experiments import curves
from gnomon.society.planner.roles import SEAT
from gnomon.society.planner.solution import Solution
from gnomon.studies.unit import MissingTable, Tables


def charts(tables: Tables, findings: list[Finding]) -> dict[str, Any]:
    """Figures by name; those whose tables are missing are left out."""
    drawn: dict[str, Any] = {}
    recipes = {
        "policy": lambda: optimum.policy(tables["curves.showcase"]),
        "value": lambda: optimum.value(tables["curves.kinked"]),
        "welfare": lambda: crowd.welfare(tables["evaluate"]),
        "phase_diagram": lambda: optimum.phase_diagram(tables["solve"]),
        "convexity_map": lambda: optimum.convexity_map(tables["solve"]),
        "thresholds": lambda: optimum.thresholds(tables["solve"]),
        "belief_paths": lambda: crowd.belief_paths(tables["simulate.beliefs"]),
        "cascade_time": lambda: crowd.cascade_time(tables["simulate.survival"]),
        "agents": lambda: crowd.agents(tables["replace"]),
        "horizon": lambda: optimum.horizon(tables["horizon"]),
        # Exact and cheap: the optimum at the costs that the model was told.
        "seat": lambda: optimum.seat(curves(SEAT, m=40), _model_answers(tables["seat"])),
        "update_curve": lambda: update_curve(tables["agent"]),
        "deviation": lambda: deviation(tables["estimate.seats"]),
        "findings": lambda: forest(findings, title="The model in both seats, beside its controls"),
        "closed_forms": lambda: table_element(
            tables["oracle"].drop(columns=["m"], errors="ignore"), title="The solver beside the closed forms"
        ),
    }
    for name, recipe in recipes.items():
        if name == "findings" and all(finding.effect is None for finding in findings):
            continue
        try:
            drawn[name] = recipe()
        except MissingTable:
            continue  # the findings say what is missing and why
    return drawn


def solved_charts(solution: Solution) -> dict[str, Any]:
    """Policy and value of one solved planner."""
    model = solution.model
    frame = solution.to_frame().assign(
        objective=model.objective,
        envelope=lower_envelope(solution.beliefs, solution.values),
        p=model.p,
        k=getattr(model.cost, "k", np.nan),
        delta=model.delta,
    )
    shown = frame.loc[frame["belief"].between(0.002, 0.998)]
    return {"policy": optimum.policy(shown), "value": optimum.value(shown)}


def update_curve(records: pd.DataFrame) -> Any:
    """How far each arm's answers move with the signal, by prior belief."""
    moved = records.assign(shift=records["logodds"] - records["l"], evidence=records["signal"] * records["lam"])
    rows = moved.loc[moved["arm"].isin(["treatment", "random-init", "bayesian", "grether"])]
    shown = _over_clusters(rows, ["arm", "evidence"], "logodds").assign(evidence=lambda t: t["evidence"].round(3))
    return dose_response(
        shown,
        x="evidence",
        title="Log-odds of the good action by the strength of the private signal",
        x_title="signal, log-odds (negative: bad news)",
        y_title="log-odds of the good action",
        caption="Mean over beliefs and prompts with 95 % intervals over scenario x paraphrase; both label orders "
        "averaged. bayesian and grether are scripts that read the same prompts.",
    )


def deviation(seats: pd.DataFrame) -> Any:
    """Distance from the optimal precision: as answered, dealt to other beliefs, and constant."""
    shown = _over_clusters(seats, ["source", "arm"], "deviation")
    names = {
        "treatment": "the model",
        "no-future": "no mention of a future",
        "random-init": "re-initialised",
        "scripted": "scripted optimum",
    }
    return bars(
        shown.assign(source=[names.get(str(name), str(name)) for name in shown["source"]]),
        category="source",
        title="The planner's seat: answers beside the same answers dealt to other beliefs",
        x_title="distance from the optimal precision, share of the range",
        caption="Mean over beliefs and objectives with 95 % intervals over scenario x paraphrase.",
    )


def _over_clusters(rows: pd.DataFrame, by: list[str], column: str) -> pd.DataFrame:
    """Mean over clusters with its t interval, for every group; a point where there is one cluster only."""
    shown = []
    for key, group in rows.groupby(by, sort=False):
        per_cluster = np.asarray(group.groupby("cluster")[column].mean())
        read = intervals.mean(per_cluster) if len(per_cluster) > 1 else None
        mid = float(per_cluster.mean())
        shown.append(
            {
                **dict(zip(by, np.atleast_1d(np.array(key, dtype=object)), strict=True)),
                "value": mid,
                "low": read.low if read else mid,
                "high": read.high if read else mid,
            }
        )
    return pd.DataFrame(shown)


def _model_answers(seats: pd.DataFrame) -> pd.DataFrame:
    return _over_clusters(seats.loc[seats["arm"] == "treatment"], ["objective", "belief"], "precision")
