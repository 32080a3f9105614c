"""What the walk of a claim says about its path: where a supported claim came from, where an unsupported one entered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise

import networkx as nx

from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.trail import Iteration, Localisation, Provenance

MAX_PATHS = 1_000


def provenance(process: Process, walked: Sequence[Iteration]) -> Provenance:
    r"""Edges and paths through which a claim came from the sources to the final text.

    With :math:`V_n` the nodes the n-th verdict rests on, and :math:`V_0` the final text, these are the edges (u, v) of
    the process with :math:`u \in V_{n+1}` and :math:`v \in V_n`. Nodes whose evidence was judged unsupportive are in
    no :math:`V_n`: the claim did not come through them.

    Args:
        process: The process.
        walked: The walk of a supported or inconclusive claim.
    """
    layers = [(process.terminal,), *(step.grounds if step.verdict != "unsupported" else () for step in walked)]
    edges = tuple(
        dict.fromkeys(
            (u, v) for nearer, farther in pairwise(layers) for v in nearer for u in process.sources(v) if u in farther
        )
    )
    roots = [node for node in layers[-1] if process.is_root(node)]
    paths = _paths(edges, roots, process.terminal)
    if paths:
        return Provenance(edges, paths, complete=True)
    passed = {process.stage(node) for layer in layers for node in layer}
    return Provenance(edges, skipped_stages=tuple(sorted(_stages_between(process, roots) - passed)))


def localisation(process: Process, walked: Sequence[Iteration]) -> Localisation:
    """Where an unsupported claim entered: the nodes that say it although their sources do not.

    They are the generated nodes the last supported verdict rests on; if no verdict was supported, the final text
    itself. If some verdicts were inconclusive and none supported, no step can be named: the candidates are the final
    text and the generated nodes with inconclusive evidence.

    Args:
        process: The process.
        walked: The walk of an unsupported claim.
    """
    said = [step for step in walked if step.verdict == "supported"]
    unclear = [step for step in walked if step.verdict == "inconclusive"]
    if said:
        nodes = {node for node in said[-1].grounds if not process.is_root(node)}
    else:
        nodes = {node for step in unclear for node in step.grounds if not process.is_root(node)} | {process.terminal}
    return Localisation(
        frozenset(process.stage(node) for node in nodes),
        tuple(process.in_order(nodes)),
        undetermined=bool(unclear) and not said,
    )


def _paths(edges: Sequence[tuple[str, str]], roots: Sequence[str], terminal: str) -> tuple[tuple[str, ...], ...]:
    graph = nx.DiGraph(edges)
    if terminal not in graph:
        return ()
    # Only nodes from which the terminal is reached: every walk then ends there, and the search has no dead ends.
    graph = graph.subgraph(nx.ancestors(graph, terminal) | {terminal})
    paths = (tuple(path) for root in roots if root in graph for path in nx.all_simple_paths(graph, root, terminal))
    return tuple(sorted(islice(paths, MAX_PATHS), key=lambda path: (-len(path), path)))


def _stages_between(process: Process, roots: Sequence[str]) -> set[int]:
    """Stages of the generated nodes on the way from these sources to the final text."""
    after = {node for root in roots for node in process.descendants(root)}
    return {process.stage(node) for node in after & process.upstream}
