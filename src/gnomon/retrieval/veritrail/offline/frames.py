"""The frame of a sentence: what must agree for one sentence to support another."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import snowballstemmer

from gnomon.retrieval.veritrail.offline.names import FUNCTION_WORDS, Name, names, places, words
from gnomon.retrieval.veritrail.offline.numbers import Date, Quantity, dates, quantities, without_dates

_HEDGE = re.compile(
    r"\b(?:may|might|could|possibly|perhaps|probably|likely|reportedly|allegedly|supposedly|apparently|rumou?rs?"
    r"|rumou?red|unconfirmed|not (?:yet )?(?:been )?confirmed|believe[sd]?|thought to|said to be|expected|expects?"
    r"|plan(?:s|ned|ning) to|hopes? to|considers?|considering|is said|are said|suspected)\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:not(?! only)|never|no(?! (?:fewer|less|more) than)|none|nobody|nothing|neither|nor|without|cannot|\w+n['’]t"
    r"|no longer|fail(?:s|ed|ing|ure)?|refus(?:e|es|ed|al)|den(?:y|ies|ied)|reject(?:s|ed)?|declin(?:e|es|ed) to"
    r"|cancel(?:s|led|ed|lation)?|abandon(?:s|ed)?|withdr(?:aws?|ew|awn)|scrap(?:s|ped)|shelved?"
    r"|drop(?:s|ped) (?:its|his|her|their|the|a) (?:plans?|bid|lawsuit|claim|case)"
    r"|call(?:s|ed)? off|g[ia]ve(?:s|n)? up|turn(?:s|ed)? down|put(?:s)? off|back(?:s|ed)? out|pull(?:s|ed)? out"
    r"|(?:stop|halt|suspend|ceas|discontinu)\w* (?:all|its|his|her|their)"
    r"|decid(?:e|es|ed) against|escap(?:e|es|ed)|avoid(?:s|ed)?|prevent(?:s|ed)?|false|untrue|revok(?:e|es|ed))\b",
    re.IGNORECASE,
)
_UNCONFIRMED = re.compile(r"\bnot (?:yet )?(?:been )?confirmed\b", re.IGNORECASE)
_SCOPE = {
    "all": 3,
    "every": 3,
    "entire": 3,
    "always": 3,
    "most": 2,
    "often": 2,
    "some": 1,
    "several": 1,
    "sometimes": 1,
}
_PASSIVE = re.compile(r"\b(?:is|are|was|were|be|been|being|got)\b.*\bby(?: the| a| an)?\s*$", re.IGNORECASE)
_CONVERSE = re.compile(
    r"\b(?:receiv(?:e|es|ed)|b(?:uys?|ought)|got|acquir(?:e|es|ed)|obtain(?:s|ed)?|purchas(?:e|es|ed)|borrow(?:s|ed)?"
    r"|inherit(?:s|ed)?)\b.*\bfrom(?: the| a| an)?\s*$",
    re.IGNORECASE,
)
_OF = re.compile(r"\b(?:of|at)(?: the| a| an)?\s*$", re.IGNORECASE)
_AGENTLESS = re.compile(
    r"\b(?:is|are|was|were|be|been|being|got)\s+(?:\w+ly\s+)?\w+(?:ed|en|[^aeiou]t)\b", re.IGNORECASE
)
_DIRECTED = re.compile(r"\b(?:against|to|from|for|with)(?: the| a| an)?\s*$", re.IGNORECASE)
_BY = re.compile(r"\bby(?: the| a| an)?\s*$", re.IGNORECASE)

_stemmer = snowballstemmer.stemmer("english")


@dataclass(frozen=True)
class Frame:
    """What a sentence says, as far as rules can tell.

    Args:
        quantities: Its numbers.
        dates: Its dates.
        names: Its named entities, in order.
        agents: The first two names that are no places, the acting one first; empty where grammar does not tell.
        stems: Stems of its content words, names included.
        negated: Whether it denies something.
        hedged: Whether it only reports or expects something.
        scope: Strongest of ``some`` (1), ``most`` (2), ``all`` (3); 0 without such a word.
    """

    quantities: tuple[Quantity, ...]
    dates: tuple[Date, ...]
    names: tuple[Name, ...]
    agents: tuple[Name, ...]
    stems: frozenset[str]
    negated: bool
    hedged: bool
    scope: int


class Lexicon:
    """What the texts of a process show about words: which are names, which are places, how rare each is.

    Args:
        sentences: All sentences, each counted once.
    """

    def __init__(self, sentences: Iterable[str]) -> None:
        distinct = list(dict.fromkeys(sentences))
        self.known: set[str] = set()
        self.common: set[str] = set()
        for sentence in distinct:
            for index, word in enumerate(words(sentence)):
                if not word.group()[0].isupper():
                    self.common.add(word.group())
                elif index:
                    self.known.add(word.group())
        self.places = places(self._names(without_dates(sentence)) for sentence in distinct)
        counts = Counter(stem for sentence in distinct for stem in stems(sentence))
        self._count = len(distinct)
        self._rarity: Mapping[str, float] = {stem: self._idf(count) for stem, count in counts.items()}
        self._unseen = self._idf(0)

    def _idf(self, count: int) -> float:
        return math.log((1 + self._count) / (1 + count)) + 1

    def _names(self, text: str) -> tuple[Name, ...]:
        return names(text, known=self.known, common=self.common)

    def rarity(self, stem: str) -> float:
        """Inverse document frequency of a stem, smoothed, over sentences."""
        return self._rarity.get(stem, self._unseen)

    def frame(self, sentence: str) -> Frame:
        """The frame of a sentence."""
        timeless = without_dates(sentence)
        found = self._names(timeless)
        outside = _UNCONFIRMED.sub(" ", _blanked(timeless, found))
        lowered = {word.group().lower() for word in words(timeless)}
        return Frame(
            quantities(sentence),
            dates(sentence),
            found,
            self._agents(timeless, found),
            stems(timeless),
            bool(_NEGATION.search(outside)),
            bool(_HEDGE.search(timeless)),
            max((_SCOPE[word] for word in lowered if word in _SCOPE), default=0),
        )

    def _agents(self, text: str, found: tuple[Name, ...]) -> tuple[Name, ...]:
        acting: list[Name] = []
        for name in found:
            if name.words not in self.places and not any(name.same_as(other) for other in acting):
                acting.append(name)
        if len(acting) < 2:
            return ()
        first, second = acting[:2]
        before, between = text[: first.span[0]], text[first.span[1] : second.span[0]]
        if _PASSIVE.search(between) or _CONVERSE.search(between) or (_OF.search(before) and _BY.search(between)):
            return (second, first)
        if _OF.search(between) or _AGENTLESS.search(between) or (_OF.search(before) and not _DIRECTED.search(between)):
            return ()
        return (first, second)


def stems(text: str) -> frozenset[str]:
    """Stems of the content words of a text."""
    return frozenset(
        _stem(word) for match in words(text) if (word := match.group().lower()) not in FUNCTION_WORDS and len(word) > 1
    )


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    return _stemmer.stemWord(re.sub(r"['’]s?$", "", word))


def _blanked(text: str, found: tuple[Name, ...]) -> str:
    """The text without its names: what they mean does not count."""
    for name in found:
        text = text[: name.span[0]] + " " * (name.span[1] - name.span[0]) + text[name.span[1] :]
    return text
