"""Is a claim supported by the texts of these nodes? Asked about many claims at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail.claims import Claim
from gnomon.retrieval.veritrail.evidence import Exhibit, Found, Portions, exhibits, find_evidence
from gnomon.retrieval.veritrail.judges.judge import Judge, Ruling, RulingTask
from gnomon.retrieval.veritrail.reading import portions
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.trail import Iteration


class Inquiry:
    """Puts claims and nodes before a judge: the evidence on all claims in one batch, all verdicts in another.

    Args:
        index: Sentences of the process.
        judge: Who is asked.
        max_tokens: Most tokens of evidence in one prompt; ``None``: no limit.
        shuffle: Seed of a random order of the nodes in what is read; ``None``: the order in which they are asked about.
    """

    def __init__(
        self, index: SentenceIndex, judge: Judge, max_tokens: int | None, *, shuffle: int | None = None
    ) -> None:
        self._index = index
        self._judge = judge
        self._max_tokens = max_tokens
        self._shuffle = shuffle
        self._portions: dict[tuple[str, ...], Portions] = {}

    def steps(
        self, asked: Sequence[tuple[Claim, tuple[str, ...]]], *, most: int | None = None
    ) -> list[Iteration | Missing]:
        """What the judge finds and rules on each claim in its nodes.

        Args:
            asked: Claims, each with the nodes to search in reading order.
            most: Sentences of highest score to rule on; ``None``: all that were selected.
        """
        found = find_evidence(self._judge, [(claim, self._read(nodes)) for claim, nodes in asked])
        if most is not None:
            found = [each if isinstance(each, Missing) else best(each, most) for each in found]
        return self.rulings(asked, found)

    def rulings(
        self, asked: Sequence[tuple[Claim, tuple[str, ...]]], found: Sequence[Found | Missing]
    ) -> list[Iteration | Missing]:
        """What the judge rules on the evidence that was found; without any, a claim is unsupported unasked."""
        answered = [(claim, each) for (claim, _), each in zip(asked, found, strict=True) if isinstance(each, Found)]
        shown = iter(exhibits(self._judge, self._index.process, answered, self._max_tokens))
        ready = [each if isinstance(each, Missing) else next(shown) for each in found]
        tasks = [
            RulingTask(claim, each.evidence)
            for (claim, _), each in zip(asked, ready, strict=True)
            if isinstance(each, Exhibit) and each.evidence
        ]
        answers = iter(self._judge.rule(tasks) if tasks else ())
        steps: list[Iteration | Missing] = []
        for (_, nodes), each in zip(asked, ready, strict=True):
            if isinstance(each, Missing):
                steps.append(each)
            elif not each.evidence:
                steps.append(_step(nodes, each, Ruling("unsupported", 0.0)))
            else:
                ruling = next(answers)
                steps.append(ruling if isinstance(ruling, Missing) else _step(nodes, each, ruling))
        return steps

    def _read(self, nodes: tuple[str, ...]) -> Portions:
        """What there is to read in the nodes; claims with the same nodes share the very same tuples."""
        if nodes not in self._portions:
            order = nodes if self._shuffle is None else np.random.default_rng(self._shuffle).permutation(nodes).tolist()
            self._portions[nodes] = portions(self._index.of_all(order), self._max_tokens)
        return self._portions[nodes]


def best(found: Found, most: int) -> Found:
    """The sentences of highest score, in reading order; of two alike, the earlier one."""
    order = sorted(found.sentences, key=lambda sentence: -found.scores.get(sentence.id, 0.0))
    kept = {sentence.id for sentence in order[:most]}
    return replace(found, sentences=tuple(sentence for sentence in found.sentences if sentence.id in kept))


def _step(nodes: tuple[str, ...], shown: Exhibit, ruling: Ruling) -> Iteration:
    real = {sentence.id for entry in shown.evidence for sentence in entry.sentences}
    return Iteration(
        nodes,
        shown.evidence,
        ruling.verdict,
        ruling.score,
        ruling.reasoning,
        ruling.subclaims,
        cited=tuple(name for name in dict.fromkeys(ruling.cited) if name in real),
        truncated=shown.truncated,
        hallucinated=shown.hallucinated + len(set(ruling.cited) - real),
        usage=shown.usage + replace(ruling.usage, sentences=0),
    )
