"""What a report page shows, as plain data: gathered from a run and its study, rendered by :mod:`gnomon.report.html`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from gnomon.evidence import Claim, Finding
from gnomon.evidence.intervals import Estimate
from gnomon.evidence.verdict import Contrast, Verdict
from gnomon.report.figures import Figure
from gnomon.report.theme import TREATMENT
from gnomon.studies.files import read_tables
from gnomon.studies.study import Paper
from gnomon.studies.unit import Shortfall

if TYPE_CHECKING:
    from gnomon.studies.store import Run
    from gnomon.studies.study import Study

EMBEDDED_BYTES = 256 * 1024
"""Tables up to this size as CSV are inside the page; of larger ones it links the unit files."""

_SHOWN_ELSEWHERE = {"schema", "study", "config", "preset", "units", "errors", "status", "pid"}


@dataclass(frozen=True)
class Mark:
    """An arm's place on the strip of its finding, in percent of the strip's width; missing numbers are ``None``."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ArmRow:
    """One line of a finding: the treatment, or a control with the contrast to it."""

    arm: str
    estimate: Estimate
    mark: Mark
    contrast: Contrast | None = None
    required: bool = True


@dataclass(frozen=True)
class FindingRows:
    """A finding laid out for the table: its arms on one common strip."""

    finding: Finding
    arms: tuple[ArmRow, ...]
    zero: float | None

    @property
    def claim(self) -> Claim:
        """The claim that was put to the test."""
        return self.finding.claim


@dataclass(frozen=True)
class StageSummary:
    """Units of one stage: how many were planned, how many ended how, and their seconds."""

    stage: str
    planned: int
    ended: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class TableDownload:
    """A raw table: inside the page as CSV if it is small, else as links to the parquet files of its units."""

    name: str
    rows: int
    columns: tuple[str, ...]
    csv: str | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A report: what was asked, what was found, how it was measured and where it comes from."""

    study: str
    title: str
    question: str
    paper: Paper
    findings: Sequence[Finding]
    figures: Sequence[Figure] = ()
    run: str = ""
    preset: str = ""
    started: str = ""
    notices: Sequence[str] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    stages: Sequence[StageSummary] = ()
    shortfalls: Sequence[Shortfall] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    downloads: Sequence[TableDownload] = ()

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How many claims got each verdict; those that occur, best first."""
        return count_verdicts(self.findings)

    @property
    def rows(self) -> list[FindingRows]:
        """The findings laid out for the table."""
        return [finding_rows(finding) for finding in self.findings]

    @property
    def unfinished(self) -> int:
        """Units that failed or could not be had, with those that waited for them; a gated unit has finished."""
        return sum(shortfall.kind != "gated" for shortfall in self.shortfalls)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Provenance as lines of label and value, nested names joined."""
        return list(_flattened(self.provenance))

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The configuration as lines of label and value."""
        return list(_flattened(self.config))


def page_of_run(run: Run, study: Study, figures: Sequence[Figure], notices: Sequence[str] = ()) -> Page:
    """The page of a stored run."""
    return Page(
        study=study.name,
        title=study.title,
        question=(study.__doc__ or "").strip().partition("\n")[0],
        paper=study.paper,
        findings=run.findings_so_far,
        figures=figures,
        run=run.name,
        preset=run.preset,
        started=str(run.record["started"]),
        notices=(*run.errors, *notices),
        config=run.config,
        stages=_stages(run),
        shortfalls=run.shortfalls,
        provenance={
            **{name: value for name, value in run.record.items() if name not in _SHOWN_ELSEWHERE},
            "data and models": run.provenance,
        },
        downloads=_downloads(run),
    )


def count_verdicts(findings: Sequence[Finding]) -> dict[Verdict, int]:
    """How many findings have each verdict; verdicts that do not occur are left out."""
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in Verdict}
    return {verdict: count for verdict, count in counts.items() if count}


def _stages(run: Run) -> list[StageSummary]:
    by_stage: dict[str, list[Any]] = {}
    for unit in run.units:
        by_stage.setdefault(unit.stage, []).append(unit)
    return [
        StageSummary(
            stage,
            planned=len(units),
            ended={status: sum(unit.status == status for unit in units) for status in {u.status for u in units}},
            seconds=sum(unit.seconds for unit in units),
        )
        for stage, units in by_stage.items()
    ]


def _downloads(run: Run) -> list[TableDownload]:
    files: dict[str, list[str]] = {}
    for unit in run.units:
        for name, file in unit.tables.items():
            files.setdefault(name, []).append(file)
    return [_download(name, run.path, tuple(of_table)) for name, of_table in sorted(files.items())]


def _download(name: str, folder: Path, files: tuple[str, ...]) -> TableDownload:
    paths = [folder / file for file in files]
    columns = tuple(dict.fromkeys(column for path in paths for column in pq.read_schema(path).names))
    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    csv = None
    # Two bytes a cell (a digit and its comma) are the least a CSV takes: larger tables need not be read to know.
    if 2 * rows * len(columns) <= EMBEDDED_BYTES:
        text = read_tables(paths).to_csv(index=False)
        csv = text if len(text.encode()) <= EMBEDDED_BYTES else None
    return TableDownload(name, rows, columns, csv, files)


def finding_rows(finding: Finding) -> FindingRows:
    """Treatment, required controls in the claim's order, then the others, on a strip from the least to the most."""
    required = finding.claim.controls
    contrasts = sorted(
        finding.contrasts, key=lambda c: required.index(c.control) if c.control in required else len(required)
    )
    named: list[tuple[str, Estimate, Contrast | None]] = [(c.control, c.estimate, c) for c in contrasts]
    if finding.effect is not None:
        named.insert(0, (TREATMENT, finding.effect, None))
    numbers = [n for _, e, _ in named for n in (e.value, e.low, e.high) if math.isfinite(n)]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 0.0)
    pad = 0.08 * (high - low) or 1.0
    low, high = low - pad, high + pad

    def place(number: float) -> float | None:
        return None if math.isnan(number) else 100 * (min(max(number, low), high) - low) / (high - low)

    arms = tuple(
        ArmRow(
            arm,
            estimate,
            Mark(place(estimate.value), place(estimate.low), place(estimate.high)),
            contrast,
            required=contrast is None or arm in required,
        )
        for arm, estimate, contrast in named
    )
    return FindingRows(finding, arms, zero=place(0.0) if low <= 0 <= high else None)


def _flattened(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        label = f"{above} · {name}" if above else str(name).replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flattened(value, label)
        elif isinstance(value, list | tuple):
            yield label, ", ".join(map(str, value)) or "none"
        elif value not in (None, ""):
            yield label, str(value)
