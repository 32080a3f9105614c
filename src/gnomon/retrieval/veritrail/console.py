"""A trail in the terminal: progress while it is made, a table of claims, what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from gnomon.retrieval.veritrail.judges.judge import Usage
from gnomon.retrieval.veritrail.trail import ClaimTrail, Trail

_PIPE_WIDTH = 140
_LONGEST_ID = 20


class Progress:
    """How far the walks are, on stderr: a bar on a terminal, plain lines elsewhere, nothing if ``quiet``."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("finding claims", total=None)

    def say(self, text: str) -> None:
        """One line."""
        if not self._quiet:
            self._console.print(text, markup=False)

    def claims(self, done: int, total: int) -> None:
        """After a round of the walks."""
        if self._console.is_terminal:
            self._bar.update(self._task, description="claims", completed=done, total=total)
        else:
            self.say(f"{done} of {total} claims done")

    def __enter__(self) -> Progress:
        if not self._quiet and self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        # A bar that was never started would end with an empty line.
        if self._bar.live.is_started:
            self._bar.stop()


def claim_record(trail: ClaimTrail) -> dict[str, Any]:
    """What was found out about a claim, in short: JSON values."""
    origin = trail.origin if trail.origin and not trail.origin.undetermined else None
    paths = trail.provenance.paths if trail.provenance else ()
    return {
        "id": trail.claim.id,
        "claim": trail.claim.text,
        "status": trail.status,
        "verdict": trail.verdict,
        "score": None if trail.verdict is None else round(trail.score, 4),
        "entered_at_stages": sorted(origin.stages) if origin else [],
        "entered_in": list(origin.nodes) if origin else [],
        "path": list(paths[0]) if paths else [],
        "left_out_at_stages": list(trail.provenance.skipped_stages) if trail.provenance else [],
        "stop": trail.stop,
        "problem": trail.problem,
    }


def print_trail(trail: Trail, folder: Path) -> None:
    """The table of claims, the counts, the cost, and where the files are, on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    table = Table("claim", "verdict", "p", "from", box=None, pad_edge=False)
    for claim in trail.claims:
        score = "" if claim.verdict is None else f"{claim.score:.2f}"
        cells = (claim.claim.text, claim.verdict or claim.status, score, whence(claim))
        # What models wrote is text, not markup.
        table.add_row(*map(Text, cells))
    if trail.claims:
        console.print(table, soft_wrap=False)
    elif not problems(trail):
        console.print("no claim of the final text could be checked; this does not mean that it is faithful")
    verdicts = Counter(claim.verdict or "without a verdict" for claim in trail.claims)
    reasons = Counter(each.why for each in trail.dropped)
    lines = [f"\n{len(trail.claims)} claims" + (f": {_counted(verdicts)}" if verdicts else "")]
    if reasons:
        lines.append(f"{reasons.total()} sentences without a claim: {_counted(reasons)}")
    usage = sum((claim.usage for claim in trail.claims), Usage())
    if usage.calls or usage.cached:
        lines.append(
            f"evidence and verdicts: {usage.calls:,} calls, {usage.cached:,} answers from the cache, "
            f"{usage.tokens_in:,} tokens in, {usage.tokens_out:,} out"
        )
    lines += [f"trail: {folder / 'trail.json'}", f"page: {folder / 'trail.html'}"]
    for line in lines:
        console.print(line, markup=False)


def whence(trail: ClaimTrail) -> str:
    """Where a claim came from: the path of a supported one, or its gap; the step where an unsupported one entered."""
    if trail.origin is not None:
        stages = " or ".join(map(str, sorted(trail.origin.stages)))
        if trail.origin.undetermined:
            return f"entered at stage {stages}, not known which" if stages else ""
        nodes = trail.origin.nodes
        return f"entered at stage {stages}: {_named(nodes)}"
    if trail.provenance is not None and trail.provenance.paths:
        return " > ".join(map(_short, trail.provenance.paths[0]))
    if trail.provenance is not None and trail.provenance.skipped_stages:
        gap = ", ".join(map(str, trail.provenance.skipped_stages))
        return f"{_named(trail.iterations[-1].grounds)}, left out at stage {gap}"
    return trail.problem


def problems(trail: Trail) -> str:
    """What kept claims or sentences from being answered, and how to go on; empty if nothing did."""
    claims = [claim.problem for claim in trail.claims if claim.status != "verified"]
    sentences = [each.reason for each in trail.dropped if each.why == "error"]
    if not claims and not sentences:
        return ""
    counted = [f"{len(group)} {name}" for group, name in ((claims, "claims"), (sentences, "sentences")) if group]
    reason = (claims or sentences)[0].rstrip(".")
    spent = any(claim.status == "budget" for claim in trail.claims) or reason.startswith("budget of")
    again = "raise the limit and run it again" if spent else "run the same command again"
    return f"{' and '.join(counted)} without an answer: {reason}. What was answered is kept; {again}"


def _named(nodes: Sequence[str]) -> str:
    return ", ".join(map(_short, nodes[:2])) + (f" and {len(nodes) - 2} more" if len(nodes) > 2 else "")


def _short(node: str) -> str:
    """An id that fits into a table; ids of logged calls are long and meaningless."""
    return node if len(node) <= _LONGEST_ID else f"{node[: _LONGEST_ID - 1]}…"


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in names.most_common())
