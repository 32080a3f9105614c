"""Whether the frame of one sentence agrees with that of a claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gnomon.retrieval.veritrail.offline.frames import Frame
from gnomon.retrieval.veritrail.offline.names import Name
from gnomon.retrieval.veritrail.offline.numbers import Date, Quantity

Alike = Callable[[str, str], bool]
"""Whether two phrases may name the same kind of thing."""


class Mismatches(NamedTuple):
    """How often the evidence disagrees with the claim, by kind.

    Args:
        number: Numbers of the claim that the evidence lacks.
        date: Dates.
        name: Names.
        polarity: 1 if one of them denies what the other says.
        order: 1 if the two agents change places.
        modality: 1 if the claim states what the evidence only reports or expects.
        scope: 1 if the claim says more than the evidence's limit (``up to``) or quantifier (``some``) allows.
        counted: 1 if the same number counts different things.
    """

    number: int = 0
    date: int = 0
    name: int = 0
    polarity: int = 0
    order: int = 0
    modality: int = 0
    scope: int = 0
    counted: int = 0

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self != _NONE


MISMATCHES = Mismatches._fields
_NONE = Mismatches()


@dataclass(frozen=True)
class Comparison:
    """A claim beside one sentence of evidence.

    Args:
        mismatches: All disagreements: what the sentence lacks and what it says otherwise.
        conflicts: Of them, those in which the sentence says otherwise.
        met: Parts of the claim (numbers, dates, names, in that order) that the sentence confirms.
        parts: Number of such parts.
    """

    mismatches: Mismatches
    conflicts: Mismatches
    met: frozenset[int]
    parts: int

    def without(self, kinds: Sequence[str]) -> Comparison:
        """The same with some kinds of mismatch overlooked."""
        nothing = dict.fromkeys(kinds, 0)
        mismatches, conflicts = self.mismatches._replace(**nothing), self.conflicts._replace(**nothing)
        return replace(self, mismatches=mismatches, conflicts=conflicts)

    @property
    def denies(self) -> bool:
        """Whether both cannot be true: the same names and time, but another number or the opposite."""
        conflicts = self.conflicts
        if conflicts.name or conflicts.date or conflicts.order or conflicts.counted or self.mismatches.name:
            return False
        return bool(conflicts.polarity) != bool(conflicts.number)


def compare(claim: Frame, evidence: Frame, alike: Alike) -> Comparison:
    """Part by part: does the sentence confirm it, lack it, or say otherwise?

    Args:
        claim: Frame of the claim.
        evidence: Frame of the sentence.
        alike: See :data:`Alike`.
    """
    outcomes = [
        *(_number(quantity, evidence.quantities) for quantity in claim.quantities),
        *(_date(date, evidence.dates) for date in claim.dates),
        *_names(claim.names, evidence.names),
    ]
    cuts = (0, len(claim.quantities), len(claim.quantities) + len(claim.dates), len(outcomes))
    lacking = [sum(outcome != "met" for outcome in outcomes[cuts[i] : cuts[i + 1]]) for i in range(3)]
    otherwise = [outcomes[cuts[i] : cuts[i + 1]].count("conflict") for i in range(3)]
    others = (
        int(claim.negated != evidence.negated),
        int(_exchanged(claim.agents, evidence.agents)),
        int(evidence.hedged and not claim.hedged),
        int(_beyond(claim, evidence)),
        int(_counts_other_things(claim.quantities, evidence.quantities, alike)),
    )
    met = frozenset(index for index, outcome in enumerate(outcomes) if outcome == "met")
    return Comparison(
        Mismatches._make([*lacking, *others]), Mismatches._make([*otherwise, *others]), met, len(outcomes)
    )


def complete_each_other(comparisons: Sequence[Comparison]) -> bool:
    """Whether sentences none of which says otherwise confirm, taken together, every part of the claim."""
    if any(comparison.conflicts.any for comparison in comparisons):
        return False
    return len(frozenset().union(*(comparison.met for comparison in comparisons))) == comparisons[0].parts


def _number(wanted: Quantity, given: tuple[Quantity, ...]) -> str:
    comparable = [quantity for quantity in given if _same_unit(wanted, quantity)]
    if any(_equal(wanted, quantity) for quantity in comparable):
        return "met"
    return "conflict" if comparable else "lacking"


def _same_unit(first: Quantity, second: Quantity) -> bool:
    return first.unit == second.unit or any(not (q.unit or q.counted) for q in (first, second))


def _equal(first: Quantity, second: Quantity) -> bool:
    return abs(first.value - second.value) <= 1e-9 * max(abs(first.value), abs(second.value))


def _date(wanted: Date, given: tuple[Date, ...]) -> str:
    outcome = "lacking"
    for date in given:
        pairs = ((wanted.year, date.year), (wanted.month, date.month), (wanted.day, date.day))
        asked = [(want, have) for want, have in pairs if want is not None]
        if all(want == have for want, have in asked):
            return "met"
        if any(have is not None and want != have for want, have in asked):
            outcome = "conflict"
    return outcome


def _names(wanted: tuple[Name, ...], given: tuple[Name, ...]) -> list[str]:
    """A name that is not there is contradicted by one that is there in its place."""
    there, asked = {name.words for name in given}, {name.words for name in wanted}
    outcomes = [
        "met" if name.words in there or any(name.same_as(other) for other in given) else "lacking" for name in wanted
    ]
    if "lacking" not in outcomes:
        return outcomes
    instead = sum(other.words not in asked and not any(other.same_as(name) for name in wanted) for other in given)
    for index, outcome in enumerate(outcomes):
        if outcome == "lacking" and instead:
            outcomes[index] = "conflict"
            instead -= 1
    return outcomes


def _exchanged(claim: tuple[Name, ...], evidence: tuple[Name, ...]) -> bool:
    if len(claim) < 2 or len(evidence) < 2:
        return False
    return claim[0].same_as(evidence[1]) and claim[1].same_as(evidence[0])


def _beyond(claim: Frame, evidence: Frame) -> bool:
    if 0 < evidence.scope < claim.scope:
        return True
    return any(
        _equal(wanted, given) and given.bound not in ("=", wanted.bound)
        for wanted in claim.quantities
        for given in evidence.quantities
        if _same_unit(wanted, given)
    )


def _counts_other_things(claim: tuple[Quantity, ...], evidence: tuple[Quantity, ...], alike: Alike) -> bool:
    for wanted in claim:
        same = [given for given in evidence if _same_unit(wanted, given) and _equal(wanted, given)]
        if (
            wanted.counted
            and same
            and all(given.counted and not alike(wanted.counted, given.counted) for given in same)
        ):
            return True
    return False
