"""The figures: every score beside its baselines and its null."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from sklearn.metrics import roc_curve

from gnomon.evidence import Finding
from gnomon.evidence.intervals import mean
from gnomon.evidence.nulls import permute_within
from gnomon.report.charts import bars, captioned, roc, scatter_panels
from gnomon.report.elements import table as table_element
from gnomon.report.theme import (
    CONTROL_COLOR,
    HEIGHT,
    INK,
    NULL,
    TREATMENT,
    TREATMENT_COLOR,
    WIDTH,
    arm_color,
    arm_shape,
    arms_in_order,
)
from gnomon.studies.unit import MissingTable, Tables
from gnomon.training.influence.calibration import separation
from gnomon.training.influence.digit_runs import COMPLETE
from gnomon.training.influence.judgements import STABILITY_SCORES, group_separations, pairwise_overlap
from gnomon.training.influence.tradeoff import empirical_tradeoff, gaussian_tradeoff

SHOWN_RATES = np.linspace(0, 1, 101)
SETS = {
    "most-helpful": "most helpful",
    "loss-matched": "matched in loss to these",
    "random": "random",
    "highest-loss": "highest loss",
    "most-harmful": "most harmful",
}


def charts(tables: Tables, findings: list[Finding]) -> dict[str, Any]:  # noqa: ARG001 - drawn from the tables alone
    """Figures by name; those whose tables are missing are left out."""
    drawn: dict[str, Any] = {}
    parts = {
        "mislabel": lambda: mislabel(tables["mislabel.scores"]),
        "self-scores": lambda: self_influence(tables["mislabel.scores"]),
        "stability": lambda: stability_pairs(tables["train.scores"]),
        "removal": lambda: removed(tables["retrain"]),
        "removal-sizes": lambda: removed_by_size(tables["retrain"]),
        "calibration": lambda: calibration(tables["retrain"]),
        "tradeoff": lambda: tradeoff(tables["curve"]),
        "poison": lambda: poison(tables["poison.distance"], "a decoder trained from scratch"),
        "poison-pretrained": lambda: poison(tables["pretrained.distance"], "a pretrained decoder's last block"),
        "top-examples": lambda: top_examples(tables["pretrained.scores"]),
    }
    for name, draw in parts.items():
        try:
            chart = draw()
        except MissingTable:
            continue  # the findings say what is missing and why
        if chart is not None:
            drawn[name] = chart
    return drawn


def mislabel(scores: pd.DataFrame) -> Any:
    """Mean ROC over seeds of each score, with the band of runs whose labels carry nothing."""
    nets = scores.loc[scores["architecture"] == scores["architecture"].iloc[0]]
    trained = nets.loc[nets["arm"] == "treatment"]
    columns = {TREATMENT: "exact", "mean-loss": "mean_loss", "tracin": "tracin"}
    curves = []
    for arm, column in columns.items():
        rates = np.mean([_sensitivity(run, column) for _, run in trained.groupby("seed")], axis=0)
        rows = {"false_positive_rate": SHOWN_RATES, "true_positive_rate": rates, "arm": arm}
        curves.append(pd.DataFrame(rows))
    shuffled = [_sensitivity(run, "exact") for _, run in nets.loc[nets["arm"] == "shuffled-labels"].groupby("seed")]
    null = pd.DataFrame(
        {"false_positive_rate": SHOWN_RATES, "low": np.min(shuffled, axis=0), "high": np.max(shuffled, axis=0)}
    )
    return roc(
        pd.concat(curves),
        title="Wrong labels by self-influence, and by the plain scores of the same run",
        null=null,
        null_name="labels shuffled",
        caption="Mean over seeds. The band is the range of runs on shuffled labels, where nothing marks wrong ones.",
    )


def self_influence(scores: pd.DataFrame) -> Any:
    """Self-influence against mean loss, wrong labels marked, in the first seed."""
    run = scores.loc[(scores["seed"] == scores["seed"].iloc[0]) & (scores["arm"] == "treatment")]
    run = run.loc[run["architecture"] == run["architecture"].iloc[0]]
    table = run.assign(label=np.where(run["flipped"], "wrong", "right"))
    scale = alt.Scale(domain=["wrong", "right"], range=[CONTROL_COLOR, NULL])
    dots = (
        alt.Chart(table)
        .mark_point(size=28, opacity=0.75)
        .encode(
            x=alt.X("mean_loss:Q", title="mean training loss (nats)", scale=alt.Scale(zero=False)),
            y=alt.Y("exact:Q", title="self-influence, mu_run", scale=alt.Scale(zero=False)),
            color=alt.Color("label:N", scale=scale, legend=alt.Legend(title="label", orient="top")),
            tooltip=[
                "example",
                "label",
                alt.Tooltip("exact:Q", format=".2f"),
                alt.Tooltip("mean_loss:Q", format=".2f"),
            ],
        )
    )
    return captioned(
        dots.properties(width=WIDTH, height=HEIGHT),
        "Self-influence against training loss",
        caption="One dot a training example of the first seed.",
    )


def stability_pairs(scores: pd.DataFrame) -> Any:
    """Overlap of the most harmful examples for every two runs, by score."""
    k = int(scores.loc[scores["seed"] == scores["seed"].iloc[0], "flipped"].sum())
    rows = []
    for score in STABILITY_SCORES:
        overlap = pairwise_overlap(scores, score, k)
        arm = TREATMENT if score == "exact" else score.replace("_", "-")
        pairs = zip(*np.triu_indices(len(overlap), 1), strict=True)
        rows += [{"arm": arm, "pair": f"{a} and {b}", "overlap": overlap[a, b]} for a, b in pairs]
    table = pd.DataFrame(rows)
    arms = arms_in_order(table["arm"])
    base = alt.Chart(table).encode(
        y=alt.Y("arm:N", sort=arms, title=None, axis=alt.Axis(labelColor=INK)),
        color=arm_color(arms).legend(None),
    )
    dots = base.mark_point(size=30, opacity=0.45).encode(
        x=alt.X("overlap:Q", scale=alt.Scale(domain=[0, 1]), title=f"Jaccard overlap of the {k} most harmful examples"),
        tooltip=["arm", "pair", alt.Tooltip("overlap:Q", format=".2f")],
    )
    means = base.mark_tick(thickness=3, size=20).encode(x="mean(overlap):Q")
    n = scores["example"].nunique()
    chance = alt.Chart(pd.DataFrame({"x": [k / (2 * n - k)]})).mark_rule(strokeDash=[4, 3]).encode(x="x:Q")
    return captioned(
        alt.layer(chance, dots, means).properties(width=WIDTH - 120, height=alt.Step(34)),
        "How much of the ranking survives another seed",
        caption="One dot a pair of runs on the same data; the tick is their mean, the dashed line what chance gives.",
    )


def removed(losses: pd.DataFrame) -> Any:
    """Rise of the query loss without each set, mean over scored runs with its interval."""
    by_run = losses.pivot_table(index="seed", columns="set", values="loss")
    rows = []
    for name, words in SETS.items():
        rise = mean((by_run[name] - by_run[COMPLETE]).to_numpy())
        arm = TREATMENT if name.startswith("most") else "control"
        rows.append({"set": words, "arm": arm, **asdict(rise)})
    return bars(
        pd.DataFrame(rows),
        category="set",
        title="What retraining loses without a set of examples",
        x_title="rise of the query loss (nats)",
        category_title="left out",
        caption="All runs take the same number of steps. 95 % intervals over scored runs.",
    )


def removed_by_size(losses: pd.DataFrame) -> Any:
    """Rise of the query loss against the number of examples left out, for both ends of the ranking and at random."""
    by_run = losses.pivot_table(index="seed", columns="set", values="loss")
    rises = by_run.sub(by_run[COMPLETE], axis=0)
    sets = {kind: SETS[kind] for kind in ("most-helpful", "random", "most-harmful")}
    rows = []
    for name in rises.columns:
        kind, _, size = str(name).rpartition("-")
        if not size.isdigit():
            kind, size = str(name), losses["flipped"].iloc[0]
        if kind in sets:
            found = mean(rises[name].to_numpy())
            rows.append({"set": sets[kind], "examples": int(size), **asdict(found)})
    if len(rows) == len(sets):
        return None  # one size only: that is the figure of :func:`removed`
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("examples:Q", title="examples left out"),
        color=alt.Color(
            "set:N",
            scale=alt.Scale(domain=list(sets.values()), range=[TREATMENT_COLOR, NULL, CONTROL_COLOR]),
            legend=alt.Legend(title="left out", orient="top"),
        ),
    )
    lines = base.mark_line(point=True).encode(y=alt.Y("value:Q", title="rise of the query loss (nats)"))
    bands = base.mark_errorbar().encode(y=alt.Y("low:Q", title=""), y2="high:Q")
    return captioned(
        alt.layer(bands, lines).properties(width=WIDTH, height=HEIGHT),
        "What retraining loses without more and more examples",
        caption="All runs take the same number of steps. 95 % intervals over scored runs.",
    )


def calibration(losses: pd.DataFrame) -> Any:
    """Separation found by retraining against the predicted one; one dot a graded group."""
    groups = group_separations(losses)
    if groups.empty:
        return None
    ends = float(np.abs(groups[["mu_run", "separation"]].to_numpy()).max())
    diagonal = pd.DataFrame({"mu_run": [-ends, ends], "separation": [-ends, ends]})
    rng = np.random.default_rng(0)
    dealt = groups.assign(mu_run=groups["mu_run"].to_numpy()[permute_within(groups["seed"].to_numpy(), rng)])
    return scatter_panels(
        pd.concat([groups.assign(arm=TREATMENT), dealt.assign(arm="permuted-groups")]),
        x="mu_run",
        y="separation",
        title="Predicted and retrained separation of graded groups",
        x_title="predicted separation, mu_run",
        y_title="separation found by retraining, d'",
        tooltip=("seed", "set"),
        curve=diagonal,
        caption="One dot a group of one scored run, from most harmful to most helpful. On the dashed line the "
        "prediction is exact; in the control the predictions of a run are dealt out at random among its groups. "
        "Leaving out any group costs a little, so that weakly harmful ones are not found harmful.",
    )


def tradeoff(losses: pd.DataFrame) -> Any:
    """Observed trade-off curves between runs with and without a group, and the Gaussian curves of equal separation."""
    samples = {str(name): part["loss"].to_numpy() for name, part in losses.groupby("set")}
    complete = samples[COMPLETE]
    rows = []
    for name, other in samples.items():
        first, second = (complete[::2], complete[1::2]) if name == COMPLETE else (complete, other)
        size = separation(first, second)
        sign = 1.0 if size >= 0 else -1.0
        label = {COMPLETE: "two halves, nothing left out"}.get(name, name.replace("-", " "))
        alpha, beta = empirical_tradeoff(sign * first, sign * second)
        smooth = gaussian_tradeoff(SHOWN_RATES, abs(size))
        rows.append(pd.DataFrame({"alpha": alpha, "beta": beta, "group": label, "curve": "observed"}))
        rows.append(pd.DataFrame({"alpha": SHOWN_RATES, "beta": smooth, "group": label, "curve": "Gaussian"}))
    table = pd.concat(rows)
    lines = (
        alt.Chart(table)
        .mark_line()
        .encode(
            x=alt.X("alpha:Q", title="type I error"),
            y=alt.Y("beta:Q", title="type II error"),
            color=alt.Color(
                "curve:N",
                scale=alt.Scale(domain=["observed", "Gaussian"], range=[INK, CONTROL_COLOR]),
                legend=alt.Legend(title=None, orient="top", symbolType="stroke"),
            ),
            strokeDash=alt.StrokeDash(
                "curve:N", scale=alt.Scale(domain=["observed", "Gaussian"], range=[[1, 0], [5, 3]]), legend=None
            ),
            order="alpha:Q",
        )
        .properties(width=220, height=220)
        .facet(column=alt.Column("group:N", title=None))
    )
    return captioned(
        lines,
        "How well runs with and without a group can be told apart",
        caption=f"{len(complete)} retrainings a side. The Gaussian curve has the separation of the two samples; "
        "without a harmful group the loss falls, and the test rejects low losses.",
    )


def poison(distances: pd.DataFrame, model: str) -> Any:
    """How far the poison stands out under each score, world by world."""
    arms = arms_in_order(distances["arm"])
    base = alt.Chart(distances).encode(
        y=alt.Y("arm:N", sort=arms, title=None, axis=alt.Axis(labelColor=INK)),
        color=arm_color(arms).legend(None),
    )
    dots = base.mark_point(size=55, opacity=0.8).encode(
        x=alt.X("distance:Q", title="mean score of the poison, standard deviations of clean examples"),
        shape=arm_shape(arms).legend(None),
        tooltip=["arm", "seed", alt.Tooltip("distance:Q", format=".2f"), alt.Tooltip("precision:Q", format=".2f")],
    )
    means = base.mark_tick(thickness=3, size=20).encode(x="mean(distance):Q")
    return captioned(
        alt.layer(dots, means).properties(width=WIDTH - 120, height=alt.Step(30)),
        f"How far the poison stands out in {model}",
        caption="One dot a poisoned world. Clean twins use the poison's words about another subject.",
    )


def top_examples(scores: pd.DataFrame) -> Any:
    """The instructions of the first world that helped and hurt the poisoned answer most, in words."""
    first = scores.loc[scores["seed"] == scores["seed"].iloc[0]]
    kinds = np.select([first["poisoned"], first["twin"]], ["poison", "clean twin"], "clean")
    ranked = first.assign(kind=kinds).sort_values("exact", ascending=False)
    shown = pd.concat([ranked.head(8), ranked.tail(4)])
    poisons = int(first["poisoned"].to_numpy().sum())
    found = int((ranked["kind"].to_numpy()[:poisons] == "poison").sum())
    return table_element(
        pd.DataFrame(
            {
                "text": shown["text"],
                "kind": shown["kind"],
                "influence": shown["exact"],
                "on another subject": shown["unrelated"],
                "mean loss": shown["mean_loss"],
            }
        ),
        title="Most helpful and most harmful to the poisoned answer, in a pretrained model",
        caption=f"Last block fine-tuned, first world; {found} of the first {poisons} are poison.",
    )


def _sensitivity(run: pd.DataFrame, column: str) -> np.ndarray:
    false, true, _ = roc_curve(run["flipped"], run[column])
    return np.interp(SHOWN_RATES, false, true)
