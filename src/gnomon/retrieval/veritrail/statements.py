"""Statements about invented events, ways to falsify them, and when one implies another.

The generator writes texts from statements, so that for any two sentences it is known whether the first implies the
second: no judge is needed to say what is true.

>>> from gnomon.data.fact_world import FactWorld
>>> world = FactWorld("evaluation", seed=0)
>>> said = Statement(world.facts(1)[0])
>>> said.implies(said), said.implies(Statement(said.fact, negated=True))
(True, False)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter
from typing import Literal

import numpy as np

from gnomon.data.fact_families import Family
from gnomon.data.fact_world import FIRST_YEAR, LAST_YEAR, STYLES, Fact, FactWorld, NumberStyle, number_in_words

Kind = Literal["num", "date", "ent", "neg", "role", "fab", "modality", "quantifier", "conflation", "detail"]
Hedge = Literal["", "reported", "up to"]

CORE_KINDS: tuple[Kind, ...] = ("num", "date", "ent", "neg", "role", "fab")
"""Another number, date or name; a denial; agent and object exchanged; an invented event."""

HARD_KINDS: tuple[Kind, ...] = ("modality", "quantifier", "conflation", "detail")
"""A report stated as fact; an upper limit stated as the number; place and date of another event; a detail added."""

KINDS: tuple[Kind, ...] = CORE_KINDS + HARD_KINDS

_FIELD = {"org": "organisation"}
_ENTITIES = ("organisation", "other", "person", "city", "product")
_REPORTS = (
    "Unconfirmed reports say that {}",
    "It has been reported, but not confirmed, that {}",
    "According to rumours, {}",
    "Some observers believe that {}",
)
_DETAILS = (
    "despite objections from residents",
    "after months of secret talks",
    "with the blessing of the mayor",
    "for the first time in its history",
    "against the advice of its lawyers",
    "two weeks ahead of schedule",
)


@dataclass(frozen=True)
class Statement:
    """What a sentence says.

    Args:
        fact: The event.
        negated: Whether it is denied.
        hedge: ``reported``: said to be reported only; ``up to``: the amount is an upper limit.
        detail: A clause added to it.
        denial: Template of the denial. Denials of a family are not paraphrases of each other, so a denial keeps its.
    """

    fact: Fact
    negated: bool = False
    hedge: Hedge = ""
    detail: str = ""
    denial: int = 0

    def implies(self, other: Statement) -> bool:
        """Whether whoever says this also says the other: same event, no weaker, no detail less."""
        return self.core == other.core and self.hedge in ("", other.hedge) and other.detail in ("", self.detail)

    @property
    def core(self) -> tuple[object, ...]:
        """The event as far as the sentence tells it."""
        said = slots(self.fact.family, negated=self.negated, denial=self.denial)
        return (self.fact.family.name, self.negated, *((slot, getattr(self.fact, slot)) for slot in said))

    def written(self, rng: np.random.Generator) -> str:
        """One sentence that says it: a random paraphrase with a random way to write the amount."""
        style = STYLES[int(rng.integers(len(STYLES)))]
        paraphrase = self.denial if self.negated else int(rng.integers(len(self.fact.family.affirmed)))
        fact = self.fact
        text = fact.sentence(paraphrase, negated=self.negated, style=style)
        if self.hedge == "up to":
            text = _limited(text, fact, style)
        if self.hedge == "reported":
            report = _REPORTS[int(rng.integers(len(_REPORTS)))]
            text = report.format(text if text.startswith(_names(fact)) else text[0].lower() + text[1:])
        return f"{text.removesuffix('.')}, {self.detail}." if self.detail else text


@lru_cache(maxsize=512)
def slots(family: Family, *, negated: bool = False, denial: int = 0) -> tuple[str, ...]:
    """Fields of a fact that its sentences show, in alphabetical order; a date is ``year, month, day``."""
    template = family.denied[denial] if negated else family.affirmed[0]
    named = {_FIELD.get(name, name) for _, name, _, _ in Formatter().parse(template) if name}
    if "date" in named:
        named = (named - {"date"}) | {"year", "month", "day"}
    return tuple(sorted(named))


def allows(fact: Fact, kind: Kind) -> bool:
    """Whether the event can be falsified in that way."""
    if kind == "role":
        return fact.family.relational
    if kind in ("num", "quantifier"):
        return "amount" in slots(fact.family)
    return True


def falsified(
    fact: Fact, kind: Kind, world: FactWorld, rng: np.random.Generator, *, elsewhere: Fact
) -> tuple[Statement | None, Statement]:
    """What the source says and what a step makes of it.

    Args:
        fact: The event.
        kind: How it is falsified.
        world: Where other names come from.
        rng: Source of randomness.
        elsewhere: Another event: invented for ``fab``, of the same source for ``conflation``.

    Returns:
        The true statement (``None`` for an invention) and the false one.

    Raises:
        ValueError: If the event does not allow that kind.
    """
    if not allows(fact, kind):
        raise ValueError(f"a fact of family {fact.family.name!r} cannot be falsified by {kind!r}")
    true = Statement(fact)
    match kind:
        case "num":
            return true, Statement(fact.changed(amount=_other_amount(fact.amount, rng)))
        case "date":
            return true, Statement(fact.changed(**_other_date(fact, rng)))
        case "ent":
            shown = [name for name in slots(fact.family) if name in _ENTITIES]
            return true, Statement(fact.changed(**_other_name(fact, shown[int(rng.integers(len(shown)))], world, rng)))
        case "neg":
            return true, Statement(fact, negated=True, denial=int(rng.integers(len(fact.family.denied))))
        case "role":
            return true, Statement(fact.changed(organisation=fact.other, other=fact.organisation))
        case "fab":
            return None, Statement(elsewhere)
        case "modality":
            return Statement(fact, hedge="reported"), true
        case "quantifier":
            return Statement(fact, hedge="up to"), true
        case "conflation":
            taken = {name: getattr(elsewhere, name) for name in ("city", "year", "month", "day")}
            return true, Statement(fact.changed(**taken))
        case "detail":
            return true, Statement(fact, detail=_DETAILS[int(rng.integers(len(_DETAILS)))])


def near_duplicate(fact: Fact, world: FactWorld, rng: np.random.Generator) -> Fact:
    """Another event that differs in two of: amount, date, and each name shown."""
    shown = slots(fact.family)
    options = [name for name in (*_ENTITIES, "amount") if name in shown] + ["date"]
    for option in rng.choice(options, 2, replace=False):
        if option == "amount":
            fact = fact.changed(amount=_other_amount(fact.amount, rng))
        elif option == "date":
            fact = fact.changed(**_other_date(fact, rng))
        else:
            fact = fact.changed(**_other_name(fact, str(option), world, rng))
    return fact


def _other_amount(amount: int, rng: np.random.Generator) -> int:
    """Another amount of the same roundness, between a third and three times as large."""
    size = 10 ** (len(str(amount)) - 2)
    factors = (0.4, 0.6, 0.8, 1.3, 1.5, 2.0, 2.5)
    changed = [max(1, round(amount * factor / size)) * size for factor in factors]
    return int(rng.choice([value for value in changed if value != amount]))


def _other_date(fact: Fact, rng: np.random.Generator) -> dict[str, int]:
    """Another day, month or year, the rest of the date unchanged."""
    low, high = {"day": (1, 28), "month": (1, 12), "year": (FIRST_YEAR, LAST_YEAR)}[
        part := str(rng.choice(["day", "month", "year"]))
    ]
    now = getattr(fact, part)
    return {part: int(rng.choice([value for value in range(low, high + 1) if value != now]))}


def _other_name(fact: Fact, slot: str, world: FactWorld, rng: np.random.Generator) -> dict[str, str]:
    pool = {
        "organisation": world.organisations,
        "other": world.organisations,
        "person": world.people,
        "city": world.cities,
        "product": world.products,
    }[slot]
    taken = {fact.organisation, fact.other, getattr(fact, slot)}
    return {slot: str(rng.choice([name for name in pool if name not in taken]))}


def _limited(text: str, fact: Fact, style: NumberStyle) -> str:
    """The sentence with ``up to`` before its amount."""
    found = re.search(rf"(?<![\w,.])\$?{re.escape(number_in_words(fact.amount, style))}\b", text, re.IGNORECASE)
    if found is None:
        raise ValueError(f"sentence of family {fact.family.name!r} shows no amount: {text!r}")
    before, amount = text[: found.start()], text[found.start() :]
    return f"{before}up to {amount}" if before else f"Up to {amount[0].lower()}{amount[1:]}"


def _names(fact: Fact) -> tuple[str, ...]:
    return fact.organisation, fact.other, fact.person
