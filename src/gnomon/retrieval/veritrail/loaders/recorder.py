"""Writing a process down while a pipeline runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from gnomon.retrieval.veritrail.loaders.json_format import write_json
from gnomon.retrieval.veritrail.process import GraphError, Node, Process


class Recorder:
    """Collects texts and what they were made from.

    Args:
        path: Where to write the process when the ``with`` block ends without an error; ``None``: nowhere.
        question: What the user had asked for.

    >>> with Recorder() as recorder:
    ...     chunk = recorder.node("Corvus closed its plant in Kiel in 2019.")
    ...     answer = recorder.node("The plant was closed.", sources=[chunk])
    >>> recorder.process().edges
    (('n1', 'n2'),)
    """

    def __init__(self, path: str | Path | None = None, *, question: str = "") -> None:
        self._path = path
        self._question = question
        self._nodes: dict[str, Node] = {}
        self._edges: list[tuple[str, str]] = []

    def node(
        self,
        text: str,
        *,
        sources: Iterable[str] = (),
        id: str | None = None,
        stage: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> str:
        """Note a text and return its id.

        Args:
            text: What the source says or the step wrote.
            sources: Ids of the texts the step was given.
            id: A name of one's own; else ``n1``, ``n2``, ...
            stage: Number of the step; else inferred.
            meta: Anything else that is known about it.

        Raises:
            GraphError: If the id is taken, or a source was not recorded before.
        """
        name = id if id is not None else f"n{len(self._nodes) + 1}"
        if name in self._nodes:
            raise GraphError(f"two nodes have the id {name!r}")
        given = list(sources)
        if unknown := [source for source in given if source not in self._nodes]:
            raise GraphError(f"source {unknown[0]!r} of node {name!r} was not recorded")
        self._nodes[name] = Node(name, text, stage, dict(meta or {}))
        self._edges += [(source, name) for source in given]
        return name

    def process(self, terminal: str | None = None) -> Process:
        """The process so far.

        Raises:
            GraphError: If it is none yet, see :class:`~gnomon.retrieval.veritrail.process.Process`.
        """
        return Process(self._nodes.values(), self._edges, terminal, self._question)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._path is not None:
            write_json(self.process(), self._path)
