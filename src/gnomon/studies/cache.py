"""The unit cache: every finished unit once, shared by all runs and presets, within a size limit."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gnomon.studies.files import damaged, sha256, write_json
from gnomon.user_cache import cache_root

DEFAULT_LIMIT_GB = 20.0
_RECORD = "unit.json"


@dataclass(frozen=True)
class StoredUnit:
    """A finished unit in the cache: its folder, and what ``unit.json`` says of it.

    The record holds stage, parameters, seconds, the sha256 of each file, the names of tables and of artifacts to keep,
    notes on provenance, and the gate's reason if the unit was gated.
    """

    path: Path
    record: Mapping[str, Any]

    @property
    def tables(self) -> dict[str, Path]:
        """Files of the unit's tables, by table name."""
        return {name: self.path / file for name, file in self.record["tables"].items()}

    def damaged(self) -> list[str]:
        """Files that are missing, truncated or edited."""
        return damaged(self.path, self.record["files"])


class UnitCache:
    """A folder of finished units, one folder a key.

    Units appear by an atomic rename, so that any number of processes may share the cache. The least recently used
    are removed when the limit is passed, but none that a living run has pinned.

    Args:
        root: The folder; by default ``$GNOMON_CACHE``, else the user's cache folder.
        limit_gb: Size to keep it under; by default ``$GNOMON_CACHE_GB``, else 20.
    """

    def __init__(self, root: Path | None = None, *, limit_gb: float | None = None) -> None:
        self.root = root or cache_root()
        self.limit = (limit_gb if limit_gb is not None else _limit_from_environment()) * 1e9
        self._units = self.root / "units"
        self._drafts = self.root / "drafts"
        self._pins = self.root / "pins"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.root, self.limit / 1e9)

    def find(self, key: str) -> StoredUnit | None:
        """The unit of that key, if it is finished; its files are not looked at."""
        path = self._folder(key)
        try:
            return StoredUnit(path, json.loads((path / _RECORD).read_bytes()))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def find_intact(self, key: str) -> StoredUnit | None:
        """The unit of that key if its files have their recorded hashes; a damaged one is removed."""
        stored = self.find(key)
        if stored is None:
            if self._folder(key).exists():
                self._discard_damaged(key)
            return None
        if stored.damaged():
            self._discard_damaged(key)
            return None
        os.utime(stored.path / _RECORD)
        return stored

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """A fresh folder to write a unit into; what was not published is removed at the end."""
        path = self._drafts / f"{os.getpid()}@{platform.node()}@{uuid.uuid4().hex}"
        path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def publish(self, key: str, draft: Path, record: Mapping[str, Any]) -> StoredUnit:
        """Make a draft the finished unit of that key; the first of several publishers wins."""
        files = sorted(path for path in draft.rglob("*") if path.is_file())
        hashes = {path.relative_to(draft).as_posix(): sha256(path) for path in files}
        write_json(draft / _RECORD, {"schema": 1, "key": key, **record, "files": hashes})
        destination = self._folder(key)
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.rename(destination)
        except OSError:
            # Another process finished the same unit first.
            if self.find(key) is None:
                raise
        stored = self.find(key)
        assert stored is not None
        return stored

    @contextlib.contextmanager
    def pinned(self, keys: Iterable[str]) -> Iterator[None]:
        """Keep the units of these keys from being evicted, as long as this process lives."""
        self._pins.mkdir(parents=True, exist_ok=True)
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        pin = self._pins / f"{name}.keys"
        with FileLock(self._pins / f"{name}.lock"):
            pin.write_text("\n".join(keys))
            try:
                yield
            finally:
                pin.unlink(missing_ok=True)
        (self._pins / f"{name}.lock").unlink(missing_ok=True)

    def trim(self) -> int:
        """Remove the least recently used units until the cache is within its limit; the number removed."""
        with self._alone():
            self._remove_dead_drafts()
            units = [
                (record.stat().st_mtime, _size(record.parent), record.parent)
                for record in self._units.glob(f"*/*/{_RECORD}")
            ]
            total = sum(size for _, size, _ in units)
            if total <= self.limit:
                return 0
            pinned = self._pinned_keys()
            removed = 0
            for _, size, path in sorted(units):
                if total <= self.limit:
                    break
                if path.name not in pinned:
                    self._remove(path)
                    total -= size
                    removed += 1
            return removed

    def _folder(self, key: str) -> Path:
        return self._units / key[:2] / key

    def _alone(self) -> FileLock:
        self.root.mkdir(parents=True, exist_ok=True)
        return FileLock(self.root / "units.lock")

    def _discard_damaged(self, key: str) -> None:
        with self._alone():
            stored = self.find(key)
            if self._folder(key).exists() and (stored is None or stored.damaged()):
                self._remove(self._folder(key))

    def _remove(self, path: Path) -> None:
        """Remove a unit: first by name, atomically, then its files."""
        with self.draft() as grave:
            path.rename(grave / "unit")

    def _pinned_keys(self) -> set[str]:
        keys: set[str] = set()
        for lock_path in self._pins.glob("*.lock"):
            pin = lock_path.with_suffix(".keys")
            lock = FileLock(lock_path)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if pin.exists():
                    keys.update(pin.read_text().split())
            else:
                # Its owner is gone.
                pin.unlink(missing_ok=True)
                lock.release()
                lock_path.unlink(missing_ok=True)
        return keys

    def _remove_dead_drafts(self) -> None:
        for path in self._drafts.glob("*@*@*"):
            pid, node, _ = path.name.split("@")
            if node == platform.node() and not _is_alive(int(pid)):
                shutil.rmtree(path, ignore_errors=True)


def _limit_from_environment() -> float:
    text = os.environ.get("GNOMON_CACHE_GB")
    try:
        limit = float(text) if text else DEFAULT_LIMIT_GB
    except ValueError:
        limit = -1.0
    if not limit >= 0:
        raise ValueError(f"GNOMON_CACHE_GB must be a number of gigabytes, got {text!r}")
    return limit


def _reopen(root: Path, limit_gb: float) -> UnitCache:
    return UnitCache(root, limit_gb=limit_gb)


def _size(folder: Path | str) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            total += _size(entry.path) if entry.is_dir() else entry.stat().st_size
    return total


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
