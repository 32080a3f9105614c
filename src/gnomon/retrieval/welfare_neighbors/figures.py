"""The study's figures: pure functions of its tables."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from gnomon.evidence import Finding, intervals, measures
from gnomon.report.charts import captioned, forest, front
from gnomon.report.charts.axes import number
from gnomon.report.theme import HEIGHT, INK, NULL, SEQUENTIAL, TREATMENT_COLOR, WIDTH, arm_color, arm_shape
from gnomon.retrieval.welfare_neighbors.instances import BOUND
from gnomon.retrieval.welfare_neighbors.rulings import hull
from gnomon.retrieval.welfare_neighbors.sweeps import BETA, GAMMA
from gnomon.studies.unit import MissingTable, Tables

_SHOWN = ("welfare", "quota-filled", "matched-random-swap", "mmr", "dpp")
_SPECIFIC = ("stays-specific", "raw-cosine-stays-specific", "contrast-pays")
_FRONTS = ("front-sentences", "front-clusters", "front-skewed")
_HALF = WIDTH // 2 - 30


def charts(tables: Tables, findings: list[Finding]) -> dict[str, Any]:
    """Figures by name; those whose tables are missing are left out."""
    recipes = {
        "adaptivity": lambda: adaptivity(tables["select.readings"]),
        "front_sentences": lambda: relevance_front(
            tables["select.readings"].query("kind == 'broad'"), "sentences, attribute: the city"
        ),
        "front_clusters": lambda: relevance_front(
            tables["mixture.readings"].query("kind == 'clusters'"), "mixtures, attribute: the cluster"
        ),
        "front_skewed": lambda: relevance_front(
            tables["mixture.readings"].query("kind == 'skewed'"), "mixtures, three attributes hold 90 %"
        ),
        "exponent": lambda: exponent(tables["select.readings"]),
        "scale": lambda: scale(tables["select.readings"]),
        "pool": lambda: pool(tables["pool"]),
        "greedy": lambda: greedy(tables["brute.several"]),
        "exposure": lambda: shown_shares(tables["mixture.exposure"]),
    }
    drawn: dict[str, Any] = {}
    groups = {
        "specific": ("Queries that name a city, beside controls of equal spread", _SPECIFIC),
        "fronts": ("Spread at equal relevance, beside the controls", _FRONTS),
    }
    for name, (title, claims) in groups.items():
        judged = [finding for finding in findings if finding.claim.name in claims and finding.effect is not None]
        if judged:
            drawn[name] = forest(judged, title=title)
    for name, recipe in recipes.items():
        try:
            drawn[name] = recipe()
        except MissingTable:
            continue  # the findings say what is missing and why
    return drawn


def adaptivity(rows: Any) -> Any:
    """The plane in which a quota cannot follow the query: precision where a city is named, spread where none is."""
    points = []
    for method in ("welfare", "raw-cosine", "quota-filled", "shuffled-attributes", "top-k"):
        of_method = rows[rows["method"] == method]
        for knob, at in of_method.groupby("knob"):
            if method == "shuffled-attributes" and knob != GAMMA:
                continue  # all settings are in one place
            specific = _family_mean(at[at["kind"] == "specific"], "precision")
            broad = _family_mean(at[at["kind"] == "broad"], "entropy")
            points.append(
                {
                    "arm": _arm(method),
                    "setting": f"{method} {knob:g}",
                    "precision": specific.value,
                    "low": specific.low,
                    "high": specific.high,
                    "entropy": broad.value,
                    "entropy_low": broad.low,
                    "entropy_high": broad.high,
                    "default": method == "welfare" and knob == GAMMA,
                }
            )
    table: Any = pd.DataFrame(points)
    names = "share of results from the city asked for (specific queries)", "bits of city entropy (broad queries)"
    x = alt.X("precision:Q", title=names[0], scale=alt.Scale(zero=False))
    y = alt.Y("entropy:Q", title=names[1], scale=alt.Scale(zero=False))
    base = alt.Chart(table).encode(color=arm_color(table["arm"]))
    across = base.mark_rule(opacity=0.35).encode(x=alt.X("low:Q", title=names[0]), x2="high:Q", y=y)
    up = base.mark_rule(opacity=0.35).encode(x=x, y=alt.Y("entropy_low:Q", title=names[1]), y2="entropy_high:Q")
    points_layer = base.mark_point(size=60, opacity=1).encode(
        x=x, y=y, shape=arm_shape(table["arm"]), tooltip=["setting", number("precision"), number("entropy")]
    )
    line = base.mark_line(strokeWidth=1.2, opacity=0.7).encode(x=x, y=y, order="entropy:Q")
    star = (
        alt.Chart(table[table["default"]]).mark_point(size=260, filled=False, strokeWidth=2, color=INK).encode(x=x, y=y)
    )
    return captioned(
        alt.layer(across, up, line, points_layer, star).properties(width=WIDTH, height=HEIGHT + 40),
        "Spread where the query leaves room, and only there",
        caption="Every setting of a method is a point, with 95 % intervals over relation families; up and to the right "
        "is better. Circle: the defaults. Shuffled attributes: the method sees labels dealt at random.",
    )


def relevance_front(rows: Any, data: str) -> Any:
    """Relevance kept against spread, one point a setting."""
    mean: Any = rows[rows["method"].isin([*_SHOWN, "top-k"])].groupby(["method", "knob"])[["ratio", "entropy"]].mean()
    start = mean.loc["top-k"].iloc[0]
    top = np.array([1 - start["ratio"], start["entropy"]])
    points = []
    for method in _SHOWN:
        settings = mean.loc[method]
        places = np.column_stack([1 - settings["ratio"], settings["entropy"]])
        corners = {tuple(corner) for corner in hull(places, top)}
        for (knob, at), place in zip(settings.iterrows(), places, strict=True):
            on_front = tuple(place) in corners
            points.append({"arm": _arm(method), "setting": f"{method} {knob:g}", **at, "front": on_front})
    table: Any = pd.DataFrame(points)
    lowest = float(table.loc[table["arm"] == "treatment", "ratio"].min())
    shown = table[table["ratio"] > 1 - 2.5 * (1 - lowest)]
    return front(
        shown,
        x="ratio",
        y="entropy",
        label="setting",
        title=f"Relevance and spread: {data}",
        x_title="relevance ratio to top-k",
        y_title="entropy of attributes, bits",
        caption=f"Treatment: welfare over gamma. Top-k has {start['entropy']:.2f} bits at ratio 1. MMR and DPP do not "
        "know the attribute; settings that lose over 2.5 times as much as any of the treatment's are not shown.",
    )


def exponent(rows: Any) -> Any:
    """Relevance and spread of broad queries over p."""
    broad = rows[(rows["method"] == "p-mean") & (rows["kind"] == "broad")]
    names = {"ratio": "relevance ratio", "entropy": "entropy, bits"}
    table = []
    for reading, name in names.items():
        for p, at in broad.groupby("knob"):
            read = _family_mean(at, reading)
            table.append({"reading": name, "p": p, **asdict(read)})
    base = alt.Chart(pd.DataFrame(table)).encode(
        x=alt.X(
            "p:Q",
            title="p",
            scale=alt.Scale(type="symlog", constant=1),
            axis=alt.Axis(values=[-10, -1, 0, 1], format="d"),
        )
    )
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False))
    layers = alt.layer(
        base.mark_rule(color=TREATMENT_COLOR).encode(y=alt.Y("low:Q", title=None), y2="high:Q"),
        base.mark_line(point=True, color=TREATMENT_COLOR).encode(y=y, tooltip=["p", number("value")]),
    ).properties(width=_HALF, height=200)
    return captioned(
        layers.facet(column=alt.Column("reading:N", title=None)).resolve_scale(y="independent"),
        "One exponent from the worst-off first to top-k",
        caption="Broad queries, 95 % intervals over relation families; p = 1 is top-k, p = 0 Nash welfare.",
    )


def scale(rows: Any) -> Any:
    """Both sides of the trade over gamma and the scale of the contrast."""
    swept: Any = rows[rows["method"] == "scale"]
    parts = []
    for reading, kind, name in (
        ("entropy", "broad", "bits, broad queries"),
        ("precision", "specific", "city kept, specific"),
    ):
        at = swept[swept["kind"] == kind].groupby(["knob", "second"])[reading].mean()
        parts.append((at / at.max()).rename("value").reset_index().assign(panel=name, actual=at.to_numpy()))
    table: Any = pd.concat(parts).rename(columns={"knob": "gamma", "second": "beta"})
    table["text"] = table["actual"].map("{:.2f}".format)
    base = alt.Chart(table).encode(
        x=alt.X("gamma:O", title="gamma", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("beta:O", title="beta", sort="descending"),
    )
    cells = base.mark_rect().encode(
        color=alt.Color("value:Q", scale=alt.Scale(range=list(SEQUENTIAL[:4])), legend=None),
        tooltip=["gamma", "beta", number("actual")],
    )
    words = base.mark_text(color=INK).encode(text="text:N")
    return captioned(
        alt.layer(cells, words)
        .properties(width=_HALF - 40, height=190)
        .facet(column=alt.Column("panel:N", title=None)),
        "What gamma and the scale of the contrast do",
        caption=f"Frozen defaults: gamma {GAMMA:g}, beta {BETA:g}. Small gamma and large beta spread broad queries and "
        "take the city from those that name one.",
    )


def pool(rows: Any) -> Any:
    """Share of answers certified, and share that is right, by size of the pool."""
    shares = rows.groupby(["setting", "pool"])[["certified", "same"]].mean().reset_index()
    table = shares.melt(id_vars=["setting", "pool"], var_name="share", value_name="value")
    table["share"] = table["share"].map({"certified": "certified", "same": "equal to the full answer"})
    names = alt.Scale(domain=["equal to the full answer", "certified"], range=[NULL, TREATMENT_COLOR])
    sizes = alt.Axis(values=sorted(set(rows["pool"])))
    base = alt.Chart().encode(
        x=alt.X("pool:Q", title="candidates fetched", scale=alt.Scale(type="log", nice=False), axis=sizes),
        y=alt.Y("value:Q", title="share of queries", axis=alt.Axis(format="%")),
        color=alt.Color("share:N", scale=names, legend=alt.Legend(title=None, orient="top")),
        tooltip=["setting:N", "pool:Q", "share:N", number("value")],
    )
    # The wide line below and the narrow one above it stay both visible where they coincide.
    below = base.transform_filter("datum.share != 'certified'").mark_line(strokeWidth=6, opacity=0.6)
    above = base.transform_filter("datum.share == 'certified'").mark_line(point=True)
    line = (
        alt.layer(below, above, data=table)
        .properties(width=_HALF, height=200)
        .facet(column=alt.Column("setting:N", title=None))
    )
    return captioned(
        line,
        "How many candidates are enough, and whether one can tell",
        caption="An answer is certified if no candidate beyond the pool could change it.",
    )


def greedy(rows: Any) -> Any:
    """Share of the best gain, greedy beside a quota and chance."""
    names = {"greedy": "treatment", "quota": "quota", "random": "random set"}
    table = rows.melt(id_vars=["instance"], value_vars=list(names), var_name="method", value_name="share")
    table["arm"] = table["method"].map(names)
    edges = np.linspace(0.2, 1.0, 33)
    binned = [
        {"arm": arm, "from": low, "to": high, "count": int(((at["share"] >= low) & (at["share"] < high + 1e-9)).sum())}
        for arm, at in table.groupby("arm", sort=False)
        for low, high in pairwise(edges)
    ]
    steps = (
        alt.Chart()
        .mark_rect()
        .encode(
            x=alt.X("from:Q", title="share of the best gain", scale=alt.Scale(domain=[0.2, 1.0])),
            x2="to:Q",
            y=alt.Y("count:Q", title="instances"),
            y2="none:Q",
            color=arm_color(names.values()).legend(None),
            tooltip=["arm:N", number("from"), number("to"), "count:Q"],
        )
    )
    bound = alt.Chart().mark_rule(color=INK, strokeDash=[4, 3]).encode(x=alt.datum(BOUND))
    panels = alt.layer(steps, bound, data=pd.DataFrame(binned).assign(none=0)).properties(width=WIDTH, height=90)
    return captioned(
        panels.facet(row=alt.Row("arm:N", title=None, sort=list(names.values()))).resolve_scale(y="independent"),
        "Several attributes: greedy is nearly optimal",
        caption="Gain of the transformed objective over the best of all sets; dashed: the guarantee 1 - 1/e.",
    )


def shown_shares(rows: Any) -> Any:
    """Lorenz curves of how often attributes are shown."""
    parts = []
    for (kind, arm), at in rows.groupby(["kind", "arm"], sort=False):
        share = at.groupby("attribute")["share"].mean().sort_values().to_numpy()
        parts.append(
            pd.DataFrame(
                {
                    "kind": kind,
                    "arm": arm,
                    "attributes": np.linspace(0, 1, len(share) + 1),
                    "shown": np.concatenate([[0.0], np.cumsum(share)]),
                    "gini": float(measures.gini(share)),
                }
            )
        )
    table: Any = pd.concat(parts)
    lines = (
        alt.Chart(table)
        .mark_line()
        .encode(
            x=alt.X("attributes:Q", title="share of attributes, rarest first", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("shown:Q", title="share of results", scale=alt.Scale(domain=[0, 1])),
            color=arm_color(table["arm"], lines=True),
            tooltip=["kind", "arm", number("gini")],
        )
        .properties(width=_HALF, height=_HALF)
        .facet(column=alt.Column("kind:N", title=None))
    )
    gini = table.groupby(["kind", "arm"])["gini"].first()
    read = _gini_in_words(gini)
    return captioned(
        lines,
        "Who is shown at all",
        caption=f"Lorenz curve over the attributes of a mixture, all queries together. Gini coefficient: {read}.",
    )


def _gini_in_words(gini: Any) -> str:
    return "; ".join(
        f"{kind}: top-k {of_kind[kind, 'top-k']:.2f}, welfare {of_kind[kind, 'treatment']:.2f}"
        for kind, of_kind in gini.groupby(level="kind")
    )


def _family_mean(rows: Any, reading: str) -> intervals.Estimate:
    return intervals.mean(rows.groupby("family")[reading].mean().to_numpy())


def _arm(method: str) -> str:
    return "treatment" if method == "welfare" else method
