"""Many things at once, treatment and controls in panels side by side: layer x head map, scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd
from altair.typing import ChartType

from gnomon.report.charts.axes import captioned, number, require, x_axis, y_axis
from gnomon.report.theme import DIVERGING, INK, SEQUENTIAL, arm_color, arms_in_order

_PANEL = 270


def head_map(
    table: pd.DataFrame,
    *,
    title: str,
    value_title: str,
    caption: str = "",
    domain: tuple[float, float] | None = None,
    midpoint: float | None = None,
) -> ChartType:
    """Layer x head map, one panel an arm, all on one colour scale.

    Args:
        table: Columns ``layer``, ``head``, ``value`` and ``arm``; one row a head.
        title: Heading.
        value_title: What the colour means, with its unit.
        caption: Shown under the chart.
        domain: Ends of the colour scale; the extent of the data by default.
        midpoint: Where a diverging scale turns (0 for signed values). Without it the scale is sequential.
    """
    require(table, "head_map", "layer", "head", "value", "arm")
    scale: dict[str, Any] = {"range": list(SEQUENTIAL if midpoint is None else DIVERGING), "interpolate": "rgb"}
    if domain is not None:
        scale |= {"domain": list(domain), "clamp": True}
    if midpoint is not None:
        scale["domainMid"] = midpoint
    arms = arms_in_order(table["arm"])
    cells = (
        alt.Chart(table)
        .mark_rect()
        .encode(
            x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("layer:O", title="layer", sort="descending", axis=alt.Axis(labelOverlap=True)),
            color=alt.Color(
                "value:Q",
                scale=alt.Scale(**scale),
                legend=alt.Legend(title=value_title, orient="top", titleLimit=480, titleColor=INK),
            ),
            tooltip=["arm", "layer", "head", number("value")],
        )
        .properties(width=_step(len(set(table["head"])), _PANEL), height=_step(len(set(table["layer"])), 420))
    )
    means = "; ".join(f"{arm}: mean {table.loc[table['arm'] == arm, 'value'].mean():.3g}" for arm in arms)
    return captioned(
        cells.facet(facet=alt.Facet("arm:N", title=None, sort=arms), columns=len(arms)),
        title,
        caption=caption,
        description=f"{title}. Map of layers by heads, {value_title}. {means}.",
    )


def _step(cells: int, length: int) -> alt.Step:
    return alt.Step(max(6, min(18, length // cells)))


def scatter_panels(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    title: str,
    x_title: str,
    y_title: str,
    caption: str = "",
    color: str = "",
    color_title: str = "",
    tooltip: Sequence[str] = (),
    curve: pd.DataFrame | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> ChartType:
    """The same scatter for treatment and controls, side by side on the same axes, treatment first.

    Args:
        table: Columns ``x``, ``y``, ``arm``; one row a dot.
        x: Name of the horizontal column.
        y: Name of the vertical column.
        title: Heading.
        x_title: Axis title, with its unit.
        y_title: Axis title, with its unit.
        caption: Shown under the chart.
        color: Numeric column drawn as colour (the layer, say). Without it a dot has its arm's colour.
        color_title: Title of the colour legend.
        tooltip: Further columns to show for a dot.
        curve: Columns ``x`` and ``y``: a theoretical curve, drawn in every panel in the order of its rows.
        log_x: Logarithmic horizontal axis; values must be positive.
        log_y: Logarithmic vertical axis; values must be positive.
    """
    shown = [color] if color else []
    require(table, "scatter_panels", x, y, "arm", *shown, *tooltip)
    arms = arms_in_order(table["arm"])
    axes: dict[str, Any] = {"x": x_axis(x, x_title, log=log_x), "y": y_axis(y, y_title, log=log_y)}
    shade = alt.Color(color, type="quantitative", legend=alt.Legend(title=color_title or color, orient="top"))
    dots = alt.Chart().mark_point(size=34, opacity=0.8)
    layers: list[alt.Chart] = [
        dots.encode(
            **axes,
            color=shade if color else arm_color(arms).legend(None),
            tooltip=["arm:N", *(f"{name}:N" for name in tooltip), *(number(name) for name in (*shown, x, y))],
        )
    ]
    if curve is not None:
        require(curve, "scatter_panels", x, y)
        line = alt.Chart(curve.assign(_order=range(len(curve)))).mark_line(
            color=INK, strokeDash=[4, 3], strokeWidth=1.25
        )
        layers.append(line.encode(**axes, order="_order:Q"))
    counts = "; ".join(f"{arm}: {(table['arm'] == arm).sum()} dots" for arm in arms)
    return captioned(
        alt.layer(*layers)
        .properties(width=_PANEL, height=_PANEL)
        .facet(facet=alt.Facet("arm:N", title=None, sort=arms), data=table, columns=min(len(arms), 3)),
        title,
        caption=caption,
        description=f"{title}. {y_title} against {x_title}. {counts}.",
    )
