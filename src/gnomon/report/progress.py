"""The progress of a run as a stream of server-sent events, read from its folder."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gnomon.studies.store import Run, is_locked

_LOOK_EVERY = 0.4  # seconds
_LOOK_FOR_LIFE_EVERY = 5  # looks: whether a run that says nothing new still has its process


@dataclass(frozen=True)
class Progress:
    """How far a run is; it is being worked on until its report is drawn, which is after its status is known."""

    working: bool
    status: str
    planned: int
    ended: dict[str, int]
    last: str

    @property
    def done(self) -> int:
        """Units that ended, one way or another."""
        return sum(self.ended.values())


def progress_of(run: Run) -> Progress:
    """How far a run is, from its folder."""
    ended = [unit for unit in run.units if unit.status != "planned"]
    return Progress(
        is_locked(run.path),
        run.status,
        len(run.units),
        dict(Counter(unit.status for unit in ended)),
        ended[-1].label if ended else "",
    )


async def progress_events(path: Path) -> AsyncIterator[str]:
    """Events ``progress`` while the run works, each with the whole state, then one ``end``.

    Every event is complete in itself: a reader that comes late or reconnects misses nothing. The folder is read again
    only when its files changed, once for all readers.
    """
    seen: tuple[int, ...] | None = None
    progress = await asyncio.to_thread(progress_of, Run(path))
    quiet = 0
    while True:
        stamp = _stamp(path)
        quiet = 0 if stamp != seen else quiet + 1
        if stamp != seen:
            seen = stamp
            progress = await asyncio.to_thread(_progress_at, path, stamp)
            yield _event("progress", progress)
        over = progress.status != "running" or quiet % _LOOK_FOR_LIFE_EVERY == _LOOK_FOR_LIFE_EVERY - 1
        if over and not await asyncio.to_thread(is_locked, path):
            yield _event("end", await asyncio.to_thread(progress_of, Run(path)))
            return
        await asyncio.sleep(_LOOK_EVERY)


@lru_cache(maxsize=64)
def _progress_at(path: Path, stamp: tuple[int, ...]) -> Progress:  # noqa: ARG001  (the stamp tells versions apart)
    return progress_of(Run(path))


def _stamp(path: Path) -> tuple[int, ...]:
    """Changes whenever the run writes something."""
    stats = [(path / name).stat() for name in ("run.json", "progress.jsonl") if (path / name).exists()]
    return tuple(number for stat in stats for number in (stat.st_size, stat.st_mtime_ns))


def _event(name: str, progress: Progress) -> str:
    return f"event: {name}\ndata: {json.dumps({**vars(progress), 'done': progress.done})}\n\n"
