"""Claims of a text by rules of English, without a model: the offline judge's extractor.

It keeps sentences that report something specific, resolves a pronoun at the beginning of a sentence where only one
name can be meant, and separates coordinated statements. Reports and summaries of plain declarative sentences come
through almost unchanged; for prose that argues, hedges or refers back over several sentences use a chat model
(:mod:`gnomon.retrieval.veritrail.claimify`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace

from gnomon.retrieval.veritrail.claims import Claim, Dropped, Extraction
from gnomon.retrieval.veritrail.offline.names import FUNCTION_WORDS, names, words
from gnomon.retrieval.veritrail.sentences import Sentence, SentenceIndex

_AUXILIARY_VERBS = (
    "is are was were be been has have had do does did will would can could may might shall must isn't aren't wasn't "
    "weren't hasn't haven't hadn't won't wouldn't can't couldn't cannot doesn't don't didn't"
)
_PAST_FORMS = (
    "became began bought brought broke built burnt came caught chose cost cut drew drove fell felt fought found flew "
    "forbade forgot froze gave got grew heard held hit hurt kept knew laid led left lent let lost made meant met paid "
    "put quit ran rang rose said sank sat saw sent set shot shut sold sought spent split spoke spread stole stood "
    "struck swept sprang swore taught thought threw told took understood went withdrew won wore wrote"
)
_AUXILIARIES = frozenset(_AUXILIARY_VERBS.split())
_IRREGULAR = frozenset(_PAST_FORMS.split())

_UNVERIFIABLE = (
    (re.compile(r"\?[\"'”’)]*$"), "a question"),
    (re.compile(r"\b(?:should|ought to|needs? to be seen|we recommend|is recommended|let us|let's)\b", re.I), "advice"),
    (
        re.compile(
            r"\b(?:must be seen|it is important|importance of|arguably|i think|i believe|in my view|it seems|"
            r"underscores?|highlights?|testament to|crucial|remarkable|significant implications)\b",
            re.I,
        ),
        "an opinion",
    ),
    (re.compile(r"^(?:in (?:conclusion|summary|short)|to sum up|overall)\b", re.I), "a conclusion"),
    (
        re.compile(
            r"\b(?:this (?:report|answer|summary|section|document)|the following (?:list|section|points?|table)|"
            r"(?:is|are) (?:as follows|listed below|summari[sz]ed below))\b|:$",
            re.I,
        ),
        "an introduction",
    ),
    (
        re.compile(
            r"\b(?:no (?:further |other )?information|not (?:mentioned|specified|stated)|"
            r"(?:documents?|sources?|texts?|data) (?:do|does) not (?:say|mention|contain|provide|specify|state))\b",
            re.I,
        ),
        "a statement about missing information",
    ),
)

_CITATION = re.compile(r"\s*\[(?:Data:[^\]]*|\^?\d+(?:\s*[,;–-]\s*\d+)*)\]")
_EMPHASIS = re.compile(r"(\*\*|__|`)(?=\S)(.+?)(?<=\S)\1")
_NUMBER = re.compile(r"\d")
_PLACE = re.compile(r"\b(?:in|at|to|from|near|through|across|of)\s+(?:the\s+)?$", re.I)
_DEFINITE = re.compile(r"\b(?:the|its|his|her|their)\s+[a-z]", re.I)
_PRONOUN = re.compile(r"(He|She|It|They|His|Her|Its|Their)\b(?=\s+\w)")
_EXPLETIVE = re.compile(r"It\s+(?:is|was|has been|had been)\s+(?:\w+ly\s+)?\w+\s+(?:that|to|whether|by)\b")
_CAPITALISED = r"[A-Z][\w'’&-]*"
_SUBJECT = re.compile(
    r"(?:(?:On \d{1,2} \w+|In)(?: \d{4})?, )?(?:The )?"
    rf"({_CAPITALISED}(?:\s+(?:(?:of|de|van|von)\s+)?{_CAPITALISED})*)(?=\s+[a-z])"
)
_COORDINATION = re.compile(r";\s+and\s+|(?:;|,\s+and)\s+(?=(?:it|he|she|they)\s)")
_PLURAL = re.compile(r"(?:[^uis]s|\bPeople)$")
_OPENING_PRONOUN = re.compile(r"(?:it|he|she|they)(?=\s)")
_PARTS = re.compile(r";\s+(?:and\s+)?|,\s+(?:and|but)\s+")


def extract_by_rules(index: SentenceIndex) -> Extraction:
    """Claims of the terminal text, sub-claims included, and the sentences that yield none.

    Warns:
        UserWarning: If the text is not in English.
    """
    sentences = index.of(index.process.terminal)
    _warn_unless_english(" ".join(sentence.text for sentence in sentences))
    claims: list[Claim] = []
    dropped: list[Dropped] = []
    for position, sentence in enumerate(sentences):
        text = plain(sentence.text)
        if why := unverifiable(text):
            dropped.append(Dropped(sentence.id, sentence.text, "unverifiable", why))
            continue
        resolved, candidates = _resolved(text, sentences[max(position - 2, 0) : position])
        if resolved is None:
            named = ", ".join(candidates) or "nothing"
            reason = f"{text.split()[0]!r} may refer to {named}"
            dropped.append(Dropped(sentence.id, sentence.text, "ambiguous", reason))
            continue
        claims += [
            Claim(f"c{len(claims) + number}", statement, sentence.id, sentence.span, parts(statement))
            for number, statement in enumerate(statements(resolved), start=1)
        ]
    return Extraction(tuple(claims), tuple(dropped))


def decompose_by_rules(claims: Sequence[Claim]) -> list[Claim]:
    """The claims with the parts of coordinated ones as sub-claims."""
    return [replace(claim, subclaims=parts(claim.text)) for claim in claims]


def plain(text: str) -> str:
    """A sentence without citation marks, emphasis and line breaks.

    >>> plain("**Corvus** grew\\n  by 5 % [Data: Reports (1, 2)].")
    'Corvus grew by 5 %.'
    """
    return " ".join(_EMPHASIS.sub(r"\2", _CITATION.sub("", text)).split())


def unverifiable(text: str) -> str:
    """Why a sentence states no specific fact; empty if it does.

    >>> unverifiable("Companies should plan ahead."), unverifiable("Corvus closed its plant in 2019.")
    ('advice', '')
    """
    for pattern, what in _UNVERIFIABLE:
        if pattern.search(text):
            return what
    if not _has_verb(text):
        return "no verb"
    if not (_NUMBER.search(text) or names(text) or _DEFINITE.search(text) or _PRONOUN.match(text) or _named(text)):
        return "nothing specific: no number, name or definite noun"
    return ""


def statements(text: str) -> tuple[str, ...]:
    """The coordinated statements of a sentence, each on its own.

    A statement that begins with a pronoun gets the subject of the sentence in its place; if the sentence begins with
    no name, it is left in one piece. Relative clauses stay with their noun.

    >>> statements("Corvus left Kiel in 2019, and it sold 3 sites; and Marlowe bought them.")
    ('Corvus left Kiel in 2019.', 'Corvus sold 3 sites.', 'Marlowe bought them.')
    """
    pieces = [piece.strip() for piece in _COORDINATION.split(text)]
    if len(pieces) == 1 or not all(_has_verb(piece) for piece in pieces):
        return (text,)
    subject = _subject(text)
    whole = []
    for piece in pieces:
        if pronoun := _OPENING_PRONOUN.match(piece):
            if not subject:
                return (text,)
            piece = subject + piece[pronoun.end() :]
        whole.append(piece[0].upper() + piece[1:].rstrip(".") + ".")
    return tuple(whole)


def parts(text: str) -> tuple[str, ...]:
    """The clauses a statement is made of, if it has several; they guide the search for evidence.

    >>> parts("Staff walked out in Kiel, and 500 employees took part.")
    ('Staff walked out in Kiel', '500 employees took part')
    """
    pieces = tuple(piece.strip().rstrip(".") for piece in _PARTS.split(text))
    return pieces if len(pieces) > 1 and all(_has_verb(piece) for piece in pieces) else ()


def _subject(text: str) -> str:
    """The capitalised words a sentence begins with, before its first word in lower case; empty if there are none."""
    found = _SUBJECT.match(text)
    return found[1] if found and found[1].split()[0].lower() not in FUNCTION_WORDS else ""


def _named(text: str) -> bool:
    """Whether the subject is likely a name: a plural at the beginning of a sentence ("Companies") is not."""
    return bool(subject := _subject(text)) and not _PLURAL.search(subject)


def _resolved(text: str, before: Sequence[Sentence]) -> tuple[str | None, list[str]]:
    """The sentence with a pronoun at its beginning replaced; ``None``, with the candidates, if several can be meant."""
    pronoun = _PRONOUN.match(text)
    if pronoun is None or _EXPLETIVE.match(text):
        return text, []
    candidates: list[str] = []
    for sentence in before:
        earlier = plain(sentence.text)
        # A name after a preposition of place is where something happened, not who did it.
        candidates.append(_subject(earlier))
        candidates += [" ".join(n.words) for n in names(earlier) if not _PLACE.search(earlier[: n.span[0]])]
    distinct = [name for name in dict.fromkeys(candidates) if name]
    if len(distinct) != 1:
        return None, distinct
    possessive = "'s" if pronoun[0] in ("His", "Her", "Its", "Their") else ""
    return distinct[0] + possessive + text[pronoun.end() :], distinct


def _has_verb(text: str) -> bool:
    """Whether a word of the text is an auxiliary, a past form, or, in a full sentence, looks like a present form."""
    found = [word.group().replace("’", "'") for word in words(text)]
    lower = [word.lower() for word in found]
    if any(word in _AUXILIARIES or word in _IRREGULAR or (len(word) > 3 and word.endswith("ed")) for word in lower):
        return True
    if not text.rstrip("\"'”’)").endswith((".", "!")):
        return False
    return any(
        word == word.lower() and len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
        for word in found[1:]
    )


def _warn_unless_english(text: str) -> None:
    found = [word.group().lower() for word in words(text)]
    if len(found) >= 30 and sum(word in FUNCTION_WORDS for word in found) < 0.1 * len(found):
        warnings.warn(
            "the final text does not look like English; offline rules know English only, use a chat model",
            stacklevel=3,
        )
