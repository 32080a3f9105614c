"""What the command line shows: progress on stderr, findings on stdout."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from gnomon.evidence import Finding, Verdict
from gnomon.studies.comparison import Comparison
from gnomon.studies.store import Run, UnitRecord

_STYLES = {Verdict.SUPPORTED: "green", Verdict.CONTRADICTED: "red", Verdict.INCONCLUSIVE: "yellow"}
_COLUMNS = ("claim", "effect", "control", "difference", "p", "n", "verdict")
# Wide enough for a whole row where there is no terminal to fit into.
_PIPE_WIDTH = 240


def results() -> Console:
    """The console of results: stdout."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


class TerminalObserver:
    """Shows how a run goes: a bar on a terminal, plain lines elsewhere; nothing but trouble if ``quiet``.

    Args:
        quiet: Show only trouble.
        title: Put before each line, where several runs follow one another.
    """

    def __init__(self, *, quiet: bool = False, title: str = "") -> None:
        self._prefix = f"{title}: " if title else ""
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._quiet = quiet
        self._bar: Progress | None = None
        self._total = 0
        self._ended = 0
        self._last_line = 0.0
        self._started = time.perf_counter()

    def planned(self, units: Sequence[UnitRecord], *, seconds: float, workers: int) -> None:
        """Say what is to be done, and how long it should take."""
        self._total = sum(unit.status == "planned" for unit in units)
        ready = len(units) - self._total
        self._say(
            f"{len(units)} units, {ready} of them there already; "
            f"{seconds:.0f} s of work declared for the others, {workers} {'worker' if workers == 1 else 'workers'}"
        )
        if not self._quiet and self._console.is_terminal and self._total:
            self._bar = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
                console=self._console,
                transient=True,
            )
            self._bar.add_task("", total=self._total)
            self._bar.start()

    def unit_started(self, unit: UnitRecord) -> None:
        """Name the unit beside the bar."""
        if self._bar:
            self._bar.update(self._bar.task_ids[0], description=unit.label)

    def unit_ended(self, unit: UnitRecord) -> None:
        """Count the unit; say so if it fell short."""
        self._ended += 1
        if self._bar:
            self._bar.advance(self._bar.task_ids[0])
        if unit.status in {"failed", "missing", "gated"}:
            self._print(f"{unit.label} {unit.status}: {unit.reason}")
        elif not self._bar and (self._ended == self._total or time.perf_counter() - self._last_line > 1):
            self._last_line = time.perf_counter()
            self._say(f"[{self._ended}/{self._total}] {unit.label} {unit.seconds:.1f} s")

    def finished(self, run: Run, *, seconds: float) -> None:
        """Say what it took."""
        self.close()
        self._say(f"{seconds:.0f} s of work done in {time.perf_counter() - self._started:.0f} s")
        for error in run.errors:
            self._print(error)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar:
            self._bar.stop()
            self._bar = None

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._print(line)

    def _print(self, line: str) -> None:
        self._console.print(Text(self._prefix + line))


def findings_table(findings: Sequence[Finding]) -> Table:
    """One row a claim and control: the effect never without its control."""
    table = Table(*_COLUMNS, box=None, pad_edge=False, header_style="bold")
    for finding in findings:
        verdict = Text(str(finding.verdict), style=_STYLES[finding.verdict])
        if finding.verdict is Verdict.INCONCLUSIVE:
            verdict.append(f" ({finding.reason})", style="dim")
        for index, row in enumerate(finding_rows(finding)):
            first = index == 0
            cells = [row[column] for column in _COLUMNS[:-1]]
            table.add_row(Text(cells[0] if first else ""), *map(Text, cells[1:]), verdict if first else Text(""))
    return table


def finding_rows(finding: Finding) -> list[dict[str, str]]:
    """The finding as text, one row a control."""
    common = {"claim": finding.claim.name, "verdict": str(finding.verdict), "reason": finding.reason}
    if finding.exact is not None:
        exact = finding.exact
        effect = f"{exact.violations} of {exact.instances} violate it"
        control = f"{exact.broken}: {exact.broken_violations} of {exact.broken_instances} caught"
        return [{**common, "effect": effect, "control": control, "difference": "", "p": "", "n": str(exact.instances)}]
    effect = str(finding.effect) if finding.effect is not None else ""
    if not finding.contrasts:
        return [{**common, "effect": effect, "control": "", "difference": "", "p": "", "n": str(finding.n or "")}]
    return [
        {
            **common,
            "effect": effect,
            "control": f"{contrast.control} {contrast.estimate}",
            "difference": str(contrast.difference),
            "p": "" if math.isnan(contrast.p) else f"{contrast.p:.2g}",
            "n": str(contrast.n),
        }
        for contrast in finding.contrasts
    ]


def findings_json(runs: Sequence[Run]) -> str:
    """The findings of runs as JSON, with the units that left no rows."""
    whole = [
        {
            "run": run.name,
            "study": run.study,
            "preset": run.preset,
            "status": run.status,
            "findings": [finding.to_dict() for finding in run.findings],
            "shortfalls": [vars(shortfall) for shortfall in run.shortfalls],
        }
        for run in runs
    ]
    return json.dumps(whole, indent=1, ensure_ascii=False)


def findings_csv(runs: Sequence[Run]) -> str:
    """The findings of runs as CSV, one row a claim and control."""
    columns: list[str] = ["run", "study", *_COLUMNS, "reason"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for run in runs:
        for finding in run.findings:
            writer.writerows({"run": run.name, "study": run.study, **row} for row in finding_rows(finding))
    return text.getvalue()


def comparison_record(compared: Comparison) -> dict[str, Any]:
    """Two runs side by side, ready for JSON."""
    return {
        "runs": [run.name for run in compared.runs],
        "differences": {name: list(pair) for name, pair in compared.differences.items()},
        "claims": [
            {"claim": name, "first": _outcome(first), "second": _outcome(second)}
            for name, (first, second) in compared.claims.items()
        ],
    }


def comparison_table(compared: Comparison) -> Table:
    """The claims of two runs, side by side."""
    table = Table("claim", *(run.name for run in compared.runs), box=None, pad_edge=False, header_style="bold")
    for name, pair in compared.claims.items():
        table.add_row(Text(name), *(Text(_in_short(_outcome(finding))) for finding in pair))
    return table


def _in_short(outcome: dict[str, str] | None) -> str:
    if outcome is None:
        return "no such claim"
    return f"{outcome['effect']} -> {outcome['difference']} {outcome['verdict']}"


def _outcome(finding: Finding | None) -> dict[str, str] | None:
    if finding is None:
        return None
    rows = finding_rows(finding)
    return {
        "effect": rows[0]["effect"],
        "difference": "; ".join(f"{row['difference']} against {row['control']}" for row in rows if row["control"]),
        "verdict": str(finding.verdict),
        "reason": finding.reason,
    }
