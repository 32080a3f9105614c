"""The six figures; a randomised copy stands beside the trained model in every one that could mislead alone."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from gnomon.mechanisms.rope_heads.measure import ENERGIES
from gnomon.report.charts import captioned, dose_response, head_map, scatter_panels
from gnomon.report.theme import INK, MUTED, SEQUENTIAL, arm_color, arm_shape, arms_in_order
from gnomon.studies.unit import MissingTable, Tables

CONTROLS = ("random-init", "resampled")
CHANCE = 1 / 16
CUTS = (0.25, 0.375, 0.5, 0.625)
"""Shares of frequencies, fastest first, that the sensitivity figure counts as fast."""


def charts(tables: Tables) -> dict[str, Any]:
    """Figures by name; those whose tables are missing are left out."""
    drawn: dict[str, Any] = {}
    try:
        heads = head_scores(tables["lm.heads"])
        drawn["plane"] = plane(heads)
        drawn["frequency-use"] = frequency_use(heads)
        drawn["curve"] = curve(tables["lm.curve"])
        drawn["energy"] = energy(tables["lm.energy"])
        drawn["heads"] = balance_map(heads)
        drawn["cutoffs"] = cutoffs(tables["lm.heads"], tables["lm.energy"])
    except MissingTable:
        pass  # the findings say what is missing and why
    try:
        drawn["frequency-access"] = frequency_access(tables["toy"])
        drawn["ablation"] = ablation(tables["ablate"])
    except MissingTable:
        pass
    return drawn


def head_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Scores of every head of the trained model and of the first copy of each control."""
    columns = ["positional", "symbolic", "zero", "second_moment_low", "second_moment_high"]
    first = rows.loc[rows["copy"] == 0]
    sums = pd.DataFrame(first.groupby(["arm", "layer", "head"], as_index=False)[columns].sum())
    spread = sums["zero"].where(sums["zero"] > 0)
    return pd.DataFrame(
        {
            "arm": sums["arm"],
            "layer": sums["layer"],
            "head": sums["head"],
            "positional": 1 - sums["positional"] / spread,
            "symbolic": 1 - sums["symbolic"] / spread,
            "balance": sums["symbolic"] / (sums["positional"] + sums["symbolic"]),
            "log low/high energy": np.log(sums["second_moment_low"] / sums["second_moment_high"]),
        }
    )


def plane(heads: pd.DataFrame) -> Any:
    """Every head by its two scores, under the bound that no head can cross."""
    share = np.linspace(0, 1, 60)
    bound = pd.DataFrame({"symbolic": 1 - share**2, "positional": 1 - (1 - share) ** 2})
    return scatter_panels(
        _main_arms(heads),
        x="symbolic",
        y="positional",
        color="layer",
        color_title="layer",
        tooltip=("head",),
        curve=bound,
        title="Heads on the positional-symbolic plane",
        x_title="symbolic score (1: logits travel with the content)",
        y_title="positional score (1: content does not matter)",
        caption=(
            "One dot a head. The dashed curve is the exclusion bound: no weights can place a head beyond it. "
            "Both copies share architecture and prompts with the trained model."
        ),
    )


def frequency_use(heads: pd.DataFrame) -> Any:
    """Balance against where a head spends its logits."""
    return scatter_panels(
        _main_arms(heads),
        x="log low/high energy",
        y="balance",
        color="layer",
        color_title="layer",
        tooltip=("head",),
        title="Behaviour of heads and the frequencies they spend on",
        x_title="log of low / high frequency logit energy",
        y_title="balance (1 positional, 0 symbolic)",
        caption=(
            "Energy is the second moment of a frequency's contributions; high frequencies turn at least once over the "
            "context. Part of the slope is arithmetic: compare with the copies, not with zero."
        ),
    )


def curve(rows: pd.DataFrame) -> Any:
    """Balance of each frequency alone: the same with and without training."""
    shown = _main_arms(rows)
    shown = shown.loc[(shown["theta"] > 0) & (shown["copy"] == 0)].assign(value=shown["balance"])
    by_frequency = pd.DataFrame(shown.groupby(["arm", "theta"], as_index=False)["value"].mean())
    return dose_response(
        by_frequency,
        x="theta",
        log_x=True,
        title="Balance of each frequency alone",
        x_title="radians a position (log)",
        y_title="balance of that frequency alone",
        caption=(
            "Mostly arithmetic, not learned: a frequency that hardly turns over the context cannot tell positions "
            "apart, whatever the weights. Compare with the copies; this curve alone is no finding."
        ),
    )


def energy(rows: pd.DataFrame) -> Any:
    """Share of each layer's logit energy by frequency."""
    shown = _main_arms(rows)
    shown = shown.loc[shown["copy"] == 0]
    sums = pd.DataFrame(shown.groupby(["arm", "layer", "frequency"], as_index=False)["second_moment"].sum())
    sums["share"] = sums["second_moment"] / sums.groupby(["arm", "layer"])["second_moment"].transform("sum")
    arms = arms_in_order(sums["arm"])
    cells = (
        alt.Chart(sums)
        .mark_rect()
        .encode(
            x=alt.X("frequency:O", title="frequency (fast to slow)", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("layer:O", title="layer", sort="descending", axis=alt.Axis(labelOverlap=True)),
            color=alt.Color(
                "share:Q",
                scale=alt.Scale(range=list(SEQUENTIAL), interpolate="rgb"),
                legend=alt.Legend(
                    title="share of the layer's logit energy",
                    orient="top",
                    titleColor=INK,
                    titleLimit=480,
                    format=".2f",
                ),
            ),
            tooltip=["arm", "layer", "frequency", alt.Tooltip("share:Q", format=".3f")],
        )
        .properties(width=alt.Step(8), height=alt.Step(10))
        .facet(facet=alt.Facet("arm:N", title=None, sort=arms), columns=len(arms))
    )
    return captioned(
        cells,
        "Where the layers spend their logit energy",
        caption="Second moment of each frequency's contribution to the logits, summed over heads and prompts.",
    )


def balance_map(heads: pd.DataFrame) -> Any:
    """Balance of every head by layer."""
    return head_map(
        _main_arms(heads).rename(columns={"balance": "value"}),
        title="Which heads look at where, and which at what",
        value_title="balance (1 positional, 0 symbolic)",
        domain=(0.0, 1.0),
        midpoint=0.5,
        caption="Blue heads attend by position, orange ones by content.",
    )


def cutoffs(rows: pd.DataFrame, energies: pd.DataFrame) -> Any:
    """Correlation of balance and frequency use for other cuts between low and high, and other energies."""
    table = pd.DataFrame(_cutoff_rows(rows, energies))
    arms = arms_in_order(table["arm"])
    dots = (
        alt.Chart(table)
        .mark_point(size=60, opacity=1)
        .encode(
            x=alt.X("cut:O", title="frequencies counted as fast", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("correlation:Q", title="Spearman over heads", scale=alt.Scale(zero=True)),
            color=arm_color(arms),
            shape=arm_shape(arms),
            tooltip=["arm", "copy", "energy", "cut", alt.Tooltip("correlation:Q", format=".2f")],
        )
        .properties(width=190, height=220)
        .facet(column=alt.Column("energy:N", title=None, sort=[name.replace("_", " ") for name in ENERGIES]))
    )
    return captioned(
        dots,
        "Behaviour and frequency use, for other energies and cuts",
        caption=(
            "Each dot is a model or a randomised copy. Much of the correlation is arithmetic, most of it with variance "
            "energy: the finding is the distance between treatment and copies."
        ),
    )


def frequency_access(toy: pd.DataFrame) -> Any:
    """Accuracy of toy heads by the frequencies they may use."""
    order = sorted(set(toy["set"]), key=lambda name: (name.count(","), [float(part) for part in name.split(",")]))
    dots = (
        alt.Chart(toy)
        .mark_point(size=45, opacity=0.8, color=INK)
        .encode(
            x=alt.X("set:N", sort=order, title="frequencies (radians a slot)", axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("accuracy:Q", scale=alt.Scale(domain=[0, 1])),
            tooltip=["task", "set", "seed", alt.Tooltip("accuracy:Q", format=".2f")],
        )
    )
    chance = alt.Chart(toy).mark_rule(strokeDash=[4, 3], color=MUTED).encode(y=alt.datum(CHANCE))
    layered = alt.layer(chance, dots).properties(width=max(190, 28 * len(order)), height=220)
    tasks = [task for task in ("index", "retrieval", "recent") if task in set(toy["task"])]
    return captioned(
        layered.facet(column=alt.Column("task:N", title=None, sort=tasks)).resolve_scale(x="independent"),
        "Accuracy of a head by the frequencies it may use",
        caption=(
            "One dot a seed; the dashed line is chance. index needs positions, retrieval contents, recent both. "
            "Sets of two have twice the channels: compare them with each other."
        ),
    )


def ablation(rows: pd.DataFrame) -> Any:
    """Increase of loss when frequencies stop turning in positional heads, and in matched random ones."""
    losses = pd.DataFrame(rows.groupby(["set", "band", "text"], as_index=False)["loss"].mean())
    untouched = losses.loc[losses["set"] == "none", ["band", "text", "loss"]]
    table = losses.merge(untouched, on=["band", "text"], suffixes=("", "_untouched"))
    table["increase"] = table["loss"] - table["loss_untouched"]
    table = table.loc[(table["set"] != "none") & (table["text"] != "first copy")].copy()
    table["arm"] = np.where(table["set"] == "positional", "treatment", "matched-random")
    table["stopped"] = table["band"].map({"high": "fast frequencies stopped", "low": "slow frequencies stopped"})
    arms = arms_in_order(table["arm"])
    dots = (
        alt.Chart(table)
        .mark_point(size=60, opacity=0.9)
        .encode(
            x=alt.X("increase:Q", title="increase of loss (nats a token)"),
            y=alt.Y("text:N", title=None),
            yOffset=alt.YOffset("arm:N", scale=alt.Scale(domain=arms)),
            color=arm_color(arms),
            shape=arm_shape(arms),
            tooltip=["arm", "set", "text", alt.Tooltip("increase:Q", format=".3f")],
        )
        .properties(width=300, height=120)
        .facet(column=alt.Column("stopped:N", title=None))
    )
    return captioned(
        dots,
        "Loss after frequencies stop turning in some heads",
        caption="Each control dot is a random set of as many other heads of the same layers.",
    )


def _main_arms(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.loc[rows["arm"].isin(["treatment", *CONTROLS])]


def _cutoff_rows(rows: pd.DataFrame, energies: pd.DataFrame) -> list[dict[str, Any]]:
    """Spearman over heads of balance and log low/high energy, by copy, energy and number of fast frequencies."""
    keys = ["arm", "copy", "layer", "head"]
    heads = pd.DataFrame(_main_arms(rows).groupby(keys, as_index=False)[["positional", "symbolic"]].sum())
    spectra = pd.DataFrame(_main_arms(energies).groupby([*keys, "frequency"], as_index=False)[list(ENERGIES)].sum())
    found = []
    for arm, copy in heads[["arm", "copy"]].drop_duplicates().itertuples(index=False):
        own = heads.loc[(heads["arm"] == arm) & (heads["copy"] == copy)]
        balance = (own["symbolic"] / (own["positional"] + own["symbolic"])).to_numpy()
        spectrum = spectra.loc[(spectra["arm"] == arm) & (spectra["copy"] == copy)]
        for name in ENERGIES:
            energy = spectrum[name].to_numpy(dtype=np.float64).reshape(len(balance), -1)
            for cut in sorted({max(1, round(energy.shape[1] * share)) for share in CUTS}):
                ratio = np.log(energy[:, cut:].sum(1) / energy[:, :cut].sum(1))
                row = {"energy": name.replace("_", " "), "cut": cut, "arm": arm, "copy": copy}
                found.append({**row, "correlation": pd.Series(balance).corr(pd.Series(ratio), method="spearman")})
    return found
