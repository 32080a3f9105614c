"""Processes as JSON, or as JSON lines with one node a line; ``process.schema.json`` in this folder describes both.

.. code-block:: json

    {"nodes": [{"id": "chunk", "text": "Corvus closed its plant."},
               {"id": "answer", "text": "The plant was closed.", "sources": ["chunk"]}],
     "question": "What happened to the plant?"}

Edges stand with the nodes (``sources``), in a list ``edges`` of pairs (input, output), or in both. In a file of JSON
lines every line is a node; a line without ``id`` may give ``edges``, ``terminal`` and ``question``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gnomon.retrieval.veritrail.process import GraphError, Node, Process


class NodeRecord(BaseModel):
    """One text: a source document, or what one generative step wrote."""

    model_config = ConfigDict(extra="forbid", title="Node")

    id: str = Field(description="Unique name.")
    text: str = Field(description="What the source says, or what the step wrote.")
    sources: list[str] = Field(default=[], description="Ids of the texts the step was given; none for source material.")
    stage: int | None = Field(default=None, description="Number of the step, 1 for sources; inferred where absent.")
    meta: dict[str, Any] = Field(default={}, description="Anything else that is known about the text.")


class ProcessRecord(BaseModel):
    """Which text was made from which."""

    model_config = ConfigDict(extra="forbid", title="Process")

    nodes: list[NodeRecord] = Field(description="The texts.")
    edges: list[tuple[str, str]] = Field(default=[], description="Pairs of ids: an input of a step, and its output.")
    terminal: str | None = Field(default=None, description="Id of the final text; inferred where only one can be it.")
    question: str = Field(default="", description="What the user had asked for.")


def read_json(source: str | Path | Mapping[str, Any]) -> Process:
    """A process from a JSON or JSON-lines file, or from a mapping of the same form.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no JSON, or not of the form; the message names file, place and fault.
        GraphError: If the graph is no process.
    """
    name, content = ("mapping", source) if isinstance(source, Mapping) else (str(source), _parsed(Path(source)))
    try:
        record = ProcessRecord.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{name}: {_place(first['loc'])}{first['msg']}") from None
    nodes = [Node(node.id, node.text, node.stage, node.meta) for node in record.nodes]
    edges = [(source, node.id) for node in record.nodes for source in node.sources]
    try:
        return Process(nodes, [*edges, *record.edges], record.terminal, record.question)
    except GraphError as error:
        raise GraphError(f"{name}: {error}") from None


def write_json(process: Process, path: str | Path) -> None:
    """Write a process to a file that :func:`read_json` reads back to an equal one."""
    Path(path).write_text(json.dumps(to_mapping(process), ensure_ascii=False, indent=1), encoding="utf-8")


def to_mapping(process: Process) -> dict[str, Any]:
    """The process as JSON values; every node with its stage."""
    nodes = [
        {
            "id": node.id,
            "text": node.text,
            "stage": process.stage(node.id),
            **({"meta": dict(node.meta)} if node.meta else {}),
        }
        for node in process.nodes.values()
    ]
    edges = [list(edge) for edge in process.edges]
    question = {"question": process.question} if process.question else {}
    return {"nodes": nodes, "edges": edges, "terminal": process.terminal, **question}


def json_values(path: Path) -> list[Any]:
    """What a file holds: its JSON value, or those of its lines.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is neither JSON nor JSON lines, or empty.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    text = path.read_text(encoding="utf-8-sig")
    if not text.strip():
        raise ValueError(f"{path} is empty")
    try:
        return [json.loads(text)]
    except json.JSONDecodeError as whole:
        values = []
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        for number, line in lines:
            try:
                values.append(json.loads(line))
            except json.JSONDecodeError as error:
                # A fault in the first line means that the file was not meant to be JSON lines.
                fault, place = (whole, whole.lineno) if number == lines[0][0] else (error, number)
                raise ValueError(f"{path} is no JSON: {fault.msg} in line {place}") from None
        return values


def _parsed(path: Path) -> Any:
    values = json_values(path)
    if len(values) == 1 and isinstance(values[0], Mapping) and "nodes" in values[0]:
        return values[0]
    whole: dict[str, Any] = {"nodes": []}
    for value in values:
        if isinstance(value, Mapping) and "id" not in value:
            whole.update(value)
        else:
            whole["nodes"].append(value)
    return whole


def _place(location: tuple[int | str, ...]) -> str:
    """Where in the file: ``nodes[3].text: ``."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    return f"{path}: " if path else ""
