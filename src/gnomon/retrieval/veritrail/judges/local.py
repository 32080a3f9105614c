"""A language model in this process as judge: it never writes, the words it might answer with are scored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnomon.models.chat import ChatModel, ChoiceScores, Conversation, Missing
from gnomon.models.embeddings import Encoder, embed
from gnomon.retrieval.veritrail.claims import Claim, Extraction
from gnomon.retrieval.veritrail.extraction import decompose_by_rules, extract_by_rules
from gnomon.retrieval.veritrail.judges.judge import (
    Judge,
    Ruling,
    RulingTask,
    Selection,
    SelectionTask,
    Usage,
    Verdict,
)
from gnomon.retrieval.veritrail.sentences import Sentence, SentenceIndex

_VERDICTS: tuple[Verdict, ...] = ("supported", "unsupported", "inconclusive")
_NEAREST = 8


class LocalJudge(Judge):
    """Rules by the likeliest verdict word, so that nothing has to be parsed; for models too small to follow a form.

    Evidence are, among the sentences nearest to the claim by the cosine of their vectors, those for which "yes" is
    likelier than "no"; claims and their parts are found by rules. A small model wires everything up and may rule at
    random: :func:`~gnomon.retrieval.veritrail.check.judge_check` tells whether its verdicts mean anything, and a trail
    made without a check that was passed says that they are not valid.

    Args:
        chat: The model; a :class:`~gnomon.models.local_chat.LocalChat`, or any that scores choices.
        nearest: Sentences of a prompt that the model is asked about.
        encoder: Sentence vectors, see :func:`~gnomon.models.embeddings.embed`.

    Raises:
        ValueError: If ``nearest`` is below 1.
    """

    needs_check = True

    def __init__(self, chat: ChatModel, *, nearest: int = _NEAREST, encoder: Encoder = "auto") -> None:
        if nearest < 1:
            raise ValueError(f"nearest must be at least 1, got {nearest}")
        self._chat = chat
        self._nearest = nearest
        self._encoder: Encoder = encoder
        self._vectors: dict[str, np.ndarray] = {}

    @property
    def identity(self) -> dict[str, Any]:
        """Model, weights and how sentences are narrowed down."""
        return {"judge": "local", **self._chat.identity, "nearest": self._nearest, "encoder": self._encoder}

    def prepare(self, index: SentenceIndex, claims: Sequence[Claim]) -> None:
        """Embed every distinct sentence and claim once."""
        texts = list(dict.fromkeys([*(claim.text for claim in claims), *(sentence.text for sentence in index)]))
        self._vectors = dict(zip(texts, embed(texts, encoder=self._encoder).vectors, strict=True))

    def extract(self, index: SentenceIndex) -> Extraction:
        """Claims by rules."""
        return extract_by_rules(index)

    def decompose(self, claims: Sequence[Claim]) -> list[Claim]:
        """Sub-claims by rules."""
        return decompose_by_rules(claims)

    def select(self, tasks: Sequence[SelectionTask]) -> list[Selection | Missing]:
        """Near sentences the model takes for evidence, with its probability as relevance."""
        near = [self._near(task) for task in tasks]
        asked = [
            _asked(
                f"Claim: {task.claim.text}\nSentence: {sentence.text}\n"
                "Does the sentence say whether the claim is true or false? Answer yes or no."
            )
            for task, sentences in zip(tasks, near, strict=True)
            for sentence in sentences
        ]
        scored = iter(self._chat.choice_logprobs(asked, ["yes", "no"]) if asked else ())
        return [_selected(sentences, [next(scored) for _ in sentences]) for sentences in near]

    def rule(self, tasks: Sequence[RulingTask]) -> list[Ruling | Missing]:
        """The likeliest verdict; the score is the probability of ``supported`` among the three."""
        asked = []
        for task in tasks:
            evidence = "\n".join(sentence.text for entry in task.evidence for sentence in entry.sentences)
            asked.append(
                _asked(
                    f"Evidence:\n{evidence}\nClaim: {task.claim.text}\nIs the claim supported by the evidence, "
                    "unsupported, or is the evidence inconclusive? Answer with one word."
                )
            )
        return [_ruled(answer) for answer in self._chat.choice_logprobs(asked, _VERDICTS)]

    def _near(self, task: SelectionTask) -> list[Sentence]:
        claim = self._vectors[task.claim.text]
        order = sorted(task.sentences, key=lambda sentence: -float(self._vectors[sentence.text] @ claim))
        kept = {sentence.id for sentence in order[: self._nearest]}
        return [sentence for sentence in task.sentences if sentence.id in kept]


def _asked(question: str) -> Conversation:
    # A begun answer: the model's next token is then the word, not a greeting.
    return [{"role": "user", "content": question}, {"role": "assistant", "content": "Answer: "}]


def _selected(sentences: Sequence[Sentence], answers: Sequence[ChoiceScores | Missing]) -> Selection | Missing:
    usage = Usage(calls=len(sentences))
    chosen: dict[str, float] = {}
    for sentence, answer in zip(sentences, answers, strict=True):
        if isinstance(answer, Missing):
            return answer
        if (yes := math.exp(answer.logprobs["yes"])) > 0.5:
            chosen[sentence.id] = yes
    return Selection(tuple(chosen), scores=tuple(chosen.values()), usage=usage)


def _ruled(answer: ChoiceScores | Missing) -> Ruling | Missing:
    if isinstance(answer, Missing):
        return answer
    verdict = max(_VERDICTS, key=answer.logprobs.__getitem__)
    return Ruling(verdict, math.exp(answer.logprobs["supported"]), usage=Usage(calls=1))
