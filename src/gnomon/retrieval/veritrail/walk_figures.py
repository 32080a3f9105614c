"""Figures of single walks: every verdict on the way, walks of judges that err, and one process to explore."""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import pandas as pd
from pydantic import TypeAdapter

from gnomon.report.charts import captioned
from gnomon.report.charts.axes import number
from gnomon.report.elements import explorable
from gnomon.report.theme import (
    CONTROL_COLOR,
    HEIGHT,
    INK,
    NULL,
    RULE,
    TREATMENT_COLOR,
    WIDTH,
    arm_color,
    arm_shape,
)
from gnomon.retrieval.veritrail.loaders.json_format import read_json
from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.rulings import deviations
from gnomon.retrieval.veritrail.trail import ClaimTrail, Trail
from gnomon.retrieval.veritrail.viewer import page
from gnomon.studies.unit import Tables

_VERDICT_COLORS = {"supported": TREATMENT_COLOR, "unsupported": CONTROL_COLOR, "inconclusive": NULL}
_THIRD = WIDTH // 3 - 40


def walks(steps: Any) -> Any:
    """Verdict of every iteration of every claim, claims sorted by what happened to them."""
    rows: Any = steps[steps["setting"] == "main"]
    keys = rows.groupby(["dag", "claim"], sort=False).agg({"kind": "first", "stage": "first"}).reset_index()
    keys["rank"] = keys["kind"].map({"faithful": 0, "skip": 1}).fillna(2)
    keys = keys.sort_values(["rank", "stage", "dag", "claim"]).reset_index(drop=True)
    keys["place"] = keys.index
    table = rows.merge(keys[["dag", "claim", "place", "rank"]], on=["dag", "claim"])
    table["group"] = table["stage"].map(lambda stage: f"error at stage {stage}" if stage else "")
    table.loc[table["rank"] == 0, "group"] = "faithful"
    table.loc[table["rank"] == 1, "group"] = "with a gap"
    order = ["faithful", "with a gap", *sorted(set(table["group"]) - {"faithful", "with a gap"})]
    strips = (
        alt.Chart(table)
        .mark_rect(strokeWidth=0)
        .encode(
            x=alt.X("place:O", title=None, axis=None, scale=alt.Scale(paddingInner=0.05, paddingOuter=0)),
            y=alt.Y("iteration:O", title="iteration"),
            color=alt.Color(
                "verdict:N",
                scale=alt.Scale(domain=list(_VERDICT_COLORS), range=list(_VERDICT_COLORS.values())),
                legend=alt.Legend(title=None, orient="top"),
            ),
            tooltip=["dag", "claim", "kind", "stage", "iteration", "verdict"],
        )
        .properties(width=_THIRD, height=90)
        .facet(facet=alt.Facet("group:N", title=None, sort=order), columns=3)
        .resolve_scale(x="independent")
    )
    return captioned(
        strips,
        "Every walk, from the final text (top) to the sources",
        caption="One column a claim, walks without a limit q. Verdicts turn where the error entered; gaps show as "
        "interruptions.",
    )


def noisy(cells: pd.DataFrame) -> Any:
    """Observed against predicted shares of claims a noisy judge ends up supporting."""
    table = cells.assign(
        observed=cells["supported"] / cells["claims"], departure=deviations(cells, "predicted"), arm="treatment"
    )
    both = pd.concat([table, table.assign(predicted=table["predicted_one_more"], arm="one more q")])
    ends = pd.DataFrame({"predicted": [0.0, 1.0], "observed": [0.0, 1.0]})
    diagonal = alt.Chart(ends).mark_line(strokeDash=[4, 4], color=NULL).encode(x="predicted:Q", y="observed:Q")
    points = (
        alt.Chart(both)
        .mark_point(size=50, opacity=0.9)
        .encode(
            x=alt.X("predicted:Q", title="share the Markov chain predicts", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("observed:Q", title="share of claims supported", scale=alt.Scale(domain=[0, 1])),
            color=arm_color(both["arm"]),
            shape=arm_shape(both["arm"]),
            tooltip=["pattern", "q", "missed", "invented", "claims", number("predicted"), number("observed")],
        )
    )
    return captioned(
        alt.layer(diagonal, points).properties(width=HEIGHT + 40, height=HEIGHT + 40),
        "A judge that errs: the walk does to its errors what a Markov chain says",
        caption="A point is a pattern of stages that state the claim, a q and a pair of error rates. One more q: the "
        "same walks beside the prediction for q + 1.",
    )


def trail_drawing(process: Process, trail: Trail) -> Any:
    """The layered process with the walk of one false claim."""
    chosen = _told(trail)
    lit = {process.terminal: "final text"} if chosen.verdict != "supported" else {}
    for step in chosen.iterations:
        for node in step.candidates:
            lit.setdefault(node, "searched, no support")
        if step.verdict == "supported":
            lit.update(dict.fromkeys(step.grounds, "states the claim"))
    for node in chosen.origin.nodes if chosen.origin else ():
        lit[node] = "error entered here"
    places: dict[str, tuple[int, float]] = {}
    layers: dict[int, list[str]] = {}
    for node in process.nodes:
        layers.setdefault(process.stage(node), []).append(node)
    for stage, nodes in layers.items():
        for index, node in enumerate(nodes):
            places[node] = (stage, (index + 0.5) / len(nodes))
    order = ["not searched", "searched, no support", "states the claim", "error entered here", "final text"]
    palette = [RULE, NULL, TREATMENT_COLOR, CONTROL_COLOR, INK]
    nodes = pd.DataFrame(
        [
            {"node": node, "stage": stage, "place": place, "state": lit.get(node, "not searched")}
            for node, (stage, place) in places.items()
        ]
    )
    edges = pd.DataFrame(
        [
            {"stage": places[u][0], "place": places[u][1], "to_stage": places[v][0], "to_place": places[v][1]}
            for u, v in process.edges
        ]
    )
    x = alt.X(
        "stage:Q", title="stage (1: source documents)", axis=alt.Axis(values=list(layers), format="d", grid=False)
    )
    y = alt.Y("place:Q", axis=None, scale=alt.Scale(domain=[0, 1]))
    lines = alt.Chart(edges).mark_rule(color=RULE).encode(x=x, y=y, x2="to_stage:Q", y2="to_place:Q")
    points = (
        alt.Chart(nodes)
        .mark_point(filled=True, size=160, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "state:N",
                scale=alt.Scale(domain=order, range=palette),
                legend=alt.Legend(title=None, orient="top", columns=3, labelLimit=200),
            ),
            tooltip=["node", "state"],
        )
    )
    return captioned(
        alt.layer(lines, points).properties(width=WIDTH, height=HEIGHT),
        "The walk of one claim",
        caption=f"Claim: {chosen.claim.text} Verdict: {chosen.verdict}.",
    )


def explore(process: Process, trail: Trail) -> Any:
    """One verified process to explore."""
    return explorable(
        page(trail, process, title="One generated process of the study"),
        title="One process, claim by claim",
        description=f"Viewer of a generated process of {len(process.nodes)} texts with {len(trail.claims)} claims.",
        caption="Choose a claim to see its path from sentence to sentence.",
        height=720,
    )


def example(tables: Tables) -> tuple[Process, Trail]:
    """The process and trail that a run keeps whole."""
    row: Any = tables["process.example"].iloc[0]
    return read_json(json.loads(row["process"])), TypeAdapter(Trail).validate_json(row["trail"])


def _told(trail: Trail) -> ClaimTrail:
    """The unsupported claim whose error lies farthest from the final text; else the first claim."""
    located = [found for found in trail.claims if found.origin and found.origin.stages]
    return min(located, key=lambda found: min(found.origin.stages) if found.origin else 0, default=trail.claims[0])
