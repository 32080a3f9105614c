"""Figures of the optimum: policies, values, and how they change over cost and patience."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from gnomon.report.charts import captioned
from gnomon.report.theme import CATEGORIES, CONTROL_COLOR, HEIGHT, MUTED, NULL, SEQUENTIAL, TREATMENT_COLOR, WIDTH

_PLANNERS = alt.Scale(domain=["altruistic", "biased"], range=[TREATMENT_COLOR, CONTROL_COLOR])
_BELIEF = alt.X("belief:Q", title="public belief that the state is good", scale=alt.Scale(domain=[0, 1]))
_HALF = WIDTH // 2 - 30


def policy(curves: pd.DataFrame) -> Any:
    """Optimal precision at every belief, both planners."""
    return captioned(
        alt.layer(*_policy_layers(curves)).properties(width=WIDTH, height=HEIGHT),
        "What each planner does: buy certainty, or blur what speaks against it",
        caption=f"Exact optimum at {_setting(curves)}; dashed: the free precision. Between 1/2 and p the biased "
        "planner sets precision just below the belief, so that nobody acts on a contrary signal.",
    )


def seat(curves: pd.DataFrame, answers: pd.DataFrame) -> Any:
    """What a model sets in the planner's seat, beside the optimum.

    Args:
        curves: The optimum at the costs the model was told.
        answers: Its answers: objective, belief, and their mean ``value`` between ``low`` and ``high``.
    """
    base = alt.Chart(answers).encode(x="belief:Q", color=alt.Color("objective:N", scale=_PLANNERS))
    said = [
        base.mark_rule().encode(y=_precision_axis("low:Q"), y2="high:Q"),
        base.mark_point(size=45).encode(y=_precision_axis("value:Q")),
    ]
    return captioned(
        alt.layer(*_policy_layers(curves), *said).properties(width=WIDTH, height=HEIGHT),
        "The planner's seat: what the model sets, and what is optimal",
        caption=f"Lines: exact optimum at {_setting(curves)}, as the model was told; dashed: the free precision. Dots: "
        "the model's precision with 95 % intervals over scenario x paraphrase.",
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
    defect, at = float((worst["value"] - worst["envelope"]).to_numpy()[0]), float(worst["belief"].to_numpy()[0])
    return captioned(
        alt.layer(base, mark).properties(width=WIDTH, height=HEIGHT),
        f"The {objective} planner's value" + (" is not convex" if defect > 1e-6 else " is convex"),
        caption=f"At {_setting(rows)} it rises {defect:.4f} above its convex envelope, at belief {at:.2f} (circle).",
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


def _policy_layers(curves: pd.DataFrame) -> list[alt.Chart]:
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
    free = alt.Chart(curves.head(1)).mark_rule(strokeDash=[4, 4], color=NULL).encode(y=_precision_axis("p:Q"))
    return [free, lines]


def _setting(rows: pd.DataFrame) -> str:
    return ", ".join(f"{name}={_only(rows, name):g}" for name in ("p", "k", "delta"))


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
