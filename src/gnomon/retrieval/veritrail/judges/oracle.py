"""Judges that know the truth: for tests, for checking the walk's exact properties, and as ceilings in studies."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail.claims import Claim, Extraction
from gnomon.retrieval.veritrail.judges.judge import Judge, Ruling, RulingTask, Selection, SelectionTask, Verdict
from gnomon.retrieval.veritrail.sentences import SentenceIndex


class OracleJudge(Judge):
    """Knows which sentences state, and which contradict, each claim.

    Args:
        support: Ids of the sentences that state a claim, by claim id; a claim that is not in it is stated nowhere.
        against: Ids of the sentences that contradict a claim, by claim id. With support and contradiction a claim is
            inconclusive.
    """

    def __init__(
        self, support: Mapping[str, Collection[str]], against: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self._support = {claim: frozenset(ids) for claim, ids in support.items()}
        self._against = {claim: frozenset(ids) for claim, ids in (against or {}).items()}

    @property
    def identity(self) -> dict[str, Any]:
        """Its name."""
        return {"judge": "oracle"}

    def extract(self, index: SentenceIndex) -> Extraction:
        """One claim a sentence of the final text, with the sentence's id."""
        return Extraction(
            tuple(
                Claim(sentence.id, sentence.text, sentence.id, sentence.span)
                for sentence in index.of(index.process.terminal)
            )
        )

    def decompose(self, claims: Sequence[Claim]) -> list[Claim]:
        """The claims, each as one whole."""
        return list(claims)

    def select(self, tasks: Sequence[SelectionTask]) -> list[Selection | Missing]:
        """The sentences that state or contradict the claim."""
        return [self._selected(task) for task in tasks]

    def _selected(self, task: SelectionTask) -> Selection:
        known = self._stating(task.claim) | self._contradicting(task.claim)
        return Selection(tuple(sentence.id for sentence in task.sentences if sentence.id in known))

    def rule(self, tasks: Sequence[RulingTask]) -> list[Ruling | Missing]:
        """The truth about the evidence shown."""
        return [self._ruled(task) for task in tasks]

    def _ruled(self, task: RulingTask) -> Ruling:
        shown = [sentence.id for entry in task.evidence for sentence in entry.sentences]
        stating = tuple(name for name in shown if name in self._stating(task.claim))
        contradicted = any(name in self._contradicting(task.claim) for name in shown)
        if stating and contradicted:
            return Ruling("inconclusive", 0.5)
        return Ruling("supported", 1.0, cited=stating) if stating else Ruling("unsupported", 0.0)

    def _stating(self, claim: Claim) -> frozenset[str]:
        return self._support.get(claim.id, frozenset())

    def _contradicting(self, claim: Claim) -> frozenset[str]:
        return self._against.get(claim.id, frozenset())


class NoisyJudge(OracleJudge):
    r"""An oracle that errs at known rates, independently from ruling to ruling.

    Where no sentence bears on the claim it selects all it was shown, so that every step of a walk asks for a ruling.
    A supported ruling turns to unsupported with probability :math:`\epsilon`, an unsupported one to supported with
    probability :math:`\delta`; see :func:`support_probability` for what a walk then ends in.

    Args:
        support: As of :class:`OracleJudge`.
        against: As of :class:`OracleJudge`.
        false_unsupported: The rate :math:`\epsilon`.
        false_supported: The rate :math:`\delta`.
        seed: Of the errors; a ruling on the same claim and evidence errs again or never.
    """

    def __init__(
        self,
        support: Mapping[str, Collection[str]],
        against: Mapping[str, Collection[str]] | None = None,
        *,
        false_unsupported: float,
        false_supported: float,
        seed: int = 0,
    ) -> None:
        super().__init__(support, against)
        self._flips: dict[Verdict, float] = {"supported": false_unsupported, "unsupported": false_supported}
        self._seed = seed

    @property
    def identity(self) -> dict[str, Any]:
        """Its name, rates and seed."""
        return {
            "judge": "noisy",
            "false_unsupported": self._flips["supported"],
            "false_supported": self._flips["unsupported"],
            "seed": self._seed,
        }

    def _selected(self, task: SelectionTask) -> Selection:
        selection = super()._selected(task)
        return selection if selection.ids else Selection(tuple(sentence.id for sentence in task.sentences))

    def _ruled(self, task: RulingTask) -> Ruling:
        ruling = super()._ruled(task)
        shown = [sentence.id for entry in task.evidence for sentence in entry.sentences]
        if uniform(self._seed, task.claim.id, *shown) >= self._flips.get(ruling.verdict, 0.0):
            return ruling
        return Ruling("unsupported", 0.0) if ruling.verdict == "supported" else Ruling("supported", 1.0)


def uniform(seed: int, *names: str) -> float:
    """A number in [0, 1) that depends on the seed and the names alone: independent draws in whatever order."""
    digest = hashlib.sha256("\0".join([str(seed), *names]).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def support_probability(
    states: Sequence[bool], q: int | None, *, false_unsupported: float, false_supported: float
) -> float:
    r"""Probability that a walk with a :class:`NoisyJudge` ends in support, where candidates do not depend on verdicts.

    With :math:`p_i = 1 - \epsilon` where the i-th layer states the claim and :math:`\delta` elsewhere, the number r of
    rounds in a row without support is a Markov chain on 0..q-1,

    .. math:: s'_0 = p_i \sum_r s_r, \qquad s'_{r+1} = (1 - p_i)\, s_r \quad (r + 1 < q),

    whose lost mass has stopped unsupported; the answer is :math:`s_0` after the last layer.

    Args:
        states: Whether each layer, from the final text's sources to the roots, states the claim.
        q: Rounds in a row without support that end the walk; ``None``: none do.
        false_unsupported: Rate at which support is missed.
        false_supported: Rate at which it is seen where there is none.

    >>> rates = {"false_unsupported": 0.1, "false_supported": 0.05}
    >>> round(support_probability([True, True, True], 2, **rates), 3)
    0.891
    """
    chain = np.zeros(len(states) + 1 if q is None else q)
    chain[0] = 1.0
    for stated in states:
        support = 1 - false_unsupported if stated else false_supported
        chain = np.concatenate([[support * chain.sum()], (1 - support) * chain[:-1]])
    return float(chain[0])
