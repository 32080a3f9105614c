"""Running every instrument's preset, one after another; a study that fails does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from gnomon.evidence import Verdict
from gnomon.report.html import write_report
from gnomon.report.tour import Stop
from gnomon.studies import registry
from gnomon.studies.backends import Backend
from gnomon.studies.files import StorageError
from gnomon.studies.runner import Observer, run_study
from gnomon.studies.settings import configure

if TYPE_CHECKING:
    from gnomon.report.figures import Figure
    from gnomon.studies.study import Study


def visit(
    names: Sequence[str],
    *,
    preset: str,
    runs_dir: Path,
    backend: Callable[[], Backend],
    observer: Callable[[str], Observer],
) -> Iterator[Stop]:
    """Run the studies in turn and yield each as it ends.

    Finished units come from the unit cache, so a tour that was interrupted goes on where it stopped.

    Args:
        names: The studies to visit.
        preset: The preset to run; it must be one of every study's.
        runs_dir: Where run folders go.
        backend: Makes the backend of one run.
        observer: Makes the observer of one run, from the study's name.

    Raises:
        Interrupted: After Ctrl-C, from the run in progress.
        StorageError: If results cannot be written.
    """
    for name in names:
        yield _stop(registry.load_study(name), preset, runs_dir, backend(), observer(name))


def _stop(study: Study, preset: str, runs_dir: Path, backend: Backend, observer: Observer) -> Stop:
    started = time.perf_counter()
    figures: list[Figure] = []
    try:
        run = run_study(
            study,
            configure(study, preset, (), {}),
            preset=preset,
            runs_dir=runs_dir,
            backend=backend,
            observer=observer,
            report=lambda run, study: figures.extend(write_report(run, study)),
        )
    except StorageError:
        raise
    except Exception as error:
        # One broken instrument must not end the tour of the others; its page says what happened.
        trouble = f"could not run: {type(error).__name__}: {' '.join(str(error).split())}"
        return Stop(study, None, time.perf_counter() - started, trouble)
    seconds = time.perf_counter() - started
    trouble = "" if run.status == "done" else f"the run is {run.status}; gnomon run --resume {run.path} goes on"
    if run.errors or not (run.path / "report.html").exists():
        return Stop(study, run, seconds, trouble)
    cover = next((drawn for drawn in figures if drawn.specification is not None), None)
    return Stop(study, run, seconds, trouble, cover, f"{run.name}/report.html")


def tour_table(stops: Sequence[Stop]) -> Table:
    """One row an instrument: how many claims got each verdict, and the time it took."""
    table = Table("instrument", *map(str, Verdict), "seconds", box=None, pad_edge=False, header_style="bold")
    for stop in stops:
        counts = (str(count or "-") for count in stop.verdicts.values())
        table.add_row(Text(stop.study.name), *counts, f"{stop.seconds:.0f}", Text(stop.trouble))
    return table
