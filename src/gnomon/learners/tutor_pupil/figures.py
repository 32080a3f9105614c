"""The study's figures, from its tables alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair.typing import ChartType

from gnomon.evidence import Finding
from gnomon.learners.tutor_pupil.judgements import SCOPE
from gnomon.learners.tutor_pupil.worlds import ATTRACTION, COVOLUME, GAS_CONSTANT
from gnomon.report.charts import captioned, forest, null_histogram, roc
from gnomon.report.elements import Element, Picture, gallery, image_png
from gnomon.report.theme import (
    CONTROL_COLOR,
    HEIGHT,
    INK,
    MUTED,
    NULL,
    RAMP,
    TREATMENT,
    TREATMENT_COLOR,
    WIDTH,
    arm_color,
    arm_dash,
)
from gnomon.studies.unit import MissingTable, Tables

_NAMES = {"tutored": "tutored", "residual": "output residual", "stack": "stack", "black-box": "black box"}


def charts(tables: Tables, findings: list[Finding]) -> dict[str, Any]:
    """All figures whose tables were measured."""
    drawn: dict[str, Any] = {}
    if any(finding.effect is not None for finding in findings):
        drawn["findings"] = forest(findings).configure_legend(columns=6)
    makers: dict[str, Callable[[], ChartType | Element]] = {
        "performance": lambda: performance(tables, "moons-tree"),
        "performance-digits": lambda: performance(tables, "digits-centroid"),
        "penalty-path": lambda: penalty_path(tables, "moons-tree"),
        "scattered-null": lambda: scattered_null(tables, "moons-tree"),
        "corrections": lambda: corrections(tables, "moons-tree"),
        "covolume": lambda: volume_corrections(tables, "covolume-gas"),
        "van-der-waals": lambda: volume_corrections(tables, "van-der-waals"),
        "features": lambda: features(tables, "planted"),
        "features-scorecard": lambda: features(tables, "scorecard-context"),
        "regions": lambda: regions(tables, "moons-tree"),
        "regions-planted": lambda: regions(tables, "planted"),
        "roc": lambda: failing_rows_roc(tables, "moons-tree"),
        "roc-digits": lambda: failing_rows_roc(tables, "digits-logistic-weak"),
        "images": lambda: images(tables, "digits-centroid"),
        "pendulum": lambda: trajectories(tables, "pendulum"),
        "predators": lambda: trajectories(tables, "predators"),
    }
    for name, make in makers.items():
        try:
            drawn[name] = make()
        except MissingTable:
            continue
    return drawn


def performance(tables: Tables, world: str) -> ChartType:
    """P1: rise of the score over the pupil's against the penalty, beside nets of equal size and the scattered null."""
    path = _of(tables, "path", world)
    path = path.assign(value=path["score"] - path["pupil_score"], arm=_loss_arm(path["loss"]))
    scores = _of(tables, "draw.scores", world)
    pupil = scores[scores["model"] == "pupil"].set_index("draw")["score"]
    levels = pd.DataFrame(
        [
            {"model": name, "value": float((rows.set_index("draw")["score"] - pupil).mean())}
            for model, name in _NAMES.items()
            for rows in [scores[scores["model"] == model]]
        ]
    )
    refits = _of(tables, "draw.refits", world)
    null = refits.loc[refits["arm"] == "scattered-errors", "score_gain"]
    band = pd.DataFrame({"low": [float(null.min())], "high": [float(null.max())]})
    x = _log_axis("lambda:Q", path["lambda"], (1.0,), "penalty weight (log)")
    y_title = "rise in accuracy over the pupil"
    shaded = alt.Chart(band).mark_rect(color=NULL, opacity=0.18).encode(y=alt.Y("low:Q", title=y_title), y2="high:Q")
    lines = alt.Chart(path).encode(
        x=x,
        y=alt.Y("value:Q", title=y_title),
        color=arm_color(path["arm"], lines=True),
        strokeDash=arm_dash(path["arm"]),
    )
    rules = alt.Chart(levels).mark_rule(color=MUTED, strokeDash=[2, 3]).encode(y="value:Q")
    words = (
        alt.Chart(_spaced(levels, 0.05 * _extent(path["value"], levels["value"], null)))
        .mark_text(align="left", dx=6, color=INK, fontSize=11)
        .encode(y="place:Q", x=alt.value(WIDTH), text="model:N")
    )
    return captioned(
        alt.layer(shaded, rules, lines.mark_line(), lines.mark_point(filled=True, size=45), words).properties(
            width=WIDTH, height=HEIGHT
        ),
        f"Gain along the penalty path: {SCOPE.get(world, world)}",
        caption="Points: rows of the pilot, each held out once, on which the penalty is chosen; treatment is the "
        "satisficing loss. Dotted: test rows of the draws, all nets with equal steps. Grey: range of tutors of "
        "scattered errors.",
    )


def penalty_path(tables: Tables, world: str) -> ChartType:
    """P2: size of corrections and their AUROC against the penalty, with the own-label floor and the choice."""
    path = _of(tables, "path", world)
    path = path[path["loss"] != "log_loss"]
    size = pd.concat(
        [path.assign(value=path["size"], arm=TREATMENT), path.assign(value=path["null_size"], arm="own-labels")]
    )
    chosen = path[path["chosen"]]
    x = _log_axis("lambda:Q", path["lambda"], (1.0,), "penalty weight (log)")
    mark = alt.Chart(chosen).mark_rule(color=INK, strokeDash=[4, 3]).encode(x=x)

    def panel(table: pd.DataFrame, title: str) -> ChartType:
        lines = alt.Chart(table).encode(
            x=x,
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
            color=arm_color(size["arm"], lines=True),
            strokeDash=arm_dash(size["arm"]),
        )
        return alt.layer(mark, lines.mark_line(), lines.mark_point(filled=True, size=45)).properties(
            width=WIDTH // 2 - 40, height=HEIGHT - 60
        )

    located = path.assign(value=path["auroc"], arm=TREATMENT)
    return captioned(
        alt.hconcat(panel(size, "mean correction (standardised)"), panel(located, "AUROC for wrong rows")),
        f"What a penalty buys: {SCOPE.get(world, world)}",
        caption="Dashed line: the largest penalty within one standard error of the least validation loss.",
    )


def scattered_null(tables: Tables, world: str) -> ChartType:
    """Held-out gain on the real errors against gains on scattered ones."""
    table = _of(tables, "null", world)
    draws = table.loc[table["arm"] == "scattered-errors", ["gain"]].rename(columns={"gain": "value"})
    observed = float(table.loc[table["arm"] == TREATMENT, "gain"].iloc[0])
    return null_histogram(
        draws,
        observed,
        title=f"Are the errors a pattern? {SCOPE.get(world, world)}",
        statistic="fall of the task loss on held-out rows",
        null_name="scattered-errors",
        caption="Each null draw is a tutor fitted to as many errors of the same kinds, scattered over rows at random.",
    )


def corrections(tables: Tables, world: str) -> ChartType:
    """P3: each row and where its tutor moves it, coloured by the pupil's answer."""
    rows = _of(tables, "detail.rows", world).head(400)
    rows = rows.assign(
        x=rows["x.x"],
        y=rows["x.y"],
        x_to=rows["x.x"] + rows["move.x"],
        y_to=rows["x.y"] + rows["move.y"],
        answer=np.where(rows["answer"] == 1, "pupil says 1", "pupil says 0"),
        right=np.where(rows["failing"], "wrong", "right"),
    )
    base = alt.Chart(rows).encode(
        x=alt.X("x:Q", title="first input"),
        y=alt.Y("y:Q", title="second input"),
        color=alt.Color(
            "answer:N",
            scale=alt.Scale(domain=["pupil says 0", "pupil says 1"], range=["#2b8a6e", "#8f62b0"]),
            legend=alt.Legend(title=None, orient="top"),
        ),
    )
    moves = base.mark_rule(strokeWidth=1.2, opacity=0.7).encode(x2="x_to:Q", y2="y_to:Q", color=alt.value(MUTED))
    points = base.mark_point(filled=True, opacity=0.85).encode(
        size=alt.Size(
            "right:N",
            scale=alt.Scale(domain=["right", "wrong"], range=[14, 70]),
            legend=alt.Legend(title=None, orient="top"),
        )
    )
    return captioned(
        alt.layer(moves, points).properties(width=WIDTH, height=HEIGHT + 40),
        f"Where inputs would have to be: {SCOPE.get(world, world)}",
        caption="Held-out rows of one split; a line leads from a row to its corrected place. Large points: the "
        "pupil is wrong.",
    )


def volume_corrections(tables: Tables, world: str) -> ChartType:
    """P4: correction of volume against volume, coloured by temperature, with the exact inverse."""
    rows = _of(tables, "detail.rows", world)
    rows = rows.assign(V=rows["x.V"], T=rows["x.T"], move=rows["move.V"])
    volume = np.exp(np.linspace(np.log(rows["V"].min()), np.log(rows["V"].max()), 60))
    lines = pd.concat(
        [
            pd.DataFrame({"V": volume, "T": temperature, "move": _exact_move(world, temperature, volume)})
            for temperature in (250.0, 400.0, 600.0)
        ]
    )
    x = _log_axis("V:Q", rows["V"], (1.0, 2.0, 5.0), "volume, L/mol (log)")
    y = alt.Y("move:Q", title="correction of the volume, L/mol", scale=alt.Scale(zero=False))
    color = alt.Color("T:Q", title="T, K", scale=alt.Scale(range=list(RAMP)))
    points = alt.Chart(rows).mark_point(filled=True, size=22, opacity=0.7).encode(x=x, y=y, color=color)
    exact = alt.Chart(lines).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=color, detail="T:N")
    law = "P = RT/(V - b)" if world == "covolume-gas" else "van der Waals' law"
    return captioned(
        alt.layer(points, exact).properties(width=WIDTH, height=HEIGHT),
        f"An ideal gas law corrected at its volume; the data obey {law}",
        caption="Points: the tutor on held-out rows. Lines: the exact inverse at 250, 400 and 600 K, which the tutor "
        "never saw.",
    )


def features(tables: Tables, world: str) -> ChartType:
    """P5: mean absolute correction of each feature beside the smallest one of equal effect."""
    table = _of(tables, "detail.features", world).head(12)
    summary = _of(tables, "detail.summary", world).iloc[0]
    y = alt.Y("feature:N", sort="-x", title=None)
    x = alt.X("mean_abs:Q", title="mean absolute correction (standardised)")
    bars = alt.Chart(table).mark_bar(color=TREATMENT_COLOR, height=12).encode(x=x, y=y)
    ticks = alt.Chart(table).mark_tick(color=CONTROL_COLOR, thickness=3, size=18).encode(x="gradient_abs:Q", y=y)
    return captioned(
        alt.layer(bars, ticks).properties(width=WIDTH - 120, height=alt.Step(24)),
        f"Which features move: {SCOPE.get(world, world)} (alignment {summary['alignment']:.2f})",
        caption="Bars: the tutor. Orange ticks: the smallest correction that changes the pupil's output as much, which "
        "knows only the pupil's gradient. Alignment: share of the corrections along that gradient.",
    )


def regions(tables: Tables, world: str) -> ChartType:
    """P6: leaves of the honest region tree, largest correction first, with the pupil's error before and after."""
    table = _of(tables, "detail.regions", world)
    table = table.assign(
        words=[
            f"n = {row['n']}, loss {row['pupil_error']:.3f} -> {row['tutored_error']:.3f}"
            for row in table.to_dict("records")
        ]
    )
    y = alt.Y("region:N", sort=None, title=None, axis=alt.Axis(labelLimit=300))
    title = "mean correction (standardised), 95 % interval"
    base = alt.Chart(table).encode(y=y)
    rules = base.mark_rule(color=TREATMENT_COLOR, strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    points = base.mark_point(filled=True, size=70, color=TREATMENT_COLOR).encode(x=alt.X("size:Q", title=title))
    words = base.mark_text(align="left", dx=10, color=MUTED, fontSize=11).encode(
        x=alt.X("high:Q", title=title), text="words:N"
    )
    return captioned(
        alt.layer(rules, points, words).properties(width=WIDTH - 160, height=alt.Step(30)),
        f"Where inputs must move: {SCOPE.get(world, world)}",
        caption="A depth-3 tree grown on training rows; means and intervals from held-out rows.",
    )


def failing_rows_roc(tables: Tables, world: str) -> ChartType:
    """P7: correction size and the pupil's margin as markers of wrong rows."""
    from sklearn.metrics import roc_auc_score, roc_curve

    rows = _of(tables, "detail.rows", world)
    curves, areas = [], []
    for arm, marker in ((TREATMENT, rows["size"]), ("margin", -rows["margin"])):
        false, true, _ = roc_curve(rows["failing"], marker)
        # Rows that share a value are a slope, not a step: a small tree has four margins.
        along = np.linspace(0, len(false) - 1, max(400, len(false)))
        false, true = (np.interp(along, np.arange(len(values)), values) for values in (false, true))
        curves.append(pd.DataFrame({"false_positive_rate": false, "true_positive_rate": true, "arm": arm}))
        areas.append(f"{arm} {roc_auc_score(rows['failing'], marker):.3f}")
    return roc(
        pd.concat(curves),
        title=f"Does correction size mark wrong rows? {SCOPE.get(world, world)}",
        caption=f"Area under the curve: {', '.join(areas)}. Treatment: size of the correction; margin: the pupil's own "
        "doubt. Held-out rows of one split.",
    )


def images(tables: Tables, world: str) -> Element:
    """P8: wrong images, corrected ones, what was added, and a random blob of equal norm."""
    rows = _of(tables, "detail.rows", world)
    rows = rows[rows["failing"]].sort_values("size", ascending=False).head(6)
    pixels = rows.filter(like="x.pixel").to_numpy().reshape(-1, 8, 8)
    moves = rows.filter(like="move.pixel").to_numpy().reshape(-1, 8, 8)
    blobs = np.random.default_rng(0).normal(size=moves.shape)
    blobs *= (np.linalg.norm(moves, axis=(1, 2)) / np.linalg.norm(blobs, axis=(1, 2)))[:, None, None]
    pictures = []
    for index, row in enumerate(rows.to_dict("records")):
        target, answer = int(row["target"]), int(row["answer"])
        said = f"a {target} that the pupil takes for {answer}"
        for label, image in (
            (f"{target}, taken for {answer}", pixels[index]),
            ("corrected", pixels[index] + moves[index]),
            ("what moved (grey: nothing)", 0.5 + moves[index]),
            ("random blob of equal norm", pixels[index] + blobs[index]),
        ):
            pictures.append(Picture(image_png(np.clip(image, 0, 1), scale=10), f"{said}: {label}", label))
    return gallery(
        pictures,
        title="Images the pupil gets wrong, and what would make it right",
        caption=f"{SCOPE.get(world, world)}; the six wrong held-out images that move farthest.",
    )


def trajectories(tables: Tables, system: str) -> ChartType:
    """P9: one unseen trajectory under truth, pupil and tutored pupil, and the correction along it."""
    table = tables["dynamics.runs"]
    table = table[(table["system"] == system) & (table["draw"] == table["draw"].min()) & (table["arm"] == TREATMENT)]
    if table.empty:
        raise MissingTable(f"dynamics.runs has no rows for {system}")
    domain = ["truth", "tutored", "pupil"]
    color = alt.Color(
        "run:N",
        scale=alt.Scale(domain=domain, range=[INK, TREATMENT_COLOR, CONTROL_COLOR]),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke"),
    )
    dash = alt.StrokeDash("run:N", scale=alt.Scale(domain=domain, range=[[1, 0], [6, 3], [2, 3]]), legend=None)
    x = alt.X("time:Q", title=None)
    pendulum = system == "pendulum"
    what = "angle, rad" if pendulum else "prey"
    moved = "move of the angle" if pendulum else "change of attack rate"
    runs = alt.Chart(table).mark_line().encode(x=x, y=alt.Y("first:Q", title=what), color=color, strokeDash=dash)
    along = table[table["run"] == "truth"]
    below = alt.Chart(along).mark_line(color=TREATMENT_COLOR).encode(
        x=alt.X("time:Q", title="time, s" if pendulum else "time"), y=alt.Y("correction:Q", title=moved)
    )  # fmt: skip
    return captioned(
        alt.vconcat(runs.properties(width=WIDTH, height=HEIGHT - 60), below.properties(width=WIDTH, height=120)),
        "A trajectory nobody fitted: truth, pupil, and tutored pupil running free",
        caption=f"{'Quadratic drag' if pendulum else 'Saturating predators'}; below, the tutor's correction at the "
        f"true states, {'in standard deviations of the angle' if pendulum else 'as a share of the rate'}.",
    )


def _of(tables: Tables, name: str, world: str) -> Any:
    table: Any = tables[name]
    table = table[table["world"] == world]
    if table.empty:
        raise MissingTable(f"{name} has no rows for {world}")
    return table


def _log_axis(field: str, values: Any, steps: tuple[float, ...], title: str) -> alt.X:
    """A logarithmic axis with marks at the given multiples of each power of ten."""
    low, high = float(values.min()), float(values.max())
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    marks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
    axis = alt.Axis(values=marks, format="~g")
    return alt.X(field, scale=alt.Scale(type="log", nice=False), axis=axis, title=title)


def _loss_arm(losses: Any) -> list[str]:
    return ["log loss" if loss == "log_loss" else TREATMENT for loss in losses]


def _exact_move(world: str, temperature: float, volume: np.ndarray) -> np.ndarray:
    pressure = GAS_CONSTANT * temperature / (volume - COVOLUME)
    if world != "covolume-gas":
        pressure = pressure - ATTRACTION / volume**2
    return GAS_CONSTANT * temperature / pressure - volume


def _extent(*columns: Any) -> float:
    """Height of a panel that shows all of some columns."""
    values = np.concatenate([np.asarray(column, dtype=np.float64) for column in columns])
    return float(np.ptp(values))


def _spaced(levels: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Labels at least a gap apart, so that lines that coincide can still be told."""
    ordered = levels.sort_values("value")
    places: list[float] = []
    for value in ordered["value"]:
        places.append(max(float(value), places[-1] + gap) if places else float(value))
    return ordered.assign(place=places)
