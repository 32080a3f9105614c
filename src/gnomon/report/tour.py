"""The tour's page: every instrument with what it found on this machine, one figure each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.evidence import Finding, Verdict
from gnomon.report.html import render_page
from gnomon.studies.files import write_text

if TYPE_CHECKING:
    from gnomon.report.figures import Figure
    from gnomon.studies.store import Run
    from gnomon.studies.study import Study


@dataclass(frozen=True)
class Stop:
    """An instrument on the tour.

    Args:
        study: The instrument's study.
        run: What its run left; ``None`` if it could not even start.
        seconds: Wall-clock time the run took on this tour.
        trouble: Why there is no complete run, in one line.
        cover: The first chart of the report.
        report: Address of the run's report, relative to the tour's page.
    """

    study: Study
    run: Run | None
    seconds: float
    trouble: str = ""
    cover: Figure | None = None
    report: str = ""

    @property
    def question(self) -> str:
        """The question the instrument asks: the first line of the study's docstring."""
        return (self.study.__doc__ or "").strip().partition("\n")[0]

    @property
    def findings(self) -> list[Finding]:
        """Findings on the claims this run decides."""
        if self.run is None:
            return []
        chosen = set(self.run.config.get("claims", ()))
        return [finding for finding in self.run.findings_so_far if not chosen or finding.claim.name in chosen]

    @property
    def left_open(self) -> int:
        """Claims that the preset leaves to a longer run."""
        return len(self.study.claims) - len(self.findings) if self.findings else 0

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How many of the claims got each verdict."""
        return {verdict: sum(f.verdict == verdict for f in self.findings) for verdict in Verdict}


def write_tour(stops: Sequence[Stop], path: Path, *, preset: str) -> None:
    """Write the tour's page; it needs no network, and links to the reports beside it."""
    wings: dict[str, list[Stop]] = {}
    for stop in stops:
        wings.setdefault(stop.study.wing, []).append(stop)
    totals = {verdict: sum(stop.verdicts[verdict] for stop in stops) for verdict in Verdict}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(
        path,
        render_page(
            "tour.html",
            wings=wings,
            stops=stops,
            totals={verdict: count for verdict, count in totals.items() if count},
            claims=sum(totals.values()),
            seconds=sum(stop.seconds for stop in stops),
            cores=os.cpu_count() or 1,
            preset=preset,
        ),
    )
