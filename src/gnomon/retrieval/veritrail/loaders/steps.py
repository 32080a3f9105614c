"""A process from logged calls: who read what is found in the texts.

A log of calls says what each call was given and what it answered, but seldom that an input *is* an earlier output.
Here a text counts as an input of a call if the call's messages contain it: at least 90 % of its runs of eight words
(all of them, for shorter texts of at least 40 characters). What a call was given beyond that becomes a source of its
own, ``prompt:CALL``, with ``meta["unattributed"]``. System messages are instructions and no sources.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from gnomon.retrieval.veritrail.process import GraphError, Node, Process

RUN = 8
"""Words of a run."""
SHARE = 0.9
"""Share of a text's runs that a call must have been given to have read it."""
SHORTEST = 40
"""Characters of the shortest text whose presence in a message is no coincidence."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Document:
    """A text that came from outside: a retrieved document, the result of a tool."""

    id: str
    text: str
    meta: dict[str, Any] = field(default_factory=dict)


def document(text: str, id: object = None, meta: Mapping[str, Any] | None = None) -> Document:
    """A document; one without an id is named by a hash of its text, so that it is one node however often it is fetched.

    >>> document("Corvus closed its plant.").id
    'doc:6cb30a9d'
    """
    name = str(id) if id not in (None, "") else f"doc:{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return Document(name, text, dict(meta or {}))


@dataclass(frozen=True)
class Step:
    """One logged call.

    Args:
        id: Unique name.
        name: What the log calls it.
        start: Its place in time.
        inputs: Texts it was given, without instructions.
        output: What a model wrote; empty for calls that wrote nothing.
        documents: What a call that fetches brought.
        sources: Ids of calls and documents known to be its inputs.
    """

    id: str
    name: str = ""
    start: float = 0.0
    inputs: tuple[str, ...] = ()
    output: str = ""
    documents: tuple[Document, ...] = ()
    sources: tuple[str, ...] = ()


def assemble(steps: Iterable[Step], *, terminal: str | None = None, question: str = "") -> Process:
    """The process behind logged calls.

    Args:
        steps: The calls, in any order.
        terminal: The call that wrote the final text; ``None``: the last one that wrote.
        question: What the user had asked for; it is no source, where it stands in a message.

    Raises:
        GraphError: If no call wrote a text, the terminal is unknown, or the final text had no sources.
    """
    ordered = sorted(steps, key=lambda step: step.start)
    texts = _Texts()
    nodes: dict[str, Node] = {}
    edges: list[tuple[str, str]] = []
    for step in ordered:
        for fetched in step.documents:
            if fetched.text.strip() and fetched.id not in nodes:
                nodes[fetched.id] = Node(fetched.id, fetched.text, None, fetched.meta)
                texts.add(fetched.id, fetched.text)
        if not step.output.strip():
            continue
        found, rest = texts.within("\n\n".join(step.inputs))
        rest = rest.replace(question, "").strip() if question else rest
        sources = dict.fromkeys([*(source for source in step.sources if source in nodes), *found])
        if len(rest) >= SHORTEST:
            prompt = f"prompt:{step.id}"
            nodes[prompt] = Node(prompt, rest, None, {"unattributed": True, "name": step.name})
            texts.add(prompt, rest)
            sources[prompt] = None
        nodes[step.id] = Node(step.id, step.output, None, {"name": step.name} if step.name else {})
        texts.add(step.id, step.output)
        edges += [(source, step.id) for source in sources]
    written = [step.id for step in ordered if step.output.strip()]
    if not written:
        raise GraphError("no call in the log wrote a text")
    final = terminal if terminal is not None else written[-1]
    if final not in nodes:
        raise GraphError(f"terminal {final!r} is no call that wrote a text; the last that did is {written[-1]!r}")
    kept = _leading_to(final, edges)
    named = {final, *(name for edge in kept for name in edge)}
    return Process([node for name, node in nodes.items() if name in named], kept, final, question)


class _Texts:
    """Texts by the runs of words they consist of."""

    def __init__(self) -> None:
        self._holders: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self._runs: dict[str, int] = {}
        self._lengths = {RUN}

    def add(self, name: str, text: str) -> None:
        """Remember a text; texts that are too short to be recognised are not."""
        words = _words(text)
        if len(text.strip()) < SHORTEST or not words:
            return
        runs = set(_runs(words))
        self._runs[name] = len(runs)
        self._lengths.update(map(len, runs))
        for run in runs:
            self._holders[run].append(name)

    def within(self, given: str) -> tuple[list[str], str]:
        """Names of the texts that were given, in the order they were added, and what else was given."""
        matches = list(_WORD.finditer(given))
        words = [match[0].casefold() for match in matches]
        places: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for length in self._lengths:
            for start in range(len(words) - length + 1):
                run = tuple(words[start : start + length])
                if run in self._holders:
                    places[run].append(start)
        counts = Counter(name for run in places for name in self._holders[run])
        found = [name for name, runs in self._runs.items() if counts[name] >= SHARE * runs]
        covered = [False] * len(words)
        read = set(found)
        for run, starts in places.items():
            if read.intersection(self._holders[run]):
                for start in starts:
                    covered[start : start + len(run)] = [True] * len(run)
        return found, _uncovered(given, matches, covered)


def _words(text: str) -> list[str]:
    return [match[0].casefold() for match in _WORD.finditer(text)]


def _runs(words: Sequence[str]) -> list[tuple[str, ...]]:
    """All runs of eight words; a shorter text is one run."""
    return [tuple(words[start : start + RUN]) for start in range(max(len(words) - RUN, 0) + 1)]


def _uncovered(given: str, matches: Sequence[re.Match[str]], covered: Sequence[bool]) -> str:
    """The words that stand in no recognised text, with what is between them; pieces on lines of their own."""
    pieces: list[str] = []
    begin: int | None = None
    for match, known in zip(matches, covered, strict=True):
        if known and begin is not None:
            pieces.append(given[begin : match.start()])
            begin = None
        elif not known and begin is None:
            begin = match.start()
    if begin is not None:
        pieces.append(given[begin:])
    return "\n".join(piece.strip() for piece in pieces if _WORD.search(piece))


def _leading_to(terminal: str, edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The edges on paths to the terminal: a log also holds calls that the final text does not rest on."""
    graph = nx.DiGraph(edges)
    reached = nx.ancestors(graph, terminal) | {terminal} if terminal in graph else set()
    return [edge for edge in edges if edge[1] in reached]
