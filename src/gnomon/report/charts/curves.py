"""One quantity along another: dose-response, learning curve, trade-off front."""

from __future__ import annotations

import altair as alt
import pandas as pd
from altair.typing import ChartType

from gnomon.report.charts.axes import (
    captioned,
    has_interval,
    in_words,
    interval_tooltip,
    number,
    require,
    x_axis,
    y_axis,
)
from gnomon.report.theme import HEIGHT, WIDTH, arm_color, arm_dash, arm_shape


def dose_response(
    table: pd.DataFrame,
    *,
    x: str,
    title: str,
    x_title: str,
    y_title: str,
    caption: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> ChartType:
    """Response against dose: points with 95 % intervals joined by a line, one an arm.

    Args:
        table: Column ``x`` (the dose), ``value``, ``arm``, and optionally ``low`` and ``high``.
        x: Name of the dose column.
        title: Heading.
        x_title: Axis title of the dose, with its unit.
        y_title: Axis title of the response, with its unit.
        caption: Shown under the chart.
        log_x: Logarithmic dose axis; doses must be positive.
        log_y: Logarithmic response axis; responses must be positive.
    """
    require(table, "dose_response", x, "value", "arm")
    base = _by_arm(table, x, x_title, log_x)
    value = y_axis("value", y_title, log=log_y)
    layers = [base.mark_line(strokeWidth=1.5, opacity=0.8).encode(y=value)]
    if has_interval(table):
        layers.append(base.mark_rule(strokeWidth=2).encode(y=y_axis("low", y_title, log=log_y), y2="high:Q"))
    layers.append(base.mark_point(size=70, opacity=1).encode(y=value, shape=arm_shape(table["arm"])))
    return _finished(layers, table, x, title, caption)


def learning_curve(
    table: pd.DataFrame,
    *,
    title: str,
    y_title: str,
    x: str = "step",
    x_title: str = "optimiser steps",
    caption: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> ChartType:
    """A quantity over training: one line an arm with its 95 % band.

    Args:
        table: Column ``x``, ``value``, ``arm``, and optionally ``low`` and ``high``.
        title: Heading.
        y_title: Axis title, with its unit.
        x: Name of the column that runs along the axis.
        x_title: Axis title, with its unit.
        caption: Shown under the chart.
        log_x: Logarithmic horizontal axis; values must be positive.
        log_y: Logarithmic vertical axis; values must be positive.
    """
    require(table, "learning_curve", x, "value", "arm")
    base = _by_arm(table, x, x_title, log_x, lines=True)
    layers = [base.mark_line().encode(y=y_axis("value", y_title, log=log_y), strokeDash=arm_dash(table["arm"]))]
    if has_interval(table):
        layers.insert(0, base.mark_area(opacity=0.18).encode(y=y_axis("low", y_title, log=log_y), y2="high:Q"))
    return _finished(layers, table, x, title, caption)


def _by_arm(table: pd.DataFrame, x: str, x_title: str, log: bool, *, lines: bool = False) -> alt.Chart:
    return alt.Chart(table).encode(
        x=x_axis(x, x_title, log=log),
        color=arm_color(table["arm"], lines=lines),
        tooltip=interval_tooltip(table, "arm", x),
    )


def _finished(layers: list[alt.Chart], table: pd.DataFrame, x: str, title: str, caption: str) -> ChartType:
    last = table.sort_values(x).groupby("arm", sort=False).tail(1)
    return captioned(
        alt.layer(*layers).properties(width=WIDTH, height=HEIGHT),
        title,
        caption=caption,
        description=f"{title}. At the largest {x}, {in_words(last, 'arm')}",
    )


def front(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    title: str,
    x_title: str,
    y_title: str,
    caption: str = "",
    label: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> ChartType:
    """Trade-off between two quantities: every setting a point, the undominated ones of an arm joined.

    Args:
        table: Columns ``x``, ``y``, ``arm`` and the boolean ``front``: is the setting undominated within its arm?
        x: Name of the horizontal column.
        y: Name of the vertical column.
        title: Heading.
        x_title: Axis title, with its unit and which way is better ("seconds, fewer is better").
        y_title: Axis title, likewise.
        caption: Shown under the chart.
        label: Column that names a setting in the tooltip.
        log_x: Logarithmic horizontal axis; values must be positive.
        log_y: Logarithmic vertical axis; values must be positive.
    """
    names = [label] if label else []
    require(table, "front", x, y, "arm", "front", *names)
    base = alt.Chart(table).encode(
        x=x_axis(x, x_title, log=log_x), y=y_axis(y, y_title, log=log_y), color=arm_color(table["arm"])
    )
    joined = base.transform_filter("datum.front").mark_line(strokeWidth=1.5)
    points = base.mark_point(size=64).encode(
        shape=arm_shape(table["arm"]),
        opacity=alt.condition("datum.front", alt.value(1.0), alt.value(0.4)),
        tooltip=[*names, "arm", number(x), number(y)],
    )
    on_front = table.loc[table["front"].astype(bool), "arm"].value_counts(sort=False)
    counts = ", ".join(f"{count} of {arm}" for arm, count in on_front.items())
    return captioned(
        alt.layer(joined, points).properties(width=WIDTH, height=HEIGHT),
        title,
        caption=caption,
        description=f"{title}. Undominated settings: {counts or 'none'}.",
    )
