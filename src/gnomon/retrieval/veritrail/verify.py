"""The walk from the final text towards its sources (sections 3.4 to 3.8 of the paper's method).

A claim is checked against the nodes the final text was made from; where they support it, against the sources of the
nodes that do; where they do not, against the sources of all of them, in case a step left out what an earlier one said.
The walk ends at the source documents, or after ``q`` rounds in a row without support. All claims walk together: each
wave asks the judge for the evidence on every claim at once, and then for every verdict at once.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail.claims import Claim, Dropped
from gnomon.retrieval.veritrail.inquiry import Inquiry
from gnomon.retrieval.veritrail.judges.judge import Judge
from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.provenance import localisation, provenance
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.trail import ClaimTrail, Iteration, StopReason, Trail, failed

MAX_INPUT_TOKENS = 16_000


def verify(
    process: Process,
    *,
    judge: Judge,
    claims: Sequence[Claim] | Sequence[str] | None = None,
    q: int | None = 3,
    max_input_tokens: int | None = MAX_INPUT_TOKENS,
    shuffle: int | None = None,
    index: SentenceIndex | None = None,
    check: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Trail:
    """Verdict, path and, for an unsupported claim, the step that brought it in, for every claim of the final text.

    With a perfect judge, a true claim that exactly L steps in a row left out is found supported if and only if q > L;
    a false claim costs at most q rounds beyond the step that invented it.

    Args:
        process: What was made from what.
        judge: Finds evidence and rules on it.
        claims: Claims about the final text; those without parts are decomposed. ``None``: the judge extracts them.
        q: Rounds in a row without support after which a claim is unsupported; ``None``: walk to the sources always.
        max_input_tokens: Most tokens of evidence in one prompt; ``None``: no limit.
        shuffle: Seed of a random order of the nodes in every prompt, to see how much the judge's verdicts depend on
            position; ``None``: by stage, then id.
        index: Sentences of the process, where they have been split already.
        check: Summary of the judge check, kept in the trail; a judge that needs one and has none is marked as not
            valid.
        on_progress: Called after each wave with the number of claims that are done and that of all.

    Returns:
        One trail a claim, in the order of the claims. A claim whose judge failed has no verdict, but a status.

    Warns:
        UserWarning: If a source document is empty: what it should say cannot be found in it.

    Raises:
        ValueError: If ``q`` or ``max_input_tokens`` is below 1, or two claims have one id.
    """
    if q is not None and q < 1:
        raise ValueError(f"q must be at least 1, or None to walk to the sources always; got {q}")
    if max_input_tokens is not None and max_input_tokens < 1:
        raise ValueError(f"max_input_tokens must be at least 1, or None for no limit; got {max_input_tokens}")
    if silent := [root for root in process.roots if not process.nodes[root].text.strip()]:
        warnings.warn(f"source {silent[0]!r} has no text ({len(silent)} of {len(process.roots)})", stacklevel=2)
    index = index or SentenceIndex(process)
    listed, dropped = _claims(index, judge, claims)
    judge.prepare(index, listed)
    start = process.in_order(process.sources(process.terminal))
    walks = [_Walk(claim, tuple(start)) for claim in listed]
    inquiry = Inquiry(index, judge, max_input_tokens, shuffle=shuffle)
    while walking := [walk for walk in walks if not walk.done]:
        steps = inquiry.steps([(walk.claim, walk.candidates) for walk in walking])
        for walk, step in zip(walking, steps, strict=True):
            walk.go(process, step, q)
        if on_progress is not None:
            on_progress(sum(walk.done for walk in walks), len(walks))
    return Trail(
        process=process.digest(),
        claims=tuple(walk.trail(process) for walk in walks),
        dropped=dropped,
        judge=judge.identity,
        check=dict(check) if check is not None else {"valid": False} if judge.needs_check else {},
        settings={"q": q, "max_input_tokens": max_input_tokens, "shuffle": shuffle},
    )


def next_candidates(process: Process, step: Iteration) -> tuple[str, ...]:
    """Nodes to search after a step, N(n+1).

    The sources of the nodes a supported or inconclusive verdict rests on; after an unsupported one, of all that were
    searched. A source document that held evidence stays: others may reach it only later.
    """
    held = set(step.grounds)
    base = step.candidates if step.verdict == "unsupported" else step.grounds
    following: set[str] = set()
    for node in base:
        if not process.is_root(node):
            following.update(process.sources(node))
        elif node in held:
            following.add(node)
    return tuple(process.in_order(following))


@dataclass
class _Walk:
    """One claim on its way."""

    claim: Claim
    candidates: tuple[str, ...]
    iterations: list[Iteration] = field(default_factory=list)
    without_support: int = 0
    stop: StopReason | None = None
    failed: Missing | None = None

    @property
    def done(self) -> bool:
        return self.stop is not None or self.failed is not None

    def go(self, process: Process, step: Iteration | Missing, q: int | None) -> None:
        """Take a step, and stop where another would change nothing.

        A walk ends at the roots once the verdict rests on nothing but the roots that would be searched next. That they
        were all searched before is not enough: a root read at two depths may have been searched beside a step that
        said more than the root does.
        """
        if isinstance(step, Missing):
            self.failed = step
            return
        self.iterations.append(step)
        self.without_support = self.without_support + 1 if step.verdict == "unsupported" else 0
        following = next_candidates(process, step)
        if self.without_support == q:
            self.stop = "q"
        elif not following:
            self.stop = "no-candidates"
        elif set(following) == set(step.grounds) and all(map(process.is_root, following)):
            self.stop = "roots"
        self.candidates = following

    def trail(self, process: Process) -> ClaimTrail:
        walked = tuple(self.iterations)
        if self.failed is not None:
            return failed(self.claim, self.failed, walked)
        # Without candidates or after q rounds the last verdict is "unsupported" too: one rule for the three stops.
        last = walked[-1]
        unsupported = last.verdict == "unsupported"
        return ClaimTrail(
            self.claim,
            "verified",
            last.verdict,
            last.score,
            self.stop,
            walked,
            provenance=None if unsupported else provenance(process, walked),
            origin=localisation(process, walked) if unsupported else None,
        )


def _claims(
    index: SentenceIndex, judge: Judge, claims: Sequence[Claim] | Sequence[str] | None
) -> tuple[list[Claim], tuple[Dropped, ...]]:
    if claims is None:
        extraction = judge.extract(index)
        return list(extraction.claims), extraction.dropped
    listed = [Claim(f"c{n}", claim) if isinstance(claim, str) else claim for n, claim in enumerate(claims, start=1)]
    if twice := [name for name, count in Counter(claim.id for claim in listed).items() if count > 1]:
        raise ValueError(f"claims must have different ids; used twice: {', '.join(twice)}")
    whole = [claim for claim in listed if not claim.subclaims]
    divided = iter(judge.decompose(whole) if whole else ())
    return [claim if claim.subclaims else next(divided) for claim in listed], ()
