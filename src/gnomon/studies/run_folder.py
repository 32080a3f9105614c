"""The run folder while it is being written: by one process at a time, never torn."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from filelock import FileLock, Timeout

from gnomon.evidence import Finding
from gnomon.studies.cache import StoredUnit
from gnomon.studies.files import StorageError, copy_file, write_json, write_text
from gnomon.studies.store import RUN_SCHEMA, Run, UnitRecord, unit_to_dict


class RunFolder:
    """A run folder that this process is writing.

    Args:
        path: An existing folder.
        record: What ``run.json`` says beside the units.
    """

    def __init__(self, path: Path, record: dict[str, Any]) -> None:
        self.path = path
        self._record = record
        self._units: dict[str, UnitRecord] = {}
        self._journal: TextIO | None = None

    @classmethod
    @contextlib.contextmanager
    def create(cls, runs_dir: Path, record: dict[str, Any]) -> Iterator[RunFolder]:
        """Make and lock a new folder, named by time, study and preset."""
        now = datetime.now(UTC)
        name = f"{now:%Y-%m-%dT%H-%M-%S}_{record['study']}_{record['preset']}_{secrets.token_hex(2)}"
        path = runs_dir / name
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise StorageError(f"cannot write to the runs folder {runs_dir}: {error.strerror}") from error
        with cls._locked(path):
            yield cls(path, {"schema": RUN_SCHEMA, "started": now.isoformat(timespec="milliseconds"), **record})

    @classmethod
    @contextlib.contextmanager
    def reopen(cls, run: Run, record: dict[str, Any]) -> Iterator[RunFolder]:
        """Lock the folder of a run that is to be resumed.

        Raises:
            ValueError: If a living process is working in it.
        """
        with cls._locked(run.path):
            yield cls(
                run.path, {**run.record, **record, "resumed": datetime.now(UTC).isoformat(timespec="milliseconds")}
            )

    @classmethod
    @contextlib.contextmanager
    def _locked(cls, path: Path) -> Iterator[None]:
        lock = FileLock(path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"run {path.name} is being worked on by another process") from None
        except OSError as error:
            raise StorageError(f"cannot write to {path}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()

    def begin(self, units: Iterable[UnitRecord]) -> None:
        """Write the plan."""
        self._units = {unit.key: unit for unit in units}
        for name in ("findings.json", "report.html"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "tracebacks", ignore_errors=True)
        (self.path / "units").mkdir(exist_ok=True)
        self.write("running")

    def write(self, status: str, *, errors: Iterable[str] = (), **more: Any) -> None:
        """Write ``run.json``."""
        self._record.update(status=status, errors=list(errors), **more)
        units = [unit_to_dict(unit) for unit in self._units.values()]
        write_json(self.path / "run.json", {**self._record, "units": units})

    @contextlib.contextmanager
    def journal(self) -> Iterator[None]:
        """Keep ``progress.jsonl`` open for events."""
        path = self.path / "progress.jsonl"
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        with path.open("a", encoding="utf-8") as file:
            if torn:
                file.write("\n")
            self._journal = file
            try:
                yield
            finally:
                self._journal = None

    def event(self, name: str, **facts: Any) -> None:
        """Append an event."""
        assert self._journal is not None
        self._journal.write(json.dumps({"event": name, "time": time.time(), **facts}) + "\n")
        self._journal.flush()

    def adopt(self, key: str, stored: StoredUnit, *, cached: bool) -> UnitRecord:
        """Take a finished unit over from the cache: its tables, and the artifacts to keep."""
        record = self._units[key]
        prefix = f"{record.stage}-{key[:16]}"
        record.status, record.reason = ("gated", stored.record["gated"]) if stored.record["gated"] else ("done", "")
        record.seconds, record.cached = stored.record["seconds"], cached
        record.notes = stored.record["notes"]
        record.tables = {
            table: f"units/{prefix}{table[len(record.stage) :]}.parquet" for table in stored.record["tables"]
        }
        copies = {file: record.tables[table] for table, file in stored.record["tables"].items()}
        copies |= {f"artifacts/{name}": f"artifacts/{prefix}/{name}" for name in stored.record["kept"]}
        record.files = {copy: stored.record["files"][file] for file, copy in copies.items()}
        for file, copy in copies.items():
            (self.path / copy).parent.mkdir(parents=True, exist_ok=True)
            copy_file(stored.path / file, self.path / copy)
        self.event("unit", unit=unit_to_dict(record))
        return record

    def fall_short(self, key: str, kind: str, reason: str, *, seconds: float = 0.0, traceback: str = "") -> UnitRecord:
        """Record that a unit left no rows, with its traceback if it raised."""
        record = self._units[key]
        record.status, record.reason, record.seconds = kind, reason, seconds
        if traceback:
            self.write_traceback(f"{record.stage}-{key[:16]}", f"{record.label}\n\n{traceback}")
        self.event("unit", unit=unit_to_dict(record))
        return record

    def write_traceback(self, name: str, text: str) -> Path:
        """Keep a traceback; where it is."""
        path = self.path / "tracebacks" / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        write_text(path, text)
        return path

    def write_findings(self, findings: Iterable[Finding]) -> None:
        """Write ``findings.json``: the findings, and the units that left no rows."""
        shortfalls = [
            {"stage": unit.stage, "label": unit.label, "kind": unit.status, "reason": unit.reason}
            for unit in self._units.values()
            if unit.shortfall
        ]
        write_json(
            self.path / "findings.json",
            {
                "schema": RUN_SCHEMA,
                "study": self._record["study"],
                "findings": [finding.to_dict() for finding in findings],
                "shortfalls": shortfalls,
            },
        )

    def sweep(self) -> None:
        """Remove files of units that the plan no longer has, and empty logs."""
        wanted = {name for unit in self._units.values() for name in unit.files}
        for folder in ("units", "artifacts"):
            for path in (self.path / folder).rglob("*"):
                if path.is_file() and path.relative_to(self.path).as_posix() not in wanted:
                    path.unlink()
        log = self.path / "worker.log"
        if log.exists() and log.stat().st_size == 0:
            log.unlink()

    @property
    def units(self) -> dict[str, UnitRecord]:
        """Records of all units, by key."""
        return self._units
