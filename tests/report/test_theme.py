"""Colours can be told apart and read, and arms look the same in every chart."""

import itertools

import altair as alt
import numpy as np
import pytest

from gnomon.report.theme import (
    BAND,
    CATEGORIES,
    CONTROL_COLOR,
    CONTROL_SHADES,
    FONT_FOLDER,
    INK,
    MUTED,
    NULL,
    RAMP,
    RULE,
    SURFACE,
    THEME,
    TREATMENT_COLOR,
    arm_dash,
    arm_scale,
    arm_shape,
    gnomon_theme,
)

DARK_SURFACE = "#171d24"  # --surface of page.css in dark mode

# Machado, Oliveira & Fernandes (2009), "A physiologically-based model for simulation of color vision deficiency",
# severity 1.0, on linear RGB.
DEFICIENCIES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def linear(color):
    channels = np.array([int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first, second):
    """WCAG 2.2 contrast ratio."""
    lighter, darker = sorted((linear(color) @ [0.2126, 0.7152, 0.0722] for color in (first, second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def lab(rgb):
    """CIE L*a*b* of linear RGB, D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_contrast_ratio_of_black_on_white_is_21():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("color", sorted({*CONTROL_SHADES, *CATEGORIES, *RAMP, TREATMENT_COLOR, NULL}))
def test_marks_stand_out_on_the_light_and_on_the_dark_page(color):
    assert contrast(color, SURFACE) >= 3
    assert contrast(color, DARK_SURFACE) >= 3


@pytest.mark.parametrize("color", [INK, MUTED])
def test_text_can_be_read(color):
    assert contrast(color, SURFACE) >= 4.5


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_treatment_and_control_differ_for_the_colour_blind(deficiency):
    seen = [lab(np.array(DEFICIENCIES[deficiency]) @ linear(color)) for color in (TREATMENT_COLOR, CONTROL_COLOR)]
    # CIE76; 2.3 is just noticeable, 30 is two colours with different names.
    assert np.linalg.norm(seen[0] - seen[1]) > 30


def test_neutral_colours_are_distinct_so_that_the_page_can_map_each():
    neutral = [INK, MUTED, NULL, RULE, BAND, SURFACE]
    assert len(set(neutral)) == len(neutral)
    assert not set(neutral) & {*CONTROL_SHADES, *CATEGORIES, *RAMP, TREATMENT_COLOR}


@pytest.mark.parametrize("arms", list(itertools.permutations(["treatment", "random-init", "shuffled"])))
def test_treatment_is_blue_and_first_whatever_the_order_of_rows(arms):
    scale = arm_scale(arms).to_dict()
    assert scale["domain"][0] == "treatment"
    assert scale["range"][:2] == [TREATMENT_COLOR, CONTROL_COLOR]
    assert arm_shape(arms).to_dict()["scale"]["range"][0] == "circle"
    assert arm_dash(arms).to_dict()["scale"]["range"][0] == [1, 0]


def test_a_chart_of_controls_alone_has_no_blue():
    assert arm_scale(["random-init"]).to_dict()["range"] == [CONTROL_COLOR]


def test_theme_is_registered_but_not_forced_on_the_user():
    assert THEME in alt.theme.names()
    assert alt.theme.active != THEME
    assert gnomon_theme()["config"]["background"] == SURFACE


def test_the_font_is_shipped_with_its_licence():
    assert {file.name for file in FONT_FOLDER.iterdir()} == {
        "Inter-Regular.ttf",
        "Inter-SemiBold.ttf",
        "Inter-Regular.woff2",
        "Inter-SemiBold.woff2",
        "OFL.txt",
    }
