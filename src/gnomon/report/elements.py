"""Page elements that are not charts: galleries, highlighted text, tables, drawings, explorable pages.

An element is finished HTML (:class:`Element`) that the report places as it is, so everything that enters one is
escaped or sanitised here, at the boundary. Model output can reach a page only as text.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from markupsafe import Markup, escape
from PIL import Image

from gnomon.report.document import outside_references
from gnomon.report.drawing import sanitised_svg

MAXIMUM_ROWS = 500
_IMAGE_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


@dataclass(frozen=True)
class Element:
    """A piece of a page.

    Args:
        html: Safe markup.
        title: Heading above it.
        caption: Text under it.
        description: What a screen reader says in place of a picture.
        sandboxed: The html is a complete document of its own and is shown in a sandboxed frame.
        height: Height of that frame in pixels.
    """

    html: Markup
    title: str = ""
    caption: str = ""
    description: str = ""
    sandboxed: bool = False
    height: int = 0


@dataclass(frozen=True)
class Picture:
    """An image of a gallery: bytes of a PNG, JPEG, GIF or WebP file, or its path, with what it shows in words.

    Where ``label`` says it already, a screen reader hears it once.
    """

    image: bytes | Path
    alt: str
    label: str = ""


@dataclass(frozen=True)
class Passage:
    """A text whose tokens carry weights in [-1, 1]: blue for positive, orange for negative, none for zero."""

    tokens: Sequence[str]
    weights: Sequence[float]
    label: str = ""


def gallery(pictures: Iterable[Picture], *, title: str, caption: str = "") -> Element:
    """Images in a grid, each with its label.

    Raises:
        ValueError: If an image is in none of the known formats.
    """
    items = Markup("").join(
        Markup('<li><img src="{}" alt="{}"><span>{}</span></li>').format(
            _data_url(picture.image), picture.alt if picture.alt != picture.label else "", picture.label
        )
        for picture in pictures
    )
    return Element(Markup('<ul class="gallery">{}</ul>').format(items), title, caption)


def _data_url(image: bytes | Path) -> str:
    content = image.read_bytes() if isinstance(image, Path) else image
    for signature, media_type in _IMAGE_TYPES.items():
        if content.startswith(signature):
            return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
    raise ValueError(f"image starts with {content[:4]!r}; expected a PNG, JPEG, GIF or WebP file")


def image_png(pixels: Float[np.ndarray, "height width *channel"], *, scale: int = 1) -> bytes:
    """PNG bytes of grey or RGB pixels in [0, 1], each drawn as ``scale`` x ``scale``.

    Raises:
        ValueError: If a pixel is not finite.
    """
    if not np.isfinite(pixels).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(pixels))[0])
        raise ValueError(f"pixels[{', '.join(map(str, first))}] is not finite")
    levels = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(levels.repeat(scale, axis=0).repeat(scale, axis=1))
    stream = io.BytesIO()
    picture.save(stream, format="PNG")
    return stream.getvalue()


def text_cards(passages: Iterable[Passage], *, title: str, caption: str = "") -> Element:
    """Texts with highlighted tokens, one card a text; a token's weight is also its tooltip.

    Raises:
        ValueError: If a passage has not one finite weight in [-1, 1] for every token.
    """
    cards = Markup("").join(
        Markup('<li class="text-card">{}<p>{}</p></li>').format(
            Markup("<h4>{}</h4>").format(passage.label) if passage.label else "", _highlighted(passage)
        )
        for passage in passages
    )
    return Element(Markup('<ul class="text-cards">{}</ul>').format(cards), title, caption)


def _highlighted(passage: Passage) -> Markup:
    if len(passage.tokens) != len(passage.weights):
        raise ValueError(f"passage has {len(passage.tokens)} tokens but {len(passage.weights)} weights")
    marked: list[Markup] = []
    for token, weight in zip(passage.tokens, passage.weights, strict=True):
        if not -1 <= weight <= 1:
            raise ValueError(f"weight of token {token!r} must lie in [-1, 1], got {weight}")
        # Ten steps of a class instead of an inline colour: the page's variables then serve light and dark.
        step = math.ceil(abs(weight) * 10)
        sign = "positive" if weight > 0 else "negative"
        mark = Markup('<mark class="{} w{}" title="{:+.2f}">{}</mark>')
        marked.append(mark.format(sign, step, float(weight), token) if step else escape(token))
    return Markup("").join(marked)


def table(frame: pd.DataFrame, *, title: str, caption: str = "") -> Element:
    """A table of numbers and words; numbers are right-aligned with three significant digits.

    Raises:
        ValueError: If it has more than 500 rows, which nobody reads: pass the head, the rest is in the run's tables.
    """
    if len(frame) > MAXIMUM_ROWS:
        raise ValueError(f"table has {len(frame)} rows; a page shows at most {MAXIMUM_ROWS}")
    numeric = [pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind) for kind in frame.dtypes]
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(_number_class(is_number), column)
        for column, is_number in zip(frame, numeric, strict=True)
    )
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup("<td{}>{}</td>").format(_number_class(is_number), written(value))
                for value, is_number in zip(row, numeric, strict=True)
            )
        )
        for row in frame.itertuples(index=False, name=None)
    )
    html = Markup('<div class="scroll" tabindex="0" role="region" aria-label="{}"><table>{}{}</table></div>')
    return Element(
        html.format(
            f"Table: {title}",
            Markup("<thead><tr>{}</tr></thead>").format(head),
            Markup("<tbody>{}</tbody>").format(body),
        ),
        title,
        caption,
    )


def _number_class(is_number: bool) -> Markup:
    return Markup(' class="number"') if is_number else Markup("")


def written(value: Any) -> str:
    """A value as a reader wants it: three significant digits, a true minus, ``–`` for what is missing.

    >>> written(-0.012345), written(float("nan")), written(float("inf")), written(12345), written("a")
    ('−0.0123', '–', '∞', '12345', 'a')
    """
    if value is None or value is pd.NA or (isinstance(value, float | np.floating) and math.isnan(value)):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        return f"{value:.3g}".replace("-", "−")
    return str(value).replace("-", "−") if isinstance(value, int | np.integer) else str(value)


def drawing(svg: str, *, title: str, description: str, caption: str = "") -> Element:
    """An SVG drawing, reduced to shapes, text and gradients: no scripts, links, foreign content or outside resources.

    Raises:
        ValueError: If the text is not well-formed SVG.
    """
    return Element(sanitised_svg(svg, description=description), title, caption, description)


def explorable(document: str, *, title: str, description: str, caption: str = "", height: int = 480) -> Element:
    """A self-contained HTML document to explore (a trace, a replay), shown in a sandboxed frame.

    The frame has an origin of its own and reaches neither the page nor the network. Its inline ``<script>`` blocks
    run, attributes such as ``onclick`` do not; the document escapes what it shows.

    Raises:
        ValueError: If the document would load something from outside itself.
    """
    outside = outside_references(document)
    if outside:
        raise ValueError(f"an explorable document must be self-contained, but loads {outside[0]!r}")
    return Element(Markup(document), title, caption, description, sandboxed=True, height=height)
