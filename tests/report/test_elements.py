"""Elements carry text as text, whatever it contains."""

import base64
import io
import math
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gnomon.report import elements
from gnomon.report.html import render_element


@pytest.mark.parametrize("name", ["cards", "gallery", "table", "drawing"])
def test_hostile_text_stays_text(every_element, name):
    markup = str(every_element[name].html)
    assert "<script" not in markup
    assert not re.search(r"<[^>]* on\w+\s*=\s*[^&]", re.sub(r'"[^"]*"', '""', markup))


def test_a_token_is_marked_by_sign_and_tenth_of_its_weight():
    element = elements.text_cards([elements.Passage(["a", "b", "c"], [0.41, -1, 0])], title="Text")
    assert '<mark class="positive w5" title="+0.41">a</mark>' in element.html
    assert '<mark class="negative w10" title="-1.00">b</mark>' in element.html
    assert "</mark>c</p>" in element.html


@pytest.mark.parametrize(
    ("tokens", "weights", "message"),
    [
        (["a"], [0.1, 0.2], "passage has 1 tokens but 2 weights"),
        (["a"], [1.5], r"weight of token 'a' must lie in \[-1, 1\], got 1.5"),
        (["a"], [math.nan], r"weight of token 'a' must lie in \[-1, 1\], got nan"),
    ],
)
def test_bad_weights_are_named(tokens, weights, message):
    with pytest.raises(ValueError, match=message):
        elements.text_cards([elements.Passage(tokens, weights)], title="Text")


def test_image_png_keeps_the_grey_levels():
    pixels = np.array([[0.0, 0.5], [1.0, 2.0]])
    image = Image.open(io.BytesIO(elements.image_png(pixels, scale=3)))
    assert image.size == (6, 6)
    assert np.asarray(image)[::3, ::3].tolist() == [[0, 128], [255, 255]]


def test_image_png_names_the_first_bad_pixel():
    with pytest.raises(ValueError, match=r"pixels\[1, 0\] is not finite"):
        elements.image_png(np.array([[0.0, 0.0], [math.nan, 0.0]]))


def test_gallery_embeds_images_by_their_real_type(tmp_path):
    content = elements.image_png(np.zeros((2, 2)))
    path = tmp_path / "looks-like.jpg"
    path.write_bytes(content)
    element = elements.gallery([elements.Picture(path, "black")], title="Digits")
    assert f'src="data:image/png;base64,{base64.b64encode(content).decode()}" alt="black"' in element.html


def test_gallery_refuses_what_is_no_image():
    with pytest.raises(ValueError, match="expected a PNG, JPEG, GIF or WebP file"):
        elements.gallery([elements.Picture(b"<svg onload=alert(1)>", "")], title="Digits")


def test_table_aligns_and_writes_numbers_for_readers():
    frame = pd.DataFrame({"head": ["5.3", None], "balance": [-0.012345, math.inf], "n": [3, 4], "ok": [True, False]})
    html = elements.table(frame, title="Heads").html
    assert '<th scope="col" class="number">balance</th>' in html
    assert '<td class="number">−0.0123</td><td class="number">3</td><td>yes</td>' in html
    assert '<td>–</td><td class="number">∞</td><td class="number">4</td><td>no</td>' in html


def test_table_that_nobody_would_read_is_refused():
    with pytest.raises(ValueError, match="table has 501 rows; a page shows at most 500"):
        elements.table(pd.DataFrame({"x": range(501)}), title="Long")


@pytest.mark.parametrize(
    "document", ["<script src='https://x'></script>", '<LINK rel="stylesheet" href="https://x">', "<img src=https://x>"]
)
def test_explorable_must_be_self_contained(document):
    with pytest.raises(ValueError, match="must be self-contained, but loads 'https://x'"):
        elements.explorable(document, title="Replay", description="a replay")


def test_an_element_is_saved_as_a_page_of_its_own_and_a_viewer_as_it_is(every_element):
    page = render_element(every_element["cards"])
    assert page.startswith("<!doctype html>")
    assert "text-cards" in page
    assert render_element(every_element["viewer"]) == str(every_element["viewer"].html)
