"""A process from whatever file or folder a user has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from gnomon.retrieval.veritrail.loaders.json_format import json_values, read_json
from gnomon.retrieval.veritrail.loaders.langchain_runs import read_langchain, runs_in
from gnomon.retrieval.veritrail.loaders.opentelemetry import looks_like_spans, read_otel
from gnomon.retrieval.veritrail.process import Process

Format = Literal["json", "graphrag", "langchain", "otel"]
FORMATS: tuple[Format, ...] = get_args(Format)

_OPTIONS: Mapping[Format, frozenset[str]] = {
    "json": frozenset(),
    "graphrag": frozenset({"answer", "question", "reports"}),
    "langchain": frozenset({"question", "terminal", "trace"}),
    "otel": frozenset({"question", "terminal", "trace"}),
}


def read_process(path: Path, format: Format | None = None, **options: Any) -> Process:
    """A process from a trace.

    Args:
        path: A file, or the output folder of GraphRAG.
        format: Its format; ``None``: recognised from its content.
        options: What the format's reader takes beside the path (question, terminal, trace; answer and reports of
            GraphRAG); those that are ``None`` or empty are not given.

    Raises:
        FileNotFoundError: If there is nothing at the path.
        ValueError: If the format is unknown or not recognised, an option does not belong to it, or the reader finds a
            fault.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    known = format or detected(path)
    given = {name: value for name, value in options.items() if value}
    if foreign := sorted(set(given) - _OPTIONS[known]):
        raise ValueError(f"{', '.join(foreign)} cannot be given for the format {known}; {path} says it itself")
    if known == "graphrag":
        if "answer" not in given:
            raise ValueError(f"{path} is GraphRAG's output, which does not hold answers: give the answer to check")
        return Process.from_graphrag(path, **given)
    return {"json": read_json, "langchain": read_langchain, "otel": read_otel}[known](path, **given)


def detected(path: Path) -> Format:
    """The format of a trace, recognised from its content.

    Raises:
        FileNotFoundError: If there is nothing at the path.
        ValueError: If it is no JSON, or in none of the known formats.
    """
    if path.is_dir():
        return "graphrag"
    values = json_values(path)
    if any(True for _ in runs_in(values)):
        return "langchain"
    if looks_like_spans(values):
        return "otel"
    if any(isinstance(value, Mapping) and ("nodes" in value or {"id", "text"} <= set(value)) for value in values):
        return "json"
    raise ValueError(
        f"{path} is in none of the known formats: a process in JSON ('nodes'), LangChain runs ('run_type'), "
        "OpenTelemetry spans ('resourceSpans'), or a folder of GraphRAG"
    )
