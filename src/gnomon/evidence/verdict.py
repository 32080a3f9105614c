"""The verdict rule: from contrasts and their p-values to supported, contradicted or inconclusive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gnomon.evidence.claim import Claim
from gnomon.evidence.intervals import Estimate

if TYPE_CHECKING:
    from gnomon.evidence.finding import Finding

ALPHA = 0.05
MINIMUM_UNITS = 5


class Verdict(StrEnum):
    """What a finding says of its claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Contrast:
    """The treatment against one control.

    Args:
        control: The control arm's name.
        estimate: The statistic on the control.
        difference: Treatment - control, with the 95 % interval of the difference.
        p: p-value of the test named in ``test``; for an equivalence the larger of the two one-sided p-values.
        n: Independent units of analysis behind ``difference``.
        test: Name of the test, as a statistics book writes it.
    """

    control: str
    estimate: Estimate
    difference: Estimate
    p: float
    n: int
    test: str

    def __post_init__(self) -> None:
        if self.p < 0 or self.p > 1:
            raise ValueError(f"p of the contrast with {self.control!r} must lie in [0, 1], got {self.p}")


@dataclass(frozen=True)
class ExactCheck:
    """Counts behind an exact claim.

    Args:
        instances: Cases examined.
        violations: Cases in which the statement fails.
        broken_instances: Cases of the deliberately broken variant that were examined.
        broken_violations: Of these, how many the same check caught.
        broken: What was broken on purpose, in words.
    """

    instances: int
    violations: int
    broken_instances: int
    broken_violations: int
    broken: str

    def __post_init__(self) -> None:
        counts = (self.violations, self.instances), (self.broken_violations, self.broken_instances)
        for violations, instances in counts:
            if not 0 <= violations <= instances:
                raise ValueError(f"violations must lie between 0 and the {instances} instances, got {violations}")


@dataclass(frozen=True)
class Ruling:
    """A verdict and why."""

    verdict: Verdict
    reason: str


def rule(
    claim: Claim,
    contrasts: Sequence[Contrast],
    *,
    exact: ExactCheck | None = None,
    p_adjusted: float | None = None,
    withheld: str = "",
) -> Ruling:
    """Apply the verdict rule to what was measured.

    A contrast supports the claim if its 95 % interval lies beyond ``claim.margin`` on the expected side and the
    adjusted p is below .05; it contradicts the claim if its interval lies wholly short of ``claim.smallest``.
    Every required control must support; one that contradicts is enough to contradict. An equivalence is supported
    if both one-sided tests reject at the margin and contradicted if the interval lies wholly outside it.
    """
    if withheld:
        return Ruling(Verdict.INCONCLUSIVE, withheld)
    if claim.kind == "exact":
        return _rule_exact(exact)
    by_name = {contrast.control: contrast for contrast in contrasts}
    missing = [name for name in claim.controls if name not in by_name]
    if missing:
        return Ruling(Verdict.INCONCLUSIVE, f"required control not measured: {', '.join(missing)}")
    required = [by_name[name] for name in claim.controls]
    for contrast in required:
        values = (contrast.difference.value, contrast.difference.low, contrast.difference.high, contrast.p)
        if any(math.isnan(value) for value in values):
            return Ruling(Verdict.INCONCLUSIVE, f"contrast with {contrast.control} is undefined")
        if contrast.n < MINIMUM_UNITS:
            return Ruling(
                Verdict.INCONCLUSIVE,
                f"{contrast.n} units of analysis ({claim.unit}) against {contrast.control}, "
                f"at least {MINIMUM_UNITS} needed",
            )
    if claim.kind == "equivalence":
        return _rule_equivalence(claim, required, p_adjusted)
    return _rule_contrast(claim, required, p_adjusted)


def _rule_exact(exact: ExactCheck | None) -> Ruling:
    if exact is None or exact.instances == 0:
        return Ruling(Verdict.INCONCLUSIVE, "no instance was examined")
    if exact.violations:
        return Ruling(Verdict.CONTRADICTED, f"{exact.violations} of {exact.instances} instances violate it")
    if not exact.broken_violations:
        return Ruling(Verdict.INCONCLUSIVE, f"the check does not catch the broken variant ({exact.broken})")
    return Ruling(
        Verdict.SUPPORTED,
        f"0 of {exact.instances} instances violate it; the broken variant ({exact.broken}) was caught",
    )


def _rule_contrast(claim: Claim, required: Sequence[Contrast], p_adjusted: float | None) -> Ruling:
    smallest = claim.margin if claim.smallest is None else claim.smallest
    short: list[str] = []
    for contrast in required:
        low, high = _towards(claim, contrast.difference)
        if high < smallest:
            side = "below" if claim.sign > 0 else "above"
            return Ruling(
                Verdict.CONTRADICTED,
                f"the difference from {contrast.control} lies wholly {side} {_signed(claim, smallest):g}",
            )
        if low <= claim.margin:
            short.append(contrast.control)
    if short:
        return Ruling(
            Verdict.INCONCLUSIVE,
            f"the interval of the difference from {', '.join(short)} includes {_signed(claim, claim.margin):g}",
        )
    return _rule_p(p_adjusted, f"beyond {', '.join(c.control for c in required)}")


def _rule_equivalence(claim: Claim, required: Sequence[Contrast], p_adjusted: float | None) -> Ruling:
    for contrast in required:
        if contrast.difference.low > claim.margin or contrast.difference.high < -claim.margin:
            return Ruling(
                Verdict.CONTRADICTED,
                f"the difference from {contrast.control} lies wholly outside ±{claim.margin:g}",
            )
    return _rule_p(p_adjusted, f"within ±{claim.margin:g} of {', '.join(c.control for c in required)}")


def _rule_p(p_adjusted: float | None, supported: str) -> Ruling:
    if p_adjusted is None:
        return Ruling(Verdict.INCONCLUSIVE, "p was not adjusted over the study's claims")
    if p_adjusted >= ALPHA:
        return Ruling(Verdict.INCONCLUSIVE, f"adjusted p = {p_adjusted:.2g}")
    return Ruling(Verdict.SUPPORTED, f"{supported}, adjusted p = {p_adjusted:.2g}")


def _towards(claim: Claim, difference: Estimate) -> tuple[float, float]:
    """The interval with the expected direction pointing up."""
    if claim.sign > 0:
        return difference.low, difference.high
    return -difference.high, -difference.low


def _signed(claim: Claim, size: float) -> float:
    """A size on the expected side of zero, without a negative zero."""
    return claim.sign * size + 0.0


def holm(findings: Sequence[Finding]) -> list[Finding]:
    r"""Adjust the p-values of the claims that were decided, by Holm's step-down method.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min\bigl(1, (m - j + 1)\, p_{(j)}\bigr)

    A claim's p is the largest over its required controls (intersection-union test). Exact claims and findings that
    are withheld or undefined take no part.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    # Not statsmodels' multipletests: it ends with gc.collect(), .1 s a call in a process that holds torch.
    family = [index for index, finding in enumerate(findings) if not math.isnan(finding.p)]
    family.sort(key=lambda index: findings[index].p)
    adjusted: dict[int, float] = {}
    largest = 0.0
    for rank, index in enumerate(family):
        largest = max(largest, min(1.0, (len(family) - rank) * findings[index].p))
        adjusted[index] = largest
    return [dataclasses.replace(finding, p_adjusted=adjusted.get(index)) for index, finding in enumerate(findings)]
