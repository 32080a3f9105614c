"""A claim with what was measured; its verdict is computed from that and nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from gnomon.evidence.claim import Claim
from gnomon.evidence.intervals import Estimate
from gnomon.evidence.verdict import Contrast, ExactCheck, Ruling, Verdict, rule

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Finding:
    """What a run found about one claim.

    Args:
        claim: The claim, as fixed before the run.
        effect: The statistic on the treatment; ``None`` only for exact or withheld findings.
        contrasts: The treatment against each control: all that ``claim.controls`` names, and others for information.
        exact: Counts, for an exact claim.
        n: Units of analysis in the treatment.
        withheld: Why no verdict may be given (gate failed, units missing, preset too small); empty otherwise.
        scope: What the finding speaks of ("SmolLM2-135M, 64 prompts").
        reading: What it means, in the words of the field.
        p_adjusted: Set by :func:`~gnomon.evidence.verdict.holm` over the study's claims.
    """

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings", extra="forbid")  # pyright: ignore

    claim: Claim
    effect: Estimate | None = None
    contrasts: tuple[Contrast, ...] = ()
    exact: ExactCheck | None = None
    n: int = 0
    withheld: str = ""
    scope: str = ""
    reading: str = ""
    p_adjusted: float | None = None

    def __post_init__(self) -> None:
        if self.claim.kind == "exact" and self.contrasts:
            raise ValueError(f"finding of exact claim {self.claim.name!r} takes counts, not contrasts")
        if not self.withheld and self.claim.kind != "exact" and self.effect is None:
            raise ValueError(f"finding of {self.claim.name!r} has neither an effect nor a reason to withhold it")
        named = [contrast.control for contrast in self.contrasts]
        if len(set(named)) < len(named):
            raise ValueError(f"finding of {self.claim.name!r} names a control twice: {', '.join(named)}")
        if self.p_adjusted is not None and self.p_adjusted < self.p:
            raise ValueError(
                f"finding of {self.claim.name!r} has adjusted p {self.p_adjusted:g}, below its p {self.p:g}"
            )

    @property
    def ruling(self) -> Ruling:
        """Verdict and reason, from the verdict rule."""
        return rule(self.claim, self.contrasts, exact=self.exact, p_adjusted=self.p_adjusted, withheld=self.withheld)

    @property
    def verdict(self) -> Verdict:
        """``supported``, ``contradicted`` or ``inconclusive``."""
        return self.ruling.verdict

    @property
    def reason(self) -> str:
        """Why the verdict is what it is."""
        return self.ruling.reason

    @property
    def p(self) -> float:
        """Unadjusted p: the largest over the required controls; NaN for exact or withheld findings."""
        if self.withheld or self.claim.kind == "exact":
            return math.nan
        by_name = {contrast.control: contrast.p for contrast in self.contrasts}
        required = [by_name.get(name, math.nan) for name in self.claim.controls]
        return math.nan if any(math.isnan(p) for p in required) else max(required)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, with the computed verdict and reason for readers without gnomon."""
        stored = json.loads(_FINDING.dump_json(self))
        return {"schema": SCHEMA_VERSION, **stored, "verdict": str(self.verdict), "reason": self.reason}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Finding:
        """Rebuild a finding; the verdict is computed anew and must agree with the stored one.

        Raises:
            ValueError: If the schema is unknown or the stored verdict is not the computed one.
        """
        fields = dict(stored)
        schema = fields.pop("schema", None)
        if schema != SCHEMA_VERSION:
            raise ValueError(f"finding has schema {schema!r}, this gnomon reads {SCHEMA_VERSION}")
        verdict = fields.pop("verdict", None)
        fields.pop("reason", None)
        finding = _FINDING.validate_python(fields)
        if verdict != finding.verdict:
            raise ValueError(
                f"finding of {finding.claim.name!r} stores verdict {verdict!r}, "
                f"but its numbers give {str(finding.verdict)!r}"
            )
        return finding


_FINDING = TypeAdapter(Finding)
