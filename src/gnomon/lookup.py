"""What the command line looks up: the facts of a study, runs by name, what is wrong with one."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.names import nearest
from gnomon.studies.store import Run, find_runs

if TYPE_CHECKING:
    from gnomon.studies.study import Study


def study_facts(study: Study) -> dict[str, Any]:
    """Question, paper, claims, presets and config fields of a study, ready for JSON."""
    fields = {
        name: {
            "type": inspect.formatannotation(field.annotation),
            "default": field.default,
            "description": field.description or "",
        }
        for name, field in study.Config.model_fields.items()
    }
    return {
        "name": study.name,
        "title": study.title,
        "wing": study.wing,
        "question": (inspect.getdoc(type(study)) or "").partition("\n")[0],
        "paper": dataclasses.asdict(study.paper),
        "claims": [dataclasses.asdict(claim) for claim in study.claims],
        "presets": {name: dict(values) for name, values in study.Config.presets.items()},
        "fields": fields,
    }


def find_run(name: str, runs_dir: Path) -> Run:
    """The run of that name in the runs folder, or in that folder.

    Raises:
        FileNotFoundError: If there is none; the message suggests the nearest name.
    """
    if (runs_dir / name).is_dir():
        return Run(runs_dir / name)
    if Path(name).is_dir():
        return Run(name)
    known = [path.parent.name for path in runs_dir.glob("*/run.json")]
    raise FileNotFoundError(f"no run {name!r} in {runs_dir}{nearest(name, known)}")


def newest_runs(runs_dir: Path) -> list[Run]:
    """The newest run of each study that has findings.

    Raises:
        FileNotFoundError: If there is none.
    """
    newest: dict[str, Run] = {}
    for run in find_runs(runs_dir):
        if run.has_findings:
            newest.setdefault(run.study, run)
    if not newest:
        raise FileNotFoundError(f"no run with findings in {runs_dir}")
    return [newest[study] for study in sorted(newest)]


def trouble(run: Run) -> str:
    """What went wrong in a run, in brackets; empty if nothing did."""
    counts: dict[str, int] = {}
    for shortfall in run.shortfalls:
        counts[shortfall.kind] = counts.get(shortfall.kind, 0) + 1
    parts = [f"{count} {'unit' if count == 1 else 'units'} {kind}" for kind, count in counts.items() if kind != "gated"]
    parts += [error.partition(":")[0] + " failed" for error in run.errors]
    tracebacks = run.path / "tracebacks"
    where = f"; see {tracebacks}" if tracebacks.exists() else ""
    return f" ({', '.join(parts)}{where})" if parts else ""


def resume_hint(path: Path) -> str:
    """How to go on with a run."""
    return f"Go on with: gnomon run --resume {path}"
