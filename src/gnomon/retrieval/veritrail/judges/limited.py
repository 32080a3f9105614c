"""A judge whose attention has an end: long inputs are not read to their full length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail.claims import Claim, Extraction
from gnomon.retrieval.veritrail.judges.judge import Judge, Ruling, RulingTask, Selection, SelectionTask
from gnomon.retrieval.veritrail.judges.oracle import uniform
from gnomon.retrieval.veritrail.sentences import SentenceIndex


class LengthLimitedJudge(Judge):
    """Another judge that reads only so many sentences of a prompt, a random choice of those it is shown.

    It stands for language models that overlook statements in long contexts; rulings, on few sentences, are untouched.

    Args:
        judge: Answers about what is read.
        sentences: Most sentences read in one selection.
        seed: Of the choice; a prompt that is asked again is read alike.

    Raises:
        ValueError: If ``sentences`` is below 1.
    """

    def __init__(self, judge: Judge, sentences: int, *, seed: int = 0) -> None:
        if sentences < 1:
            raise ValueError(f"sentences must be at least 1, got {sentences}")
        self.needs_check = judge.needs_check
        self._judge = judge
        self._most = sentences
        self._seed = seed

    @property
    def identity(self) -> dict[str, Any]:
        """That of the judge, and the limit."""
        return {**self._judge.identity, "reads_at_most": self._most, "reading_seed": self._seed}

    def prepare(self, index: SentenceIndex, claims: Sequence[Claim]) -> None:
        """As the judge does."""
        self._judge.prepare(index, claims)

    def extract(self, index: SentenceIndex) -> Extraction:
        """As the judge does."""
        return self._judge.extract(index)

    def decompose(self, claims: Sequence[Claim]) -> list[Claim]:
        """As the judge does."""
        return self._judge.decompose(claims)

    def select(self, tasks: Sequence[SelectionTask]) -> list[Selection | Missing]:
        """What the judge selects of the sentences that are read."""
        return self._judge.select([self._read(task) for task in tasks])

    def rule(self, tasks: Sequence[RulingTask]) -> list[Ruling | Missing]:
        """As the judge does."""
        return self._judge.rule(tasks)

    def _read(self, task: SelectionTask) -> SelectionTask:
        if len(task.sentences) <= self._most:
            return task
        by_chance = sorted(task.sentences, key=lambda sentence: uniform(self._seed, task.claim.id, sentence.id))
        kept = {sentence.id for sentence in by_chance[: self._most]}
        return SelectionTask(task.claim, tuple(sentence for sentence in task.sentences if sentence.id in kept))
