"""Processes from the output folder of GraphRAG and the answer of a query.

Text units are the sources (stage 1); descriptions of entities and relationships were merged from what the model said
about each unit (stage 3; what it said about a single one, stage 2, is not in the folder); reports were written about
communities (stage 4, and one more for each level of reports they were given); then come the map answers of a global
search, and the answer. The folder does not say which reports an answer was given: they are passed, or read from the
references in the answer (``[Data: Reports (1, 2); Entities (5)]``), else all reports of one level are taken.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gnomon.retrieval.veritrail.process import GraphError, Node, Process

ANSWER = "answer"

_REFERENCES = re.compile(r"\[Data:([^\]]*)\]")
_REFERENCE = re.compile(r"(Reports?|Entities|Relationships?|Sources?|Text Units?)\s*\(([^)]*)\)", re.IGNORECASE)
_PREFIXES = ("", "create_final_")
_COLUMNS = {
    "text_units": ("id", "text"),
    "entities": ("id", "description", "text_unit_ids"),
    "relationships": ("id", "description", "text_unit_ids"),
    "communities": ("community", "entity_ids", "relationship_ids"),
    "community_reports": ("community", "level"),
}


def read_graphrag(
    folder: str | Path,
    answer: str,
    *,
    question: str = "",
    reports: Sequence[int | str] | None = None,
    map_answers: Mapping[str, Sequence[int | str]] | None = None,
    level: int | None = None,
) -> Process:
    """A process from GraphRAG's tables and an answer.

    Args:
        folder: The folder with ``text_units.parquet`` and the others; names with the prefix of version 0 are known too.
        answer: The final text.
        question: What was asked.
        reports: Numbers (``human_readable_id``) or ids of the reports the answer was given.
        map_answers: Intermediate answers of a global search, each with the reports it was given; the final answer was
            then made from these.
        level: Level of the reports an answer without references was given; ``None``: the deepest.

    Raises:
        FileNotFoundError: If the folder or one of its tables is missing.
        ValueError: If a table lacks a column, or a report is unknown; the message names file and column.
        GraphError: If the graph is no process.
    """
    tables = {name: _table(Path(folder), name) for name in _COLUMNS}
    graph = _Graph(tables)
    if map_answers is not None:
        for number, (text, given) in enumerate(map_answers.items(), start=1):
            graph.add(f"map:{number}", text, [graph.find("Reports", report) for report in given])
        sources = [f"map:{number}" for number in range(1, len(map_answers) + 1)]
    elif reports is not None:
        sources = [graph.find("Reports", report) for report in reports]
    else:
        sources = graph.referred(answer) or graph.reports_of_level(level)
    graph.add(ANSWER, answer, sources)
    return graph.process(question)


class _Graph:
    """Nodes and edges, filled from the tables bottom up."""

    def __init__(self, tables: Mapping[str, pd.DataFrame]) -> None:
        self._nodes: dict[str, Node] = {}
        self._edges: list[tuple[str, str]] = []
        # Nodes by the numbers that references in answers use, and by their ids.
        self._numbers: dict[str, dict[str, str]] = defaultdict(dict)
        self._levels: dict[str, int] = {}
        self._add_units(tables["text_units"])
        self._add_descriptions("Entities", "entity", tables["entities"])
        self._add_descriptions("Relationships", "relationship", tables["relationships"])
        self._add_reports(tables["communities"], tables["community_reports"])

    def add(self, name: str, text: str, sources: Iterable[str], stage: int | None = None, **meta: Any) -> None:
        """Add a node with edges from those of its sources that are known."""
        self._nodes[name] = Node(name, text, stage, meta)
        self._edges += [(source, name) for source in dict.fromkeys(sources) if source in self._nodes]

    def find(self, kind: str, number: int | str) -> str:
        """The node a reference means."""
        try:
            return self._numbers[kind][str(number)]
        except KeyError:
            known = ", ".join(key for key in sorted(self._numbers[kind]) if key.isdigit()) or "none"
            raise ValueError(f"no {kind.lower()} {number!r}; there are {known}") from None

    def referred(self, answer: str) -> list[str]:
        """The nodes an answer refers to; numbers that do not exist are the model's inventions and left out."""
        found = []
        for references in _REFERENCES.findall(answer):
            for kind, numbers in _REFERENCE.findall(references):
                table = _kind(kind)
                listed = [number.strip() for number in numbers.split(",")]
                found += [self._numbers[table][number] for number in listed if number in self._numbers[table]]
        return list(dict.fromkeys(found))

    def reports_of_level(self, level: int | None) -> list[str]:
        """Reports of one level of the hierarchy, by default the deepest."""
        wanted = level if level is not None else max(self._levels.values(), default=0)
        if not (found := [report for report, at in self._levels.items() if at == wanted]):
            raise ValueError(f"no report has level {wanted}; there are levels {sorted(set(self._levels.values()))}")
        return found

    def process(self, question: str) -> Process:
        """The process; texts without any source that are no text units are left out, for nothing supports them."""
        made = {output for _, output in self._edges}
        kept = {name for name in self._nodes if name in made or name.startswith("unit:")}
        if ANSWER not in kept:
            raise GraphError("the answer has no sources: the folder has no reports, and it refers to nothing else")
        edges = [(source, output) for source, output in self._edges if source in kept and output in kept]
        return Process([self._nodes[name] for name in self._nodes if name in kept], edges, ANSWER, question)

    def _add_units(self, table: pd.DataFrame) -> None:
        for row in table.to_dict("records"):
            documents = _listed(row.get("document_ids")) or _listed(row.get("document_id"))
            name = f"unit:{row['id']}"
            self.add(name, str(row["text"]), (), 1, documents=documents)
            self._count("Sources", row, name)

    def _add_descriptions(self, kind: str, singular: str, table: pd.DataFrame) -> None:
        for row in table.to_dict("records"):
            name = f"{singular}:{row['id']}"
            title = row.get("title") or row.get("name") or f"{row.get('source', '')} - {row.get('target', '')}"
            units = [f"unit:{unit}" for unit in _listed(row["text_unit_ids"])]
            self.add(name, _described(row["description"]), units, 3, title=str(title))
            self._count(kind, row, name)

    def _add_reports(self, communities: pd.DataFrame, reports: pd.DataFrame) -> None:
        members = {row["community"]: row for row in communities.to_dict("records")}
        rows = {row["community"]: row for row in reports.to_dict("records")}
        heights: dict[Any, int] = {}
        for community in sorted(rows, key=lambda community: -int(rows[community]["level"])):
            row, member = rows[community], members.get(community, {})
            children = [child for child in _listed(row.get("children", member.get("children"))) if child in heights]
            heights[community] = 1 + max((heights[child] for child in children), default=-1)
            name = f"report:{community}"
            sources = [
                *(f"entity:{entity}" for entity in _listed(member.get("entity_ids"))),
                *(f"relationship:{link}" for link in _listed(member.get("relationship_ids"))),
                *(f"report:{child}" for child in children),
            ]
            text = str(row.get("full_content") or row.get("summary") or "")
            title = str(row.get("title") or "")
            self.add(name, text, sources, 4 + heights[community], title=title, level=int(row["level"]))
            self._levels[name] = int(row["level"])
            self._count("Reports", row, name, community)

    def _count(self, kind: str, row: Mapping[str, Any], name: str, number: Any = None) -> None:
        for key in (row.get("id"), number, row.get("human_readable_id")):
            if key is not None and key == key:
                self._numbers[kind][str(key)] = name


def _table(folder: Path, name: str) -> pd.DataFrame:
    """One table, its columns checked."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    found = [path for prefix in _PREFIXES if (path := folder / f"{prefix}{name}.parquet").is_file()]
    if not found:
        raise FileNotFoundError(f"{folder} has no {name}.parquet")
    try:
        table = pd.read_parquet(found[0])
    except (OSError, ValueError) as error:
        raise ValueError(f"{found[0]} cannot be read: {error}") from None
    if missing := [column for column in _COLUMNS[name] if column not in table]:
        raise ValueError(f"{found[0]} has no column {', '.join(missing)}; it has {', '.join(map(str, table))}")
    if name == "community_reports" and not {"full_content", "summary"} & set(table):
        raise ValueError(f"{found[0]} has neither full_content nor summary; it has {', '.join(map(str, table))}")
    return table


def _listed(value: Any) -> list[Any]:
    """A list cell, a single value, or nothing; pandas writes NaN where a table has no list."""
    if value is None or isinstance(value, float):
        return []
    if isinstance(value, str | int):
        return [value]
    return list(value)


def _described(value: Any) -> str:
    """A description; before they are merged there is a list of them."""
    return "\n".join(str(part) for part in _listed(value))


def _kind(reference: str) -> str:
    word = reference.lower()
    if word.startswith("report"):
        return "Reports"
    if word.startswith("entit"):
        return "Entities"
    return "Relationships" if word.startswith("relation") else "Sources"
