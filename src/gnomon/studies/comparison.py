"""Two runs side by side: what differs in their making, and what each found on every claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.evidence import Finding
from gnomon.studies.store import Run

_MADE = ("study", "preset", "seed", "commit")


@dataclass(frozen=True)
class Comparison:
    """Two runs compared.

    Args:
        runs: The two.
        differences: What differs in their making: setting -> its value in each; ``None`` where a run has no such one.
        claims: Claim -> its finding in each; ``None`` where a run has none.
    """

    runs: tuple[Run, Run]
    differences: Mapping[str, tuple[Any, Any]]
    claims: Mapping[str, tuple[Finding | None, Finding | None]]


def compare_runs(first: Run, second: Run) -> Comparison:
    """Compare settings, code, versions, machines and findings; a run without findings yet has none."""
    one, two = _making(first), _making(second)
    pairs = {name: (one.get(name), two.get(name)) for name in dict.fromkeys([*one, *two])}
    found = [{finding.claim.name: finding for finding in run.findings_so_far} for run in (first, second)]
    return Comparison(
        (first, second),
        {name: pair for name, pair in pairs.items() if pair[0] != pair[1]},
        {name: (found[0].get(name), found[1].get(name)) for name in dict.fromkeys([*found[0], *found[1]])},
    )


def _making(run: Run) -> dict[str, Any]:
    made = {name: run.record.get(name) for name in _MADE}
    made |= {f"config.{name}": value for name, value in run.config.items()}
    for part in ("versions", "machine"):
        made |= {f"{part}.{name}": value for name, value in run.record.get(part, {}).items()}
    return made
