"""What a judge must be able to do. The loop hands over batches: a judge may answer them together or at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail.claims import Claim, Extraction
from gnomon.retrieval.veritrail.sentences import Sentence, SentenceIndex

Verdict = Literal["supported", "unsupported", "inconclusive"]
"""Fully supported, not fully supported, and inconclusive: FS, NFS and INC of the paper."""


@dataclass(frozen=True)
class Usage:
    """What was spent: calls made, calls answered by the cache, tokens in and out, sentences shown to the judge."""

    calls: int = 0
    cached: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    sentences: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.cached + other.cached,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.sentences + other.sentences,
        )


@dataclass(frozen=True)
class SelectionTask:
    """Which of these sentences strongly imply that the claim, or a part of it, is true or false?"""

    claim: Claim
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class Selection:
    """Sentences a judge selected.

    Args:
        ids: Ids of selected sentences, as the judge gave them; the loop discards what was not shown.
        summary: What they say.
        scores: One relevance an id, larger is better; empty where the judge gives none.
        usage: What it cost.
    """

    ids: tuple[str, ...]
    summary: str = ""
    scores: tuple[float, ...] = ()
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class NodeEvidence:
    """Evidence from one node.

    Args:
        node: Its id.
        sentences: The selected sentences.
        text: Full text of a root node (context matters there); empty for generated text.
        summary: What the judge said the selected sentences say.
    """

    node: str
    sentences: tuple[Sentence, ...]
    text: str = ""
    summary: str = ""


@dataclass(frozen=True)
class RulingTask:
    """Does this evidence support the whole claim?"""

    claim: Claim
    evidence: tuple[NodeEvidence, ...]


@dataclass(frozen=True)
class Ruling:
    """A judge's verdict on one claim with the evidence shown.

    Args:
        verdict: The verdict.
        score: Probability of ``supported``, as the judge puts it.
        reasoning: Why.
        subclaims: Verdict on each part of the claim, where the judge gives one.
        cited: Ids of the sentences the verdict rests on; empty where the judge names none.
        usage: What it cost.
    """

    verdict: Verdict
    score: float
    reasoning: str = ""
    subclaims: tuple[Verdict, ...] = ()
    cited: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)


class Judge(ABC):
    """Extracts claims, finds evidence and rules on it."""

    needs_check: bool = False
    """Whether its verdicts mean nothing as long as no judge check was passed."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What its answers depend on: name, model, address, version of the prompts; JSON values, no secrets."""

    def prepare(self, index: SentenceIndex, claims: Sequence[Claim]) -> None:  # noqa: B027 - most need nothing
        """Look at everything that will be asked about, once, before the first question."""

    @abstractmethod
    def extract(self, index: SentenceIndex) -> Extraction:
        """Claims of the terminal text of the process, their sub-claims included."""

    @abstractmethod
    def decompose(self, claims: Sequence[Claim]) -> list[Claim]:
        """The claims with their sub-claims filled in."""

    @abstractmethod
    def select(self, tasks: Sequence[SelectionTask]) -> list[Selection | Missing]:
        """Evidence, one selection a task."""

    @abstractmethod
    def rule(self, tasks: Sequence[RulingTask]) -> list[Ruling | Missing]:
        """Verdicts, one ruling a task. The evidence of a task is never empty."""
