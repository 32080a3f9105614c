"""A trail as one page: the claims, the process as a layered graph, and for each claim its path, sentence to sentence.

The page is one file without outside references. Texts of the process, which may hold anything, reach it as JSON and are
shown as text only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from gnomon.report import theme
from gnomon.retrieval.veritrail.judges.judge import Usage
from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.trail import ClaimTrail, Iteration, Trail

MOST_TEXT = 2_500_000
"""Characters of node texts on a page; beyond it, texts of nodes without evidence are cut, then those of all others."""
EXCERPT = 240

_PAGE = files("gnomon.retrieval.veritrail") / "page"
_SCRIPTS = ("trail.js", "drawing.js", "words.js", "list.js")


def write_page(trail: Trail, process: Process, path: str | Path, *, title: str = "", cost: float | None = None) -> None:
    """Write the page of a trail.

    Args:
        trail: What was found.
        process: What was verified.
        path: Where to write the HTML file.
        title: Heading; by default the question of the process.
        cost: What the judge's calls were charged, if known.

    Raises:
        ValueError: If the trail is that of another process.
    """
    Path(path).write_text(page(trail, process, title=title, cost=cost), encoding="utf-8")


def page(trail: Trail, process: Process, *, title: str = "", cost: float | None = None) -> str:
    """The page as HTML; see :func:`write_page`."""
    if trail.process != process.digest():
        raise ValueError("the trail is that of another process: the hashes of their texts and edges differ")
    index = SentenceIndex(process)
    heading = title or process.question or "Trail of a generated text"
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_file("page.html"))
    return template.render(
        title=heading,
        style=Markup(_file("page.css")),
        script=Markup("\n".join(map(_file, _SCRIPTS))),
        colors={"supported": theme.TREATMENT_COLOR, "unsupported": theme.CONTROL_COLOR, "font": Markup(theme.FONT)},
        data=_inert(page_data(trail, index)),
        facts=_facts(trail, index, cost),
        warning=_warning(trail),
    )


def page_data(trail: Trail, index: SentenceIndex) -> dict[str, Any]:
    """What the page draws, in JSON values: nodes by number, stage by stage, each stage in an order with few crossings.

    Lists of candidates, which many claims share, are written once, as ranges of node numbers.
    """
    process = index.process
    order = _layered(process)
    number = {node: place for place, node in enumerate(order)}
    labels = _labels(process, order)
    cited = {
        evidence.node for claim in trail.claims for iteration in claim.iterations for evidence in iteration.evidence
    }
    texts = _texts(index, order, cited | {process.terminal})
    candidates = _Interned()
    return {
        "nodes": [[node, process.stage(node), int(process.is_root(node)), labels.get(node, "")] for node in order],
        "texts": texts,
        "edges": [[number[u], number[v]] for u, v in process.edges],
        "terminal": number[process.terminal],
        "final": [[sentence.id, sentence.text] for sentence in index.of(process.terminal)],
        "claims": [_claim(claim, number, candidates) for claim in trail.claims],
        "candidates": candidates.values,
        "dropped": [[each.sentence, each.text, each.why, each.reason] for each in trail.dropped],
    }


def _claim(trail: ClaimTrail, number: dict[str, int], candidates: _Interned) -> dict[str, Any]:
    origin, provenance = trail.origin, trail.provenance
    return {
        "id": trail.claim.id,
        "text": trail.claim.text,
        "sentence": trail.claim.sentence,
        "parts": list(trail.claim.subclaims),
        "status": trail.status,
        "verdict": trail.verdict,
        "score": None if trail.verdict is None else round(trail.score, 4),
        "stop": trail.stop,
        "problem": trail.problem,
        "steps": [_step(iteration, number, candidates) for iteration in trail.iterations],
        "origin": None
        if origin is None
        else {
            "stages": sorted(origin.stages),
            "nodes": [number[node] for node in origin.nodes],
            "open": origin.undetermined,
        },
        "edges": [[number[u], number[v]] for u, v in provenance.edges] if provenance else [],
        "paths": [[number[node] for node in path] for path in provenance.paths[:20]] if provenance else [],
        "morePaths": max(len(provenance.paths) - 20, 0) if provenance else 0,
        "skipped": list(provenance.skipped_stages) if provenance else [],
        "usage": _usage(trail.usage),
    }


def _step(iteration: Iteration, number: dict[str, int], candidates: _Interned) -> dict[str, Any]:
    return {
        "read": candidates.place(_ranges(number[node] for node in iteration.candidates)),
        "evidence": [
            [number[each.node], [[sentence.id, sentence.text] for sentence in each.sentences], each.summary]
            for each in iteration.evidence
        ],
        "verdict": iteration.verdict,
        "score": round(iteration.score, 4),
        "reasoning": iteration.reasoning,
        "parts": list(iteration.subclaims),
        "cited": list(iteration.cited),
        "truncated": iteration.truncated,
        "invented": iteration.hallucinated,
        "usage": _usage(iteration.usage),
    }


class _Interned:
    """Values with a number each; equal values have one."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        key = json.dumps(value)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers as runs [first, last].

    >>> _ranges([4, 1, 2, 3, 9])
    [[1, 4], [9, 9]]
    """
    runs: list[list[int]] = []
    for value in sorted(numbers):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return runs


def _layered(process: Process) -> list[str]:
    """Nodes stage by stage; within a stage by the mean place of what was made from them, so that few edges cross."""
    made: dict[str, list[str]] = {node: [] for node in process.nodes}
    for source, output in process.edges:
        made[source].append(output)
    stages: dict[int, list[str]] = {}
    for node in process.nodes:
        stages.setdefault(process.stage(node), []).append(node)
    place: dict[str, float] = {}
    for stage in sorted(stages, reverse=True):
        members = stages[stage]
        pulls = {
            node: sum(known) / len(known) if (known := [place[each] for each in made[node] if each in place]) else 1.0
            for node in members
        }
        members.sort(key=lambda node: (pulls[node], node))
        place |= {node: (rank + 0.5) / len(members) for rank, node in enumerate(members)}
    return [node for stage in sorted(stages) for node in stages[stage]]


def _texts(index: SentenceIndex, order: Sequence[str], needed: set[str]) -> list[list[list[str]]]:
    """Sentences with ids of each node, whole for as many nodes as fit: those with evidence first, then small ones."""
    process = index.process
    room = MOST_TEXT
    whole: set[str] = set()
    for node in sorted(order, key=lambda node: (node not in needed, len(process.nodes[node].text), node)):
        size = len(process.nodes[node].text)
        if size > room:
            continue
        whole.add(node)
        room -= size
    texts = []
    for node in order:
        if node in whole:
            texts.append([[sentence.id, sentence.text] for sentence in index.of(node)])
        else:
            texts.append([["", process.nodes[node].text[:EXCERPT] + " ..."]])
    return texts


def _labels(process: Process, order: Sequence[str]) -> dict[str, str]:
    """A name for readers, where the process has one beside the id; several nodes of one name are numbered."""
    meta = {node: process.nodes[node].meta for node in order}
    named = {node: str(label) for node in order if (label := meta[node].get("title") or meta[node].get("name"))}
    total = Counter(named.values())
    seen: Counter[str] = Counter()
    labels: dict[str, str] = {}
    for node, name in named.items():
        seen[name] += 1
        labels[node] = f"{name} {seen[name]}" if total[name] > 1 else name
    return labels


def _usage(usage: Usage) -> list[int]:
    return [usage.calls, usage.cached, usage.tokens_in, usage.tokens_out, usage.sentences]


def _facts(trail: Trail, index: SentenceIndex, cost: float | None) -> list[tuple[str, str, str]]:
    """Cost and coverage for the top of the page: name, value, remark."""
    process = index.process
    usage = sum((claim.usage for claim in trail.claims), Usage())
    sentences = len(index.of(process.terminal))
    covered = len({claim.claim.sentence for claim in trail.claims if claim.claim.sentence})
    roots = set(process.roots)
    used = {
        evidence.node
        for claim in trail.claims
        for iteration in claim.iterations
        for evidence in iteration.evidence
        if evidence.node in roots
    }
    facts = [
        ("Final text", f"{covered} of {sentences}", "sentences with a claim that was checked"),
        ("Sources", f"{len(used)} of {len(roots)}", "sources with evidence on some claim"),
        ("Process", f"{len(process.nodes):,}", f"texts in {process.last_stage} stages, {len(process.edges):,} edges"),
        ("Read", f"{usage.sentences:,}", "sentences shown to the judge"),
    ]
    if usage.calls or usage.cached:
        remark = f"{usage.cached:,} answers from the cache; {usage.tokens_in:,} tokens in, {usage.tokens_out:,} out"
        facts.append(("Calls", f"{usage.calls:,}", remark))
    if cost is not None:
        facts.append(("Cost", f"{cost:,.4g}", "by the prices that were given"))
    judge = str(trail.judge.get("model") or trail.judge.get("judge") or "unknown")
    q = trail.settings.get("q")
    walk = f"walks end after {q} steps in a row without support" if q else "walks end at the sources"
    facts.append(("Judge", judge, f"{_checked(trail)}; {walk}"))
    return facts


def _checked(trail: Trail) -> str:
    """What the judge check gave."""
    area = trail.check.get("auroc")
    if not area:
        return "not put to the judge check"
    return f"judge check: AUROC {area['value']:.2f} [{area['low']:.2f}, {area['high']:.2f}]"


def _warning(trail: Trail) -> str:
    """What a reader must know before believing the verdicts."""
    lines = []
    if trail.check and not trail.check.get("valid", False):
        lines.append("The judge is not validated: it failed the judge check, and its verdicts say little.")
    failures = Counter(claim.status for claim in trail.claims if claim.status != "verified")
    if failures["error"]:
        lines.append(f"{failures['error']} claims have no verdict because the judge did not answer.")
    if failures["budget"]:
        lines.append(f"{failures['budget']} claims have no verdict because the budget was spent.")
    silent = sum(each.why == "error" for each in trail.dropped)
    if silent:
        lines.append(f"{silent} sentences of the final text were not examined because the judge did not answer.")
    if not trail.claims and not silent:
        lines.append("The final text contains no claim that could be checked. This does not mean that it is faithful.")
    return " ".join(lines)


def _inert(data: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _file(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
