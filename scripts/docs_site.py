"""Hooks of the documentation site: navigation from the files that exist, and formulas without a script.

MkDocs calls the functions below by their names (``hooks`` in ``mkdocs.yml``).
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\((.*?)\\\)|\\\[(.*?)\\\])</\1>', re.DOTALL)


def on_config(config: Any) -> Any:
    """Replace every navigation entry that is a glob by the pages it matches; an entry without any disappears."""
    docs = Path(config.docs_dir)
    config.nav = [entry for item in config.nav for entry in _expanded(item, docs)]
    return config


def on_page_content(content: str, **_: Any) -> str:
    """Turn each formula into MathML, which browsers draw themselves: no MathJax, no network."""
    return _FORMULA.sub(_mathml, content)


def _expanded(item: dict[str, str], docs: Path) -> list[dict[str, Any]]:
    ((title, target),) = item.items()
    if "*" not in target:
        return [item]
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.glob(target))
    return [{title: pages}] if pages else []


def _mathml(formula: re.Match[str]) -> str:
    _, inline, block = formula.groups()
    return convert(html.unescape(inline or block), display="inline" if inline else "block")
