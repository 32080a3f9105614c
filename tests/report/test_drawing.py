"""Foreign SVG loses everything that acts and keeps what draws."""

import xml.etree.ElementTree as ElementTree

import pytest

from gnomon.report.drawing import sanitised_svg

SVG = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


def clean(inside, description="a drawing"):
    return str(sanitised_svg(f"<svg {SVG}>{inside}</svg>", description=description))


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'><img src='x'/></body></foreignObject>",
        "<image href='https://example.org/x.png'/>",
        "<a href='https://example.org'><text>link</text></a>",
        "<style>@import url(https://example.org)</style>",
        "<animate attributeName='href' values='javascript:alert(1)'/>",
        "<set attributeName='onmouseover' to='alert(1)'/>",
        "<x:script xmlns:x='http://www.w3.org/1999/xhtml'>alert(1)</x:script>",
    ],
)
def test_elements_that_act_are_dropped(inside):
    assert list(ElementTree.fromstring(clean(inside))) == []


@pytest.mark.parametrize(
    "attribute",
    [
        "onclick='alert(1)'",
        "style='fill:url(https://example.org)'",
        "fill='url(https://example.org#a)'",
        "fill='url( \"//example.org\" )'",
        "fill='u\\72l(https://example.org)'",
        "href='https://example.org'",
        "xlink:href='data:text/html,x'",
        "class='unseen'",
    ],
)
def test_attributes_that_act_or_reach_out_are_dropped(attribute):
    [rect] = ElementTree.fromstring(clean(f"<rect width='3' {attribute}/>"))
    assert rect.attrib == {"width": "3"}


def test_references_inside_the_drawing_still_work_and_cannot_meet_those_of_another():
    gradient = "<defs><linearGradient id='g'><stop offset='0' stop-color='red'/></linearGradient></defs>"
    one = clean(f"{gradient}<rect fill='url(#g)'/><use xlink:href='#g'/>")
    other = clean(f"{gradient}<rect fill='url(#g)'/><circle r='1'/>")
    ids = [ElementTree.fromstring(svg).find(".//*[@id]").attrib["id"] for svg in (one, other)]
    assert ids[0] != ids[1]
    assert f'fill="url(#{ids[0]})"' in one
    assert f'href="#{ids[0]}"' in one


def test_text_is_kept_and_escaped():
    assert "&lt;b&gt; θ" in clean("<text>&lt;b&gt; θ</text>")


def test_description_is_its_accessible_name():
    assert ElementTree.fromstring(clean("", '<"a drawing">')).attrib["aria-label"] == '<"a drawing">'


@pytest.mark.parametrize(
    ("svg", "message"),
    [
        ("<svg", "not well-formed SVG"),
        ("<html/>", "expected an <svg> element, got <html>"),
        (f'<!DOCTYPE svg [<!ENTITY x "y">]><svg {SVG}>&x;</svg>', "document type declaration"),
    ],
)
def test_what_is_no_svg_is_refused(svg, message):
    with pytest.raises(ValueError, match=message):
        sanitised_svg(svg, description="")
