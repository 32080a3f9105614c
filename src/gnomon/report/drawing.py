"""SVG from elsewhere, reduced to what draws and nothing that acts."""

from __future__ import annotations

import hashlib
import re
import xml.etree.ElementTree as ElementTree

from markupsafe import Markup

_SVG = "http://www.w3.org/2000/svg"
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"

_WORD = re.compile(r"[\w-]+")
_ELEMENTS = frozenset(
    _WORD.findall(
        """svg g defs symbol use title desc path rect circle ellipse line polyline polygon text tspan textPath marker
        linearGradient radialGradient stop clipPath mask pattern"""
    )
)
_ATTRIBUTES = frozenset(
    _WORD.findall(
        """id transform viewBox preserveAspectRatio width height x y x1 y1 x2 y2 cx cy r rx ry fx fy d points dx dy
        rotate textLength lengthAdjust startOffset fill fill-opacity fill-rule stroke stroke-width stroke-opacity
        stroke-dasharray stroke-dashoffset stroke-linecap stroke-linejoin stroke-miterlimit opacity color font-family
        font-size font-weight font-style text-anchor dominant-baseline alignment-baseline letter-spacing offset
        stop-color stop-opacity gradientUnits gradientTransform spreadMethod clip-path clip-rule clipPathUnits mask
        maskUnits maskContentUnits patternUnits patternContentUnits patternTransform marker-start marker-mid marker-end
        markerWidth markerHeight markerUnits refX refY orient visibility display href"""
    )
)
_LOCAL_REFERENCE = re.compile(r"url\(\s*(['\"]?)#([\w.-]+)\1\s*\)")


def sanitised_svg(svg: str, *, description: str) -> Markup:
    """The drawing with only known shapes and attributes, its ids made unique, labelled for screen readers.

    Raises:
        ValueError: If the text is not well-formed, is not SVG, or declares a document type (entities).
    """
    if "<!doctype" in svg.lower() or "<!entity" in svg.lower():
        raise ValueError("SVG with a document type declaration is not accepted")
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise ValueError(f"not well-formed SVG: {error}") from None
    if _local(root.tag) != "svg":
        raise ValueError(f"expected an <svg> element, got <{_local(root.tag)}>")
    prefix = "d" + hashlib.sha256(svg.encode()).hexdigest()[:8] + "-"
    clean = _cleaned(root, prefix)
    clean.set("xmlns", _SVG)
    clean.set("role", "img")
    clean.set("aria-label", description)
    clean.set("class", "drawing")
    return Markup(ElementTree.tostring(clean, encoding="unicode"))


def _cleaned(element: ElementTree.Element, prefix: str) -> ElementTree.Element:
    clean = ElementTree.Element(_local(element.tag))
    clean.text, clean.tail = element.text, element.tail
    for name, value in element.attrib.items():
        kept = _attribute("href" if name == _XLINK_HREF else name, value, prefix)
        if kept is not None:
            clean.set(*kept)
    for child in element:
        # Comments and processing instructions have a function as tag.
        if isinstance(child.tag, str) and _local(child.tag) in _ELEMENTS:
            clean.append(_cleaned(child, prefix))
    return clean


def _attribute(name: str, value: str, prefix: str) -> tuple[str, str] | None:
    if name not in _ATTRIBUTES:
        return None
    if name == "id":
        return name, prefix + value
    if name == "href":
        return (name, f"#{prefix}{value[1:]}") if value.startswith("#") else None
    local = _LOCAL_REFERENCE.sub(lambda match: f"url(#{prefix}{match[2]})", value)
    outside = "url(" in _LOCAL_REFERENCE.sub("", value).lower()
    return None if outside or "\\" in value else (name, local)


def _local(tag: str) -> str:
    return tag.removeprefix(f"{{{_SVG}}}")
