"""One look for every chart: colours, font and Altair theme.

Treatment and control have the same two colours in every chart of every instrument. They differ in lightness and in
hue (blue, orange), so that they stay apart for all common forms of colour blindness and in grey print, and both keep a
contrast of at least 3 : 1 on the light and on the dark page. The neutral colours below are literal in every chart
file; the page maps them to its own variables, which is how one chart serves light, dark and print.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import altair as alt
from altair.theme import AxisConfigKwds

FONT = "Inter, 'Helvetica Neue', Arial, sans-serif"
FONT_FOLDER = Path(str(files("gnomon.report") / "fonts"))

TREATMENT = "treatment"
"""The name of the treatment arm; every other arm is a control."""

TREATMENT_COLOR = "#2a78b8"
CONTROL_COLOR = "#cc6a1f"
CONTROL_SHADES = (CONTROL_COLOR, "#a8652a", "#c0504a", "#b58a1a", "#9c6b57")
"""Shades for several controls in one chart; the first is *the* control colour."""

CATEGORIES = ("#2a78b8", "#cc6a1f", "#2b8a6e", "#8f62b0", "#b08a1e", "#5c7f99", "#b5527a", "#6f7f2f")
"""For categories that are not arms (kinds of layer, languages, games)."""

INK = "#1c2733"
MUTED = "#566472"
NULL = "#7c8894"
RULE = "#d9dfe5"
BAND = "#eaeef2"
SURFACE = "#ffffff"

RAMP = ("#b58a1a", "#cc6a1f", "#b5527a", "#8f62b0", "#2a78b8")
"""For a number shown by the colour of a dot or line: every shade is readable on the light and on the dark page."""

SEQUENTIAL = ("#e3eef7", "#a9cbe6", "#62a0cf", "#2a78b8", "#17548a", "#0c3157")
"""For a number shown by the colour of a cell: pale is little, deep blue is much."""

DIVERGING = ("#9a4a12", "#d98a4a", "#f3d6bc", "#eef0f2", "#bcd6ec", "#5c9dcf", "#17548a")
"""From control orange through near-white to treatment blue: negative to positive."""

THEME = "gnomon"
WIDTH = 560
HEIGHT = 300


def arms_in_order(arms: Iterable[str]) -> list[str]:
    """The distinct arms, treatment first, controls in order of appearance.

    >>> arms_in_order(["random-init", "treatment", "shuffled", "random-init"])
    ['treatment', 'random-init', 'shuffled']
    """
    distinct = list(dict.fromkeys(arms))
    return sorted(distinct, key=lambda arm: arm != TREATMENT)


def arm_scale(arms: Iterable[str]) -> alt.Scale:
    """Colour scale for arms: the treatment blue, the first control orange, further controls in its shades."""
    domain = arms_in_order(arms)
    controls = iter(CONTROL_SHADES[index % len(CONTROL_SHADES)] for index in range(len(domain)))
    return alt.Scale(domain=domain, range=[TREATMENT_COLOR if arm == TREATMENT else next(controls) for arm in domain])


def arm_color(arms: Iterable[str], *, field: str = "arm", lines: bool = False) -> alt.Color:
    """Colour encoding of the arm column, with its legend above the chart; of lines the legend shows strokes."""
    legend = alt.Legend(title=None, orient="top", **({"symbolType": "stroke", "symbolSize": 300} if lines else {}))
    return alt.Color(field, type="nominal", scale=arm_scale(arms), legend=legend)


def arm_shape(arms: Iterable[str], *, field: str = "arm") -> alt.Shape:
    """Shape encoding of the arm column: the second channel, for readers and printers without colour."""
    domain = arms_in_order(arms)
    shapes = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down"]
    chosen = [shapes[index % len(shapes)] for index in range(len(domain))]
    return alt.Shape(
        field, type="nominal", scale=alt.Scale(domain=domain, range=chosen), legend=alt.Legend(title=None, orient="top")
    )


def arm_dash(arms: Iterable[str], *, field: str = "arm") -> alt.StrokeDash:
    """Dash encoding of the arm column: the treatment's line is solid, the controls' are dashed."""
    domain = arms_in_order(arms)
    dashes = [[5, 3], [2, 3], [8, 3, 2, 3], [10, 4]]
    controls = iter(dashes[index % len(dashes)] for index in range(len(domain)))
    chosen = [[1, 0] if arm == TREATMENT else next(controls) for arm in domain]
    return alt.StrokeDash(
        field, type="nominal", scale=alt.Scale(domain=domain, range=chosen), legend=alt.Legend(title=None, orient="top")
    )


def _axis(*, grid: bool) -> AxisConfigKwds:
    return {
        "domain": False,
        "grid": grid,
        "ticks": grid,
        "gridColor": RULE,
        "gridWidth": 1,
        "labelColor": MUTED,
        "labelFontSize": 12,
        "labelPadding": 6,
        "labelSeparation": 8,
        "tickColor": RULE,
        "tickSize": 4,
        "titleColor": INK,
        "titleFontSize": 12.5,
        "titleFontWeight": "normal",
        "titlePadding": 10,
    }


@alt.theme.register(THEME, enable=False)
def gnomon_theme() -> alt.theme.ThemeConfig:
    """The theme, registered as ``"gnomon"``; ``alt.theme.enable("gnomon")`` uses it in a notebook."""
    return {
        "config": {
            "font": FONT,
            "background": SURFACE,
            "padding": 8,
            "view": {
                "stroke": None,
                "continuousWidth": WIDTH,
                "continuousHeight": HEIGHT,
            },
            "title": {
                "anchor": "start",
                "color": INK,
                "fontSize": 15,
                "fontWeight": 600,
                "offset": 14,
                "subtitleColor": MUTED,
                "subtitleFontSize": 12.5,
                "subtitlePadding": 5,
                "limit": 720,
            },
            "axis": _axis(grid=True),
            "axisBand": _axis(grid=False),
            "axisPoint": _axis(grid=True),
            "header": {
                "labelColor": INK,
                "labelFontSize": 13,
                "labelFontWeight": 600,
                "labelPadding": 8,
                "titleColor": MUTED,
                "titleFontSize": 12.5,
                "titleFontWeight": "normal",
            },
            "legend": {
                "labelColor": INK,
                "labelFontSize": 12.5,
                "labelLimit": 260,
                "titleColor": MUTED,
                "titleFontSize": 12.5,
                "titleFontWeight": "normal",
                "symbolSize": 90,
                "symbolOpacity": 1,
                "symbolStrokeWidth": 2,
                "symbolBaseFillColor": NULL,
                "symbolBaseStrokeColor": NULL,
                "gradientLength": 160,
                "gradientThickness": 12,
            },
            "text": {"color": INK, "font": FONT, "fontSize": 12},
            "line": {"strokeWidth": 2, "strokeCap": "round"},
            "rule": {"color": NULL, "strokeWidth": 1.5},
            "point": {"filled": True, "size": 60},
            "bar": {"cornerRadiusEnd": 2},
            "area": {"opacity": 0.2},
            "rect": {"stroke": SURFACE, "strokeWidth": 1},
            "range": {
                "category": list(CATEGORIES),
                "ordinal": list(SEQUENTIAL),
                "ramp": list(RAMP),
                "heatmap": list(SEQUENTIAL),
                "diverging": list(DIVERGING),
            },
        }
    }
