"""Measuring one unit, in whichever process: from a task to a finished unit in the cache, or why there is none."""

from __future__ import annotations

import hashlib
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from gnomon.studies.cache import StoredUnit, UnitCache
from gnomon.studies.files import is_refusal, read_tables, told_if_full, write_table
from gnomon.studies.fingerprint import canonical_json
from gnomon.studies.study import Study
from gnomon.studies.unit import Done, Gated, Missing, Unit

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class UnitTask:
    """All that a worker needs to measure a unit.

    Args:
        study: The study; pickled by reference to its class.
        unit: What to measure.
        key: The unit's key.
        needs: Keys of the units it needs, by their identity.
        seed: The master seed.
        cache: Where finished units are.
        chat: Makes chat models by name; ``None`` if the run has none.
    """

    study: Study
    unit: Unit
    key: str
    needs: Mapping[str, str]
    seed: int
    cache: UnitCache
    chat: Callable[[str], Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """How the work on a unit ended.

    ``done`` and ``gated`` units are in the cache; ``missing``, ``failed`` and ``refused`` (by the file system) ones
    left nothing.
    """

    key: str
    kind: Literal["done", "gated", "missing", "failed", "refused"]
    seconds: float = 0.0
    reason: str = ""
    traceback: str = ""


def measure_unit(task: UnitTask) -> Outcome:
    """Measure a unit and publish it to the cache; never raises on account of the study."""
    started = time.perf_counter()
    try:
        # Another run may have finished it since this one was planned.
        stored = task.cache.find_intact(task.key) or _measure_and_publish(task)
    except Missing as missing:
        return Outcome(task.key, "missing", time.perf_counter() - started, str(missing))
    except (Exception, SystemExit) as error:
        return failure(task.key, error, time.perf_counter() - started)
    reason = stored.record["gated"]
    return Outcome(task.key, "gated" if reason else "done", stored.record["seconds"], reason)


def failure(key: str, error: BaseException, seconds: float = 0.0) -> Outcome:
    """The outcome of a unit that raised."""
    return Outcome(
        key,
        "refused" if is_refusal(error) else "failed",
        seconds,
        " ".join(f"{type(error).__name__}: {error}".split()),
        "".join(traceback.format_exception(error)),
    )


def _measure_and_publish(task: UnitTask) -> StoredUnit:
    unit = task.unit
    with task.cache.draft() as draft:
        run = _Measurement(task, draft)
        _seed_global_generators(task.key)
        started = time.perf_counter()
        gated = ""
        tables: dict[str, pd.DataFrame] = {}
        try:
            with told_if_full(draft):
                tables = _named_tables(unit, task.study.measure(unit, run))
        except Gated as gate:
            gated = str(gate) or "gated"
        seconds = time.perf_counter() - started
        files: dict[str, str] = {}
        for name, frame in tables.items():
            files[name] = f"{name}.parquet"
            write_table(_with_parameters(frame, unit), draft / files[name])
        record = {
            "study": task.study.name,
            "stage": unit.stage,
            "params": dict(unit.params),
            "seconds": seconds,
            "tables": files,
            "kept": [] if gated else sorted(run.kept),
            "notes": run.notes,
            "gated": gated,
        }
        return task.cache.publish(task.key, draft, record)


class _Measurement:
    """The ``run`` that ``measure`` gets; see :class:`~gnomon.studies.unit.UnitRun`."""

    def __init__(self, task: UnitTask, draft: Path) -> None:
        self._task = task
        self._draft = draft
        self.kept: set[str] = set()
        self.notes: dict[str, dict[str, Any]] = {}

    def need(self, unit: Unit) -> Done:
        key = self._task.needs.get(unit.identity)
        if key is None:
            raise KeyError(f"{self._task.unit.label} does not list {unit.label} in its needs")
        stored = self._task.cache.find(key)
        if stored is None:
            raise FileNotFoundError(f"{unit.label} has left the unit cache {self._task.cache.root}")
        return Done(unit, _StoredTables(stored.tables), stored.path / "artifacts")

    def artifact(self, name: str, *, keep: bool = False) -> Path:
        path = self._draft / "artifacts" / name
        if not path.resolve().is_relative_to((self._draft / "artifacts").resolve()) or not name:
            raise ValueError(f"artifact name {name!r} leads out of the unit's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        if keep:
            self.kept.add(name)
        return path

    def rng(self, *stream: str | int) -> np.random.Generator:
        digest = hashlib.sha256(canonical_json(list(stream)).encode()).digest()
        words = np.frombuffer(digest, dtype=np.uint32).tolist()
        return np.random.default_rng(np.random.SeedSequence([self._task.seed, *words]))

    def chat(self, name: str) -> Any:
        if self._task.chat is None:
            raise Missing(f"this run has no chat model {name!r}")
        return self._task.chat(name)

    def note(self, subject: str, facts: Mapping[str, Any]) -> None:
        canonical_json(dict(facts))
        self.notes[subject] = dict(facts)


class _StoredTables(Mapping[str, pd.DataFrame]):
    """Tables of a finished unit, each read when it is asked for."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths

    def __getitem__(self, name: str) -> pd.DataFrame:
        return read_tables([self._paths[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def _named_tables(unit: Unit, measured: Any) -> dict[str, pd.DataFrame]:
    if isinstance(measured, pd.DataFrame):
        return {unit.stage: _checked(unit.stage, measured)}
    if not isinstance(measured, Mapping):
        raise TypeError(f"{unit.label} returned {type(measured).__name__}; expected a DataFrame or a dict of them")
    for name in measured:
        if not _NAME.fullmatch(str(name)):
            raise ValueError(f"{unit.label} names a table {name!r}; use letters, digits, '-' and '_'")
    return {f"{unit.stage}.{name}": _checked(f"{unit.stage}.{name}", frame) for name, frame in measured.items()}


def _checked(name: str, frame: Any) -> pd.DataFrame:
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"table {name} is a {type(frame).__name__}; expected a DataFrame")
    if any(label is not None for label in frame.index.names):
        raise ValueError(f"table {name} has a named index {list(frame.index.names)}; call reset_index() first")
    if not all(isinstance(column, str) for column in frame.columns) or frame.columns.has_duplicates:
        raise ValueError(f"table {name} must have distinct column names that are strings, got {list(frame.columns)}")
    return frame


def _with_parameters(frame: pd.DataFrame, unit: Unit) -> pd.DataFrame:
    """The table with the unit's scalar parameters as its first columns, unless it has them."""
    scalars = {
        name: value
        for name, value in unit.params.items()
        if isinstance(value, str | int | float | bool) and name not in frame.columns
    }
    columns = pd.DataFrame({name: [value] * len(frame) for name, value in scalars.items()}, index=frame.index)
    return pd.concat([columns, frame], axis=1)


def _seed_global_generators(key: str) -> None:
    """Make a stray use of a global generator depend on the unit alone, not on what its worker did before."""
    seed = int(key[:8], 16)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
