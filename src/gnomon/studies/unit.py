"""A unit of work, what it gets while it is measured, and the tables that units leave behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from gnomon.studies.fingerprint import canonical_json, digest


@dataclass(frozen=True)
class Unit:
    """The smallest independently computed, cached and distributed piece of work.

    Args:
        stage: Name of the piece of work ("base", "capture", "toy").
        params: Everything the result depends on (arm, seed, model, steps); JSON values only.
        needs: Units whose tables or artifacts this one reads.
        seconds: Declared cost on one core, for the estimate printed before a run. Not part of the key.

    The key (see :mod:`gnomon.studies.fingerprint`) hashes study, stage, params, master seed, the code that measures
    the stage, and the keys of the needs.
    """

    stage: str
    params: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[Unit, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def label(self) -> str:
        """Stage and parameters on one line, for progress and errors."""
        inside = ", ".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.stage}({inside})"

    @cached_property
    def identity(self) -> str:
        """Hash of stage, parameters and needs: what tells the unit from others of its study.

        Raises:
            ValueError: If a parameter is not a JSON value.
        """
        try:
            params = canonical_json(dict(self.params))
        except ValueError as error:
            raise ValueError(f"unit {self.label}: parameters must be JSON values; {error}") from None
        return digest(self.stage, params, *(need.identity for need in self.needs))


class Gated(Exception):
    """Raise in ``measure`` when a precondition fails: the unit ends with no rows, and its dependants are skipped.

    The message says what was found and what was needed: ``"accuracy .19, needs > .33"``.
    """


class Missing(Exception):
    """Raise in ``measure`` when a part could not be had (budget spent, endpoint silent); a resumed run tries again."""


class MissingTable(LookupError):
    """A table that a claim needs is absent or has too many missing units; the claim stays undecided."""


@dataclass(frozen=True)
class Done:
    """A finished unit: its tables and the folder of its artifacts."""

    unit: Unit
    tables: Mapping[str, pd.DataFrame]
    path: Path


class UnitRun(Protocol):
    """What ``measure`` gets beside the unit."""

    def need(self, unit: Unit) -> Done:
        """A finished unit that this one listed in ``needs``.

        Raises:
            KeyError: If the unit did not list it.
        """
        ...

    def artifact(self, name: str, *, keep: bool = False) -> Path:
        """Path to write a large result to: in the size-capped cache, or in the run folder if ``keep``."""
        ...

    def rng(self, *stream: str | int) -> np.random.Generator:
        """Generator of a named stream, derived from the master seed: arms that name the same stream are paired."""
        ...

    def chat(self, name: str) -> Any:
        """A chat model, from the factory the command line passed in, under the run's budget."""
        ...

    def note(self, subject: str, facts: Mapping[str, Any]) -> None:
        """Record where something came from (a model's source and weight hash), for the run's provenance."""
        ...


@dataclass(frozen=True)
class Shortfall:
    """A unit that left no rows: gated, missing, failed, or skipped because one it needs did."""

    stage: str
    label: str
    kind: str  # "gated", "missing", "failed", "skipped"
    reason: str


class Tables(Mapping[str, pd.DataFrame]):
    """Tables of a run, by name: the stage, or ``stage.name`` where a unit returns several.

    Rows of all units of a stage are concatenated in the order of ``units``; scalar unit parameters are columns.

    Args:
        frames: The tables.
        counts: Units planned, by stage.
        shortfalls: Units that left no rows.
        tolerated: Share of a stage's units that may be missing before its claims go undecided.
    """

    def __init__(
        self,
        frames: Mapping[str, pd.DataFrame],
        *,
        counts: Mapping[str, int] | None = None,
        shortfalls: tuple[Shortfall, ...] = (),
        tolerated: float = 0.05,
    ) -> None:
        self._frames = dict(frames)
        self.counts = dict(counts or {})
        self.shortfalls = shortfalls
        self._tolerated = tolerated

    def __getitem__(self, name: str) -> pd.DataFrame:
        """The table, if no more than the tolerated share of its units is missing.

        Raises:
            MissingTable: Naming the first reason (gate, failure, budget) for which rows are missing.
        """
        stage = name.partition(".")[0]
        short = [shortfall for shortfall in self.shortfalls if shortfall.stage == stage]
        planned = self.counts.get(stage, 0)
        if short and (name not in self._frames or len(short) > self._tolerated * planned):
            share = f"{len(short)} of {planned} units" if planned else f"{len(short)} units"
            raise MissingTable(f"{share} of stage {stage} {short[0].kind}: {short[0].reason}")
        if name not in self._frames:
            raise MissingTable(f"no unit of stage {stage} was run")
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)
