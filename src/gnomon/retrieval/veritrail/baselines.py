"""What the walk is compared with: checks that do not use which text was made from which, or use all of it at once.

Every check answers with one :class:`~gnomon.retrieval.veritrail.trail.ClaimTrail` a claim, so that whatever is computed
from a walk can be computed from it. A check that cannot say where a claim entered leaves ``origin`` empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from gnomon.models.chat import Missing
from gnomon.models.embeddings import Encoder, embed
from gnomon.retrieval.veritrail.claims import Claim
from gnomon.retrieval.veritrail.evidence import Found, find_evidence
from gnomon.retrieval.veritrail.inquiry import Inquiry
from gnomon.retrieval.veritrail.judges.judge import Judge, Usage
from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.provenance import localisation
from gnomon.retrieval.veritrail.reading import portions
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.trail import ClaimTrail, Iteration, Localisation, failed
from gnomon.retrieval.veritrail.verify import MAX_INPUT_TOKENS


def direct(
    index: SentenceIndex,
    claims: Sequence[Claim],
    judge: Judge,
    *,
    k: int | None = None,
    max_input_tokens: int | None = MAX_INPUT_TOKENS,
) -> list[ClaimTrail]:
    """Final text against source only: every claim on the evidence the judge selects from all source documents.

    Args:
        index: Sentences of the process.
        claims: What to check.
        judge: Selects and rules.
        k: Sentences of highest score to rule on; ``None``: all that were selected.
        max_input_tokens: Most tokens of evidence in one prompt.
    """
    process = index.process
    return _one_step(index, claims, judge, process.roots, k, max_input_tokens)


def terminal_only(
    index: SentenceIndex, claims: Sequence[Claim], judge: Judge, *, max_input_tokens: int | None = MAX_INPUT_TOKENS
) -> list[ClaimTrail]:
    """Final text against what it was made from, which is what tools that see one step check."""
    process = index.process
    return _one_step(index, claims, judge, process.sources(process.terminal), None, max_input_tokens)


def flat_pool(
    index: SentenceIndex,
    claims: Sequence[Claim],
    judge: Judge,
    *,
    k: int | None = None,
    max_input_tokens: int | None = MAX_INPUT_TOKENS,
) -> list[ClaimTrail]:
    """Final text against all texts that went into it, sources and intermediate ones alike."""
    process = index.process
    return _one_step(index, claims, judge, process.upstream, k, max_input_tokens)


def retrieval(
    index: SentenceIndex,
    claims: Sequence[Claim],
    judge: Judge,
    *,
    k: int = 15,
    encoder: Encoder = "auto",
    max_input_tokens: int | None = MAX_INPUT_TOKENS,
) -> list[ClaimTrail]:
    """Retrieve, then rule: a verdict on the k source sentences nearest to the claim by the cosine of their vectors."""
    judge.prepare(index, claims)
    roots = tuple(index.process.in_order(index.process.roots))
    sentences = index.of_all(roots)
    cosine = _cosines(claims, index, roots, encoder)
    found: list[Found | Missing] = []
    for row in cosine:
        nearest = np.sort(np.argsort(-row, kind="stable")[:k])
        scores = {sentences[column].id: float(row[column]) for column in nearest}
        chosen = tuple(sentences[column] for column in nearest)
        found.append(Found(chosen, scores, usage=Usage(sentences=len(sentences))))
    steps = Inquiry(index, judge, max_input_tokens).rulings([(claim, roots) for claim in claims], found)
    return [_concluded(claim, [step]) for claim, step in zip(claims, steps, strict=True)]


def max_cosine(
    index: SentenceIndex, claims: Sequence[Claim], *, threshold: float, encoder: Encoder = "auto"
) -> list[ClaimTrail]:
    """No judge: supported if the cosine with the nearest source sentence, which is the score, reaches the threshold."""
    process = index.process
    nearest = _cosines(claims, index, process.roots, encoder).max(axis=1)
    return [
        ClaimTrail(claim, "verified", "supported" if score >= threshold else "unsupported", float(score))
        for claim, score in zip(claims, nearest, strict=True)
    ]


def stagewise(
    index: SentenceIndex, claims: Sequence[Claim], judge: Judge, *, max_input_tokens: int | None = MAX_INPUT_TOKENS
) -> list[ClaimTrail]:
    """Every claim against all texts of every stage: what the walk finds, without following paths or stopping early.

    The verdict is that of the source documents; an unsupported claim entered at the stage nearest to them that
    supports it.
    """
    process = index.process
    judge.prepare(index, claims)
    written = _written(process)
    layers = [tuple(nodes) for _, nodes in groupby(written, key=process.stage)]
    layers = [*reversed(layers), tuple(process.in_order(process.roots))]
    inquiry = Inquiry(index, judge, max_input_tokens)
    by_layer = [inquiry.steps([(claim, layer) for claim in claims]) for layer in layers]
    return [
        _concluded(claim, steps, lambda walked: localisation(process, walked))
        for claim, steps in zip(claims, zip(*by_layer, strict=True), strict=True)
    ]


def every_node(
    index: SentenceIndex, claims: Sequence[Claim], judge: Judge, *, max_input_tokens: int | None = MAX_INPUT_TOKENS
) -> list[ClaimTrail]:
    """Every sentence of every generated text against all source documents, then every claim against them too.

    An unsupported claim entered at the stage nearest to the sources that has a sentence which the sources do not
    support and which supports the claim.
    """
    process = index.process
    written = _written(process)
    statements = [Claim(f"sentence {sentence.id}", sentence.text, sentence.id) for sentence in index.of_all(written)]
    checked = _one_step(index, [*statements, *claims], judge, process.roots, None, max_input_tokens)
    invented = {trail.claim.sentence for trail in checked[: len(statements)] if trail.verdict == "unsupported"}
    finals = checked[len(statements) :]
    open_claims = [trail.claim for trail in finals if trail.verdict == "unsupported"]
    inquiry = Inquiry(index, judge, max_input_tokens)
    by_layer: list[list[Iteration | Missing]] = []
    for _, nodes in groupby(reversed(written), key=process.stage):
        layer = tuple(reversed(list(nodes)))
        read = portions((s for s in index.of_all(layer) if s.id in invented), max_input_tokens)
        found = find_evidence(judge, [(claim, read) for claim in open_claims])
        by_layer.append(inquiry.rulings([(claim, layer) for claim in open_claims], found))
    steps = {claim.id: [layer[place] for layer in by_layer] for place, claim in enumerate(open_claims)}
    return [_located(process, trail, steps[trail.claim.id]) if trail.claim.id in steps else trail for trail in finals]


def _written(process: Process) -> list[str]:
    """Generated texts that went into the final one, in reading order."""
    return [node for node in process.in_order(process.upstream) if not process.is_root(node)]


def _one_step(
    index: SentenceIndex,
    claims: Sequence[Claim],
    judge: Judge,
    nodes: Sequence[str] | frozenset[str],
    k: int | None,
    max_tokens: int | None,
) -> list[ClaimTrail]:
    judge.prepare(index, claims)
    searched = tuple(index.process.in_order(nodes))
    steps = Inquiry(index, judge, max_tokens).steps([(claim, searched) for claim in claims], most=k)
    return [_concluded(claim, [step]) for claim, step in zip(claims, steps, strict=True)]


def _concluded(
    claim: Claim,
    steps: Sequence[Iteration | Missing],
    located: Callable[[Sequence[Iteration]], Localisation] | None = None,
) -> ClaimTrail:
    """The last verdict; a check of which one step was not answered has none."""
    walked = tuple(step for step in steps if isinstance(step, Iteration))
    if missing := [step for step in steps if isinstance(step, Missing)]:
        return failed(claim, missing[0], walked)
    last = walked[-1]
    origin = located(walked) if located is not None and last.verdict == "unsupported" else None
    return ClaimTrail(claim, "verified", last.verdict, last.score, iterations=walked, origin=origin)


def _located(process: Process, trail: ClaimTrail, steps: Sequence[Iteration | Missing]) -> ClaimTrail:
    """The trail with the origin that the steps over invented sentences show."""
    walked = tuple(step for step in steps if isinstance(step, Iteration))
    whole = (*trail.iterations, *walked)
    if missing := [step for step in steps if isinstance(step, Missing)]:
        return failed(trail.claim, missing[0], whole)
    return replace(trail, origin=localisation(process, walked), iterations=whole)


def _cosines(claims: Sequence[Claim], index: SentenceIndex, nodes: Sequence[str], encoder: Encoder) -> np.ndarray:
    """Cosine of every claim (rows) with every sentence of the nodes."""
    texts = [sentence.text for sentence in index.of_all(nodes)]
    vectors = embed([*(claim.text for claim in claims), *texts], encoder=encoder).vectors
    return vectors[: len(claims)] @ vectors[len(claims) :].T
