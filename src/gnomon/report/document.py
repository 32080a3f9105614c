"""Reading an HTML document that is to be shown inside a page: its inline scripts, and what it wants from outside."""

from __future__ import annotations

from html.parser import HTMLParser

_LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "object": "data", "embed": "src"}


def inline_scripts(document: str) -> list[str]:
    """Text of every inline script of the document."""
    return _read(document).scripts


def outside_references(document: str) -> list[str]:
    """Addresses outside the document that it would load: all but ``data:`` URLs."""
    return _read(document).references


def _read(document: str) -> _Reader:
    reader = _Reader()
    reader.feed(document)
    reader.close()
    return reader


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.references: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(_LOADS.get(tag, ""))
        if address and not address.lower().startswith("data:"):
            self.references.append(address)
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
