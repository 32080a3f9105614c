"""Replies of chat models on disk, and the ledger of a run's budget: one SQLite file, JSON values, many processes.

A call is never paid for twice: its key is a hash of everything the reply depends on. Write-ahead logging lets several
workers read and write at once; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
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

    @contextmanager
    def opened(self) -> Iterator[Replies]:
        """The replies, for a batch of calls in this thread."""
        with connection(self.path) as database:
            yield Replies(database)


@dataclass(frozen=True)
class Replies:
    """The replies in an open cache."""

    database: sqlite3.Connection

    def find(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The stored values among these keys."""
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(keys), 500):  # SQLite limits the placeholders of a statement
            part = keys[start : start + 500]
            marks = ", ".join("?" * len(part))
            rows = self.database.execute(f"select key, value from replies where key in ({marks})", part)
            found |= {key: json.loads(value) for key, value in rows}
        return found

    def store(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a value; one that is there already stays, so that every reader sees the same reply."""
        self.database.execute("insert or ignore into replies (key, value) values (?, ?)", (key, json.dumps(value)))


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

    @contextmanager
    def opened(self) -> Iterator[Ledger]:
        """The ledger, for a batch of calls in this thread."""
        with connection(self.path) as database:
            database.execute("insert or ignore into spending values (?, 0, 0)", (self.run,))
            yield Ledger(self, database)

    def spent(self) -> tuple[int, float]:
        """Calls made and cost so far."""
        with self.opened() as ledger:
            return ledger.spent()


@dataclass(frozen=True)
class Ledger:
    """An open budget."""

    budget: CallBudget
    database: sqlite3.Connection

    def reserve(self) -> str:
        """Take one call from the budget; the reason if there is none left, else an empty string."""
        most_calls, most_cost = self.budget.max_calls, self.budget.max_cost
        taken = self.database.execute(
            "update spending set calls = calls + 1 where run = ? and calls < ? and cost < ?",
            (self.budget.run, _limit(most_calls), _limit(most_cost)),
        ).rowcount
        if taken:
            return ""
        calls, cost = self.spent()
        if most_calls is not None and calls >= most_calls:
            return f"budget of {most_calls} calls is spent"
        return f"budget of {most_cost:g} is spent ({cost:.4g})"

    def charge(self, cost: float) -> None:
        """Add the cost of a call that was made."""
        self.database.execute("update spending set cost = cost + ? where run = ?", (cost, self.budget.run))

    def spent(self) -> tuple[int, float]:
        """Calls made and cost so far."""
        row = self.database.execute("select calls, cost from spending where run = ?", (self.budget.run,)).fetchone()
        return int(row[0]), float(row[1])


def call_key(parts: Mapping[str, Any]) -> str:
    """Key of a call: SHA-256 of its canonical JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@contextmanager
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """An open database in write-ahead mode; each statement is its own transaction."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as database:
        database.execute("pragma journal_mode = wal")
        database.execute(
            "pragma synchronous = normal"
        )  # what is written survives a killed process, without a sync each
        database.executescript(_SCHEMA)
        yield database


def _limit(value: float | None) -> float:
    return float("inf") if value is None else value
