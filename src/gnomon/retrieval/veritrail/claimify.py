"""Claims of a text with a chat model: selection, disambiguation, decomposition, sentence by sentence.

Selection keeps what a source could confirm or refute, disambiguation makes it understandable by itself or gives it up,
decomposition separates it into single statements. The first two are sampled several times and decided by majority. A
sentence that yields no claim is reported with its reason.

Source: Metropolitansky & Larson (2025), "Towards Effective Extraction and Evaluation of Factual Claims",
arXiv 2502.10855. Windows, votes and the wording of the instructions are our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from typing import Literal

from pydantic import BaseModel

from gnomon.models.chat import ChatModel, Conversation, Missing, Reply
from gnomon.retrieval.veritrail.claims import Claim, Dropped, Extraction
from gnomon.retrieval.veritrail.prompts import prompt
from gnomon.retrieval.veritrail.sentences import Sentence, SentenceIndex

PROMPTS = ("selection", "disambiguation", "decomposition")
SAMPLES = 3
TEMPERATURE = 0.4
BEFORE, AFTER = 5, 5
"""Sentences of context; only selection sees those after the sentence."""
MOST_DECOMPOSITIONS = 20
"""Decompositions spent on the parts of one claim."""

_MAX_TOKENS = 1_024

_Stage = Literal["selection", "disambiguation"]


class SelectionAnswer(BaseModel):
    """Whether a sentence says something verifiable, and that part of it."""

    reason: str
    contains: bool
    rewritten: str | None = None


class DisambiguationAnswer(BaseModel):
    """The sentence without ambiguity, if there is one reading."""

    reason: str
    resolvable: bool
    changes: list[str] = []
    text: str | None = None


class DecompositionAnswer(BaseModel):
    """The statements of a sentence."""

    claims: list[str]


@dataclass(frozen=True)
class _Draft:
    """A sentence on its way to claims."""

    sentence: Sentence
    before: str
    after: str
    text: str
    derivation: tuple[str, ...] = ()


def extract_with(chat: ChatModel, index: SentenceIndex, *, samples: int = SAMPLES) -> Extraction:
    """Claims of the terminal text, sub-claims included, and the sentences that yield none.

    Args:
        chat: The model.
        index: Sentences of the process.
        samples: Answers to draw in selection and disambiguation; more than half of them decide.
    """
    process = index.process
    sentences = index.of(process.terminal)
    drafts = [
        _Draft(
            sentence,
            _context(sentences[max(place - BEFORE, 0) : place], cut_before=place > BEFORE),
            _context(sentences[place + 1 : place + 1 + AFTER], cut_after=place + 1 + AFTER < len(sentences)),
            " ".join(sentence.text.split()),
        )
        for place, sentence in enumerate(sentences)
    ]
    selected, unverifiable = _voted(chat, drafts, "selection", samples, process.question)
    clear, ambiguous = _voted(chat, selected, "disambiguation", samples, process.question)
    dropped = [*unverifiable, *ambiguous]
    conversations = [_conversation("decomposition", process.question, draft.before, draft.text) for draft in clear]
    claims: list[Claim] = []
    for draft, statements in zip(clear, _decomposed(chat, conversations), strict=True):
        if isinstance(statements, Missing) or not statements:
            why = ("error", statements.reason) if isinstance(statements, Missing) else ("unverifiable", "no statement")
            dropped.append(Dropped(draft.sentence.id, draft.sentence.text, *why))
            continue
        claims += [
            Claim(f"c{len(claims) + number}", text, draft.sentence.id, draft.sentence.span, (), draft.derivation)
            for number, text in enumerate(statements, start=1)
        ]
    order = {sentence.id: place for place, sentence in enumerate(sentences)}
    dropped.sort(key=lambda each: order[each.sentence])
    return Extraction(tuple(decompose_with(chat, claims)), tuple(dropped))


def decompose_with(chat: ChatModel, claims: Sequence[Claim]) -> list[Claim]:
    """The claims with their parts as sub-claims: decomposed again until every part gives itself, or the limit is met.

    A claim that says one thing, or whose decomposition failed, has no sub-claims.
    """
    parts = [_Parts(claim.text) for claim in claims]
    while open_parts := [(tree, text) for tree in parts for text in tree.take()]:
        conversations = [_conversation("decomposition", "", "", text) for _, text in open_parts]
        for (tree, text), answer in zip(open_parts, _decomposed(chat, conversations), strict=True):
            tree.divide(text, () if isinstance(answer, Missing) else answer)
    return [replace(claim, subclaims=tree.leaves()) for claim, tree in zip(claims, parts, strict=True)]


class _Parts:
    """What a claim has been divided into so far."""

    def __init__(self, text: str) -> None:
        self._texts = [text]
        self._asked: set[str] = set()

    def take(self) -> list[str]:
        """Parts not yet asked about, as many as the limit allows."""
        waiting = [text for text in self._texts if text not in self._asked]
        taken = waiting[: MOST_DECOMPOSITIONS - len(self._asked)]
        self._asked.update(taken)
        return taken

    def divide(self, text: str, into: Sequence[str]) -> None:
        """Put the parts of a text in its place, if there are several."""
        if len(into) > 1:
            place = self._texts.index(text)
            self._texts[place : place + 1] = [part for part in into if part not in self._texts or part == text]

    def leaves(self) -> tuple[str, ...]:
        """The parts, if there are several."""
        return tuple(self._texts) if len(self._texts) > 1 else ()


def _voted(
    chat: ChatModel, drafts: Sequence[_Draft], stage: _Stage, samples: int, question: str
) -> tuple[list[_Draft], list[Dropped]]:
    """Selection or disambiguation of all sentences at once: what passes, and what does not."""
    answers = chat.complete(
        [
            _conversation(stage, question, draft.before, draft.text, draft.after if stage == "selection" else "")
            for draft in drafts
        ],
        schema=SelectionAnswer if stage == "selection" else DisambiguationAnswer,
        n=samples,
        temperature=TEMPERATURE if samples > 1 else 0.0,
        max_tokens=_MAX_TOKENS,
    )
    passed: list[_Draft] = []
    dropped: list[Dropped] = []
    for draft, drawn in zip(drafts, answers, strict=True):
        given = [answer.parsed for answer in drawn if isinstance(answer, Reply)]
        outcome = None
        if 2 * len(given) > samples:
            outcome = _selected(draft, given) if stage == "selection" else _resolved(draft, given)
        if isinstance(outcome, _Draft):
            passed.append(outcome)
            continue
        failed = [answer.reason for answer in drawn if isinstance(answer, Missing)]
        reason = failed[0] if failed else f"{stage}: no majority among {samples} answers"
        dropped.append(outcome or Dropped(draft.sentence.id, draft.sentence.text, "error", reason))
    return passed, dropped


def _selected(draft: _Draft, answers: Sequence[SelectionAnswer]) -> _Draft | Dropped | None:
    vote = _majority([answer.contains for answer in answers])
    if vote is None:
        return None
    agreeing = [answer for answer in answers if answer.contains == vote]
    if not vote:
        return Dropped(draft.sentence.id, draft.sentence.text, "unverifiable", agreeing[0].reason)
    return _rewritten(draft, [answer.rewritten or draft.text for answer in agreeing])


def _resolved(draft: _Draft, answers: Sequence[DisambiguationAnswer]) -> _Draft | Dropped | None:
    vote = _majority([answer.resolvable for answer in answers])
    if vote is None:
        return None
    agreeing = [answer for answer in answers if answer.resolvable == vote]
    if not vote:
        return Dropped(draft.sentence.id, draft.sentence.text, "ambiguous", agreeing[0].reason)
    return _rewritten(draft, [answer.text or draft.text for answer in agreeing])


def _majority(votes: Sequence[bool]) -> bool | None:
    """What more than half say; ``None`` in a tie."""
    yes = sum(votes)
    return None if 2 * yes == len(votes) else 2 * yes > len(votes)


def _rewritten(draft: _Draft, texts: Sequence[str]) -> _Draft:
    """The draft with the wording most answers agree on, the first of several."""
    plain = [_plain(text) for text in texts]
    text = Counter(plain).most_common(1)[0][0]
    return replace(draft, text=text, derivation=(*draft.derivation, text))


def _decomposed(chat: ChatModel, conversations: Sequence[Conversation]) -> list[tuple[str, ...] | Missing]:
    """Distinct statements, in order."""
    answers = chat.complete(conversations, schema=DecompositionAnswer, max_tokens=_MAX_TOKENS)
    return [
        answer
        if isinstance(answer, Missing)
        else tuple(dict.fromkeys(text for claim in answer.parsed.claims if (text := _plain(claim))))
        for (answer,) in answers
    ]


def _conversation(name: str, question: str, before: str, sentence: str, after: str = "") -> Conversation:
    lines = [f"<question>{_data(question)}</question>"] if question else []
    lines.append(f"<before>{_data(before)}</before>")
    lines.append(f"<sentence>{_data(sentence)}</sentence>")
    if after:
        lines.append(f"<after>{_data(after)}</after>")
    return [{"role": "system", "content": prompt(name).text}, {"role": "user", "content": "\n".join(lines)}]


def _context(sentences: Sequence[Sentence], *, cut_before: bool = False, cut_after: bool = False) -> str:
    """Sentences around the one in question; ``[...]`` marks where the text goes on."""
    lines = [" ".join(sentence.text.split()) for sentence in sentences]
    return " ".join([*(["[...]"] if cut_before else []), *lines, *(["[...]"] if cut_after else [])])


def _data(text: str) -> str:
    """Text of others, unable to close the marks it stands between."""
    return escape(" ".join(text.split()), quote=False)


def _plain(text: str) -> str:
    """A model's text as a line; it may have copied how we escape marks."""
    return " ".join(unescape(text).split())
