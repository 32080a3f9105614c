"""How good a score is: receiver operating characteristic and reliability."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair.typing import ChartType

from gnomon.report.charts.axes import captioned, has_interval, number, require
from gnomon.report.theme import NULL, arm_color, arm_dash, arm_shape

_SIDE = 340
_UNIT = alt.Scale(domain=[0, 1], nice=False)
_FIFTHS = alt.Axis(tickCount=5, format=".1f")


def roc(
    table: pd.DataFrame, *, title: str, caption: str = "", null: pd.DataFrame | None = None, null_name: str = "null"
) -> ChartType:
    """Receiver operating characteristic of each arm, with the band in which a null's curve lies.

    Args:
        table: Columns ``false_positive_rate``, ``true_positive_rate`` and ``arm``, rows in the order of the threshold.
        title: Heading.
        caption: Shown under the chart.
        null: Columns ``false_positive_rate``, ``low`` and ``high``. Without it the diagonal of chance stands alone.
        null_name: The null in the legend ("label permutation, 95 % band").
    """
    require(table, "roc", "false_positive_rate", "true_positive_rate", "arm")
    x = alt.X("false_positive_rate:Q", scale=_UNIT, axis=_FIFTHS, title="false positive rate")
    arms = [*table["arm"], null_name] if null is not None else list(table["arm"])
    curves = (
        alt.Chart(table)
        .mark_line(interpolate="step-after")
        .encode(
            x=x,
            y=alt.Y("true_positive_rate:Q", scale=_UNIT, axis=_FIFTHS, title="true positive rate"),
            color=arm_color(arms, lines=True),
            strokeDash=arm_dash(arms),
            order=alt.Order("true_positive_rate:Q"),
            tooltip=["arm", number("false_positive_rate"), number("true_positive_rate")],
        )
    )
    layers: list[alt.Chart] = [_diagonal("false_positive_rate"), curves]
    if null is not None:
        require(null, "roc", "false_positive_rate", "low", "high")
        band = alt.Chart(null.assign(arm=null_name)).mark_area(opacity=0.25)
        layers.insert(
            0, band.encode(x=x, y=alt.Y("low:Q", scale=_UNIT), y2="high:Q", color=arm_color(arms, lines=True))
        )
    areas = "; ".join(
        f"{arm}: area under the curve {np.trapezoid(rows['true_positive_rate'], rows['false_positive_rate']):.3g}"
        for arm, rows in table.groupby("arm", sort=False)
    )
    return captioned(
        alt.layer(*layers).properties(width=_SIDE, height=_SIDE),
        title,
        caption=caption,
        description=f"{title}. {areas}.",
    )


def reliability(
    table: pd.DataFrame, *, title: str, caption: str = "", x_title: str = "predicted probability"
) -> ChartType:
    """Observed frequency against predicted probability; a calibrated prediction lies on the diagonal.

    Args:
        table: Columns ``predicted``, ``observed``, ``arm``, and optionally ``low``, ``high`` (interval of
            ``observed``) and ``n`` (cases in the bin, drawn as the size of the point).
        title: Heading.
        caption: Shown under the chart.
        x_title: Axis title of the prediction.
    """
    require(table, "reliability", "predicted", "observed", "arm")
    base = alt.Chart(table).encode(
        x=alt.X("predicted:Q", scale=_UNIT, axis=_FIFTHS, title=x_title), color=arm_color(table["arm"])
    )
    observed = alt.Y("observed:Q", scale=_UNIT, axis=_FIFTHS, title="observed frequency")
    tooltip: list[Any] = ["arm", number("predicted"), number("observed")]
    points = base.mark_point(size=64, opacity=1).encode(y=observed, shape=arm_shape(table["arm"]))
    if "n" in table:
        tooltip.append(alt.Tooltip("n:Q", title="cases"))
        points = points.encode(size=alt.Size("n:Q", title="cases", scale=alt.Scale(range=[30, 240])))
    layers = [_diagonal("predicted"), base.mark_line(strokeWidth=1.5, opacity=0.7).encode(y=observed)]
    if has_interval(table):
        bounds = alt.Y("low:Q", scale=_UNIT, axis=_FIFTHS, title="observed frequency")
        layers.append(base.mark_rule(strokeWidth=2).encode(y=bounds, y2="high:Q"))
    layers.append(points.encode(tooltip=tooltip))
    gaps = "; ".join(
        f"{arm}: largest gap {(rows['observed'] - rows['predicted']).abs().max():.3g}"
        for arm, rows in table.groupby("arm", sort=False)
    )
    return captioned(
        alt.layer(*layers).properties(width=_SIDE, height=_SIDE),
        title,
        caption=caption,
        description=f"{title}. {gaps}.",
    )


def _diagonal(x: str) -> alt.Chart:
    ends = pd.DataFrame({x: [0.0, 1.0], "diagonal": [0.0, 1.0]})
    line = alt.Chart(ends).mark_line(strokeDash=[4, 4], strokeWidth=1, color=NULL)
    return line.encode(
        x=alt.X(x, type="quantitative", scale=_UNIT, axis=_FIFTHS), y=alt.Y("diagonal:Q", scale=_UNIT, axis=_FIFTHS)
    )
