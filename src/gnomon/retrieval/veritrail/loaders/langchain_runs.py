"""Processes from LangChain runs, as LangSmith exports them or as a callback of this package collects them.

A run is a JSON object with ``id``, ``run_type``, ``inputs`` and ``outputs``; runs may stand side by side or inside each
other (``child_runs``). Runs of models give the texts, runs of retrievers and tools the sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gnomon.retrieval.veritrail.loaders.json_format import json_values
from gnomon.retrieval.veritrail.loaders.steps import Document, Step, assemble, document
from gnomon.retrieval.veritrail.process import GraphError, Process

_INSTRUCTIONS = frozenset({"system", "developer", "SystemMessage"})
# How LangChain writes a conversation with instructions as one string.
_FLAT_INSTRUCTIONS = re.compile(r"\ASystem: .*?\n(?=Human: )", re.DOTALL)


def read_langchain(
    source: str | Path | Sequence[Mapping[str, Any]],
    *,
    trace: str | None = None,
    terminal: str | None = None,
    question: str = "",
) -> Process:
    """A process from exported runs.

    Args:
        source: A JSON or JSON-lines file, or its runs.
        trace: Id of the trace; needed if the file holds several.
        terminal: Id of the run that wrote the final text; ``None``: the last run of a model.
        question: What the user had asked for.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds no runs, or runs of several traces and none is chosen.
        GraphError: If no run holds what a model wrote, or the graph is no process.
    """
    name = str(source) if isinstance(source, str | Path) else "runs"
    values = json_values(Path(source)) if isinstance(source, str | Path) else list(source)
    runs = list(runs_in(values))
    if not runs:
        raise ValueError(f"{name} holds no runs (objects with 'run_type')")
    traces = list(dict.fromkeys(str(run["trace_id"]) for run in runs if run.get("trace_id")))
    if trace is not None and trace not in traces:
        raise ValueError(f"{name} has no trace {trace!r}; it has {', '.join(traces[:5]) or 'none with an id'}")
    if trace is None and len(traces) > 1:
        raise ValueError(f"{name} holds {len(traces)} traces ({', '.join(traces[:5])}): say which")
    chosen = [run for run in runs if trace is None or str(run.get("trace_id")) == trace]
    try:
        return assemble(map(_step, chosen), terminal=terminal, question=question)
    except GraphError as error:
        raise GraphError(f"{name}: {error}") from None


def runs_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Runs in a JSON value, those inside other runs included, each once."""
    seen: set[str] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list | tuple):
            waiting += reversed(item)
        elif isinstance(item, Mapping) and "run_type" in item:
            waiting += reversed(item.get("child_runs") or ())
            if (name := str(item.get("id", ""))) not in seen:
                seen.add(name)
                yield item
        elif isinstance(item, Mapping) and isinstance(item.get("runs"), list):
            waiting.append(item["runs"])


def _step(run: Mapping[str, Any]) -> Step:
    kind = run.get("run_type")
    id, name = str(run.get("id", "")), str(run.get("name") or kind)
    start = _seconds(run.get("start_time"))
    inputs, outputs = run.get("inputs") or {}, run.get("outputs") or {}
    if kind in ("llm", "chat_model"):
        given = tuple(text for role, text in _given(inputs) if role not in _INSTRUCTIONS)
        return Step(id, name, start, given, _written(outputs))
    documents: Iterable[Document] = ()
    if kind == "retriever":
        documents = _documents(outputs.get("documents") or outputs.get("output") or (), name)
    elif kind == "tool" and (text := _text(outputs.get("output", outputs.get("result", "")))):
        documents = (document(text, id, {"by": name}),)
    return Step(id, name, start, documents=tuple(documents))


def _given(inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Role and text of what a model was given."""
    for prompt in inputs.get("prompts") or ():
        yield "", _FLAT_INSTRUCTIONS.sub("", str(prompt))
    messages = inputs.get("messages") or ()
    for message in messages[0] if messages and isinstance(messages[0], list) else messages:
        yield _role(message), _text(message)
    if not inputs.get("prompts") and not messages:
        yield "", "\n\n".join(value for value in inputs.values() if isinstance(value, str))


def _written(outputs: Mapping[str, Any]) -> str:
    """What a model wrote: LangChain's generations, OpenAI's choices, or a message."""
    for generations in outputs.get("generations") or ():
        for generation in generations if isinstance(generations, list) else [generations]:
            if text := generation.get("text") or _text(generation.get("message") or ""):
                return text
    for choice in outputs.get("choices") or ():
        if text := _text(choice.get("message") or ""):
            return text
    return _text(outputs.get("output") or outputs.get("content") or "")


def _documents(listed: Iterable[Any], by: str) -> Iterator[Document]:
    for item in listed:
        fields = item.get("kwargs") or item
        meta = fields.get("metadata") or {}
        if text := fields.get("page_content"):
            yield document(str(text), fields.get("id") or meta.get("id"), {**meta, "by": by})


def _role(message: Any) -> str:
    """Role of a message: its class name where LangChain serialised the object."""
    if not isinstance(message, Mapping):
        return ""
    path = message.get("id")
    kind = path[-1] if isinstance(path, list) and path else message.get("role") or message.get("type")
    return str(kind or "")


def _text(value: Any) -> str:
    """Text of a message, a list of content parts, or a plain value."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        fields = value.get("kwargs") or value
        return _text(fields.get("content", fields.get("text", "")))
    if isinstance(value, list):
        return "\n".join(text for part in value if (text := _text(part)))
    return "" if value is None else json.dumps(value)


def _seconds(value: Any) -> float:
    """Time of a run: ISO 8601, or seconds."""
    if isinstance(value, int | float):
        return float(value)
    return datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp() if value else 0.0
