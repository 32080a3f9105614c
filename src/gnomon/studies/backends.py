"""Where units are measured: in worker processes of this machine, or in this process.

A backend is small, so that a cluster can be one: it takes tasks while it has room and hands back outcomes as they
come. It decides nothing about order, storage or failure.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from multiprocessing import connection, process, resource_tracker
from pathlib import Path
from typing import Protocol

from gnomon.studies.measuring import Outcome, UnitTask, failure, measure_unit

# One thread a worker: results do not depend on the number of cores, and workers do not fight over them.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Backend(Protocol):
    """Measures units somewhere."""

    @property
    def workers(self) -> int:
        """How many units it measures at once."""
        ...

    def start(self, log: Path) -> None:
        """Get ready; what the workers print goes to the log."""
        ...

    def submit(self, task: UnitTask) -> None:
        """Take a unit; called only while fewer than ``workers`` are in flight."""
        ...

    def wait(self) -> Outcome:
        """Block until one of the units in flight has ended."""
        ...

    def stop(self) -> None:
        """Abandon what is in flight and free all workers."""
        ...


class InlineBackend:
    """Measures units one by one in this process, with whatever threads it has: for debugging and small tests."""

    workers = 1

    def __init__(self) -> None:
        self._tasks: deque[UnitTask] = deque()

    def start(self, log: Path) -> None:
        """Nothing to get ready."""

    def submit(self, task: UnitTask) -> None:
        """Keep the task until someone waits for it."""
        self._tasks.append(task)

    def wait(self) -> Outcome:
        """Measure the unit submitted first."""
        return measure_unit(self._tasks.popleft())

    def stop(self) -> None:
        """Forget the tasks."""
        self._tasks.clear()


class LocalBackend:
    """Measures units in worker processes that live until the run ends, so that a loaded model serves many units.

    Workers are started when there is work for them, each with one thread. One that dies takes only its unit along.
    They import the main module anew, so a script starts its run under ``if __name__ == "__main__":``.

    Args:
        workers: At most so many; by default one a core.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self._limit = workers or cores()
        self._log = Path(os.devnull)
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []

    @property
    def workers(self) -> int:
        """How many units it measures at once."""
        return self._limit

    def start(self, log: Path) -> None:
        """Remember where workers print to; they start on demand."""
        self._log = log

    def submit(self, task: UnitTask) -> None:
        """Give the task to an idle worker, or to a new one."""
        worker = next((worker for worker in self._idle if worker.is_running), None)
        if worker is None:
            worker = _Worker(self._log)
        else:
            self._idle.remove(worker)
        self._busy.append(worker)
        worker.give(task)

    def wait(self) -> Outcome:
        """Block until a worker answers or dies."""
        ready = connection.wait([handle for worker in self._busy for handle in worker.handles])
        worker = next(worker for worker in self._busy if any(handle in ready for handle in worker.handles))
        self._busy.remove(worker)
        outcome = worker.take()
        if worker.is_running:
            self._idle.append(worker)
        return outcome

    def stop(self) -> None:
        """Kill the workers."""
        for worker in [*self._idle, *self._busy]:
            worker.kill()
        self._idle.clear()
        self._busy.clear()


class _Worker:
    """One worker process, as seen from the run."""

    def __init__(self, log: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process: process.BaseProcess = context.Process(target=_serve, args=(theirs, log))
        self._key = ""
        with _one_thread_each(), _keyboard_interrupts_held_back():
            self._process.start()
        theirs.close()

    @property
    def handles(self) -> list[connection.Connection | int]:
        return [self._connection, self._process.sentinel]

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def give(self, task: UnitTask) -> None:
        self._key = task.key
        # A worker that is already dead is noticed by take().
        with contextlib.suppress(BrokenPipeError):
            self._connection.send_bytes(pickle.dumps((task.key, pickle.dumps(task))))

    def take(self) -> Outcome:
        try:
            return self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            self._connection.close()
            return Outcome(self._key, "failed", reason=f"worker process {_death(self._process.exitcode)}")

    def kill(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        cause = signal.Signals(-code).name
        hint = "; out of memory is the usual cause" if -code == signal.SIGKILL else ""
        return f"was killed by {cause}{hint}"
    return f"exited with code {code}; see worker.log"


def _serve(tasks: connection.Connection, log: Path) -> None:
    """Measure units until the run closes the connection or dies."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    with log.open("a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            key, pickled = pickle.loads(tasks.recv_bytes())
            try:
                task = pickle.loads(pickled)
            except Exception as error:
                outcome = failure(key, error)
            else:
                outcome = measure_unit(task)
            sys.stdout.flush()
            tasks.send(outcome)


def _die_with(parent: process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Set the environment a worker is born with: thread counts are read when the libraries load."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _keyboard_interrupts_held_back() -> Iterator[None]:
    """Let a worker be born deaf to Ctrl-C, which reaches it too: the run decides what becomes of its unit."""
    # Starting the resource tracker, which the first worker does otherwise, would let them through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
