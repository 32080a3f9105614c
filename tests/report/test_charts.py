"""Every chart of the kit draws what its table says, beside its control, and refuses what it cannot draw."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from gnomon.evidence import Estimate
from gnomon.report import charts
from gnomon.report.figures import figure
from gnomon.report.theme import CONTROL_COLOR, TREATMENT_COLOR


def rows(chart):
    """All rows of all data sets of a drawn chart."""
    return [row for data in figure("chart", chart).specification["datasets"].values() for row in data]


@pytest.mark.parametrize(
    "name",
    ["forest", "null-histogram", "head-map", "dose", "learning", "roc", "reliability", "front", "plane", "bars"],
)
def test_every_chart_renders_with_title_description_and_the_arms_colours(every_chart, name):
    drawn = figure(name, every_chart[name])
    assert drawn.title
    assert len(drawn.description) > len(drawn.title)
    assert drawn.svg.startswith("<svg")
    assert drawn.png.startswith(b"\x89PNG")
    if name in {"forest", "dose", "learning", "roc", "bars", "front"}:
        assert drawn.svg.count(TREATMENT_COLOR) >= 1
        assert drawn.svg.count(CONTROL_COLOR) >= 1


def test_forest_shows_the_effect_and_every_control_and_leaves_out_what_was_not_measured(findings):
    shown = {(row["claim"], row["arm"]) for row in rows(charts.forest(findings)) if "arm" in row}
    assert shown == {
        ("learned-spread", "treatment"),
        ("learned-spread", "random-init"),
        ("learned-spread", "resampled"),
        ("learned-spread", "shuffled"),
        ("open-ended", "treatment"),
        ("open-ended", "baseline"),
        ("intact", "treatment"),
        ("intact", "baseline"),
    }


def test_forest_draws_an_interval_without_end_to_the_edge_of_its_panel(findings):
    specification = figure("forest", charts.forest(findings)).specification
    whisker = specification["vconcat"][0]["layer"][1]["encoding"]["x"]
    [row] = [r for r in rows(charts.forest(findings)) if r.get("claim") == "open-ended" and r["arm"] == "treatment"]
    assert row["low"] is None
    assert row["drawn_low"] == whisker["scale"]["domain"][0]


def test_forest_gives_statistics_in_different_units_different_axes(findings):
    claim = dataclasses.replace(findings[0].claim, statistic="bits")
    two = [findings[0], dataclasses.replace(findings[0], claim=claim)]
    assert len(figure("forest", charts.forest(two)).specification["vconcat"]) == 2
    assert len(figure("forest", charts.forest(findings)).specification["vconcat"]) == 1


def test_forest_without_a_finite_effect_says_so(findings):
    withheld = [finding for finding in findings if finding.effect is None]
    undefined = dataclasses.replace(findings[0], effect=Estimate(math.nan, math.nan, math.nan))
    with pytest.raises(ValueError, match="at least one finding with a finite effect"):
        charts.forest([*withheld, undefined])


def test_null_histogram_counts_every_draw_once():
    draws = pd.DataFrame({"value": np.random.default_rng(1).normal(size=777)})
    chart = charts.null_histogram(draws, 2.0, title="Null", statistic="range", null_name="permutation")
    assert sum(row["draws"] for row in rows(chart) if "draws" in row) == 777
    beyond = int((draws["value"] >= 2.0).sum())
    assert f"{beyond} of 777 draws of permutation are as large" in figure("null", chart).description


def test_null_histogram_of_equal_draws_is_drawn():
    chart = charts.null_histogram(pd.DataFrame({"value": [0.0] * 20}), 0.0, title="Null", statistic="range")
    assert figure("null", chart).svg


@pytest.mark.parametrize(("draws", "observed"), [([1.0, math.nan], 0.0), ([1.0, math.inf], 0.0), ([1.0], math.nan)])
def test_null_histogram_refuses_what_is_not_finite(draws, observed):
    with pytest.raises(ValueError, match="finite draws and a finite observed value"):
        charts.null_histogram(pd.DataFrame({"value": draws}), observed, title="Null", statistic="range")


def test_head_map_puts_the_treatment_first_on_one_scale(tables):
    specification = figure("map", charts.head_map(tables.heads(), title="Map", value_title="balance")).specification
    assert specification["facet"]["sort"] == ["treatment", "random-init"]
    assert "resolve" not in specification


def test_head_map_scale_can_be_fixed_and_turn_at_a_midpoint(tables):
    chart = charts.head_map(tables.heads(), title="Map", value_title="balance", domain=(-1, 1), midpoint=0)
    scale = figure("map", chart).specification["spec"]["encoding"]["color"]["scale"]
    assert (scale["domain"], scale["domainMid"], scale["clamp"]) == ([-1, 1], 0, True)


def test_scatter_panels_draw_the_curve_in_every_panel(tables):
    dots = tables.heads().assign(x=lambda t: t["value"], y=lambda t: t["value"])
    curve = pd.DataFrame({"x": [0.0, 1.0], "y": [1.0, 0.0]})
    labels = {"x": "x", "y": "y", "x_title": "symbolic", "y_title": "positional"}
    with_curve = figure("plane", charts.scatter_panels(dots, title="Plane", curve=curve, **labels)).svg
    without = figure("plane", charts.scatter_panels(dots, title="Plane", **labels)).svg
    assert with_curve.count("mark-line") - without.count("mark-line") == 2


def test_front_fades_what_is_dominated(every_chart):
    svg = figure("front", every_chart["front"]).svg
    assert 'opacity="0.4"' in svg
    assert 'opacity="1"' in svg


def test_curves_without_intervals_draw_no_band(tables):
    table = tables.curves("step", "treatment", "shuffled")
    banded = figure("c", charts.learning_curve(table, title="Loss", y_title="loss")).svg
    plain = figure("c", charts.learning_curve(table.drop(columns=["low", "high"]), title="Loss", y_title="loss")).svg
    assert "mark-area" in banded
    assert "mark-area" not in plain


def test_bars_of_one_group_stand_beside_each_other_never_on_top(tables):
    table = tables.curves("task", "treatment", "baseline")
    chart = charts.bars(table, category="task", title="Tasks", x_title="accuracy")
    assert figure("bars", chart).specification["layer"][0]["encoding"]["x"]["stack"] is None


def test_missing_columns_are_named():
    with pytest.raises(ValueError, match="learning_curve needs columns value, arm; the table has step"):
        charts.learning_curve(pd.DataFrame({"step": [1]}), title="Loss", y_title="loss")


def test_an_empty_table_is_refused():
    empty = pd.DataFrame({"step": [], "value": [], "arm": []})
    with pytest.raises(ValueError, match="learning_curve got a table without rows"):
        charts.learning_curve(empty, title="Loss", y_title="loss")


def test_not_a_number_is_left_out_of_the_drawing_not_of_the_file(tables):
    table = tables.curves("step", "treatment", "shuffled").reset_index(drop=True)
    table.loc[2, "value"] = math.nan
    chart = charts.learning_curve(table, title="Loss", y_title="loss")
    assert [row for row in rows(chart) if row["value"] is None]
    assert "NaN" not in figure("loss", chart).svg


def test_long_descriptions_are_cut_where_a_listener_would_stop(tables):
    many = pd.DataFrame({"task": [f"t{n}" for n in range(40)], "value": 1.0, "arm": "treatment"})
    description = figure("b", charts.bars(many, category="task", title="Tasks", x_title="accuracy")).description
    assert "and 28 more" in description
