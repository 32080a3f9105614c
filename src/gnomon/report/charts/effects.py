"""Effects beside their controls: forest, null histogram, bars."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair.typing import ChartType

from gnomon.evidence import Finding
from gnomon.report.charts.axes import captioned, has_interval, in_words, interval_tooltip, number, require
from gnomon.report.theme import HEIGHT, INK, TREATMENT, WIDTH, arm_color, arm_shape, arms_in_order

_ARM_STEP = 17  # pixels an arm takes in a forest row


def forest(
    findings: Iterable[Finding], *, title: str = "Effects beside their controls", caption: str = ""
) -> ChartType:
    """Effect and every control of each finding, with 95 % intervals; one panel a statistic.

    Claims that share a statistic share an axis, others never do. Findings without a finite effect (exact, withheld)
    are left out. An interval without end runs to the edge of the panel.

    Raises:
        ValueError: If no finding has a finite effect.
    """
    rows = pd.DataFrame([row for finding in findings for row in _forest_rows(finding)])
    if rows.empty:
        raise ValueError("forest needs at least one finding with a finite effect")
    panels = [_forest_panel(panel, str(name), rows["arm"]) for name, panel in rows.groupby("statistic", sort=False)]
    return captioned(
        # Shared, the offsets would leave room in every panel for the arms of all others.
        alt.vconcat(*panels, spacing=16).resolve_scale(yOffset="independent"),
        title,
        caption=caption,
        description=f"{title}. {in_words(rows, 'claim', 'arm')}",
    )


def _forest_rows(finding: Finding) -> list[dict[str, Any]]:
    if finding.effect is None or not math.isfinite(finding.effect.value):
        return []
    claim = {"claim": finding.claim.name, "statistic": finding.claim.statistic}
    named = [(TREATMENT, finding.effect), *((contrast.control, contrast.estimate) for contrast in finding.contrasts)]
    return [{**claim, "arm": arm, **asdict(estimate)} for arm, estimate in named]


def _forest_panel(rows: pd.DataFrame, statistic: str, arms: Iterable[str]) -> ChartType:
    numbers = rows[["value", "low", "high"]].to_numpy(dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    pad = 0.06 * (float(np.ptp(numbers)) or abs(float(numbers[0])) or 1.0)
    low, high = float(numbers.min()) - pad, float(numbers.max()) + pad
    # An infinite bound is drawn to the edge; a missing one (NaN) stays missing and no whisker is drawn.
    drawn = rows.assign(drawn_low=rows["low"].clip(low, high), drawn_high=rows["high"].clip(low, high))
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    order = arms_in_order(rows["arm"])
    base = alt.Chart(drawn).encode(
        y=alt.Y("claim:N", title=None, sort=None, axis=alt.Axis(labelFontSize=13, labelColor=INK)),
        yOffset=alt.YOffset("arm:N", scale=alt.Scale(domain=order, paddingOuter=0.6)),
        color=arm_color(arms),
        tooltip=interval_tooltip(rows, "claim", "arm"),
    )
    whiskers = base.mark_rule(strokeWidth=2.5, strokeCap="round").encode(
        x=alt.X("drawn_low:Q", scale=scale, title=statistic), x2="drawn_high:Q"
    )
    points = base.mark_point(size=80, opacity=1).encode(x=alt.X("value:Q", scale=scale), shape=arm_shape(arms))
    layers: list[alt.Chart] = [whiskers, points]
    if low < 0 < high:
        zero = alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(strokeDash=[3, 3], strokeWidth=1)
        layers.insert(0, zero.encode(x=alt.X("zero:Q", scale=scale)))
    return alt.layer(*layers).properties(width=WIDTH - 120, height=alt.Step(_ARM_STEP, **{"for": "offset"}))


def null_histogram(
    draws: pd.DataFrame,
    observed: float,
    *,
    title: str,
    statistic: str,
    caption: str = "",
    null_name: str = "null",
) -> ChartType:
    """Distribution of the statistic under the null, with the observed value marked.

    Args:
        draws: Column ``value``; one row a draw.
        observed: The statistic on the treatment.
        title: Heading.
        statistic: Axis title, with its unit.
        caption: Shown under the chart.
        null_name: The control that was drawn from ("label permutation").

    Raises:
        ValueError: If a draw or the observed value is not finite.
    """
    require(draws, "null_histogram", "value")
    values = draws["value"].to_numpy(dtype=float)
    if not (np.isfinite(values).all() and math.isfinite(observed)):
        raise ValueError("null_histogram needs finite draws and a finite observed value")
    counts, edges = np.histogram(values, bins=min(40, len(np.histogram_bin_edges(values, bins="auto")) - 1))
    bins = pd.DataFrame({"from": edges[:-1], "to": edges[1:], "draws": counts, "arm": null_name})
    mark = pd.DataFrame({"value": [observed], "arm": [TREATMENT], "label": [f"observed {observed:.3g}"]})
    low, high = float(min(edges[0], observed)), float(max(edges[-1], observed))
    pad = 0.04 * (high - low or 1.0)
    scale = alt.Scale(domain=[low - pad, high + pad], nice=False, zero=False)
    color = arm_color([TREATMENT, null_name])
    histogram = (
        alt.Chart(bins)
        .mark_bar(cornerRadiusEnd=0, opacity=0.75, binSpacing=1)
        .encode(
            x=alt.X("from:Q", bin="binned", scale=scale, title=statistic),
            x2="to:Q",
            y=alt.Y("draws:Q", title=f"null draws (of {len(values)})"),
            color=color,
            tooltip=[number("from"), number("to"), alt.Tooltip("draws")],
        )
    )
    right = observed > (low + high) / 2
    rule = alt.Chart(mark).mark_rule(strokeWidth=3).encode(x=alt.X("value:Q", scale=scale), color=color)
    label = (
        alt.Chart(mark)
        .mark_text(align="right" if right else "left", dx=-8 if right else 8, baseline="top", fontWeight=600)
        .encode(x=alt.X("value:Q", scale=scale), y=alt.value(2), text="label:N")
    )
    beyond = int((values >= observed).sum())
    return captioned(
        alt.layer(histogram, rule, label).properties(width=WIDTH, height=HEIGHT - 60),
        title,
        caption=caption,
        description=f"{title}. Observed {observed:.3g}; {beyond} of {len(values)} draws of {null_name} are as large.",
    )


def bars(
    table: pd.DataFrame, *, category: str, title: str, x_title: str, caption: str = "", category_title: str = ""
) -> ChartType:
    """Horizontal bars from zero in groups, each control below the treatment, with 95 % intervals.

    Args:
        table: Column ``category``, ``value``, ``arm``, and optionally ``low`` and ``high``; one row a bar.
        category: Name of the column that names a group.
        title: Heading.
        x_title: Axis title, with its unit.
        caption: Shown under the chart.
        category_title: Axis title of the groups.
    """
    require(table, "bars", category, "value", "arm")
    order = arms_in_order(table["arm"])
    base = alt.Chart(table).encode(
        y=alt.Y(
            category,
            type="nominal",
            sort=None,
            title=category_title or None,
            axis=alt.Axis(labelColor=INK),
        ),
        yOffset=alt.YOffset("arm:N", scale=alt.Scale(domain=order, paddingOuter=0.4)),
        tooltip=interval_tooltip(table, category, "arm"),
    )
    layers = [base.mark_bar(opacity=0.85).encode(x=alt.X("value:Q", stack=None, title=x_title), color=arm_color(order))]
    if has_interval(table):
        layers.append(base.mark_rule(color=INK, strokeWidth=1.5).encode(x=alt.X("low:Q", title=x_title), x2="high:Q"))
    return captioned(
        alt.layer(*layers).properties(width=WIDTH - 120, height=alt.Step(_ARM_STEP, **{"for": "offset"})),
        title,
        caption=caption,
        description=f"{title}. {in_words(table, category, 'arm')}",
    )
