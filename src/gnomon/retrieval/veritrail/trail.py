"""What a verification leaves behind: for every claim its verdict, the evidence it rests on, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gnomon.models.chat import Missing, OutOfBudget
from gnomon.retrieval.veritrail.claims import Claim, Dropped
from gnomon.retrieval.veritrail.judges.judge import NodeEvidence, Usage, Verdict

StopReason = Literal["roots", "no-candidates", "q"]
Status = Literal["verified", "error", "budget"]


@dataclass(frozen=True)
class Iteration:
    """One step of the walk from the final text towards the sources.

    Args:
        candidates: Nodes that were searched, N(n).
        evidence: What was found, one entry a node with evidence, V_e(n).
        verdict: The interim verdict.
        score: Probability of ``supported``.
        reasoning: The judge's.
        subclaims: Verdict on each part of the claim, where the judge gives one.
        cited: Sentences the verdict rests on.
        truncated: Whether evidence was dropped to fit the judge's input.
        hallucinated: Ids the judge named that it had not been shown.
        usage: What the step cost.
    """

    candidates: tuple[str, ...]
    evidence: tuple[NodeEvidence, ...]
    verdict: Verdict
    score: float
    reasoning: str = ""
    subclaims: tuple[Verdict, ...] = ()
    cited: tuple[str, ...] = ()
    truncated: bool = False
    hallucinated: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def grounds(self) -> tuple[str, ...]:
        """Nodes the verdict rests on: those of the sentences a ``supported`` cites, else all with evidence."""
        nodes = tuple(entry.node for entry in self.evidence)
        if self.verdict != "supported":
            return nodes
        cited = {sentence.node for entry in self.evidence for sentence in entry.sentences if sentence.id in self.cited}
        return tuple(node for node in nodes if node in cited) or nodes


@dataclass(frozen=True)
class Provenance:
    """How a supported claim came from the sources to the final text.

    Args:
        edges: Edges (u, v) with evidence at both ends, v nearer to the terminal.
        paths: All paths root -> terminal in them, longest first; at most 1,000.
        complete: Whether there is such a path.
        skipped_stages: Stages between source and terminal without evidence: the claim is true, its path has a gap.
    """

    edges: tuple[tuple[str, str], ...] = ()
    paths: tuple[tuple[str, ...], ...] = ()
    complete: bool = False
    skipped_stages: tuple[int, ...] = ()


@dataclass(frozen=True)
class Localisation:
    """Where an unsupported claim entered.

    Args:
        stages: Stages of the nodes that say it and whose sources do not.
        nodes: Those nodes.
        undetermined: Whether no step could be named (some verdicts inconclusive, none supported); ``stages`` then
            holds the candidates.
    """

    stages: frozenset[int]
    nodes: tuple[str, ...]
    undetermined: bool = False


@dataclass(frozen=True)
class ClaimTrail:
    """Everything found out about one claim.

    Args:
        claim: The claim.
        status: ``verified``, or why there is no verdict: the judge failed (``error``) or the ``budget`` was spent.
        verdict: The final verdict; ``None`` without one.
        score: Probability of ``supported`` at the last verdict.
        stop: Why the walk ended.
        iterations: The walk.
        provenance: Of a supported or inconclusive claim.
        origin: Of an unsupported claim.
        problem: What went wrong, for a claim without a verdict.
    """

    claim: Claim
    status: Status
    verdict: Verdict | None = None
    score: float = float("nan")
    stop: StopReason | None = None
    iterations: tuple[Iteration, ...] = ()
    provenance: Provenance | None = None
    origin: Localisation | None = None
    problem: str = ""

    @property
    def usage(self) -> Usage:
        """What the claim cost."""
        return sum((iteration.usage for iteration in self.iterations), Usage())


def failed(claim: Claim, answer: Missing, walked: tuple[Iteration, ...]) -> ClaimTrail:
    """The trail of a claim whose judge gave no answer: why, and the walk so far."""
    status = "budget" if isinstance(answer, OutOfBudget) else "error"
    return ClaimTrail(claim, status, iterations=walked, problem=answer.reason)


@dataclass(frozen=True)
class Trail:
    """A verified process.

    Args:
        process: Hash of the process.
        claims: One trail a claim.
        dropped: Sentences of the final text without a claim to verify.
        judge: Identity of the judge.
        check: Result of the judge check, by name of its numbers; empty if it was not run.
        settings: How the walk was made (q, limits).
    """

    process: str
    claims: tuple[ClaimTrail, ...]
    dropped: tuple[Dropped, ...]
    judge: dict[str, Any]
    check: dict[str, Any]
    settings: dict[str, Any]
