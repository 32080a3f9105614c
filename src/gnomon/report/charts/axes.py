"""What the charts have in common: caption and description, axes, tooltips, checks of the table."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd
from altair.typing import ChartType


def captioned(chart: ChartType, title: str, *, caption: str = "", description: str = "") -> ChartType:
    """The chart with its title, the caption shown under it on the page, and a description for screen readers.

    Without a description, title and caption serve as one.
    """
    finished: Any = chart
    return finished.properties(
        title=title, description=description or f"{title}. {caption}".strip(), usermeta={"caption": caption}
    )


def require(table: pd.DataFrame, chart: str, *columns: str) -> None:
    """Check that the table can be drawn.

    Raises:
        ValueError: If it has no rows, or lacks a column; the message names chart and columns.
    """
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"{chart} needs columns {', '.join(missing)}; the table has {', '.join(map(str, table))}")
    if table.empty:
        raise ValueError(f"{chart} got a table without rows")


def has_interval(table: pd.DataFrame) -> bool:
    """Whether the table brings interval bounds."""
    return {"low", "high"} <= set(table)


def number(column: str, title: str = "") -> alt.Tooltip:
    """Tooltip of a numeric column, to three significant digits."""
    return alt.Tooltip(column, type="quantitative", format=".3~g", title=title or column)


def interval_tooltip(table: pd.DataFrame, *names: str) -> list[alt.Tooltip]:
    """Tooltip of what names a row, its value and, if there is one, its interval."""
    bounds = [number("low", "95 % from"), number("high", "95 % to")] if has_interval(table) else []
    return [*(alt.Tooltip(name) for name in names), number("value"), *bounds]


# Vega leaves most ticks of a logarithmic axis without a label; here all have one that do not overlap.
_LOG_LABEL = "format(datum.value, datum.value >= 1e5 || datum.value < 1e-3 ? '~e' : ',~g')"


def x_axis(column: str, title: str, *, log: bool = False) -> alt.X:
    """Quantitative horizontal axis that need not start at zero."""
    return alt.X(column, type="quantitative", title=title, scale=_scale(log), axis=_ticks(log))


def y_axis(column: str, title: str, *, log: bool = False) -> alt.Y:
    """Quantitative vertical axis that need not start at zero."""
    return alt.Y(column, type="quantitative", title=title, scale=_scale(log), axis=_ticks(log))


def _scale(log: bool) -> alt.Scale:
    return alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)


def _ticks(log: bool) -> alt.Axis:
    return alt.Axis(tickCount=4, labelExpr=_LOG_LABEL, labelOverlap="greedy") if log else alt.Axis(tickCount=6)


def in_words(table: pd.DataFrame, *names: str) -> str:
    """Rows as sentences for a screen reader: names, value, interval; at most twelve rows are read out."""
    read = [
        f"{', '.join(str(row[name]) for name in names)}: {row['value']:.3g}"
        + (f" [{row['low']:.3g}, {row['high']:.3g}]" if has_interval(table) else "")
        for row in table.head(12).to_dict("records")
    ]
    more = f"; and {len(table) - 12} more" if len(table) > 12 else ""
    return f"{'; '.join(read)}{more}."
