"""The judge check: can a judge tell what supports a claim from what nearly does? Asked before its verdicts count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gnomon.data.fact_world import FactWorld, Half
from gnomon.evidence.intervals import Estimate
from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail.claims import Claim
from gnomon.retrieval.veritrail.generator import FINAL
from gnomon.retrieval.veritrail.judges.judge import Judge, NodeEvidence, Ruling, RulingTask
from gnomon.retrieval.veritrail.metrics import verdict_auroc
from gnomon.retrieval.veritrail.process import Node, Process
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.statements import KINDS, Kind, Statement, allows, falsified

VALID = 0.7
"""AUROC below which a judge's verdicts say nothing."""

PAIRS = 60


@dataclass(frozen=True)
class Pair:
    """A claim and one sentence.

    Args:
        claim: The claim.
        sentence: The evidence.
        kind: ``faithful``, or how the claim was falsified from what the sentence says.
        family: Relation family of the event.
    """

    claim: str
    sentence: str
    kind: str
    family: str

    @property
    def supports(self) -> bool:
        """Whether the sentence supports the claim."""
        return self.kind == "faithful"


@dataclass(frozen=True)
class JudgeCheck:
    """Result of a judge check.

    Args:
        auroc: Area under the ROC curve of the judge's probability of support; a pair without an answer gets 1/2.
        accuracy: Share of pairs with the right verdict; a pair without an answer is wrong.
        by_kind: Accuracy by kind of pair.
        pairs: Number of pairs.
        missing: Pairs without an answer.
    """

    auroc: Estimate
    accuracy: float
    by_kind: dict[str, float]
    pairs: int
    missing: int

    @property
    def valid(self) -> bool:
        """Whether the judge may be trusted: AUROC at least :data:`VALID`, its interval above chance."""
        return self.auroc.value >= VALID and self.auroc.low > 0.5

    def summary(self) -> dict[str, Any]:
        """JSON form, as a trail stores it."""
        return {**asdict(self), "valid": self.valid}


def check_pairs(count: int = PAIRS, *, seed: int = 0, half: Half = "evaluation") -> list[Pair]:
    """As many pairs that support as pairs that nearly do, of each kind of error in turn.

    Args:
        count: Pairs, even, at least 20.
        seed: Equal seeds give equal pairs.
        half: Half of the fact world.

    Raises:
        ValueError: If the count is odd or below 20.
    """
    if count < 20 or count % 2:
        raise ValueError(f"a judge check needs an even number of at least 20 pairs, got {count}")
    world = FactWorld(half, seed=seed)
    rng = np.random.default_rng((seed, 6))
    facts = world.facts(2 * count)
    pairs = []
    for fact in facts[: count // 2]:
        told = Statement(fact)
        pairs.append(_pair(told, told, "faithful", rng))
    rest = facts[count // 2 :]
    for number in range(count // 2):
        kind: Kind = KINDS[number % len(KINDS)]
        place = next(place for place, fact in enumerate(rest) if allows(fact, kind))
        fact, elsewhere = rest.pop(place), rest[-1]
        true, false = falsified(fact, kind, world, rng, elsewhere=elsewhere)
        pairs.append(_pair(false, true or Statement(fact), kind, rng))
    return pairs


def judge_pairs(judge: Judge, pairs: Sequence[Pair]) -> list[Ruling | Missing]:
    """The judge's ruling on every pair, its sentence being the only evidence."""
    sources = [Node(f"source-{number:03d}", pair.sentence) for number, pair in enumerate(pairs)]
    final = Node(FINAL, " ".join(pair.claim for pair in pairs))
    index = SentenceIndex(
        Process([*sources, final], [(source.id, FINAL) for source in sources]), lambda text: [(0, len(text))]
    )
    claims = [Claim(f"c{number:03d}", pair.claim) for number, pair in enumerate(pairs)]
    judge.prepare(index, claims)
    return judge.rule(
        [
            RulingTask(claim, (NodeEvidence(source.id, index.of(source.id), source.text),))
            for claim, source in zip(claims, sources, strict=True)
        ]
    )


def judge_check(judge: Judge, *, pairs: int = PAIRS, seed: int = 0) -> JudgeCheck:
    """Put a judge to the test on generated pairs.

    Args:
        judge: The judge.
        pairs: Number of pairs, at least 20.
        seed: Of the pairs.
    """
    asked = check_pairs(pairs, seed=seed)
    rulings = judge_pairs(judge, asked)
    scores = [0.5 if isinstance(ruling, Missing) else ruling.score for ruling in rulings]
    labels = [pair.supports for pair in asked]
    right = [
        not isinstance(ruling, Missing) and (ruling.verdict == "supported") == pair.supports
        for ruling, pair in zip(rulings, asked, strict=True)
    ]
    kinds = dict.fromkeys(pair.kind for pair in asked)
    return JudgeCheck(
        verdict_auroc(scores, labels),
        float(np.mean(right)),
        {
            kind: float(np.mean([ok for ok, pair in zip(right, asked, strict=True) if pair.kind == kind]))
            for kind in kinds
        },
        len(asked),
        sum(isinstance(ruling, Missing) for ruling in rulings),
    )


def _pair(claimed: Statement, told: Statement, kind: str, rng: np.random.Generator) -> Pair:
    """The two statements in different words, as far as there are any."""
    sentence = told.written(rng)
    texts = [claimed.written(rng) for _ in range(6)]
    return Pair(next((text for text in texts if text != sentence), texts[0]), sentence, kind, told.fact.family.name)
