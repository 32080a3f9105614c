"""Processes from networkx graphs."""

from __future__ import annotations

import networkx as nx

from gnomon.retrieval.veritrail.process import GraphError, Node, Process


def read_networkx(graph: nx.DiGraph, *, terminal: str | None = None, question: str = "") -> Process:
    """A process from a graph whose nodes are strings with an attribute ``text`` and, if known, ``stage``.

    All other attributes become the node's ``meta``. Attributes of edges are not read.

    Raises:
        GraphError: If the graph is undirected, a node has no text, or the graph is no process.

    >>> graph = nx.DiGraph([("chunk", "answer")])
    >>> graph.nodes["chunk"]["text"], graph.nodes["answer"]["text"] = "Corvus left Kiel.", "Corvus left."
    >>> read_networkx(graph).terminal
    'answer'
    """
    if not graph.is_directed():
        raise GraphError("the graph is undirected; a process needs edges from input to output")
    nodes = []
    for name, attributes in graph.nodes(data=True):
        if "text" not in attributes:
            raise GraphError(f"node {name!r} has no attribute 'text'")
        meta = {key: value for key, value in attributes.items() if key not in ("text", "stage")}
        nodes.append(Node(name, attributes["text"], attributes.get("stage"), meta))
    return Process(nodes, graph.edges(), terminal, question)
