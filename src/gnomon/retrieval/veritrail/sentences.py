"""Sentences of a process, each with an id that says where it stands: ``NODE#INDEX``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gnomon.retrieval.veritrail.process import Process

Splitter = Callable[[str], list[tuple[int, int]]]
"""Character spans (start, end) of the sentences of a text, in order."""


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
