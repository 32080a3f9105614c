"""A chat model as judge: evidence and verdicts by instruction, in JSON of a given form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Literal

from pydantic import BaseModel, Field

from gnomon.models.chat import ChatModel, Conversation, Missing, Reply
from gnomon.retrieval.veritrail.claimify import PROMPTS, decompose_with, extract_with
from gnomon.retrieval.veritrail.claims import Claim, Extraction
from gnomon.retrieval.veritrail.judges.judge import (
    Judge,
    NodeEvidence,
    Ruling,
    RulingTask,
    Selection,
    SelectionTask,
    Usage,
    Verdict,
)
from gnomon.retrieval.veritrail.prompts import prompt
from gnomon.retrieval.veritrail.sentences import Sentence, SentenceIndex

Scoring = Literal["verdict", "logprobs", "resamples"]

_VERDICT = re.compile(r'(?<!\\)"verdict"\s*:\s*"')
_CERTAIN: dict[Verdict, float] = {"supported": 1.0, "inconclusive": 0.5, "unsupported": 0.0}


class EvidenceAnswer(BaseModel):
    """Sentences that bear on a claim, by the numbers they were shown under."""

    ids: list[str]
    summary: str = ""


class PartVerdict(BaseModel):
    """Verdict on one part of a claim."""

    number: int
    verdict: Verdict


class VerdictAnswer(BaseModel):
    """Verdict on a claim; the reasoning comes first, so that it is written first."""

    reasoning: str
    verdict: Verdict
    subclaims: list[PartVerdict] = Field(default_factory=list)
    ids: list[str] = Field(default_factory=list)


class ChatJudge(Judge):
    """Asks a chat model, local or behind an endpoint, at temperature 0.

    The model is shown sentences under numbers that hold for one prompt, grouped by text, without the names and stages
    of the texts, which would tell it what to expect. Texts of the process are escaped and stand between marks, and the
    model is told that nothing between them is an instruction.

    Args:
        chat: The model; its cache, budget and rate hold for everything the judge asks.
        scoring: Where a ruling's probability of support comes from: ``verdict`` (1, 1/2 or 0), ``logprobs`` (of the
            verdict's first token, normalised over the three words; as ``verdict`` where the server returns none), or
            ``resamples`` (share of supported verdicts in further answers).
        resamples: Further answers under ``resamples``.
        max_tokens: Longest answer.

    Raises:
        ValueError: If ``resamples`` is below 1.
    """

    def __init__(
        self, chat: ChatModel, *, scoring: Scoring = "verdict", resamples: int = 5, max_tokens: int = 1_024
    ) -> None:
        if resamples < 1:
            raise ValueError(f"resamples must be at least 1, got {resamples}")
        self._chat = chat
        self._scoring: Scoring = scoring
        self._resamples = resamples
        self._max_tokens = max_tokens

    @property
    def identity(self) -> dict[str, Any]:
        """Model, address and marks of the prompts."""
        score = f"{self._resamples} resamples" if self._scoring == "resamples" else self._scoring
        marks = {name: prompt(name).mark for name in (*PROMPTS, "evidence", "verdict")}
        return {"judge": "chat", **self._chat.identity, "score": score, "prompts": marks}

    def extract(self, index: SentenceIndex) -> Extraction:
        """Claims of the final text by selection, disambiguation and decomposition."""
        return extract_with(self._chat, index)

    def decompose(self, claims: Sequence[Claim]) -> list[Claim]:
        """The claims with their parts."""
        return decompose_with(self._chat, claims)

    def select(self, tasks: Sequence[SelectionTask]) -> list[Selection | Missing]:
        """What the model names as evidence, and its summary."""
        answers = self._chat.complete(
            [evidence_conversation(task) for task in tasks], schema=EvidenceAnswer, max_tokens=self._max_tokens
        )
        return [_selection(task, answer) for task, (answer,) in zip(tasks, answers, strict=True)]

    def rule(self, tasks: Sequence[RulingTask]) -> list[Ruling | Missing]:
        """The model's verdicts."""
        conversations = [verdict_conversation(task) for task in tasks]
        answers = self._chat.complete(
            conversations,
            schema=VerdictAnswer,
            max_tokens=self._max_tokens,
            logprobs=self._scoring == "logprobs",
        )
        rulings = [_ruling(task, answer) for task, (answer,) in zip(tasks, answers, strict=True)]
        return self._rescored(conversations, rulings) if self._scoring == "resamples" else rulings

    def _rescored(
        self, conversations: Sequence[Conversation], rulings: Sequence[Ruling | Missing]
    ) -> list[Ruling | Missing]:
        given = [index for index, ruling in enumerate(rulings) if isinstance(ruling, Ruling)]
        drawn = self._chat.complete(
            [conversations[index] for index in given],
            schema=VerdictAnswer,
            n=self._resamples,
            temperature=0.7,
            max_tokens=self._max_tokens,
        )
        scored = list(rulings)
        for index, answers in zip(given, drawn, strict=True):
            replies = [answer for answer in answers if isinstance(answer, Reply)]
            ruling = scored[index]
            if isinstance(ruling, Ruling) and replies:
                share = sum(reply.parsed.verdict == "supported" for reply in replies) / len(replies)
                scored[index] = replace(ruling, score=share, usage=sum(map(_usage, replies), ruling.usage))
        return scored


def evidence_conversation(task: SelectionTask) -> Conversation:
    """The question which of the sentences bear on the claim."""
    numbers = _numbers(task.sentences)
    texts: dict[str, list[str]] = {}
    for sentence in task.sentences:
        texts.setdefault(sentence.node, []).append(_line(sentence, numbers))
    shown = "\n".join("\n".join(["<text>", *lines, "</text>"]) for lines in texts.values())
    return _conversation("evidence", f"{_claim(task.claim)}\n<texts>\n{shown}\n</texts>")


def verdict_conversation(task: RulingTask) -> Conversation:
    """The question whether the evidence supports the claim."""
    numbers = _numbers(sentence for entry in task.evidence for sentence in entry.sentences)
    said: set[str] = set()
    pieces: list[str] = []
    for entry in task.evidence:
        pieces += [
            "<piece>",
            *_head(entry, said),
            *(_line(sentence, numbers) for sentence in entry.sentences),
            "</piece>",
        ]
    return _conversation("verdict", "\n".join([_claim(task.claim), "<evidence>", *pieces, "</evidence>"]))


def _conversation(name: str, question: str) -> Conversation:
    return [{"role": "system", "content": prompt(name).text}, {"role": "user", "content": question}]


def _claim(claim: Claim) -> str:
    lines = [f"<claim>{_data(claim.text)}</claim>"]
    if claim.subclaims:
        parts = [f"({number}) {_data(part)}" for number, part in enumerate(claim.subclaims, start=1)]
        lines += ["<parts>", *parts, "</parts>"]
    return "\n".join(lines)


def _head(entry: NodeEvidence, said: set[str]) -> list[str]:
    """The text or the summary an evidence node is introduced by; a summary of several nodes is given once."""
    if entry.text:
        return [f"<document>{_data(entry.text)}</document>"]
    if not entry.summary or entry.summary in said:
        return []
    said.add(entry.summary)
    return [f"<summary>{_data(entry.summary)}</summary>"]


def _line(sentence: Sentence, numbers: dict[str, str]) -> str:
    return f"[{numbers[sentence.id]}] {_data(sentence.text)}"


def _data(text: str) -> str:
    """Text of others on one line, unable to close the marks it stands between or to begin a sentence of its own."""
    return escape(" ".join(text.split()), quote=False)


def _numbers(sentences: Iterable[Sentence]) -> dict[str, str]:
    """Short names for one prompt, by sentence id."""
    ids = dict.fromkeys(sentence.id for sentence in sentences)
    return {name: f"S{number}" for number, name in enumerate(ids, start=1)}


def _ids(named: Iterable[str], sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Sentence ids of the names a model gave; a name it was not shown stays, for the loop to count."""
    meant = {number: name for name, number in _numbers(sentences).items()}
    return tuple(meant.get(name.strip(" []()").upper(), name) for name in named)


def _selection(task: SelectionTask, answer: Reply | Missing) -> Selection | Missing:
    if isinstance(answer, Missing):
        return answer
    said: EvidenceAnswer = answer.parsed
    return Selection(_ids(said.ids, task.sentences), said.summary, usage=_usage(answer))


def _ruling(task: RulingTask, answer: Reply | Missing) -> Ruling | Missing:
    if isinstance(answer, Missing):
        return answer
    said: VerdictAnswer = answer.parsed
    # A part the model passed over is not known to be supported.
    by_number: dict[int, Verdict] = {part.number: part.verdict for part in said.subclaims}
    unsaid: Verdict = "inconclusive"
    parts: list[Verdict] = [by_number.get(number, unsaid) for number in range(1, len(task.claim.subclaims) + 1)]
    return Ruling(
        said.verdict,
        support_of_tokens(answer) if answer.logprobs else _CERTAIN[said.verdict],
        said.reasoning,
        tuple(parts) if by_number else (),
        _ids(said.ids, (sentence for entry in task.evidence for sentence in entry.sentences)),
        _usage(answer),
    )


def support_of_tokens(reply: Reply) -> float:
    """Probability of ``supported`` against the other two verdicts, at the token where the reply's verdict begins.

    The three words differ in their first letter, so that a token that can begin one of them tells which it begins.
    Where the place is not found among the tokens, the verdict itself counts.
    """
    certain = _CERTAIN[reply.parsed.verdict]
    found = _VERDICT.search(reply.text)
    place, end = (found.end() if found else -1), 0
    for token in reply.logprobs:
        start, end = end, end + len(token.token)
        if start <= place < end:
            before = place - start
            mass = dict.fromkeys(_CERTAIN, 0.0)
            for text, logprob in token.top.items():
                for word in mass:
                    if text[:before] == token.token[:before] and text[before : before + 1] == word[0]:
                        mass[word] += math.exp(logprob)
            total = sum(mass.values())
            return mass["supported"] / total if total > 0 else certain
    return certain


def _usage(reply: Reply) -> Usage:
    return Usage(int(not reply.cached), int(reply.cached), reply.tokens_in, reply.tokens_out)
