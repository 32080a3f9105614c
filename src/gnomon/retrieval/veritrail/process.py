"""The generative process as a graph: which text was made from which (section 3 of the paper).

A node is one text: a source document, or the output of one generative step. An edge ``(u, v)`` says that ``u`` was an
input of the step that wrote ``v``. Roots are the source material; the terminal node is the final text.

>>> process = Process(
...     [Node("chunk", "Corvus closed its plant."), Node("answer", "The plant was closed.")], [("chunk", "answer")]
... )
>>> process.terminal, process.roots, process.stage("answer")
('answer', ('chunk',), 2)
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from gnomon.evidence.nulls import derangement


class GraphError(ValueError):
    """The nodes and edges do not describe a generative process."""


@dataclass(frozen=True)
class Node:
    """One text of a process.

    Args:
        id: Unique name.
        text: What the source says or the step wrote; may be empty.
        stage: Number of its step, 1 for sources; ``None``: inferred from the edges.
        meta: Anything else that is known about it.

    Raises:
        TypeError: If the id or the text is not a string.
    """

    id: str
    text: str
    stage: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise TypeError(f"a node's id must be a string, got {self.id!r}")
        if not isinstance(self.text, str):
            raise TypeError(f"text of node {self.id!r} must be a string, got {type(self.text).__name__}")


class Process:
    """Texts, and which were made from which.

    Args:
        nodes: The texts, ids unique.
        edges: Pairs (input, output); repeated pairs count once.
        terminal: The final text; ``None``: the only node without outgoing edges.
        question: What the user had asked for, if anything.

    Raises:
        GraphError: If there are no nodes, two have one id, an edge names an unknown node, the edges contain a cycle,
            the terminal is unknown, ambiguous, has successors or was not generated, or a stage falls along an edge.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        edges: Iterable[tuple[str, str]],
        terminal: str | None = None,
        question: str = "",
    ) -> None:
        listed = list(nodes)
        self.nodes: dict[str, Node] = {node.id: node for node in listed}
        if not listed:
            raise GraphError("a process needs at least one source and one final text; there are no nodes")
        if len(self.nodes) < len(listed):
            ((twice, _),) = Counter(node.id for node in listed).most_common(1)
            raise GraphError(f"two nodes have the id {twice!r}")
        self.edges: tuple[tuple[str, str], ...] = tuple(dict.fromkeys((str(u), str(v)) for u, v in edges))
        self.question = question
        self._graph = self._checked_graph()
        self.terminal = self._find_terminal(terminal)
        self._stages = self._find_stages()

    def _checked_graph(self) -> nx.DiGraph:
        for u, v in self.edges:
            for end in (u, v):
                if end not in self.nodes:
                    raise GraphError(f"edge {u!r} -> {v!r} names {end!r}, which is no node")
        graph = nx.DiGraph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from(self.edges)
        if not nx.is_directed_acyclic_graph(graph):
            cycle = [u for u, _ in nx.find_cycle(graph)]
            raise GraphError(f"the edges contain a cycle: {' -> '.join([*cycle, cycle[0]])}")
        return graph

    def _find_terminal(self, terminal: str | None) -> str:
        ends = [node for node in self.nodes if not self._graph.out_degree(node)]
        if terminal is None:
            if len(ends) > 1:
                some = ", ".join(repr(end) for end in ends[:5])
                raise GraphError(f"{len(ends)} nodes have no outgoing edge ({some}): say which is the terminal")
            terminal = ends[0]
        if terminal not in self.nodes:
            raise GraphError(f"terminal {terminal!r} is no node")
        if self._graph.out_degree(terminal):
            raise GraphError(f"terminal {terminal!r} has outgoing edges; the final text has none")
        if not self._graph.in_degree(terminal):
            raise GraphError(f"terminal {terminal!r} has no sources: nothing was generated")
        return terminal

    def _find_stages(self) -> dict[str, int]:
        """Given stages; elsewhere 1 for roots, else one more than the largest stage of the sources (longest path)."""
        stages: dict[str, int] = {}
        for node in nx.topological_sort(self._graph):
            sources = [stages[source] for source in self._graph.predecessors(node)]
            given = self.nodes[node].stage
            if given is not None and sources and given < max(sources):
                source = max(self._graph.predecessors(node), key=stages.__getitem__)
                raise GraphError(
                    f"node {node!r} has stage {given}, below stage {stages[source]} of its source {source!r}"
                )
            stages[node] = given if given is not None else max(sources, default=0) + 1
        return stages

    @property
    def roots(self) -> tuple[str, ...]:
        """Nodes without incoming edges: the source material."""
        return tuple(node for node in self.nodes if not self._graph.in_degree(node))

    @cached_property
    def _roots(self) -> frozenset[str]:
        return frozenset(self.roots)

    def is_root(self, node: str) -> bool:
        """Whether the node is source material."""
        return node in self._roots

    def sources(self, node: str) -> tuple[str, ...]:
        """What the node was made from."""
        return tuple(self._graph.predecessors(node))

    def stage(self, node: str) -> int:
        """Number of the step that wrote the node."""
        return self._stages[node]

    @property
    def last_stage(self) -> int:
        """Stage of the terminal node."""
        return self._stages[self.terminal]

    def ancestors(self, node: str) -> frozenset[str]:
        """All the node was made from, directly or not."""
        return frozenset(nx.ancestors(self._graph, node))

    def descendants(self, node: str) -> frozenset[str]:
        """All that was made from the node, directly or not."""
        return frozenset(nx.descendants(self._graph, node))

    @cached_property
    def upstream(self) -> frozenset[str]:
        """All the final text was made from."""
        return self.ancestors(self.terminal)

    def graph(self) -> nx.DiGraph:
        """A copy as a networkx graph, without texts."""
        return self._graph.copy()  # pyright: ignore[reportReturnType]

    def in_order(self, nodes: Iterable[str]) -> list[str]:
        """Nodes by stage, then id: the order in which they are read."""
        return sorted(nodes, key=lambda node: (self._stages[node], node))

    def rewired(self, rng: np.random.Generator) -> Process:
        """The null of this process: within each layer, every node gets the sources of another.

        A layer is all nodes of one stage and one distance from the roots, so that the result is a process again.
        Texts, stages and the number of edges stay; what is lost is which text was really made from which. A layer
        with a single node keeps its sources.
        """
        layers: dict[tuple[int, int], list[str]] = {}
        for distance, generation in enumerate(nx.topological_generations(self._graph)):
            for node in generation:
                if not self.is_root(node):
                    layers.setdefault((self.stage(node), distance), []).append(node)
        edges: list[tuple[str, str]] = []
        for members in layers.values():
            order = derangement(len(members), rng) if len(members) > 1 else [0]
            edges += [(u, members[i]) for i, other in enumerate(order) for u in self.sources(members[other])]
        kept = [replace(node, stage=self.stage(node.id)) for node in self.nodes.values()]
        return Process(kept, edges, self.terminal, self.question)

    def with_merged_stages(self, groups: Sequence[Sequence[int]]) -> Process:
        """The same texts with coarser stage labels: all stages of a group get the number of the group, from 1."""
        number = {stage: index for index, group in enumerate(groups, start=1) for stage in group}
        unknown = sorted(set(self._stages.values()) - set(number))
        if unknown:
            raise ValueError(f"stages {unknown} are in no group")
        nodes = [replace(node, stage=number[self.stage(node.id)]) for node in self.nodes.values()]
        return Process(nodes, self.edges, self.terminal, self.question)

    @classmethod
    def from_json(cls, source: str | Path | Mapping[str, Any]) -> Process:
        """Read a JSON or JSON-lines file: :func:`~gnomon.retrieval.veritrail.loaders.json_format.read_json`."""
        from gnomon.retrieval.veritrail.loaders.json_format import read_json

        return read_json(source)

    def to_json(self, path: str | Path) -> None:
        """Write a file that :meth:`from_json` reads back to an equal process."""
        from gnomon.retrieval.veritrail.loaders.json_format import write_json

        write_json(self, path)

    @classmethod
    def from_graphrag(cls, folder: str | Path, answer: str, **options: Any) -> Process:
        """Read GraphRAG's output: :func:`~gnomon.retrieval.veritrail.loaders.graphrag.read_graphrag`."""
        from gnomon.retrieval.veritrail.loaders.graphrag import read_graphrag

        return read_graphrag(folder, answer, **options)

    @classmethod
    def from_langchain(cls, source: str | Path | Sequence[Mapping[str, Any]], **options: Any) -> Process:
        """Read exported runs: :func:`~gnomon.retrieval.veritrail.loaders.langchain_runs.read_langchain`."""
        from gnomon.retrieval.veritrail.loaders.langchain_runs import read_langchain

        return read_langchain(source, **options)

    @classmethod
    def from_otel(cls, source: str | Path | Sequence[Mapping[str, Any]], **options: Any) -> Process:
        """Read exported spans: :func:`~gnomon.retrieval.veritrail.loaders.opentelemetry.read_otel`."""
        from gnomon.retrieval.veritrail.loaders.opentelemetry import read_otel

        return read_otel(source, **options)

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph, **options: Any) -> Process:
        """Read a graph: :func:`~gnomon.retrieval.veritrail.loaders.networkx_graph.read_networkx`."""
        from gnomon.retrieval.veritrail.loaders.networkx_graph import read_networkx

        return read_networkx(graph, **options)

    def digest(self) -> str:
        """Hash of texts, edges, stages, terminal and question, whatever the order they were given in."""
        content = {
            "nodes": sorted([node.id, node.text, self.stage(node.id)] for node in self.nodes.values()),
            "edges": sorted(self.edges),
            "terminal": self.terminal,
            "question": self.question,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Process({len(self.nodes)} nodes, {len(self.edges)} edges, {self.last_stage} stages)"
