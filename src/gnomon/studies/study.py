"""What a study is: config -> units -> tables -> findings -> charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from gnomon.evidence import Claim, Finding
from gnomon.names import nearest
from gnomon.studies.unit import MissingTable, Tables, Unit, UnitRun


@dataclass(frozen=True)
class Paper:
    """The paper a study tests."""

    title: str
    authors: str
    arxiv: str = ""
    venue: str = "ICLR 2026"
    url: str = ""

    @property
    def link(self) -> str:
        """Where to read it."""
        return self.url or (f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else "")


class StudyConfig(BaseModel):
    """Settings of one run. Subclass it inside the study; ``presets`` name the values of ``quick`` and ``full``."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {}, "full": {}}

    seed: int = Field(default=0, ge=0, description="Master seed; every random stream derives from it.")
    claims: tuple[str, ...] = Field(
        default=(), description="Claims this run decides; only they form the Holm family. Empty: all."
    )

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """The named preset with some fields overridden.

        Raises:
            KeyError: If there is no such preset.
            pydantic.ValidationError: If a value is out of range or a field does not exist.
        """
        if name not in cls.presets:
            raise KeyError(f"no preset {name!r}{nearest(name, cls.presets)}")
        return cls(**{**cls.presets[name], **overrides})


class Study:
    """An experiment that puts a paper's claims to the test. Subclasses fill in what is below.

    The class docstring is the question, in one line. ``measure`` may be written as one method or, so that a change to
    one stage leaves the others' units valid, as one ``measure_STAGE`` a stage; likewise ``judge`` as one
    ``judge_CLAIM`` a claim (hyphens become underscores).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    wing: ClassVar[str]
    paper: ClassVar[Paper]
    claims: ClassVar[tuple[Claim, ...]]
    Config: ClassVar[type[StudyConfig]]

    def units(self, config: Any) -> Iterable[Unit]:
        """All pieces of work, complete before the run starts. Needs may be listed or only referred to."""
        raise NotImplementedError

    def measure(self, unit: Unit, run: UnitRun) -> pd.DataFrame | dict[str, pd.DataFrame]:
        """Run one unit and return tidy tables: one observation a row. Sees the unit, never the config."""
        return getattr(self, f"measure_{_identifier(unit.stage)}")(unit, run)

    def judge(self, tables: Tables, config: Any) -> list[Finding]:
        """One finding for every claim; a pure function of the tables."""
        return [self._judge_claim(claim, tables, config) for claim in self.claims]

    def charts(self, tables: Tables, findings: list[Finding]) -> dict[str, Any]:
        """Figures by name (Altair charts or page elements); a pure function of the tables."""
        raise NotImplementedError

    def claim(self, name: str) -> Claim:
        """The claim of that name.

        Raises:
            KeyError: If the study makes no such claim.
        """
        return {claim.name: claim for claim in self.claims}[name]

    def _judge_claim(self, claim: Claim, tables: Tables, config: Any) -> Finding:
        if config.claims and claim.name not in config.claims:
            return Finding(claim, withheld="not decided by this preset")
        try:
            return getattr(self, f"judge_{_identifier(claim.name)}")(tables, config)
        except MissingTable as missing:
            return Finding(claim, withheld=str(missing))


def _identifier(slug: str) -> str:
    return slug.replace("-", "_")
