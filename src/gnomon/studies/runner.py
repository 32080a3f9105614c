"""Running a study: plan its units, measure what the cache lacks, judge the tables, leave a run folder behind."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import gnomon
from gnomon.names import nearest
from gnomon.studies.backends import Backend, LocalBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.files import StorageError, damaged
from gnomon.studies.judging import judge
from gnomon.studies.measuring import Outcome, UnitTask
from gnomon.studies.plan import PlannedUnit, critical_seconds, dependants, plan_units
from gnomon.studies.provenance import git_commit, machine, versions
from gnomon.studies.run_folder import RunFolder
from gnomon.studies.store import Run, UnitRecord
from gnomon.studies.study import Study


class Interrupted(KeyboardInterrupt):
    """The run was stopped by Ctrl-C; what was finished is kept, and ``path`` can be resumed."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


class Observer(Protocol):
    """Is told how a run goes."""

    def planned(self, units: Sequence[UnitRecord], *, seconds: float, workers: int) -> None:
        """The plan stands; ``seconds`` is the declared cost of the units that are still to be measured."""
        ...

    def unit_started(self, unit: UnitRecord) -> None:
        """A unit went to a worker."""
        ...

    def unit_ended(self, unit: UnitRecord) -> None:
        """A unit is done, or fell short; see its status."""
        ...

    def finished(self, run: Run, *, seconds: float) -> None:
        """The run is over; ``seconds`` is what its units took, those from the cache not counted."""
        ...


class Chats(Protocol):
    """Makes chat models by name for the units of a run, in the workers: it must be picklable."""

    def for_run(self, folder: Path) -> Chats:
        """The same with the ledger of the run in that folder."""
        ...

    def __call__(self, name: str) -> Any:
        """The chat model of that name."""
        ...

    def spent(self) -> dict[str, float]:
        """What the run has spent on calls, over all its starts; empty if there were none."""
        ...


class Silent:
    """An observer that keeps what it sees to itself."""

    def planned(self, units: Sequence[UnitRecord], *, seconds: float, workers: int) -> None:
        """Do nothing."""

    def unit_started(self, unit: UnitRecord) -> None:
        """Do nothing."""

    def unit_ended(self, unit: UnitRecord) -> None:
        """Do nothing."""

    def finished(self, run: Run, *, seconds: float) -> None:
        """Do nothing."""


def runs_folder() -> Path:
    """``$GNOMON_RUNS``, else ``runs`` in the current folder."""
    return Path(os.environ.get("GNOMON_RUNS") or "runs")


def run_study(
    study: Study,
    config: Any = None,
    *,
    preset: str = "custom",
    runs_dir: Path | None = None,
    backend: Backend | None = None,
    resume: Path | None = None,
    observer: Observer | None = None,
    report: Callable[[Run, Study], object] | None = None,
    chats: Chats | None = None,
    cache: UnitCache | None = None,
) -> Run:
    """Run a study and return the run it left.

    Args:
        study: The study.
        config: Its configuration; by default ``study.Config()``, and for a resumed run the one it was started with.
        preset: Name of the preset the configuration comes from, for the record.
        runs_dir: Where to make the run folder; by default :func:`runs_folder`.
        backend: Where to measure; by default one worker process a core of this machine.
        resume: An earlier run of the same study to go on with.
        observer: Is told how it goes.
        report: Draws the report once the findings are there.
        chats: Makes chat models by name; without it, units that want one are missing.
        cache: The unit cache; by default the user's.

    Raises:
        ValueError: If the configuration names unknown claims, or the run to resume is another study's or still running.
        StorageError: If results cannot be written; what was finished is kept.
        Interrupted: After Ctrl-C.
    """
    earlier = Run(resume) if resume is not None else None
    if earlier is not None:
        config = _resumed_config(study, earlier, config)
    elif config is None:
        config = study.Config()
    _check_claims(study, config)
    plan = plan_units(study, config)
    record = {
        "study": study.name,
        "title": study.title,
        "preset": earlier.preset if earlier else preset,
        "config": config.model_dump(mode="json"),
        "seed": config.seed,
        "versions": versions(),
        "commit": git_commit(Path(gnomon.__file__).parent),
        "machine": machine(),
        "pid": os.getpid(),
    }
    opened = RunFolder.reopen(earlier, record) if earlier else RunFolder.create(runs_dir or runs_folder(), record)
    with opened as folder:
        session = _Session(
            study,
            plan,
            config,
            folder,
            backend or LocalBackend(),
            cache or UnitCache(),
            observer or Silent(),
            chats.for_run(folder.path) if chats else None,
        )
        try:
            session.measure_all(earlier)
            return session.conclude(report)
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):
                folder.write("interrupted")
            raise Interrupted(folder.path) from None
        except StorageError as error:
            error.path = folder.path
            with contextlib.suppress(OSError):
                folder.write("failed", errors=[str(error)])
            raise


class _Session:
    """One start of a run."""

    def __init__(
        self,
        study: Study,
        plan: dict[str, PlannedUnit],
        config: Any,
        folder: RunFolder,
        backend: Backend,
        cache: UnitCache,
        observer: Observer,
        chats: Chats | None,
    ) -> None:
        self._study = study
        self._plan = plan
        self._config = config
        self._folder = folder
        self._backend = backend
        self._cache = cache
        self._observer = observer
        self._chats = chats
        self._after = dependants(plan)
        self._started = time.perf_counter()

    def measure_all(self, earlier: Run | None) -> None:
        """Measure every unit that neither the cache nor an earlier start of the run has."""
        with contextlib.ExitStack() as stack:
            with _storage(self._cache.root):
                stack.enter_context(self._cache.pinned(self._plan))
            with _storage(self._folder.path):
                pending = self._take_over(earlier, stack)
            declared = sum(self._plan[key].unit.seconds for key in pending)
            self._observer.planned(
                list(self._folder.units.values()), seconds=declared, workers=min(self._backend.workers, len(pending))
            )
            self._measure(pending)
        if pending:
            with _storage(self._cache.root):
                self._cache.trim()

    def conclude(self, report: Callable[[Run, Study], object] | None) -> Run:
        """Judge the tables, write the findings, have the report drawn."""
        errors: list[str] = []
        with _storage(self._folder.path):
            self._folder.sweep()
            self._folder.write("running")
        try:
            findings = judge(self._study, Run(self._folder.path).tables, self._config)
        except Exception as error:
            errors.append(self._error("judge", error))
        else:
            with _storage(self._folder.path):
                self._folder.write_findings(findings)
        run = self._write_status(errors)
        if report is not None:
            try:
                report(run, self._study)
            except Exception as error:
                errors.append(self._error("report", error))
                run = self._write_status(errors)
        self._observer.finished(run, seconds=self._measured_seconds())
        return run

    def _take_over(self, earlier: Run | None, stack: contextlib.ExitStack) -> list[str]:
        """Write the plan and take over what is there already; keys of the units that are still to be measured."""
        cached = {key: stored for key in self._plan if (stored := self._cache.find_intact(key))}
        kept = {
            unit.key: dataclasses.replace(unit, cached=True)
            for unit in (earlier.units if earlier else ())
            if unit.key in self._plan
            and unit.key not in cached
            and unit.status == "done"
            and not damaged(self._folder.path, unit.files)
        }
        pending = {key for key in self._plan if key not in cached and key not in kept}
        # A unit's tables may be here while its artifacts have left the cache; whoever needs it needs them too.
        while lost := {need for key in pending for need in self._plan[key].needs.values() if need in kept} - pending:
            pending |= lost
        self._folder.begin(
            kept[key]
            if key in kept and key not in pending
            else UnitRecord(planned.unit.stage, planned.unit.label, key, planned.unit.seconds)
            for key, planned in self._plan.items()
        )
        stack.enter_context(self._folder.journal())
        self._folder.event("planned", units=len(self._plan), pending=len(pending))
        for key, stored in cached.items():
            unit = self._folder.adopt(key, stored, cached=True)
            if unit.status == "gated":
                self._skip_dependants(key)
        return [key for key in self._plan if key in pending and self._folder.units[key].status == "planned"]

    def _measure(self, pending: list[str]) -> None:
        urgency = critical_seconds(self._plan)
        place = {key: index for index, key in enumerate(self._plan)}
        unmeasured = set(pending)
        open_needs = {key: unmeasured.intersection(self._plan[key].needs.values()) for key in pending}
        ready = [(-urgency[key], place[key], key) for key in pending if not open_needs[key]]
        heapq.heapify(ready)
        in_flight = 0
        try:
            self._backend.start(self._folder.path / "worker.log")
            while ready or in_flight:
                while ready and in_flight < self._backend.workers:
                    key = heapq.heappop(ready)[2]
                    if self._folder.units[key].status == "planned":
                        self._submit(key)
                        in_flight += 1
                if not in_flight:
                    break
                outcome = self._backend.wait()
                in_flight -= 1
                self._settle(outcome)
                for later in self._after[outcome.key]:
                    if later in open_needs:
                        open_needs[later].discard(outcome.key)
                        if not open_needs[later]:
                            heapq.heappush(ready, (-urgency[later], place[later], later))
        finally:
            self._backend.stop()

    def _submit(self, key: str) -> None:
        planned = self._plan[key]
        task = UnitTask(self._study, planned.unit, key, planned.needs, self._config.seed, self._cache, self._chats)
        with _storage(self._folder.path):
            self._folder.event("started", key=key, label=planned.unit.label)
        self._observer.unit_started(self._folder.units[key])
        self._backend.submit(task)

    def _settle(self, outcome: Outcome) -> None:
        """Record how a unit ended; without its rows, whoever needs it is skipped."""
        if outcome.kind == "refused":
            raise StorageError(f"results cannot be stored: {outcome.reason}")
        with _storage(self._folder.path):
            if outcome.kind not in {"done", "gated"}:
                unit = self._folder.fall_short(
                    outcome.key, outcome.kind, outcome.reason, seconds=outcome.seconds, traceback=outcome.traceback
                )
            elif (stored := self._cache.find(outcome.key)) is not None:
                unit = self._folder.adopt(outcome.key, stored, cached=False)
            else:
                unit = self._folder.fall_short(outcome.key, "failed", "it left the unit cache before it was read")
        self._observer.unit_ended(unit)
        if unit.status != "done":
            self._skip_dependants(outcome.key)

    def _skip_dependants(self, key: str) -> None:
        cause = self._folder.units[key]
        reason = f"{cause.label} {cause.status}: {cause.reason}"
        waiting = list(self._after[key])
        while waiting:
            later = waiting.pop()
            if self._folder.units[later].status == "planned":
                with _storage(self._folder.path):
                    unit = self._folder.fall_short(later, "skipped", reason)
                self._observer.unit_ended(unit)
                waiting.extend(self._after[later])

    def _error(self, part: str, error: Exception) -> str:
        with _storage(self._folder.path):
            path = self._folder.write_traceback(part, "".join(traceback.format_exception(error)))
        return f"{part}: {type(error).__name__}: {error} (see {path})"

    def _write_status(self, errors: list[str]) -> Run:
        kinds = {unit.status for unit in self._folder.units.values()}
        status = "failed" if errors or "failed" in kinds else "incomplete" if "missing" in kinds else "done"
        with _storage(self._folder.path):
            self._folder.write(
                status,
                errors=errors,
                measured_seconds=self._measured_seconds(),
                wall_seconds=time.perf_counter() - self._started,
                **({"spent": spent} if self._chats and (spent := self._chats.spent()) else {}),
            )
        return Run(self._folder.path)

    def _measured_seconds(self) -> float:
        return sum(unit.seconds for unit in self._folder.units.values() if not unit.cached)


@contextlib.contextmanager
def _storage(path: Path) -> Iterator[None]:
    """Turn what the file system says into one clear error."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write to {path}: {error.strerror or error}") from error


def _resumed_config(study: Study, earlier: Run, config: Any) -> Any:
    if earlier.study != study.name:
        raise ValueError(f"run {earlier.name} is of study {earlier.study!r}, not {study.name!r}")
    stored = earlier.config_for(study)
    if config is not None and config != stored:
        raise ValueError(f"run {earlier.name} has another configuration; a resumed run keeps its own")
    return stored


def _check_claims(study: Study, config: Any) -> None:
    names = [claim.name for claim in study.claims]
    for name in config.claims:
        if name not in names:
            raise ValueError(f"study {study.name} makes no claim {name!r}{nearest(name, names)}")
