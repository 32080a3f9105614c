"""A falsifiable statement, fixed before the run that tests it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["contrast", "equivalence", "exact", "randomisation"]

_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Claim:
    """What is claimed, how it is measured, and against what.

    Args:
        name: Slug, unique within the study.
        statement: One sentence a reader can disagree with.
        kind: ``contrast`` (treatment differs from a control), ``equivalence`` (it does not, within ``margin``),
            ``exact`` (an identity or inequality with no exception), ``randomisation`` (one observed value against
            draws of a null).
        statistic: The number compared, in words.
        controls: Names of the arms the treatment must beat, all of them. An exact claim needs none: its control is
            the deliberately broken variant of :class:`~gnomon.evidence.verdict.ExactCheck`.
        unit: What counts as one independent observation (``"seed"``, ``"layer"``, ``"prompt"``).
        expect: The sign the contrast treatment - control must have.
        margin: For a contrast, the value its interval must exclude (on the side of ``expect``); for an equivalence,
            the half-width within which a difference does not matter. In units of the statistic, never negative.
        smallest: The smallest contrast that would matter, at least ``margin`` (the default). A contrast whose
            interval lies wholly below it contradicts the claim.
        gate: A precondition in words; when it fails the finding is inconclusive.
        paper_ref: Where the paper says it (``"Table 2"``, ``"C3b"``).
        paper_value: What the paper reports, for the page.

    Raises:
        ValueError: If a field contradicts the kind.
    """

    name: str
    statement: str
    kind: Kind
    statistic: str
    controls: tuple[str, ...] = ()
    unit: str = "seed"
    expect: Literal["greater", "less"] = "greater"
    margin: float = 0.0
    smallest: float | None = None
    gate: str = ""
    paper_ref: str = ""
    paper_value: str = ""

    def __post_init__(self) -> None:
        if not _SLUG.fullmatch(self.name):
            raise ValueError(f"claim name {self.name!r} is not a slug such as 'learned-spread'")
        if self.kind == "exact" and self.controls:
            raise ValueError(f"exact claim {self.name!r} is checked against a broken variant and names no controls")
        if self.kind != "exact" and not self.controls:
            raise ValueError(f"claim {self.name!r} names no control: no finding without its control")
        if not self.margin >= 0:
            raise ValueError(f"claim {self.name!r}: margin must be >= 0, got {self.margin}")
        if self.kind == "equivalence" and self.margin == 0:
            raise ValueError(f"equivalence claim {self.name!r} needs a margin > 0")
        if self.smallest is not None and not self.smallest >= self.margin:
            raise ValueError(
                f"claim {self.name!r}: smallest ({self.smallest}) must be at least the margin ({self.margin})"
            )

    @property
    def sign(self) -> int:
        """+1 if the contrast is expected to be positive, -1 if negative."""
        return 1 if self.expect == "greater" else -1
