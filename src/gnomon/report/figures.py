"""A study's charts and elements, drawn: a Vega-Lite specification with its PNG and SVG, or finished HTML."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from altair.typing import ChartType

from gnomon.report.elements import Element
from gnomon.report.theme import FONT_FOLDER, THEME

VEGALITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The Vega-Lite version that Altair writes, as vl-convert names it."""

_SLUG = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")
# What XML cannot carry: control characters, lone surrogates. One of them in a text makes vl-convert abort the process.
_UNDRAWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_PIXELS = 2  # a PNG has this many pixels for each of the chart's, for sharp print and screens


@dataclass(frozen=True)
class Figure:
    """A chart or an element under its name.

    Args:
        name: Slug; the name of its files.
        title: Heading.
        caption: Text under it.
        description: What a screen reader says in its place.
        specification: Vega-Lite with theme and data; ``None`` for an element.
        element: The element; ``None`` for a chart.
    """

    name: str
    title: str
    caption: str
    description: str
    specification: Mapping[str, Any] | None = None
    element: Element | None = None

    @cached_property
    def png(self) -> bytes:
        """The chart as PNG, two pixels for one."""
        _register_fonts()
        return vl_convert.vegalite_to_png(dict(self._chart), vl_version=VEGALITE, scale=_PIXELS, allowed_base_urls=[])

    @cached_property
    def svg(self) -> str:
        """The chart as SVG."""
        _register_fonts()
        return vl_convert.vegalite_to_svg(dict(self._chart), vl_version=VEGALITE, allowed_base_urls=[])

    @property
    def png_url(self) -> str:
        """The PNG as a data URL."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the chart in CSS pixels, from the PNG's header."""
        width, height = (int.from_bytes(self.png[start : start + 4], "big") for start in (16, 20))
        return width // _PIXELS, height // _PIXELS

    @property
    def wide(self) -> bool:
        """Whether it takes the whole width of the page: an element, or panels side by side that cannot shrink."""
        return self.specification is None or ("width" not in self.specification and self.size[0] > 600)

    @property
    def _chart(self) -> Mapping[str, Any]:
        if self.specification is None:
            raise ValueError(f"figure {self.name!r} is a page element, not a chart")
        return self.specification

    def save(self, folder: Path) -> None:
        """Write the chart's specification, PNG and SVG into the folder."""
        specification = json.dumps(self._chart, ensure_ascii=False, allow_nan=False)
        (folder / f"{self.name}.json").write_text(specification, encoding="utf-8")
        (folder / f"{self.name}.png").write_bytes(self.png)
        (folder / f"{self.name}.svg").write_text(self.svg, encoding="utf-8")


def figure(name: str, drawn: ChartType | Element) -> Figure:
    """The figure of a chart, with the theme and all its data, or of an element.

    Raises:
        ValueError: If the name is not a slug, or the chart refers to data outside itself.
        TypeError: If it is neither an Altair chart nor an element.
    """
    if not _SLUG.fullmatch(name):
        raise ValueError(f"figure name {name!r} is not a slug such as 'head-map'")
    if isinstance(drawn, Element):
        return Figure(name, drawn.title, drawn.caption, drawn.description, element=drawn)
    if not isinstance(drawn, alt.TopLevelMixin):
        raise TypeError(f"figure {name!r} is a {type(drawn).__name__}; expected an Altair chart or a page element")
    with alt.theme.enable(THEME), alt.data_transformers.enable("default", max_rows=None):
        specification: dict[str, Any] = _drawable(drawn.to_dict(format="vega-lite"))
    for address in _data_addresses(specification):
        raise ValueError(f"figure {name!r} reads its data from {address!r}; a chart carries its data")
    return Figure(
        name,
        title=_title(specification) or name,
        caption=specification.get("usermeta", {}).get("caption", ""),
        description=specification.get("description", ""),
        specification=specification,
    )


def _drawable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNDRAWABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {_drawable(name): _drawable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_drawable(inner) for inner in value]
    return value


def _data_addresses(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        data = value.get("data")
        if isinstance(data, Mapping) and "url" in data:
            yield data["url"]
        # Rows may have a column named "data"; they are no specification.
        inner = [part for name, part in value.items() if name not in ("datasets", "values")]
    else:
        inner = value if isinstance(value, list) else []
    for part in inner:
        yield from _data_addresses(part)


def _title(specification: Mapping[str, Any]) -> str:
    title = specification.get("title", "")
    text = title.get("text", "") if isinstance(title, Mapping) else title
    return " ".join(text) if isinstance(text, list) else str(text)


@cache
def _register_fonts() -> None:
    vl_convert.register_font_directory(str(FONT_FOLDER))


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script without imports; it defines ``vegaEmbed``."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGALITE)
