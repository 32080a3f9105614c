"""A verified process on disk: ``trail.json``, readable without this package.

Sentences, source texts and lists of candidates that many claims share are written once; the steps of the walks name
sentences by their id and lists of candidates by their place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gnomon.retrieval.veritrail.trail import Trail

FORMAT = "gnomon.veritrail.trail/1"

_TRAIL = TypeAdapter(Trail)


def write_trail(trail: Trail, path: str | Path) -> None:
    """Write a trail to a file that :func:`read_trail` reads back to an equal one."""
    content = _TRAIL.dump_python(trail, mode="json")
    sentences: dict[str, Any] = {}
    sources: dict[str, str] = {}
    candidates: dict[tuple[str, ...], int] = {}
    for step in _steps(content):
        step["candidates"] = candidates.setdefault(tuple(step["candidates"]), len(candidates))
        for evidence in step["evidence"]:
            for sentence in evidence["sentences"]:
                sentences[sentence["id"]] = {key: sentence[key] for key in ("node", "text", "span")}
            evidence["sentences"] = [sentence["id"] for sentence in evidence["sentences"]]
            if text := evidence.pop("text"):
                sources[evidence["node"]] = text
    for claim in content["claims"]:
        claim["score"] = None if math.isnan(claim["score"]) else claim["score"]
    whole = {"format": FORMAT, **content, "candidates": list(candidates), "sentences": sentences, "sources": sources}
    Path(path).write_text(json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False), encoding="utf-8")


def read_trail(path: str | Path) -> Trail:
    """The trail of a file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no JSON, or no trail of this format; the message names the place.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"no file {file}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is no JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{file} is no trail of the format {FORMAT!r}")
    del content["format"]
    try:
        candidates, sentences, sources = (content.pop(name) for name in ("candidates", "sentences", "sources"))
        for step in _steps(content):
            step["candidates"] = candidates[step["candidates"]]
            for evidence in step["evidence"]:
                evidence["sentences"] = [{"id": name, **sentences[name]} for name in evidence["sentences"]]
                evidence["text"] = sources.get(evidence["node"], "")
        for claim in content["claims"]:
            claim["score"] = math.nan if claim["score"] is None else claim["score"]
        return _TRAIL.validate_python(content)
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged: {type(error).__name__} {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _steps(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for claim in content["claims"]:
        yield from claim["iterations"]
