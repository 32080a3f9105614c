"""The study's figures: pure functions of its tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import altair as alt
import pandas as pd

from gnomon.evidence import Finding, contrasts, intervals
from gnomon.evidence.intervals import wilson
from gnomon.evidence.resampling import from_sums
from gnomon.report.charts import captioned, dose_response, forest, reliability
from gnomon.report.charts.axes import number
from gnomon.report.theme import (
    CATEGORIES,
    HEIGHT,
    INK,
    SEQUENTIAL,
    SURFACE,
    TREATMENT_COLOR,
    WIDTH,
)
from gnomon.retrieval.veritrail.experiments import CHECKS, QS
from gnomon.retrieval.veritrail.metrics import macro_f1_of_sums
from gnomon.retrieval.veritrail.rulings import (
    by_process,
    counts,
    main_setting,
    named_stages,
    noisy_cells,
    right_stage,
)
from gnomon.retrieval.veritrail.walk_figures import example, explore, noisy, trail_drawing, walks
from gnomon.studies.unit import MissingTable, Tables

_KINDS = ("faithful", "gap 1", "gap 2", "num", "date", "ent", "neg", "role", "fab")
_FORESTS = {
    "location": ("Steps and paths, beside the controls", ("locates", "locates-early", "provenance")),
    "quality": ("Verdicts, beside the controls", ("beats-direct", "short-reader", "selection-matters", "q-precision")),
}
_HALF = WIDTH // 2 - 40


def charts(tables: Tables, findings: list[Finding]) -> dict[str, Any]:
    """Figures by name; those whose tables are missing or have nothing to compare are left out."""
    recipes = {
        "verdicts": lambda: verdicts(main_setting(tables)),
        "localisation": lambda: localisation(main_setting(tables)),
        "trade": lambda: trade(main_setting(tables), tables["noisy"]),
        "ablations": lambda: ablations(main_setting(tables)),
        "crowding": lambda: crowding(tables["process.claims"]),
        "depth": lambda: depths(tables["process.claims"]),
        "granularity": lambda: granularity(tables["merged"]),
        "reading": lambda: reading(tables["reading"]),
        "calibration": lambda: calibration(main_setting(tables)),
        "walks": lambda: walks(tables["process.steps"]),
        "noisy": lambda: noisy(noisy_cells(tables["noisy"])),
        "trail": lambda: trail_drawing(*example(tables)),
        "explore": lambda: explore(*example(tables)),
    }
    drawn: dict[str, Any] = {}
    for name, (title, claims) in _FORESTS.items():
        judged = [finding for finding in findings if finding.claim.name in claims and finding.effect is not None]
        if judged:
            drawn[name] = forest(judged, title=title)
    for name, recipe in recipes.items():
        try:
            figure = recipe()
        except MissingTable:
            continue  # the findings say what is missing and why
        if figure is not None:
            drawn[name] = figure
    return drawn


def verdicts(rows: Any) -> Any:
    """Share of right verdicts by kind of claim and q."""
    kinds = rows["kind"].where(rows["gap"] == 0, "gap " + rows["gap"].astype(str))
    right = (rows["verdict"] == "supported") == rows["supports"]
    table = rows.assign(kind=kinds, right=right)
    table = table[table["arm"].isin(QS) & table["kind"].isin(_KINDS)]
    cells = table.groupby(["arm", "kind"])["right"].agg(["mean", "count"]).reset_index()
    cells["arm"] = cells["arm"].replace({"treatment": "q=3", "no q": "no limit"})
    cells["text"] = cells["mean"].map("{:.2f}".format)
    order = ["q=1", "q=2", "q=3", "no limit"]
    base = alt.Chart(cells).encode(
        x=alt.X("arm:N", title="rounds without support before giving up", sort=order, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("kind:N", title=None, sort=list(_KINDS)),
    )
    fill = base.mark_rect(stroke=SURFACE, strokeWidth=2).encode(
        color=alt.Color("mean:Q", scale=alt.Scale(domain=[0, 1], range=list(SEQUENTIAL[:4])), legend=None),
        tooltip=["arm", "kind", number("mean", "right"), "count"],
    )
    words = base.mark_text(color=INK).encode(text="text:N")
    return captioned(
        alt.layer(fill, words).properties(width=WIDTH - 120, height=280),
        "A step that leaves a fact out looks like an invention, until the walk goes past it",
        caption="Share of right verdicts. Gap L: true, but left out by L steps in a row; below: how a claim was "
        "falsified (number, date, name, denial, roles exchanged, invented).",
    )


def localisation(rows: Any) -> Any:
    """Named against true stage, in the process and in the rewired one."""
    last = int(rows["depth"].max())
    parts = []
    for arm, name in (("treatment", "as it was"), ("rewired", "rewired")):
        errors = rows[(rows["arm"] == arm) & (rows["stage"] > 0)]
        named = [_one_name(text) for text in errors["named"]]
        parts.append(pd.DataFrame({"true": errors["stage"].to_numpy(), "named": named, "process": name}))
    table = pd.concat(parts).value_counts(["true", "named", "process"]).rename("errors").reset_index()
    order = [*map(str, range(2, last + 1)), *(word for word in ("several", "missed") if word in set(table["named"]))]
    base = alt.Chart().encode(
        x=alt.X("named:N", title="stage named", sort=order, scale=alt.Scale(domain=order), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("true:O", title="stage at which the error entered", sort="descending"),
    )
    fill = base.mark_rect(stroke=SURFACE, strokeWidth=2).encode(
        color=alt.Color("errors:Q", scale=alt.Scale(range=list(SEQUENTIAL[:4])), legend=None),
        tooltip=["process:N", "true:O", "named:N", "errors:Q"],
    )
    words = base.mark_text(color=INK).encode(text="errors:Q")
    panels = alt.layer(fill, words, data=table).properties(width=_HALF, height=200)
    return captioned(
        panels.facet(column=alt.Column("process:N", title=None)),
        "The step at which an error entered",
        caption="Errors by true and named stage. Rewired: the same texts, each node with the sources of another of its "
        "layer; the last two stages can be named even there, because nothing in them changes.",
    )


def trade(rows: Any, cells: Any) -> Any:
    """Precision and recall of unsupported over q, for the offline judge and for judges of known error."""
    points = []
    by_arm = counts(rows)
    for arm in QS:
        kept: Any = by_arm[arm].sum()
        name = {"treatment": "3", "no q": "no limit"}.get(arm, arm[-1])
        point = _trade_point("offline judge", name, kept["caught"], kept["lost"], kept["missed"])
        if not points or (point["recall"], point["precision"]) != (points[-1]["recall"], points[-1]["precision"]):
            points.append(point)
    for (missed, invented), of_rates in cells.groupby(["missed", "invented"]):
        for q, at in of_rates.groupby("q"):
            true = at["pattern"].str.endswith("1")
            unsupported = at["claims"] - at["supported"]
            lost, caught = unsupported[true].sum(), unsupported[~true].sum()
            label = f"errs {missed:.0%} / {invented:.0%}"
            points.append(_trade_point(label, str(q), caught, lost, at["supported"][~true].sum()))
    table = pd.DataFrame(points)
    names = list(dict.fromkeys(table["judge"]))
    color = alt.Color("judge:N", scale=alt.Scale(domain=names, range=list(CATEGORIES[: len(names)])), title=None)
    base = alt.Chart(table).encode(
        x=alt.X("recall:Q", title="recall of unsupported claims", scale=alt.Scale(zero=False, padding=20)),
        y=alt.Y("precision:Q", title="precision of unsupported verdicts", scale=alt.Scale(zero=False, padding=20)),
        color=color,
    )
    return captioned(
        alt.layer(
            base.mark_line(strokeWidth=1.5, opacity=0.6).encode(order="order:Q"),
            base.mark_point(size=70, filled=True, opacity=1).encode(
                tooltip=["judge", "q", number("recall"), number("precision")]
            ),
            base.mark_text(dy=-12).encode(text="q:N"),
        ).properties(width=WIDTH, height=HEIGHT),
        "More rounds before giving up: fewer false alarms, and more errors overlooked by a judge that errs",
        caption="Numbers at the points: q, without larger ones that change nothing. Errs a / b: an oracle that misses "
        "support with probability a and sees it without reason with probability b.",
    )


def ablations(rows: Any) -> Any:
    """What each part of the method adds to macro F1."""
    by_arm = counts(rows)
    ours = by_arm["treatment"].to_numpy()
    arms = {
        "direct": "source only, no path",
        "random-evidence": "evidence at random",
        "cosine-evidence": "evidence by cosine alone",
        **{f"no-{check}": f"no check of {check}" for check in CHECKS},
        "rewired": "rewired process",
    }
    table = []
    for arm, name in arms.items():
        contrast = contrasts.paired_sums(arm, ours, by_arm[arm].to_numpy(), macro_f1_of_sums, clusters=range(len(ours)))
        lost = contrast.difference
        table.append({"without": name, "lost": lost.value, "low": lost.low, "high": lost.high})
    base = alt.Chart(pd.DataFrame(table)).encode(y=alt.Y("without:N", title=None, sort=list(arms.values())))
    zero = alt.Chart(pd.DataFrame({"lost": [0.0]})).mark_rule(color=INK).encode(x="lost:Q")
    rule = base.mark_rule(strokeWidth=2, color=TREATMENT_COLOR).encode(
        x=alt.X("low:Q", title="macro F1 lost (treatment less ablation)"), x2="high:Q"
    )
    dot = base.mark_point(size=70, filled=True, opacity=1, color=TREATMENT_COLOR).encode(
        x="lost:Q", tooltip=["without", number("lost"), number("low"), number("high")]
    )
    return captioned(
        alt.layer(zero, rule, dot).properties(width=WIDTH - 140, height=260),
        "What each part adds",
        caption="Difference in macro F1 with 95 % intervals over processes, q = 3.",
    )


def crowding(rows: Any) -> Any:
    """Macro F1 over near-duplicates a claim, with few sentences of evidence."""
    settings = rows[rows["setting"].str.startswith("near-duplicates")]
    if settings["near_duplicates"].nunique() < 2:
        return None
    names = {
        "few": "treatment",
        "few-direct": "direct",
        "few-flat-pool": "flat-pool",
        "few-terminal-only": "terminal-only",
    }
    table = []
    for near, at in settings.groupby("near_duplicates"):
        by_arm = counts(at)
        for arm, name in names.items():
            f1 = from_sums(by_arm[arm].to_numpy(), macro_f1_of_sums, clusters=range(len(by_arm[arm])))
            table.append({"near": near, "arm": name, **asdict(f1)})
    return dose_response(
        pd.DataFrame(table),
        x="near",
        title="Near-duplicates of a claim in the source",
        x_title="near-duplicates a claim",
        y_title="macro F1",
        caption="Three sentences of evidence a step; 95 % intervals over processes of four stages.",
    )


def depths(rows: Any) -> Any:
    """Exact stage accuracy over the number of stages, beside its controls."""
    settings = rows[rows["setting"].str.startswith("depth-") | (rows["setting"] == "main")]
    if settings["depth"].nunique() < 2:
        return None
    table = []
    for depth, at in settings.groupby("depth"):
        errors = at[(at["arm"] == "treatment") & (at["stage"] > 0)]
        chance = errors.groupby("dag")["stage"].agg(lambda stages: stages.value_counts(normalize=True).max())
        readings = {
            "treatment": _accuracy(at, "treatment"),
            "rewired": _accuracy(at, "rewired"),
            "commonest stage": chance,
        }
        for arm, values in readings.items():
            mean = intervals.mean(values)
            table.append({"depth": depth, "arm": arm, **asdict(mean)})
    return dose_response(
        pd.DataFrame(table),
        x="depth",
        title="The step is named however many there are",
        x_title="stages",
        y_title="errors whose stage is named exactly",
        caption="95 % intervals over processes; commonest stage: of each process's own errors, known to no method.",
    )


def granularity(rows: Any) -> Any:
    """Exact stage accuracy over the number of stages that the same processes are told in."""
    table = []
    for stages, at in rows.assign(dag=rows["process"]).groupby("stages"):
        true = at[at["arm"] == "treatment"].groupby("dag")["stage"]
        readings = {
            "treatment": _accuracy(at, "treatment"),
            "rewired": _accuracy(at, "rewired"),
            "commonest stage": true.agg(lambda stage: stage.value_counts(normalize=True).max()),
        }
        for arm, values in readings.items():
            mean = intervals.mean(values)
            table.append({"stages": stages, "arm": arm, **asdict(mean)})
    return dose_response(
        pd.DataFrame(table),
        x="stages",
        title="Naming the step, by how finely steps are counted",
        x_title="stages, sources included, after adjacent ones were merged",
        y_title="errors whose stage is named exactly",
        caption="The same processes of eight stages under every number; missed errors count as wrong, so that two "
        "stages give the share of errors found. 95 % intervals over processes.",
    )


def reading(rows: Any) -> Any:
    """Sentences read for a true claim over the size of the source."""
    table = []
    for _, at in rows.groupby("chunks"):
        source = at["source_sentences"].mean()
        read = intervals.mean(at["sentences_read"])
        table.append({"source": source, "arm": "treatment", **asdict(read)})
        table.append({"source": source, "arm": "direct", "value": source, "low": source, "high": source})
    return dose_response(
        pd.DataFrame(table),
        x="source",
        title="What is read for a true claim",
        x_title="sentences of the source",
        y_title="sentences read a claim",
        log_x=True,
        log_y=True,
        caption="A judge that is never wrong, q = 3; 95 % intervals over processes. Direct: every source sentence.",
    )


def calibration(rows: Any) -> Any:
    """Probability of support against the share of claims that are supported."""
    parts = []
    claims = rows[rows["arm"] == "treatment"]
    bins = pd.cut(claims["score"], [-0.001, 0.2, 0.6, 0.8, 0.9, 1.0])
    for _, at in claims.groupby(bins, observed=True):
        share = wilson(int(at["supports"].sum()), len(at))
        cell = {"predicted": at["score"].mean(), "observed": share.value, "low": share.low, "high": share.high}
        parts.append({**cell, "n": len(at), "arm": "treatment"})
    return reliability(
        pd.DataFrame(parts),
        title="Probability of support",
        x_title="probability the judge gives",
        caption="Claims of the main setting; Wilson intervals. Mismatches cap the probability at .2.",
    )


def _accuracy(rows: Any, arm: str) -> pd.Series:
    errors = right_stage(rows, arm)
    return by_process(errors["right"], errors["dag"])


def _one_name(text: str) -> str:
    stages = named_stages(text)
    return str(*stages) if len(stages) == 1 else "several" if stages else "missed"


def _trade_point(judge: str, q: str, caught: float, lost: float, missed: float) -> dict[str, Any]:
    order = 9 if q == "no limit" else int(q)
    return {
        "judge": judge,
        "q": q,
        "order": order,
        "recall": caught / (caught + missed),
        "precision": caught / (caught + lost),
    }
