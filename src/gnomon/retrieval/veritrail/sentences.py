"""Sentences of a process, each with an id that says where it stands: ``NODE#INDEX``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from sentencex import get_sentence_boundaries  # pyright: ignore[reportAttributeAccessIssue]

from gnomon.retrieval.veritrail.process import Process

Splitter = Callable[[str], list[tuple[int, int]]]
"""Character spans (start, end) of the sentences of a text, in order."""

LONGEST = 2_000
"""Characters of the longest sentence: a log line or a list without full stops must still fit into a judge's input."""

_BLANK = re.compile(r"\s*(?:[-=*_`~]{3,}\w*|[|:\-\s]*-{3,}[|:\-\s]*)?\s*")
_HEADING = re.compile(r"\s*#{1,6}\s+")
_ITEM = re.compile(r"\s*(?:[-*+•‣◦▪–—]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+(?=\S)")
_ROW = re.compile(r"\s*\|")
_PUNCTUATION = ".!?:;,…|"
_CLOSING = "\"'”’)]*_"
_OPEN_ABBREVIATION = re.compile(r"\b(?:approx|ca|bn|mn|tn)\.\s*$")
_BREAKS = ("; ", ", ", " ")


@dataclass(frozen=True)
class Sentence:
    """One sentence.

    Args:
        id: ``NODE#INDEX``.
        node: Id of the node it stands in.
        text: The sentence, as the node has it.
        span: Characters (start, end) of it in the node's text.
    """

    id: str
    node: str
    text: str
    span: tuple[int, int]


class SentenceIndex:
    """All sentences of a process.

    Args:
        process: The process.
        splitter: Where sentences begin and end.
    """

    def __init__(self, process: Process, splitter: Splitter | None = None) -> None:
        split = splitter or sentence_spans
        self.process = process
        self._by_node: dict[str, tuple[Sentence, ...]] = {}
        for node in process.nodes.values():
            self._by_node[node.id] = tuple(
                Sentence(f"{node.id}#{index}", node.id, node.text[start:end], (start, end))
                for index, (start, end) in enumerate(split(node.text))
            )
        self._by_id = {sentence.id: sentence for sentence in self}

    def of(self, node: str) -> tuple[Sentence, ...]:
        """Sentences of a node, in order."""
        return self._by_node[node]

    def of_all(self, nodes: Iterable[str]) -> tuple[Sentence, ...]:
        """Sentences of several nodes, in the order of the nodes."""
        return tuple(sentence for node in nodes for sentence in self._by_node[node])

    def __getitem__(self, sentence: str) -> Sentence:
        return self._by_id[sentence]

    def __contains__(self, sentence: object) -> bool:
        return sentence in self._by_id

    def __iter__(self) -> Iterator[Sentence]:
        for sentences in self._by_node.values():
            yield from sentences

    def __len__(self) -> int:
        return len(self._by_id)


def sentence_spans(text: str, *, language: str = "en") -> list[tuple[int, int]]:
    """Where the sentences of a text begin and end, without the space around them.

    Headings, list items and table rows are sentences of their own, without their markers; lines of one paragraph are
    read as one line. A sentence of more than ``LONGEST`` characters is cut at a semicolon, a comma or a space.

    Args:
        text: Plain text or Markdown.
        language: ISO 639 code, for its abbreviations.

    >>> text = "# Results\\n- Dr. Okafor left the U.S. in 2019. She sold 1.5 million shares.\\n- It fell."
    >>> [text[start:end] for start, end in sentence_spans(text)]
    ['Results', 'Dr. Okafor left the U.S. in 2019.', 'She sold 1.5 million shares.', 'It fell.']
    """
    return [
        piece
        for block in _blocks(text)
        for sentence in _within(text, block, language)
        for piece in pieces(text, sentence, LONGEST)
    ]


def pieces(text: str, span: tuple[int, int], longest: int) -> list[tuple[int, int]]:
    """A span in pieces of at most ``longest`` characters, cut after a semicolon, else a comma, else a space.

    >>> pieces("one, two, three", (0, 15), 10)
    [(0, 9), (10, 15)]
    """
    start, end = span
    found = []
    while end - start > longest:
        # A cut in the first half would leave crumbs; the next weaker break is better.
        cuts = (text.rfind(mark, start + longest // 2, start + longest) for mark in _BREAKS)
        cut = next((cut + 1 for cut in cuts if cut > 0), start + longest)
        found.append(_stripped(text, start, cut))
        start = cut
    found.append(_stripped(text, start, end))
    return [piece for piece in found if piece[0] < piece[1]]


def _blocks(text: str) -> list[tuple[int, int]]:
    """Spans of paragraphs, headings, list items and table rows, without their markers."""
    blocks: list[tuple[int, int]] = []
    # The line above, where the next line may continue its block; and whether that block is a list item.
    above, in_list = "", False
    position = 0
    for line in text.splitlines(keepends=True):
        start, position = position, position + len(line)
        end = start + len(line.rstrip())
        heading, row = _HEADING.match(line), _ROW.match(line)
        item = _ITEM.match(line)
        # In the middle of a sentence, a dash or number at the beginning of a line is no marker but a line break.
        if item and item[0].strip() not in "*•‣◦▪" and not (in_list or not above or _ends(above) or _is_short(above)):
            item = None
        if _BLANK.fullmatch(line):
            above = ""
            continue
        title = _is_short(above) and not _ends(above) and line.lstrip()[:1].isupper()
        if heading or row or item or not above or title:
            marker = heading or item
            blocks.append((start + (marker.end() if marker else 0), end))
            in_list = item is not None
        else:
            blocks[-1] = (blocks[-1][0], end)
        above = "" if heading or row else line.rstrip()
    return blocks


def _is_short(line: str) -> bool:
    """Whether a line is short enough for a title."""
    return len(line) <= 60 and len(line.split()) <= 8


def _ends(line: str) -> bool:
    """Whether a line ends with punctuation."""
    return line.rstrip(_CLOSING)[-1:] in _PUNCTUATION


def _within(text: str, block: tuple[int, int], language: str) -> list[tuple[int, int]]:
    """Spans of the sentences of one block."""
    start, end = block
    found = get_sentence_boundaries(language, text[start:end])
    ends = [boundary["end_index"] for boundary in found]
    kept = [stop for stop in ends[:-1] if not _OPEN_ABBREVIATION.search(text[start + max(stop - 12, 0) : start + stop])]
    cuts = [0, *kept, end - start]
    spans = (_stripped(text, start + first, start + last) for first, last in pairwise(cuts))
    return [span for span in spans if span[0] < span[1]]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
