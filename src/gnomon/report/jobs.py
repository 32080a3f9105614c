"""Runs started from the web app: child processes that outlive the server, found again when it starts anew.

A job is ``gnomon run`` in a process and session of its own, with a folder under ``RUNS/.jobs``::

    job.json   what was started, when, and the process it became
    log        what that process printed

Everything about the run itself is in its run folder; a job matters until that folder exists, and for its log.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from gnomon.studies.files import write_json
from gnomon.studies.store import Run, find_runs, is_locked

_LOG_BYTES = 4_000  # of the end of a log that a page shows


@dataclass(frozen=True)
class Job:
    """A started process: ``created`` is its birth by the system's clock, which tells it from a later namesake."""

    id: str
    study: str
    arguments: tuple[str, ...]
    started: float
    pid: int
    created: float


class Jobs:
    """The jobs of a runs folder."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self._folder = runs_dir / ".jobs"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, study: str, arguments: Sequence[str]) -> Job:
        """Start ``gnomon run`` with these arguments."""
        name = f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
        place = self._folder / name
        place.mkdir(parents=True)
        command = [sys.executable, "-m", "gnomon", "run", *arguments, "--runs-dir", str(self.runs_dir)]
        started = time.time()
        with (place / "log").open("wb") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        job = Job(name, study, tuple(arguments), started, child.pid, psutil.Process(child.pid).create_time())
        self._children[name] = child
        write_json(place / "job.json", asdict(job))
        return job

    def find(self, name: str) -> Job:
        """The job of that id.

        Raises:
            FileNotFoundError: If there is none.
        """
        known = {job.id: job for job in self.all()}
        if name not in known:
            raise FileNotFoundError(f"no job {name!r}")
        return known[name]

    def all(self) -> list[Job]:
        """All jobs, newest first."""
        jobs: list[Job] = []
        for path in sorted(self._folder.glob("*/job.json"), reverse=True):
            stored = json.loads(path.read_text(encoding="utf-8"))
            jobs.append(Job(**{**stored, "arguments": tuple(stored["arguments"])}))
        return jobs

    def is_alive(self, job: Job) -> bool:
        """Whether its process still runs."""
        if child := self._children.get(job.id):
            return child.poll() is None
        try:
            process = psutil.Process(job.pid)
            return process.create_time() == job.created and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def run_of(self, job: Job) -> Run | None:
        """The run that the job made or resumed; ``None`` before it has a folder."""
        return next(
            (
                run
                for run in find_runs(self.runs_dir, job.study)
                if run.record.get("pid") == job.pid and (run.path / "run.json").stat().st_mtime >= job.started
            ),
            None,
        )

    def log(self, job: Job) -> str:
        """The end of what the process printed."""
        text = (self._folder / job.id / "log").read_bytes()[-_LOG_BYTES:]
        return text.decode("utf-8", "replace").strip()


def cancel(run: Run) -> bool:
    """Interrupt the process that works in a run, as Ctrl-C does; what is finished is kept. False if there is none."""
    pid = run.record.get("pid")
    if not isinstance(pid, int) or not is_locked(run.path):
        return False
    try:
        if "gnomon" not in " ".join(psutil.Process(pid).cmdline()):
            return False
        os.kill(pid, signal.SIGINT)
    except (psutil.Error, ProcessLookupError):
        return False
    return True
