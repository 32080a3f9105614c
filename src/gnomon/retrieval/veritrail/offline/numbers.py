"""Numbers and dates of English sentences, whichever way they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from text_to_num import alpha2digit, text2num

from gnomon.retrieval.veritrail.offline.names import FUNCTION_WORDS

Bound = Literal["=", "<=", ">="]

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH_NUMBER = {name: number for number, name in enumerate(_MONTHS, start=1)}
_MONTH_NUMBER |= {name[:3]: number for name, number in _MONTH_NUMBER.items()} | {"sept": 9}
_MONTH = "|".join(sorted((name.capitalize() for name in _MONTH_NUMBER), key=len, reverse=True))
_YEAR = r"(?:1[5-9]|20)\d\d"
_BEFORE_TIME = r"(?:in|of|since|until|till|by|from|during|before|after|to|year|early|late|mid|last|next)"
_DATE = re.compile(
    rf"\b(?P<iso>{_YEAR}-\d\d-\d\d)\b"
    rf"|\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})\b\.?,?(?:\s+(?P<year>{_YEAR})\b)?"
    rf"|\b(?P<month2>{_MONTH})\b\.?\s+(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?\b(?!,\d)(?:,?\s+(?P<year2>{_YEAR})\b)?"
    rf"|\b(?P<month3>{_MONTH})\b\.?\s+(?:of\s+)?(?P<year3>{_YEAR})\b"
    rf"|\b{_BEFORE_TIME}[\s-]+(?P<month4>{_MONTH})\b(?:\s+(?:of\s+)?(?P<year6>{_YEAR})\b)?"
    rf"|\b{_BEFORE_TIME}[\s-]+(?P<year4>{_YEAR})\b(?!,\d|\.\d|\s+[a-z]+s\b)"
    rf"|^(?P<year5>{_YEAR})\b(?!,\d|\.\d|\s+[a-z]+s\b)",
    re.IGNORECASE,
)

_SCALES = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "k": 1e3, "m": 1e6, "bn": 1e9}
_SCALES |= {"1000": 1e3, "1000000": 1e6, "1000000000": 1e9}  # what alpha2digit makes of a scale after digits
_CURRENCIES = {"$": "$", "€": "€", "£": "£", "dollar": "$", "euro": "€", "pound": "£", "usd": "$", "eur": "€"}
_BOUNDS: dict[str, Bound] = {
    "up to": "<=", "at most": "<=", "as many as": "<=", "as much as": "<=", "less than": "<=", "fewer than": "<=",
    "nearly": "<=", "almost": "<=", "no more than": "<=",
    "at least": ">=", "more than": ">=", "no fewer than": ">=", "no less than": ">=",
}  # fmt: skip
_NUMBER = re.compile(
    rf"(?:\b(?P<bound>{'|'.join(sorted(_BOUNDS, key=len, reverse=True))})\s+)?"
    r"(?P<currency>[$€£])?"
    r"(?<![\w.])(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    rf"(?:[\s-]?(?P<scale>{'|'.join(sorted(_SCALES, key=len, reverse=True))})\b)?"
    r"(?:\s*(?P<percent>%|percentage points?\b|per cent\b|percent\b))?"
    r"(?:\s+(?P<money>dollars?|euros?|pounds?|USD|EUR)\b)?"
    r"(?P<after>(?:\s+[a-z][a-z'-]+){0,3})",
    re.IGNORECASE,
)
_SPACED_THOUSANDS = re.compile("(?<=\\d)[\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}](?=\\d{3}\\b)")
_HALVES = re.compile(r"\b(?P<whole>[a-z]+) and a half\b", re.IGNORECASE)
_HALF_OF = re.compile(r"\bhalf a (?P<scale>thousand|million|billion)\b", re.IGNORECASE)
_NOT_COUNTED = FUNCTION_WORDS | {"less", "fewer", "new"}


@dataclass(frozen=True)
class Quantity:
    """A number with its unit.

    Args:
        value: The number, scale applied.
        unit: ``$``, ``€``, ``£``, ``%``, ``points`` (percentage points), or empty for a count.
        bound: Whether it is the number itself or a limit.
        counted: The words after a count, at most two: what is counted.
    """

    value: float
    unit: str = ""
    bound: Bound = "="
    counted: str = ""


@dataclass(frozen=True)
class Date:
    """A date, or the parts of one that are given."""

    year: int | None = None
    month: int | None = None
    day: int | None = None


def dates(text: str) -> tuple[Date, ...]:
    """Dates of a sentence.

    >>> dates("On 5 March 2009 it moved; it had opened in May 1990.")
    (Date(year=2009, month=3, day=5), Date(year=1990, month=5, day=None))
    """
    return tuple(found for match in _DATE.finditer(text) if (found := _date(match)) is not None)


def quantities(text: str) -> tuple[Quantity, ...]:
    """Numbers of a sentence that are no dates.

    >>> quantities("Up to twelve hundred workers earned one and a half million dollars.")
    (Quantity(value=1200.0, unit='', bound='<=', counted='workers earned'), \
Quantity(value=1500000.0, unit='$', bound='=', counted=''))
    """
    return tuple(_quantity(match) for match in _NUMBER.finditer(_in_digits(without_dates(text))))


def without_dates(text: str) -> str:
    """The text with its dates cut out."""
    return _DATE.sub(lambda match: " ; " if _date(match) is not None else match.group(), text)


def _date(match: re.Match[str]) -> Date | None:
    parts = match.groupdict()
    if parts["iso"]:
        year, month, day = (int(part) for part in parts["iso"].split("-"))
        return Date(year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None
    word = next((parts[name] for name in ("month", "month2", "month3", "month4") if parts[name]), None)
    if word is not None and not word[0].isupper():
        return None  # "may" and "march" are verbs too
    year = next((parts[name] for name in ("year", "year2", "year3", "year4", "year5", "year6") if parts[name]), None)
    day = parts["day"] or parts["day2"]
    month = _MONTH_NUMBER[word.lower()] if word else None
    return Date(int(year) if year else None, month, int(day) if day else None)


def _in_digits(text: str) -> str:
    """Number words as digits: ``one and a half million`` as ``1.5 million``, ``twelve hundred`` as ``1200``."""
    text = _SPACED_THOUSANDS.sub(",", text)
    text = _HALF_OF.sub(lambda match: f"0.5 {match['scale']}", _HALVES.sub(_with_half, text))
    return alpha2digit(text, "en", threshold=2)


def _with_half(match: re.Match[str]) -> str:
    try:
        return f"{text2num(match['whole'].lower(), 'en')}.5"
    except ValueError:
        return match.group()


def _quantity(match: re.Match[str]) -> Quantity:
    value = float(match["digits"].replace(",", "")) * _SCALES.get((match["scale"] or "").lower(), 1.0)
    bound = _BOUNDS[" ".join(match["bound"].lower().split())] if match["bound"] else "="
    if match["percent"]:
        return Quantity(value, "points" if "point" in match["percent"] else "%", bound)
    if match["currency"] or match["money"]:
        word = match["currency"] or match["money"].lower().removesuffix("s")
        return Quantity(value, _CURRENCIES[word], bound)
    counted: list[str] = []
    for word in match["after"].lower().split():
        if word in _NOT_COUNTED or len(counted) == 2:
            break
        counted.append(word)
    return Quantity(value, "", bound, " ".join(counted))
