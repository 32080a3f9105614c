"""Figures as files: Vega-Lite with its data, PNG, SVG, in the shipped font."""

import io
import json

import altair as alt
import pandas as pd
import pytest
from PIL import Image

from gnomon.report.charts import captioned
from gnomon.report.figures import figure, vega_bundle


def bars(count=3, **properties):
    table = pd.DataFrame({"x": range(count), "y": range(count)})
    return alt.Chart(table, **properties).mark_bar().encode(x="x:O", y="y:Q")


def test_title_caption_and_description_come_from_the_chart():
    drawn = figure("bars", captioned(bars(), "Title", caption="Caption.", description="Three bars."))
    assert (drawn.title, drawn.caption, drawn.description) == ("Title", "Caption.", "Three bars.")
    assert figure("bars", bars(title=alt.TitleParams(["Two", "lines"]))).title == "Two lines"
    assert figure("bars", bars()).title == "bars"


def test_saved_files_are_the_chart(tmp_path):
    drawn = figure("bars", captioned(bars(), "Title"))
    drawn.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars.json", "bars.png", "bars.svg"]
    assert json.loads((tmp_path / "bars.json").read_text()) == drawn.specification
    image = Image.open(io.BytesIO((tmp_path / "bars.png").read_bytes()))
    assert image.size == tuple(2 * side for side in drawn.size)
    assert "Inter" in (tmp_path / "bars.svg").read_text()


def test_all_rows_are_in_the_chart_however_many():
    specification = figure("many", bars(6_000)).specification
    assert len(next(iter(specification["datasets"].values()))) == 6_000


def test_a_chart_reads_nothing_from_outside(tmp_path):
    (tmp_path / "secret.json").write_text('[{"x": 1, "y": 2}]')
    chart = alt.Chart((tmp_path / "secret.json").as_uri()).mark_bar().encode(x="x:O", y="y:Q")
    with pytest.raises(ValueError, match=r"figure 'outside' reads its data from 'file:.*secret.json'"):
        figure("outside", alt.layer(chart, bars()))


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x1b", "\x7f", "\uffff"])
def test_characters_that_no_drawing_can_carry_are_replaced(character):
    text = f"a{character}b"
    table = pd.DataFrame({"x": [text], "y": [1]})
    chart = alt.Chart(table, title=text).mark_bar().encode(x="x:O", y="y:Q")
    drawn = figure("control", chart)
    assert drawn.title == "a\ufffdb"
    assert drawn.svg.count("a\ufffdb") >= 2


def test_half_a_character_in_a_title_is_replaced():
    assert figure("half", bars(title="a\ud800b")).title == "a\ufffdb"


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "Über", "a b", ".hidden"])
def test_names_are_slugs(name):
    with pytest.raises(ValueError, match="is not a slug"):
        figure(name, bars())


def test_what_is_neither_chart_nor_element_is_refused():
    with pytest.raises(TypeError, match="figure 'x' is a dict; expected an Altair chart or a page element"):
        figure("x", {})


def test_the_bundle_can_stand_in_a_page():
    assert "</script" not in vega_bundle().lower()
    assert "<!--" not in vega_bundle()
    assert "\r" not in vega_bundle()
