"""A run on disk: a folder that holds the plan, the tables, the findings and where they come from.

::

    run.json        study, config, versions, machine, provenance, and every unit with its key, hashes and seconds
    progress.jsonl  what happened, one event a line; a run that was killed is read back from it
    units/          one parquet file a unit and table
    artifacts/      large results that a study asked to keep
    tracebacks/     of units that failed
    findings.json   findings, and the units that left no rows
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from filelock import FileLock, Timeout

from gnomon.evidence import Finding
from gnomon.studies.files import damaged, read_tables
from gnomon.studies.unit import Shortfall, Tables

if TYPE_CHECKING:
    from gnomon.studies.study import Study, StudyConfig

RUN_SCHEMA = 1


@dataclass
class UnitRecord:
    """A unit of a run: what was planned, and what became of it.

    ``status`` is ``planned``, ``done``, ``gated``, ``missing``, ``failed`` or ``skipped``; ``seconds`` is what it took
    when it was measured, in this run or, if ``cached``, in an earlier one. ``tables`` and ``files`` are paths inside
    the run folder, the latter with their sha256.
    """

    stage: str
    label: str
    key: str
    declared: float = 0.0
    status: str = "planned"
    seconds: float = 0.0
    cached: bool = False
    reason: str = ""
    tables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def shortfall(self) -> Shortfall | None:
        """Why it left no rows; ``None`` if it did, or was never reached."""
        if self.status in {"planned", "done"}:
            return None
        return Shortfall(self.stage, self.label, self.status, self.reason)


class Run:
    """A run folder, read.

    Raises:
        FileNotFoundError: If the folder holds no run.
        ValueError: If its ``run.json`` is broken or of an unknown schema.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.record = _read_record(self.path / "run.json")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, status={self.status!r})"

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def study(self) -> str:
        """Name of the study."""
        return self.record["study"]

    @property
    def preset(self) -> str:
        """Name of the preset it started from."""
        return self.record["preset"]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as stored."""
        return self.record["config"]

    def config_for(self, study: Study) -> StudyConfig:
        """The configuration as the study's own ``Config``.

        Raises:
            pydantic.ValidationError: If the study no longer takes it.
        """
        return study.Config.model_validate_json(json.dumps(self.config))

    @property
    def status(self) -> str:
        """How it stands.

        ``running``, ``done``, ``failed`` (a unit or, see :attr:`errors`, a judge or the report), ``incomplete`` (units
        missing) or ``interrupted``. All but ``running`` can be resumed.
        """
        stored = self.record["status"]
        return "interrupted" if stored == "running" and not is_locked(self.path) else stored

    @property
    def errors(self) -> list[str]:
        """What went wrong beside single units: in a judge, in the report."""
        return self.record.get("errors", [])

    @property
    def provenance(self) -> dict[str, Any]:
        """What the units noted of their models and data, by subject."""
        merged: dict[str, Any] = {}
        for unit in self.units:
            for subject, facts in unit.notes.items():
                if merged.setdefault(subject, facts) != facts:
                    merged[f"{subject} in {unit.label}"] = facts
        return merged

    @cached_property
    def units(self) -> list[UnitRecord]:
        """All planned units, in the order of the study, with what became of them."""
        units = {stored["key"]: UnitRecord(**stored) for stored in self.record["units"]}
        if self.record["status"] == "running":
            for event in _events_of_last_start(self.path / "progress.jsonl"):
                if event["event"] == "unit" and event["unit"]["key"] in units:
                    units[event["unit"]["key"]] = UnitRecord(**event["unit"])
        return list(units.values())

    @property
    def shortfalls(self) -> tuple[Shortfall, ...]:
        """Units that left no rows, and why."""
        return tuple(shortfall for unit in self.units if (shortfall := unit.shortfall))

    @cached_property
    def tables(self) -> Tables:
        """The tables, rows in the order of the study's units."""
        paths: dict[str, list[Path]] = {}
        for unit in self.units:
            for name, file in unit.tables.items():
                paths.setdefault(name, []).append(self.path / file)
        return Tables(
            {name: read_tables(files) for name, files in paths.items()},
            counts=Counter(unit.stage for unit in self.units),
            shortfalls=self.shortfalls,
        )

    @property
    def has_findings(self) -> bool:
        """Whether the run has got as far as its findings."""
        return (self.path / "findings.json").exists()

    @property
    def findings_so_far(self) -> list[Finding]:
        """The findings; none if the run has not got that far."""
        return self.findings if self.has_findings else []

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings, in the order of the study's claims.

        Raises:
            FileNotFoundError: If the run has not got that far.
            ValueError: If the file is broken, or a stored verdict is not what its numbers give.
        """
        path = self.path / "findings.json"
        if not path.exists():
            raise FileNotFoundError(f"run {self.name} has no findings yet (status: {self.status})")
        return [Finding.from_dict(stored) for stored in _read_json(path)["findings"]]

    def damaged_files(self) -> list[str]:
        """Files of units that are missing, truncated or edited."""
        return [name for unit in self.units for name in damaged(self.path, unit.files)]

    def verify(self, study: Study) -> list[str]:
        """What is wrong with the run; empty if its files are as written and its tables give the stored verdicts."""
        from gnomon.studies.judging import judge

        problems = [f"{name} is not the file that was written" for name in self.damaged_files()]
        try:
            stored = {finding.claim.name: finding.verdict for finding in self.findings}
        except (FileNotFoundError, ValueError) as error:
            return [*problems, str(error)]
        try:
            judged = judge(study, self.tables, self.config_for(study))
        except (pa.ArrowException, OSError) as error:
            return [*problems, f"the tables cannot be read: {' '.join(str(error).split())}"]
        for finding in judged:
            before = stored.pop(finding.claim.name, None)
            if before != finding.verdict:
                problems.append(
                    f"claim {finding.claim.name}: stored verdict {before or 'none'}, the tables give {finding.verdict}"
                )
        return [*problems, *(f"claim {name}: stored, but not a claim of the study" for name in stored)]


def is_locked(path: Path) -> bool:
    """Whether a living process is working in the run folder."""
    if not (path / ".lock").exists():
        return False
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def find_runs(runs_dir: Path, study: str | None = None) -> list[Run]:
    """Runs in a folder, newest first; folders whose ``run.json`` is broken are left out."""
    runs: list[Run] = []
    for record in runs_dir.glob("*/run.json"):
        try:
            run = Run(record.parent)
        except ValueError:
            continue
        if study is None or run.study == study:
            runs.append(run)
    return sorted(runs, key=lambda run: (run.record["started"], run.name), reverse=True)


def unit_to_dict(unit: UnitRecord) -> dict[str, Any]:
    """JSON-ready dictionary of a unit's record."""
    return dataclasses.asdict(unit)


def _read_record(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no run at {path.parent}")
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} is not a run: it has no run.json")
    record = _read_json(path)
    if not isinstance(record, dict) or record.get("schema") != RUN_SCHEMA:
        found = record.get("schema") if isinstance(record, dict) else None
        raise ValueError(f"{path} has schema {found!r}, this gnomon reads {RUN_SCHEMA}")
    lacking = [name for name in ("study", "preset", "config", "status", "started", "units") if name not in record]
    if lacking:
        raise ValueError(f"{path} lacks {', '.join(lacking)}")
    return record


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None


def _events_of_last_start(path: Path) -> Iterator[dict[str, Any]]:
    """Events since the run was last started or resumed; a torn last line is ignored."""
    events: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event["event"] == "planned":
                events.clear()
            events.append(event)
    return iter(events)
