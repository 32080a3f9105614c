"""Named entities of English sentences: capitalised spans, told from words that are only first in their sentence."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION_WORDS = _listed(
    "a about above after again against all also although am an and any are as at be because been before being below"
    " between both but by can could did do does doing down during each either few for from further had has have"
    " having he her here hers him his how i if in into is it its itself just like may me might more most must my"
    " near no nor not now of off on once one only onto or other our out over own per she should since so some such"
    " than that the their them then there these they this those though through to too under until up upon us very"
    " was we were what when where which while who whom whose why will with within without would yet you your"
)

_CALENDAR = _listed(
    "January February March April May June July August September October November December"
    " Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
)
_TITLES = _listed("Mr Mrs Ms Dr Prof Professor Sir Dame Lord Lady President Minister Mayor")
_PARTICLES = _listed("de da di del der den van von la le bin al")
_WORD = re.compile(r"(?:[^\W\d_]\.){2,}|[^\W\d_](?:[\w&'’-]|\.(?=\w))*")
_PLACED = re.compile(r"\bin\s+$", re.IGNORECASE)


@dataclass(frozen=True)
class Name:
    """A named entity.

    Args:
        words: Its words, without titles, articles and possessive.
        span: Characters of it in the sentence.
        placed: Whether ``in`` stands before it.
    """

    words: tuple[str, ...]
    span: tuple[int, int]
    placed: bool = False

    def same_as(self, other: Name) -> bool:
        """Whether both may name one thing: equal, the beginning or end of the other, or its initials.

        >>> name = Name(("Marlowe", "Chemicals"), (0, 17))
        >>> [name.same_as(Name(words, (0, 1))) for words in [("Marlowe",), ("MC",), ("Sable", "Chemicals")]]
        [True, True, False]
        """
        if self.words == other.words:
            return True
        short, long = sorted((self.words, other.words), key=len)
        if len(short) == len(long):
            return False
        if len(short) == 1 and short[0].replace(".", "") == "".join(word[0] for word in long):
            return True
        return short in (long[: len(short)], long[-len(short) :])


def words(text: str) -> list[re.Match[str]]:
    """Words of a text, in order; numbers are none."""
    return list(_WORD.finditer(text))


def names(text: str, *, known: Container[str] = (), common: Container[str] = ()) -> tuple[Name, ...]:
    """Named entities of a sentence, in order.

    The first word of a sentence is capitalised whatever it is: followed by another capitalised word it begins a name;
    alone it is one only if the texts use it as a name elsewhere.

    Args:
        text: One sentence.
        known: Words capitalised within sentences somewhere in the texts.
        common: Words in lower case somewhere in the texts.

    >>> [name.words for name in names("On Monday Dr. Greta Holm of Sable Telecom went to Kiel.")]
    [('Greta', 'Holm'), ('Sable', 'Telecom'), ('Kiel',)]
    """
    found: list[Name] = []
    run: list[re.Match[str]] = []
    tokens = words(text)
    for index, token in enumerate([*tokens, None]):
        adjacent = token is not None and (not run or text[run[-1].end() : token.start()] in (" ", "-"))
        inside = token is not None and bool(run) and adjacent and _continues(tokens, index, text)
        if token is not None and adjacent and (_capitalised(token.group()) or inside):
            run.append(token)
            continue
        _close(found, run, text, known, common)
        run = [token] if token is not None and _capitalised(token.group()) else []
    return tuple(found)


def places(sentences: Iterable[tuple[Name, ...]]) -> set[tuple[str, ...]]:
    """Names that ``in`` stands before somewhere: they act in no sentence."""
    return {name.words for found in sentences for name in found if name.placed}


def _capitalised(word: str) -> bool:
    return word[0].isupper() and word.rstrip(".") not in _CALENDAR


def _continues(tokens: list[re.Match[str]], index: int, text: str) -> bool:
    """Whether a small word stands within a name (``Rosa de Luna``)."""
    if tokens[index].group() not in _PARTICLES or index + 1 == len(tokens):
        return False
    following = tokens[index + 1]
    return _capitalised(following.group()) and text[tokens[index].end() : following.start()] == " "


def _close(
    found: list[Name], run: list[re.Match[str]], text: str, known: Container[str], common: Container[str]
) -> None:
    while run and (run[0].group().lower() in FUNCTION_WORDS or run[0].group().rstrip(".") in _TITLES):
        run = run[1:]
    if not run:
        return
    first = run[0].group()
    initial = not text[: run[0].start()].strip(" \"'“‘(*_-")
    if len(run) == 1 and initial and (first not in known or first.lower() in common):
        return
    bare = tuple(re.sub(r"['’]s?$", "", token.group()) for token in run)
    found.append(Name(bare, (run[0].start(), run[-1].end()), bool(_PLACED.search(text[: run[0].start()]))))
