"""A judge of rules and sentence vectors: deterministic, without network, a fraction of a millisecond a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from gnomon.models.chat import Missing
from gnomon.models.embeddings import Encoder
from gnomon.retrieval.veritrail.claims import Claim, Extraction
from gnomon.retrieval.veritrail.extraction import decompose_by_rules, extract_by_rules
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
from gnomon.retrieval.veritrail.offline.comparison import (
    MISMATCHES,
    Comparison,
    Mismatches,
    compare,
    complete_each_other,
)
from gnomon.retrieval.veritrail.offline.corpus import Corpus
from gnomon.retrieval.veritrail.offline.support import Fitted, fitted
from gnomon.retrieval.veritrail.sentences import Sentence, SentenceIndex

VERSION = "1"
MOST = 8
_COSINE_SHARE = 0.6  # of the relevance score; the rest is recall
_JOINED = 6  # sentences from which unions are tried
_AGREES = Mismatches()


class OfflineJudge(Judge):
    r"""Supports a claim by a sentence that is close to it and agrees in every number, date, name, and in polarity.

    Evidence are the ``most`` sentences with the largest :math:`.6 \cos + .4\,\mathrm{recall}` among those whose cosine
    reaches a fitted floor. A sentence supports with the probability of
    :meth:`~gnomon.retrieval.veritrail.offline.support.Fitted.probability`; where none does, two or three sentences
    that contradict the claim in nothing may do so together. A sentence about the same names and time that gives
    another number, or says the opposite, speaks against the claim. Supported, with nothing from another node against
    it: ``supported``; both: ``inconclusive``; else ``unsupported``.

    It reads English, sentence by sentence: what takes inference over several sentences, world knowledge or arithmetic
    it does not see.

    Args:
        encoder: Sentence vectors, see :func:`~gnomon.models.embeddings.embed`.
        most: Sentences of evidence an iteration; ``None``: no limit.
        ignore: Kinds of mismatch to overlook, for ablations.
        select_by: ``relevance``; or, for ablations, ``cosine`` only or ``chance``.

    Raises:
        ValueError: If ``most`` is below 1 or a kind of mismatch does not exist.
    """

    def __init__(
        self,
        encoder: Encoder = "auto",
        *,
        most: int | None = MOST,
        ignore: Sequence[str] = (),
        select_by: str = "relevance",
    ) -> None:
        if most is not None and most < 1:
            raise ValueError(f"most must be at least 1, or None for no limit; got {most}")
        if unknown := set(ignore) - set(MISMATCHES):
            raise ValueError(f"ignore takes {', '.join(MISMATCHES)}; got {', '.join(sorted(unknown))}")
        if select_by not in ("relevance", "cosine", "chance"):
            raise ValueError(f"select_by must be 'relevance', 'cosine' or 'chance', got {select_by!r}")
        self.encoder: Encoder = encoder
        self.most = most
        self.ignore = tuple(ignore)
        self.select_by = select_by
        self._corpus: Corpus | None = None
        self._fitted: Fitted | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Version of the rules, encoder and options."""
        encoder = self._corpus.encoder if self._corpus else self.encoder
        return {
            "judge": "offline",
            "version": VERSION,
            "encoder": encoder,
            "most": self.most,
            "ignore": list(self.ignore),
            "select_by": self.select_by,
        }

    def prepare(self, index: SentenceIndex, claims: Sequence[Claim]) -> None:
        """Read and embed every distinct sentence and claim once."""
        asked = [text for claim in claims for text in (claim.text, *claim.subclaims)]
        told = [sentence.text for sentence in index]
        if self._corpus is None or not self._corpus.covers(told, asked):
            alike = fitted("all-MiniLM-L6-v2").alike  # other vectors know no meanings and do without
            self._corpus = Corpus(told, asked, encoder=self.encoder, alike=alike)
            self._fitted = fitted(self._corpus.encoder)

    def with_options(
        self, *, most: int | None = MOST, ignore: Sequence[str] = (), select_by: str = "relevance"
    ) -> OfflineJudge:
        """A judge with other options that has read what this one has."""
        other = OfflineJudge(self.encoder, most=most, ignore=ignore, select_by=select_by)
        other._corpus, other._fitted = self._corpus, self._fitted
        return other

    def closeness(self, claim: str, sentence: str) -> dict[str, float]:
        """Cosine of a claim and a sentence, and the share of the claim's content that the sentence has."""
        corpus, _ = self._prepared()
        return {"cosine": float(corpus.cosines([claim], [sentence])[0, 0]), "recall": corpus.recall(claim, sentence)}

    def extract(self, index: SentenceIndex) -> Extraction:
        """Claims by rules."""
        return extract_by_rules(index)

    def decompose(self, claims: Sequence[Claim]) -> list[Claim]:
        """Sub-claims by rules."""
        return decompose_by_rules(claims)

    def select(self, tasks: Sequence[SelectionTask]) -> list[Selection | Missing]:
        """Relevant sentences; claims that search the same sentences share one matrix product."""
        corpus, _ = self._prepared()
        groups: dict[int, list[int]] = {}
        for number, task in enumerate(tasks):
            groups.setdefault(id(task.sentences), []).append(number)  # comparing long tuples would cost more
        found: dict[int, Selection | Missing] = {}
        for members in groups.values():
            sentences = tasks[members[0]].sentences
            cosines = corpus.cosines([tasks[number].claim.text for number in members], [s.text for s in sentences])
            for number, row in zip(members, cosines, strict=True):
                found[number] = self._select(tasks[number].claim, sentences, row)
        return [found[number] for number in range(len(tasks))]

    def _select(self, claim: Claim, sentences: tuple[Sentence, ...], cosines: np.ndarray) -> Selection:
        corpus, numbers = self._prepared()
        usage = Usage(sentences=len(sentences))
        if self.select_by == "chance":
            rng = np.random.default_rng([len(claim.text), *claim.text.encode()])
            near = rng.permutation(len(sentences))
            score = {int(place): float(cosines[place]) for place in near[: self.most]}
            chosen = list(score)
        else:
            near = np.flatnonzero(cosines >= numbers.select)
            share = _COSINE_SHARE if self.select_by == "relevance" else 1.0
            score = {
                int(place): share * float(cosines[place])
                + (1 - share) * (corpus.recall(claim.text, sentences[place].text) if share < 1 else 0.0)
                for place in near
            }
            chosen = sorted(score, key=lambda place: (-score[place], sentences[place].id))[: self.most]
        return Selection(
            tuple(sentences[place].id for place in chosen), scores=tuple(score[place] for place in chosen), usage=usage
        )

    def rule(self, tasks: Sequence[RulingTask]) -> list[Ruling | Missing]:
        """Verdicts by the rule above."""
        return [self._rule(task) for task in tasks]

    def _rule(self, task: RulingTask) -> Ruling:
        weighed = self._weigh(task.claim.text, task.evidence)
        parts: tuple[Verdict, ...] = tuple(self._weigh(part, task.evidence).verdict for part in task.claim.subclaims)
        return Ruling(weighed.verdict, weighed.score, weighed.reasoning, parts, weighed.cited, Usage())

    def _weigh(self, claim: str, evidence: Sequence[NodeEvidence]) -> _Weighed:
        corpus, numbers = self._prepared()
        sentences = [sentence for node in evidence for sentence in node.sentences]
        frame = corpus.frame(claim)
        cosines = corpus.cosines([claim], [sentence.text for sentence in sentences])[0].tolist()
        compared = [self._lenient(compare(frame, corpus.frame(s.text), corpus.alike)) for s in sentences]
        probable = [
            numbers.probability(cosine, corpus.recall(claim, sentence.text), comparison.mismatches)
            for sentence, cosine, comparison in zip(sentences, cosines, compared, strict=True)
        ]
        supporting = [place for place, p in enumerate(probable) if p >= numbers.threshold]
        score = max(probable)
        if not supporting:
            supporting, joint = self._union(claim, sentences, cosines, compared)
            score = max(score, joint)
        nodes = {sentences[place].node for place in supporting}
        against = [
            place
            for place, comparison in enumerate(compared)
            if comparison.denies and cosines[place] >= numbers.deny and sentences[place].node not in nodes
        ]
        if not supporting:
            nearest = max(range(len(sentences)), key=cosines.__getitem__)
            return _Weighed("unsupported", score, _difference(sentences[nearest], compared[nearest]), ())
        cited = tuple(sentences[place].id for place in supporting)
        said = f"{', '.join(cited)} {'supports' if len(cited) == 1 else 'support'} it (p = {score:.2f})"
        if against:
            others = tuple(sentences[place].id for place in against)
            return _Weighed("inconclusive", min(score, 0.5), f"{said}, {', '.join(others)} against it", cited + others)
        return _Weighed("supported", score, said, cited)

    def _union(
        self, claim: str, sentences: list[Sentence], cosines: list[float], compared: list[Comparison]
    ) -> tuple[list[int], float]:
        """The first two or three sentences that together confirm every part of the claim, with their probability."""
        corpus, numbers = self._prepared()
        open_places = [place for place, comparison in enumerate(compared) if not comparison.conflicts.any]
        open_places = sorted(open_places, key=lambda place: -cosines[place])[:_JOINED]
        for size in (2, 3):
            for places in combinations(open_places, size):
                if not complete_each_other([compared[place] for place in places]):
                    continue
                stems = frozenset().union(*(corpus.frame(sentences[place].text).stems for place in places))
                nearest = max(cosines[place] for place in places)
                p = numbers.probability(nearest, corpus.recall_of_stems(claim, stems), _AGREES)
                if p >= numbers.threshold:
                    return list(places), p
        return [], 0.0

    def _lenient(self, comparison: Comparison) -> Comparison:
        return comparison.without(self.ignore) if self.ignore else comparison

    def _prepared(self) -> tuple[Corpus, Fitted]:
        if self._corpus is None or self._fitted is None:
            raise RuntimeError("call prepare(index, claims) before asking the offline judge")
        return self._corpus, self._fitted


@dataclass(frozen=True)
class _Weighed:
    verdict: Verdict
    score: float
    reasoning: str
    cited: tuple[str, ...]


def _difference(sentence: Sentence, comparison: Comparison) -> str:
    """What keeps the nearest sentence from supporting the claim."""
    kinds = [kind for kind, count in zip(MISMATCHES, comparison.mismatches, strict=True) if count]
    return f"nearest is {sentence.id}: {', '.join(kinds) + ' differ' if kinds else 'too little in common'}"
