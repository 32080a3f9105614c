"""Invented facts about organisations, people and cities, and many ways to write each of them down.

A world draws facts from relation families (a strike, an acquisition, a fire). Every family has affirmative paraphrases
(active, passive, nominal, fronted), negated ones, and search phrases; amounts come in several number styles. Families,
cities, organisations, people and products are divided into a ``fit`` and an ``evaluation`` half that share nothing:
what is tuned on one is tested on the other.

>>> world = FactWorld("fit", seed=0)
>>> fact = world.facts(1)[0]
>>> fact.sentence(0) != fact.sentence(1)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gnomon.data.fact_families import FAMILIES, Family

Half = Literal["fit", "evaluation"]
NumberStyle = Literal["digits", "scaled", "words"]

STYLES: tuple[NumberStyle, ...] = ("digits", "scaled", "words")
FIRST_YEAR, LAST_YEAR = 1984, 2023

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_CITIES = {
    "fit": ("Graz", "Leeds", "Porto", "Bergen", "Lyon", "Turin", "Gdansk", "Malmo",
            "Bremen", "Utrecht", "Seville", "Brno", "Aarhus", "Cork", "Varna", "Tartu"),
    "evaluation": ("Linz", "Bristol", "Braga", "Tromso", "Nantes", "Verona", "Poznan", "Uppsala",
                   "Kiel", "Eindhoven", "Zaragoza", "Ostrava", "Odense", "Galway", "Plovdiv", "Kaunas"),
}  # fmt: skip
_ORGANISATIONS = {
    "fit": ("Halvorsen Steel", "Brightwater Foods", "Nordlys Energy", "Castellan Motors", "Ferrum Works",
            "Lumen Optics", "Quayside Shipping", "Alder Pharma", "Redstone Mining", "Veloce Rail", "Orchard Textiles",
            "Pinnacle Cement"),
    "evaluation": ("Marlowe Chemicals", "Stellan Robotics", "Osprey Airlines", "Birchwood Paper", "Corvus Electronics",
                   "Tidewater Power", "Hollis Brewing", "Garnet Glass", "Meridian Tools", "Sable Telecom",
                   "Foxglove Dairy", "Juniper Software"),
}  # fmt: skip
_PEOPLE = {
    "fit": ("Anna Keller", "Tomas Novak", "Ingrid Solberg", "Marco Bellini", "Clara Duarte", "Owen Price",
            "Lena Fischer", "Pavel Horak", "Sofia Marin", "Henrik Dahl", "Nora Quinn", "Luc Moreau"),
    "evaluation": ("Greta Holm", "Janek Wolski", "Elisa Conti", "Rui Teixeira", "Maeve Brennan", "Felix Baumann",
                   "Astrid Lund", "Diego Navarro", "Hana Svoboda", "Colin Marsh", "Julie Perrin", "Stefan Iliev"),
}  # fmt: skip
_PRODUCTS = {
    "fit": ("solar inverters", "wool coats", "baby formula", "brake pads", "desk lamps", "frozen pizzas",
            "hearing aids", "garden sheds"),
    "evaluation": ("electric kettles", "rain jackets", "oat milk", "bicycle forks", "smoke detectors", "canned soups",
                   "insulin pumps", "roof tiles"),
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One event: who did what, where, when, and how much of it.

    Args:
        family: The relation family, which holds the templates.
        organisation: The agent.
        other: A second organisation, for relations between two.
        person: A person involved.
        city: Where it happened.
        product: A product involved.
        year: When.
        month: 1 to 12.
        day: 1 to 28.
        amount: Money, people or units; which, the family says.
    """

    family: Family
    organisation: str
    other: str
    person: str
    city: str
    product: str
    year: int
    month: int
    day: int
    amount: int

    def sentence(self, paraphrase: int = 0, *, negated: bool = False, style: NumberStyle = "digits") -> str:
        """The fact written down, or its negation.

        Args:
            paraphrase: Which template; numbers beyond the last begin anew.
            negated: Use a template that denies the event.
            style: How the amount is written.
        """
        templates = self.family.denied if negated else self.family.affirmed
        amount = number_in_words(self.amount, style)
        if self.family.money:
            amount = {"digits": f"${amount}", "scaled": f"${amount}", "words": f"{amount} dollars"}[style]
        text = templates[paraphrase % len(templates)].format(
            org=self.organisation,
            other=self.other,
            person=self.person,
            city=self.city,
            product=self.product,
            year=self.year,
            month=_MONTHS[self.month - 1],
            date=f"{self.day} {_MONTHS[self.month - 1]} {self.year}",
            amount=amount,
        )
        return text[0].upper() + text[1:]

    @property
    def decade(self) -> str:
        """Decade of the event, such as ``1990s``."""
        return f"{self.year // 10 * 10}s"

    def changed(self, **slots: object) -> Fact:
        """The fact with other slots: a corruption to be found."""
        return replace(self, **slots)


class FactWorld:
    """Families, names and places of one half, and facts drawn from them.

    Args:
        half: ``fit`` or ``evaluation``; the two share no family and no name.
        seed: Facts of equal seeds are equal.

    Raises:
        ValueError: If there is no such half.
    """

    def __init__(self, half: Half = "fit", *, seed: int = 0) -> None:
        if half not in _CITIES:
            raise ValueError(f"half must be 'fit' or 'evaluation', got {half!r}")
        self.half = half
        self.seed = seed
        self.families = tuple(family for family in FAMILIES if family.half == half)
        self.cities = _CITIES[half]
        self.organisations = _ORGANISATIONS[half]
        self.people = _PEOPLE[half]
        self.products = _PRODUCTS[half]

    def facts(self, count: int, *, families: Sequence[Family] | None = None) -> list[Fact]:
        """Distinct facts, families in turn, the other slots at random.

        Args:
            count: How many.
            families: Families to draw from; ``None``: all of this half.
        """
        rng = np.random.default_rng((self.seed, self.half == "evaluation"))
        allowed = tuple(families or self.families)
        drawn: dict[tuple[str, str, str, int], Fact] = {}
        while len(drawn) < count:
            fact = self._draw(allowed[len(drawn) % len(allowed)], rng)
            drawn.setdefault((fact.family.name, fact.organisation, fact.city, fact.year), fact)
        return list(drawn.values())

    def _draw(self, family: Family, rng: np.random.Generator) -> Fact:
        first, second = rng.choice(len(self.organisations), 2, replace=False)
        return Fact(
            family=family,
            organisation=self.organisations[first],
            other=self.organisations[second],
            person=str(rng.choice(self.people)),
            city=str(rng.choice(self.cities)),
            product=str(rng.choice(self.products)),
            year=int(rng.integers(FIRST_YEAR, LAST_YEAR + 1)),
            month=int(rng.integers(1, 13)),
            day=int(rng.integers(1, 29)),
            amount=_round_amount(rng, *family.amounts),
        )


def number_in_words(value: int, style: NumberStyle = "digits") -> str:
    """A number as news writes it: ``1,500,000``, ``1.5 million``, or ``one and a half million`` style words.

    Words are used for whole and half thousands and millions and for hundreds below ten thousand; other numbers stay
    in digits.

    >>> [number_in_words(1_500_000, style) for style in ("digits", "scaled", "words")]
    ['1,500,000', '1.5 million', 'one and a half million']
    >>> number_in_words(1200, "words")
    'twelve hundred'
    """
    if style == "scaled":
        for size, name in ((1_000_000, "million"), (1_000, "thousand")):
            if value >= size and value * 10 % size == 0:
                return f"{value / size:g} {name}"
    if style == "words":
        for size, name in ((1_000_000, "million"), (1_000, "thousand")):
            whole, rest = divmod(value, size)
            if 1 <= whole < len(_SMALL) and rest in (0, size // 2):
                return f"{_SMALL[whole]}{' and a half' if rest else ''} {name}"
        if value % 100 == 0 and 1 <= value // 100 < len(_SMALL):
            return f"{_SMALL[value // 100]} hundred"
    return f"{value:,}"


_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip


def _round_amount(rng: np.random.Generator, low: int, high: int) -> int:
    """A round number, uniform on a logarithmic scale: two leading digits, the second 0 or 5 in half of the cases."""
    value = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    size = 10 ** (int(np.log10(value)) - 1)
    leading = int(value // size)
    return (leading // 5 * 5 if rng.random() < 0.5 else leading) * size
