"""The study's figures: pure functions of its tables."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from gnomon.evidence import Finding, intervals
from gnomon.report.charts import bars, captioned, dose_response, forest
from gnomon.report.elements import table as table_element
from gnomon.report.theme import CATEGORIES, CONTROL_COLOR, HEIGHT, MUTED, NULL, SEQUENTIAL, TREATMENT_COLOR, WIDTH
from gnomon.society.planner.convexity import lower_envelope
from gnomon.society.planner.solution import Solution
from gnomon.studies.unit import MissingTable, Tables

_PLANNERS = alt.Scale(domain=["altruistic", "biased"], range=[TREATMENT_COLOR, CONTROL_COLOR])
_BELIEF = alt.X("belief:Q", title="public belief that the state is good", scale=alt.Scale(domain=[0, 1]))
_STATES = alt.Scale(domain=["good", "bad"], range=[TREATMENT_COLOR, CONTROL_COLOR])
_HALF = WIDTH // 2 - 30


def charts(tables: Tables, findings: list[Finding]) -> dict[str, Any]:
    """Figures by name; those whose tables are missing are left out."""
    drawn: dict[str, Any] = {}
    recipes = {
        "policy": lambda: policy(tables["curves.showcase"], _model_answers(tables)),
        "value": lambda: value(tables["curves.kinked"]),
        "welfare": lambda: welfare(tables["evaluate"]),
        "phase_diagram": lambda: phase_diagram(tables["solve"]),
        "convexity_map": lambda: convexity_map(tables["solve"]),
        "thresholds": lambda: thresholds(tables["solve"]),
        "belief_paths": lambda: belief_paths(tables["simulate.beliefs"]),
        "cascade_time": lambda: cascade_time(tables["simulate.survival"]),
        "agents": lambda: agents(tables["replace"]),
        "horizon": lambda: horizon(tables["horizon"]),
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
    return {"policy": policy(shown, pd.DataFrame()), "value": value(shown)}


def policy(curves: pd.DataFrame, answers: pd.DataFrame) -> Any:
    """Optimal precision at every belief, both planners; the model's answers with their spread where it was asked."""
    p = float(curves["p"].iloc[0])
    lines = (
        alt.Chart(_with_breaks(curves))
        .mark_line()
        .encode(
            x=_BELIEF,
            y=_precision_axis("precision:Q"),
            color=alt.Color("objective:N", scale=_PLANNERS, legend=alt.Legend(title=None, orient="top")),
            detail="piece:N",
        )
    )
    free = alt.Chart(pd.DataFrame({"p": [p]})).mark_rule(strokeDash=[4, 4], color=NULL).encode(y=_precision_axis("p:Q"))
    layers: list[alt.Chart] = [free, lines]
    if len(answers):
        spread = _over_clusters(answers, ["objective", "belief"], "precision")
        base = alt.Chart(spread).encode(x="belief:Q", color=alt.Color("objective:N", scale=_PLANNERS))
        layers += [
            base.mark_rule().encode(y=_precision_axis("low:Q"), y2="high:Q"),
            base.mark_point(size=45).encode(y=_precision_axis("value:Q")),
        ]
    setting = f"p={p:g}, k={curves['k'].iloc[0]:g}, delta={curves['delta'].iloc[0]:g}"
    said = "; dots: the model in the planner's seat with 95 % intervals over prompts" if len(answers) else ""
    return captioned(
        alt.layer(*layers).properties(width=WIDTH, height=HEIGHT),
        "What each planner does: buy certainty, or blur what speaks against it",
        caption=f"Exact optimum at {setting}; dashed: the free precision{said}. Where belief is between 1/2 and p the "
        "biased planner sets precision just below it, so that nobody acts on a contrary signal.",
    )


def value(curves: pd.DataFrame) -> Any:
    """The altruistic value with its lower convex envelope at the setting of the largest defect."""
    objective = "altruistic" if "altruistic" in set(curves["objective"]) else "biased"
    rows = curves.loc[curves["objective"] == objective]
    long = rows.melt(id_vars=["belief"], value_vars=["value", "envelope"], var_name="curve", value_name="worth")
    worst = rows.loc[[(rows["value"] - rows["envelope"]).idxmax()]]
    names = alt.Scale(domain=["value", "envelope"], range=[TREATMENT_COLOR, CONTROL_COLOR])
    base = (
        alt.Chart(long)
        .mark_line()
        .encode(
            x=_BELIEF,
            y=alt.Y("worth:Q", title="discounted value", scale=alt.Scale(zero=False)),
            color=alt.Color("curve:N", scale=names, legend=alt.Legend(title=None, orient="top")),
            strokeDash=alt.StrokeDash(
                "curve:N", scale=alt.Scale(domain=["value", "envelope"], range=[[1, 0], [5, 3]]), legend=None
            ),
        )
    )
    mark = alt.Chart(worst).mark_point(size=120, filled=False, color=MUTED).encode(x="belief:Q", y="value:Q")
    setting = f"p={_only(rows, 'p'):g}, k={_only(rows, 'k'):g}, delta={_only(rows, 'delta'):g}"
    defect, at = float((worst["value"] - worst["envelope"]).to_numpy()[0]), float(worst["belief"].to_numpy()[0])
    return captioned(
        alt.layer(base, mark).properties(width=WIDTH, height=HEIGHT),
        f"The {objective} planner's value" + (" is not convex" if defect > 1e-6 else " is convex"),
        caption=f"At {setting} it rises {defect:.4f} above its lower convex envelope, at belief {at:.2f} (circle).",
    )


def welfare(evaluated: pd.DataFrame) -> Any:
    """Change of welfare by state under each planner, beside random precision of the same spend and the rule."""
    wide = evaluated.pivot_table(index=["p", "k", "delta", "prior"], columns="planner", values=["W_G", "W_B"])
    compared = {
        "biased": {
            "treatment": "biased",
            "cost-matched random": "random-as-biased",
            "obfuscation forbidden": "no-obfuscation",
        },
        "altruistic": {"treatment": "altruistic", "cost-matched random": "random-as-altruistic"},
    }
    rows = []
    for objective, arms in compared.items():
        for state, column in (("bad", "W_B"), ("good", "W_G")):
            for arm, planner in arms.items():
                change = np.asarray(wide[column][planner]) - np.asarray(wide[column]["baseline"])
                low, high = np.quantile(change, [0.1, 0.9])
                rows.append(
                    {
                        "case": f"{objective} planner, {state} state",
                        "arm": arm,
                        "value": change.mean(),
                        "low": low,
                        "high": high,
                    }
                )
    return bars(
        pd.DataFrame(rows),
        category="case",
        title="Steering hurts where the state is bad, and it is the blurring that hurts",
        x_title="welfare a round less that under the free precision (in C)",
        caption=f"Exact evaluation; mean over {len(wide)} settings and priors, whiskers from the 10th to the 90th "
        "percentile of settings. Random precision that costs the same does not do this.",
    )


def phase_diagram(solved: pd.DataFrame) -> Any:
    """The order of the biased planner's phases over cost and patience."""
    rows = solved.loc[(solved["objective"] == "biased") & (solved["r"] == 1)].copy()
    ranked = rows["sequence"].value_counts().index.tolist()
    shown = ranked[:4]
    rows["phases"] = [sequence if sequence in shown else "another order" for sequence in rows["sequence"]]
    domain = [*shown, *(["another order"] if len(ranked) > 4 else [])]
    colours = [*CATEGORIES[: len(shown)], NULL]
    chart = (
        alt.Chart(rows)
        .mark_rect()
        .encode(
            x=alt.X("k:O", title="cost of precision k"),
            y=alt.Y("delta:O", title="patience", sort="descending"),
            color=alt.Color(
                "phases:N",
                scale=alt.Scale(domain=domain, range=colours[: len(domain)]),
                legend=alt.Legend(title="phases from b = 0 to 1", orient="bottom", columns=1, labelLimit=520),
            ),
            tooltip=["p", "k", "delta", "sequence", "conforms"],
        )
        .properties(width=_HALF, height=100)
        .facet(facet=alt.Facet("p:O", title="free precision p"), columns=2)
    )
    fits = int(np.sum(np.asarray(rows["conforms"])))
    return captioned(
        chart,
        "The biased planner's phases",
        caption=f"{fits} of {len(rows)} settings have the five phases of Theorem 5 in order. none: q = p; obf_min: "
        "q < p and agents still follow it; obf_block: q < p and they ignore it.",
    )


def convexity_map(solved: pd.DataFrame) -> Any:
    """Where the altruistic value is not convex, over cost and patience."""
    rows = solved.loc[(solved["objective"] == "altruistic") & (solved["r"] == 1) & (solved["delta"] > 0)]
    base = alt.Chart(rows).encode(
        x=alt.X("k:O", title="cost of precision k"), y=alt.Y("delta:O", title="patience", sort="descending")
    )
    cells = base.mark_rect().encode(
        color=alt.Color(
            "convexity_defect:Q",
            scale=alt.Scale(range=list(SEQUENTIAL)),
            legend=alt.Legend(title="convexity defect", format=".3f"),
        ),
        tooltip=["p", "k", "delta", "convexity_defect", "defect_belief"],
    )
    marks = base.mark_point(shape="circle", size=30, color=CONTROL_COLOR).transform_filter(
        "datum.convexity_defect > 1e-6"
    )
    broken = int(np.sum(np.asarray(rows["convexity_defect"]) > 1e-6))
    return captioned(
        alt.layer(cells, marks)
        .properties(width=_HALF, height=100)
        .facet(facet=alt.Facet("p:O", title="free precision p"), columns=2),
        "Where Theorem 2 fails",
        caption=f"Rise of the value above its lower convex envelope; dots mark the {broken} of {len(rows)} settings "
        "where it exceeds 1e-6. All lie at a high cost of precision.",
    )


def thresholds(solved: pd.DataFrame) -> Any:
    """The belief from which certainty is bought, by patience, with the myopic planner at patience 0."""
    rows = solved.loc[(solved["objective"] == "altruistic") & (solved["r"] == 1) & (solved["k"].isin([0.1, 0.3, 1.0]))]
    lines = (
        alt.Chart(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("delta:Q", title="patience (0: myopic)"),
            y=alt.Y("t_max:Q", title="certainty bought from"),
            color=alt.Color(
                "k:O", scale=alt.Scale(range=list(CATEGORIES[:3])), legend=alt.Legend(title="k", orient="top")
            ),
            tooltip=["p", "k", "delta", "t_max", "t_pay"],
        )
        .properties(width=_HALF, height=130)
        .facet(facet=alt.Facet("p:O", title="free precision p"), columns=2)
    )
    return captioned(
        lines,
        "Patience pays for longer",
        caption="Lowest belief at which the altruistic planner buys certainty; 0.5: never. It falls with patience.",
    )


def belief_paths(paths: pd.DataFrame) -> Any:
    """Public belief over rounds in simulated runs, by planner and state."""
    rows = paths.loc[
        (paths["prior"] == paths["prior"].min()) & paths["planner"].isin(["baseline", "biased", "no-obfuscation"])
    ]
    base = alt.Chart(rows).encode(x=alt.X("round:Q", title="round"))
    colour = alt.Color("state:N", scale=_STATES, legend=alt.Legend(title="state", orient="top"))
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="public belief"), y2="high:Q", color=colour)
    line = base.mark_line().encode(y="mean:Q", color=colour)
    return captioned(
        alt.layer(band, line).properties(width=200, height=180).facet(column=alt.Column("planner:N", title=None)),
        "Beliefs under three planners",
        caption=f"Mean and 5-95 % range of simulated runs from prior {_only(rows, 'prior'):g}; planners share the luck "
        "of the signals. Under the biased planner beliefs stop moving: nothing more is learned.",
    )


def cascade_time(survival: pd.DataFrame) -> Any:
    """Share of runs in which agents still act on their signals."""
    rows = survival.loc[survival["prior"] == survival["prior"].max()]
    order = list(dict.fromkeys(rows["planner"]))
    line = (
        alt.Chart(rows)
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("round:Q", title="round", scale=alt.Scale(domain=[0, 20], clamp=True)),
            y=alt.Y("open:Q", title="runs not in a cascade", axis=alt.Axis(format="%")),
            color=alt.Color(
                "planner:N",
                scale=alt.Scale(domain=order, range=list(CATEGORIES)),
                legend=alt.Legend(title=None, orient="top", columns=3),
            ),
        )
        .properties(width=_HALF, height=200)
        .facet(column=alt.Column("state:N", title="state"))
    )
    return captioned(
        line,
        "How long the crowd keeps learning",
        caption=f"Simulated runs from prior {_only(rows, 'prior'):g}; a cascade has begun when no later action "
        "depends on its signal.",
    )


def agents(replaced: pd.DataFrame) -> Any:
    """The Bayesian optimum on agents who are not Bayesian."""
    rows = replaced.query("planner in ['biased', 'baseline']")
    bad: Any = rows.rename(columns={"W_B": "value"}).assign(
        arm=lambda rows: rows["planner"].map({"biased": "treatment", "baseline": "free precision"})
    )
    return bars(
        bad[["agents", "value", "arm"]],
        category="agents",
        title="Blurring works on Bayesians and fails on agents who over-react to contrary signals",
        x_title="welfare a round in the bad state (in C)",
        caption=f"Planners solved for Bayesian agents, prior {_only(rows, 'prior'):g}, k={_only(rows, 'k'):g}; "
        "treatment: the biased planner. Exact evaluation.",
    )


def horizon(table: pd.DataFrame) -> Any:
    """Precision by belief as the end comes near, undiscounted."""
    rows = table.loc[table["left"].isin(sorted({1, 2, 5, int(np.max(np.asarray(table["left"])))}))]
    line = (
        alt.Chart(rows)
        .mark_line(point=alt.OverlayMarkDef(size=20))
        .encode(
            x=_BELIEF,
            y=alt.Y("precision:Q", title="precision", scale=alt.Scale(domain=[0.5, 1])),
            color=alt.Color(
                "left:O",
                scale=alt.Scale(range=list(SEQUENTIAL[2:])),
                legend=alt.Legend(title="rounds left", orient="top"),
            ),
        )
        .properties(width=_HALF, height=200)
        .facet(column=alt.Column("objective:N", title=None))
    )
    return captioned(
        line,
        "With an end in sight",
        caption="Undiscounted planners; the fewer rounds are left, the less is worth paying for.",
    )


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


def _model_answers(tables: Tables) -> pd.DataFrame:
    try:
        seats = tables["seat"]
    except MissingTable:
        return pd.DataFrame()
    return seats.loc[seats["arm"] == "treatment"]


def _only(rows: pd.DataFrame, column: str) -> float:
    """The value that a column has in all rows."""
    return float(rows[column].to_numpy()[0])


def _precision_axis(column: str) -> alt.Y:
    return alt.Y(column, title="precision of the next signal", scale=alt.Scale(domain=[0.5, 1]))


def _with_breaks(curves: pd.DataFrame) -> pd.DataFrame:
    """The policy cut into pieces where it jumps, so that a line does not pretend to pass through the jump."""
    pieces = []
    for _, rows in curves.groupby("objective", sort=False):
        jump = rows["precision"].diff().abs() > 0.03
        pieces.append(rows.assign(piece=jump.cumsum().astype(str) + rows["objective"]))
    return pd.concat(pieces)
