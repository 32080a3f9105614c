"""Processes from OpenTelemetry spans that follow the GenAI or the OpenInference conventions.

Read are OTLP in JSON (``resourceSpans``; one object or one a line) and spans as the Python SDK prints them. Spans of
language models give the texts, spans of retrievers and tools the sources; links of a span name calls it read.
LangChain, LlamaIndex and others write such spans through their standard instrumentation.
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

_WRITES = frozenset({"chat", "text_completion", "generate_content"})
_INSTRUCTIONS = frozenset({"system", "developer"})


def read_otel(
    source: str | Path | Sequence[Mapping[str, Any]],
    *,
    trace: str | None = None,
    terminal: str | None = None,
    question: str = "",
) -> Process:
    """A process from exported spans.

    Args:
        source: A file, or its JSON values.
        trace: Id of the trace; needed if there are several.
        terminal: Id of the span that wrote the final text; ``None``: the last one that wrote.
        question: What the user had asked for.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds no spans, or spans of several traces and none is chosen.
        GraphError: If no span holds what a model wrote (the recording of content may be switched off), or the graph is
            no process.
    """
    name = str(source) if isinstance(source, str | Path) else "spans"
    values = json_values(Path(source)) if isinstance(source, str | Path) else list(source)
    spans = [_Span(raw) for value in values for raw in _raw_spans(value)]
    if not spans:
        raise ValueError(f"{name} holds no spans")
    traces = list(dict.fromkeys(span.trace for span in spans))
    if trace is None and len(traces) > 1:
        raise ValueError(f"{name} holds {len(traces)} traces ({', '.join(traces[:5])}): say which")
    if trace is not None and trace not in traces:
        raise ValueError(f"{name} has no trace {trace!r}; it has {', '.join(traces[:5])}")
    chosen = [span for span in spans if trace is None or span.trace == trace]
    try:
        return assemble([span.step() for span in chosen], terminal=terminal, question=question)
    except GraphError as error:
        raise GraphError(f"{name}: {error}") from None


class _Span:
    """One span, whatever it was written by."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        context = raw.get("context") or {}
        self.id = _plain_id(raw.get("spanId") or context.get("span_id") or raw.get("span_id") or "")
        self.trace = _plain_id(raw.get("traceId") or context.get("trace_id") or raw.get("trace_id") or "")
        self.name = str(raw.get("name", ""))
        self.start = _seconds(raw.get("startTimeUnixNano") or raw.get("start_time") or 0)
        self.attributes = _attributes(raw.get("attributes") or {})
        for event in raw.get("events") or ():
            # Content may stand in an event of the span in place of its attributes.
            self.attributes = {**_attributes(event.get("attributes") or {}), **self.attributes}
        self.links = [
            _plain_id(link.get("spanId") or (link.get("context") or {}).get("span_id") or "")
            for link in raw.get("links") or ()
        ]

    @property
    def kind(self) -> str:
        """``writes``, ``fetches`` (a tool or retriever) or an empty string."""
        said = str(self.attributes.get("openinference.span.kind", "")).upper()
        operation = str(self.attributes.get("gen_ai.operation.name", ""))
        if said == "LLM" or operation in _WRITES:
            return "writes"
        if said in ("RETRIEVER", "RERANKER", "TOOL") or operation in ("retrieval", "execute_tool"):
            return "fetches"
        return ""

    def step(self) -> Step:
        if self.kind == "writes":
            inputs = tuple(text for role, text in self._messages("input") if role not in _INSTRUCTIONS)
            output = "\n\n".join(text for _, text in self._messages("output"))
            return Step(self.id, self.name, self.start, inputs, output, sources=tuple(self.links))
        documents = tuple(self._documents()) if self.kind == "fetches" else ()
        return Step(self.id, self.name, self.start, documents=documents)

    def _messages(self, side: str) -> list[tuple[str, str]]:
        """Role and text of each message."""
        if structured := self.attributes.get(f"gen_ai.{side}.messages"):
            return list(_parts_messages(_decoded(structured)))
        listed = _numbered(self.attributes, f"llm.{side}_messages")
        messages = [
            (str(fields.get("message.role", "")), text) for fields in listed if (text := _openinference_text(fields))
        ]
        if messages:
            return messages
        value = self.attributes.get(f"{side}.value")
        return [("", str(value))] if value else []

    def _documents(self) -> Iterator[Document]:
        for prefix in ("retrieval.documents", "reranker.output_documents"):
            for place, fields in enumerate(_numbered(self.attributes, prefix)):
                if text := fields.get("document.content"):
                    name = fields.get("document.id")
                    yield Document(
                        str(name) if name is not None else f"{self.id}:{place}", str(text), {"by": self.name}
                    )
        structured = _decoded(self.attributes.get("gen_ai.retrieval.documents") or [])
        for item in structured if isinstance(structured, list) else []:
            if text := item.get("content") or item.get("text"):
                yield document(str(text), item.get("id"), {"by": self.name})
        result = self.attributes.get("gen_ai.tool.call.result")
        if result is None and str(self.attributes.get("openinference.span.kind", "")).upper() == "TOOL":
            result = self.attributes.get("output.value")
        if result:
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
            yield document(text, self.id, {"by": self.name})


def _raw_spans(value: Any) -> Iterator[Mapping[str, Any]]:
    """Spans in a JSON value: OTLP, one span, or a list of either."""
    if isinstance(value, list):
        for item in value:
            yield from _raw_spans(item)
    elif isinstance(value, Mapping) and "resourceSpans" in value:
        for resource in value["resourceSpans"]:
            for scope in resource.get("scopeSpans") or ():
                yield from scope.get("spans") or ()
    elif isinstance(value, Mapping) and "attributes" in value:
        yield value


def _attributes(raw: Any) -> dict[str, Any]:
    """Attributes as a plain mapping; OTLP writes them as a list of keys and typed values."""
    if isinstance(raw, Mapping):
        return dict(raw)
    return {item["key"]: _otlp_value(item.get("value") or {}) for item in raw}


def _otlp_value(typed: Mapping[str, Any]) -> Any:
    if "arrayValue" in typed:
        return [_otlp_value(value) for value in typed["arrayValue"].get("values") or ()]
    if "kvlistValue" in typed:
        return _attributes(typed["kvlistValue"].get("values") or ())
    return next(iter(typed.values()), None)


def _parts_messages(messages: Any) -> Iterator[tuple[str, str]]:
    """Role and text of GenAI messages; calls of tools are no text, their responses are."""
    for message in messages if isinstance(messages, list) else ():
        texts = [message["content"]] if isinstance(message.get("content"), str) else []
        for part in message.get("parts") or ():
            kind = part.get("type")
            content = part.get("content") if kind == "text" else part.get("response", part.get("result"))
            if kind in ("text", "tool_call_response") and content:
                texts.append(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
        if texts:
            yield str(message.get("role", "")), "\n".join(texts)


def _openinference_text(fields: Mapping[str, Any]) -> str:
    if content := fields.get("message.content"):
        return str(content)
    parts = _numbered(fields, "message.contents")
    return "\n".join(str(part["message_content.text"]) for part in parts if part.get("message_content.text"))


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Flattened lists: ``PREFIX.3.rest`` is field ``rest`` of item 3."""
    items: dict[int, dict[str, Any]] = {}
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.(.+)")
    for key, value in attributes.items():
        if match := pattern.fullmatch(key):
            items.setdefault(int(match[1]), {})[match[2]] = value
    return [items[index] for index in sorted(items)]


def _decoded(value: Any) -> Any:
    """Structured content, which spans may hold as a JSON string."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return [{"role": "", "content": value}]


def _plain_id(value: Any) -> str:
    return str(value).removeprefix("0x")


def _seconds(value: Any) -> float:
    """Time of a span: nanoseconds since 1970, or ISO 8601."""
    text = str(value)
    return float(text) / 1e9 if text.isdigit() else datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def looks_like_spans(values: Iterable[Any]) -> bool:
    """Whether JSON values are spans."""
    return any(True for value in values for _ in _raw_spans(value))
