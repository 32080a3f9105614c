"""Replies of chat models on disk, and the ledger of a run's budget: one SQLite file, JSON values, many processes.

A call is never paid for twice: its key is a hash of everything the reply depends on. Write-ahead logging lets several
workers read and write at once; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.models.cache import cache_folder

_SCHEMA = """
create table if not exists replies (key text primary key, value text not null, stored real default (unixepoch()));
create table if not exists spending (run text primary key, calls integer not null, cost real not null);
"""


@dataclass(frozen=True)
class CallCache:
    """Replies by key.

    Args:
        path: The SQLite file; made if need be.
    """

    path: Path

    @classmethod
    def default(cls) -> CallCache:
        """The cache in the user's cache folder."""
        return cls(cache_folder("calls") / "calls.sqlite3")

    def find(self, key: str) -> dict[str, Any] | None:
        """The stored value, or ``None``."""
        with connection(self.path) as database:
            row = database.execute("select value from replies where key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def store(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a value; one that is there already stays, so that every reader sees the same reply."""
        with connection(self.path) as database:
            database.execute("insert or ignore into replies (key, value) values (?, ?)", (key, json.dumps(value)))


@dataclass(frozen=True)
class CallBudget:
    """What one run may spend on calls, over all its processes.

    Args:
        path: The SQLite file that keeps the ledger.
        run: Name of the run.
        max_calls: Calls it may make; ``None`` for no limit.
        max_cost: What it may pay; calls in flight when it is reached are still paid. ``None`` for no limit.
    """

    path: Path
    run: str
    max_calls: int | None = None
    max_cost: float | None = None

    def reserve(self) -> str:
        """Take one call from the budget; the reason if there is none left, else an empty string."""
        with connection(self.path) as database:
            database.execute("insert or ignore into spending values (?, 0, 0)", (self.run,))
            taken = database.execute(
                "update spending set calls = calls + 1 where run = ? and calls < ? and cost < ?",
                (self.run, _limit(self.max_calls), _limit(self.max_cost)),
            ).rowcount
        if taken:
            return ""
        calls, cost = self.spent()
        if self.max_calls is not None and calls >= self.max_calls:
            return f"budget of {self.max_calls} calls is spent"
        return f"budget of {self.max_cost:g} is spent ({cost:.4g})"

    def charge(self, cost: float) -> None:
        """Add the cost of a call that was made."""
        with connection(self.path) as database:
            database.execute("update spending set cost = cost + ? where run = ?", (cost, self.run))

    def spent(self) -> tuple[int, float]:
        """Calls made and cost so far."""
        with connection(self.path) as database:
            row = database.execute("select calls, cost from spending where run = ?", (self.run,)).fetchone()
        return (int(row[0]), float(row[1])) if row else (0, 0.0)


def call_key(parts: Mapping[str, Any]) -> str:
    """Key of a call: SHA-256 of its canonical JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@contextmanager
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """An open database in write-ahead mode; each statement is its own transaction."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as database:
        database.execute("pragma journal_mode = wal")
        database.executescript(_SCHEMA)
        yield database


def _limit(value: float | None) -> float:
    return float("inf") if value is None else value
