"""Is a study's judge itself honest? Its verdicts over simulated worlds without and with the effect.

A judge is a pure function of tables, so it can be run on tables that were never measured. On a *null world* (the
treatment does what the control does) a claim may come out supported in at most 5 % of draws; on a *planted world*
(the paper's effect is there) it must in at least 80 %.

>>> import numpy as np
>>> from gnomon.evidence import Claim, Finding
>>> from gnomon.evidence.contrasts import paired
>>> from gnomon.evidence.intervals import mean
>>> claim = Claim("lift", "Training lifts accuracy", kind="contrast", statistic="accuracy", controls=("random-init",))
>>> def judge(tables):
...     lift = paired("random-init", tables["treatment"], tables["control"])
...     return Finding(claim, effect=mean(tables["treatment"]), contrasts=(lift,), n=lift.n)
>>> def world(effect):
...     return lambda rng: {"treatment": rng.normal(effect, 1, 8), "control": rng.normal(0, 1, 8)}
>>> assert_calibrated(judge, null=world(0.0), planted=world(2.5))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.evidence.claim import Claim
from gnomon.evidence.finding import Finding
from gnomon.evidence.intervals import Estimate
from gnomon.evidence.verdict import ALPHA, Contrast, Verdict, holm

DRAWS = 400
POWER = 0.8

Judge = Callable[[Any], Finding | Sequence[Finding]]
World = Callable[[np.random.Generator], Mapping[str, Any]]


@dataclass(frozen=True)
class VerdictRates:
    """How often a claim got each verdict over draws of a world.

    Args:
        claim: The claim's name.
        draws: Worlds drawn.
        counts: Draws by verdict.
        reasons: The most frequent reasons for verdicts other than supported, for repairing a judge.
    """

    claim: str
    draws: int
    counts: Mapping[Verdict, int]
    reasons: tuple[str, ...] = ()

    def rate(self, verdict: Verdict) -> float:
        """Share of draws with that verdict."""
        return self.counts.get(verdict, 0) / self.draws

    @property
    def supported(self) -> float:
        """Share of draws in which the claim was supported: false positives on a null world, power on a planted one."""
        return self.rate(Verdict.SUPPORTED)

    def __str__(self) -> str:
        shares = ", ".join(f"{verdict} {self.rate(verdict):.3f}" for verdict in Verdict)
        return f"{self.claim}: {shares} ({self.draws} draws)"


def verdict_rates(
    judge: Judge, world: World, *, draws: int = DRAWS, seed: int = 0, family: int = 1
) -> dict[str, VerdictRates]:
    """Judge many draws of a world and count the verdicts of each claim.

    Args:
        judge: From tables to a finding or all findings: ``lambda tables: study.judge(tables, config)``, or one
            claim's method. Holm's correction is applied over what it returns, as the runner does.
        world: From a random generator to simulated tables; it should emit the columns the judge reads (sums a unit),
            not raw data, to be fast.
        draws: Worlds to draw.
        seed: Draw i uses the stream (seed, i).
        family: Claims in the study's Holm family. If the judge returns fewer, the others are taken to have p = 1: the
            strictest correction. 1 on null worlds, the preset's number of claims on planted worlds, errs on the safe
            side.

    Returns:
        By claim name, in the judge's order.
    """
    counts: dict[str, Counter[Verdict]] = {}
    reasons: dict[str, Counter[str]] = {}
    for draw in range(draws):
        judged = judge(world(np.random.default_rng((seed, draw))))
        found = [judged] if isinstance(judged, Finding) else list(judged)
        bystanders = [_BYSTANDER] * (family - len(found))
        for finding in holm([*found, *bystanders])[: len(found)]:
            ruling = finding.ruling
            counts.setdefault(finding.claim.name, Counter())[ruling.verdict] += 1
            if ruling.verdict != Verdict.SUPPORTED:
                reasons.setdefault(finding.claim.name, Counter())[ruling.reason] += 1
    return {
        name: VerdictRates(name, draws, dict(count), tuple(r for r, _ in reasons.get(name, Counter()).most_common(3)))
        for name, count in counts.items()
    }


def assert_calibrated(
    judge: Judge,
    *,
    null: World | None = None,
    planted: World | None = None,
    claims: Iterable[str] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    family: int = 1,
) -> None:
    r"""Assert the rule every claim is held to.

    On the null world supported in at most :math:`.05 + 3\sqrt{.05 \cdot .95 / \text{draws}}` of draws (.083 at 400), on
    the planted world in at least 80 %.

    Args:
        judge: As in :func:`verdict_rates`.
        null: A world without the effect; ``None``: not checked.
        planted: A world with the paper's effect; ``None``: not checked.
        claims: Claims to check, of those the judge returns; ``None``: all.
        draws: Worlds to draw of each.
        seed: Seed of the draws.
        family: Claims in the study's Holm family, on the planted world.

    Raises:
        AssertionError: Naming the claim, its verdict rates and the commonest reasons.
        ValueError: If neither world is given, or a named claim is not judged.
    """
    if null is None and planted is None:
        raise ValueError("give a null world, a planted world, or both")
    names = None if claims is None else set(claims)
    allowed = ALPHA + 3 * (ALPHA * (1 - ALPHA) / draws) ** 0.5
    if null is not None:
        for rates in _selected(verdict_rates(judge, null, draws=draws, seed=seed), names):
            if rates.supported > allowed:
                raise AssertionError(f"null world, at most {allowed:.3f} supported allowed, got {rates}")
    if planted is not None:
        for rates in _selected(verdict_rates(judge, planted, draws=draws, seed=seed, family=family), names):
            if rates.supported < POWER:
                why = "; ".join(rates.reasons)
                raise AssertionError(f"planted world, at least {POWER} supported needed, got {rates}: {why}")


def _selected(rates: Mapping[str, VerdictRates], names: set[str] | None) -> list[VerdictRates]:
    if names is not None and names - rates.keys():
        raise ValueError(f"not judged: {', '.join(sorted(names - rates.keys()))}; judged: {', '.join(rates)}")
    return [rate for name, rate in rates.items() if names is None or name in names]


_POINT = Estimate(0.0, 0.0, 0.0)
_BYSTANDER = Finding(
    Claim("bystander", "Another claim of the family", kind="contrast", statistic="none", controls=("none",)),
    effect=_POINT,
    contrasts=(Contrast("none", _POINT, _POINT, 1.0, 0, "none"),),
)
