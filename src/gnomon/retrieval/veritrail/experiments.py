"""The study's measurements: a generated process under every arm, and walks with judges whose errors are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gnomon.models.embeddings import Encoder
from gnomon.retrieval.veritrail.baselines import direct, flat_pool, terminal_only
from gnomon.retrieval.veritrail.check import check_pairs, judge_pairs
from gnomon.retrieval.veritrail.generator import ClaimTruth, Truth, make_process
from gnomon.retrieval.veritrail.judges.judge import Judge, Ruling
from gnomon.retrieval.veritrail.judges.limited import LengthLimitedJudge
from gnomon.retrieval.veritrail.judges.offline import OfflineJudge
from gnomon.retrieval.veritrail.judges.oracle import NoisyJudge, OracleJudge, support_probability
from gnomon.retrieval.veritrail.metrics import edge_f1
from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.statements import KINDS
from gnomon.retrieval.veritrail.trail import ClaimTrail, Trail
from gnomon.retrieval.veritrail.verify import verify

Q = 3
QS: dict[str, int | None] = {"q=1": 1, "q=2": 2, "treatment": Q, "no q": None}
CHECKS = ("number", "date", "name", "polarity", "order")
"""Checks of the offline judge that are left out in turn."""

FEW = 3
"""Sentences of evidence in the arms at a small budget."""

SHORT = 20
"""Sentences that a judge with a short attention reads of one prompt."""

RATES = ((0.1, 0.05), (0.2, 0.1))
"""Error rates of the noisy judge: support missed, support seen where there is none."""


def checked_pairs(count: int, seed: int, encoder: Encoder) -> pd.DataFrame:
    """Generated pairs with the offline judge's probability and, as controls, the cosine alone and the recall alone."""
    pairs = check_pairs(count, seed=seed)
    judge = OfflineJudge(encoder)
    rulings = judge_pairs(judge, pairs)
    rows = []
    for pair, ruling in zip(pairs, rulings, strict=True):
        score = ruling.score if isinstance(ruling, Ruling) else 0.5
        rows.append(
            {
                "kind": pair.kind,
                "family": pair.family,
                "supports": pair.supports,
                "treatment": score,
                **judge.closeness(pair.claim, pair.sentence),
                "right": isinstance(ruling, Ruling) and (ruling.verdict == "supported") == pair.supports,
                "made_with": judge.identity["encoder"],
            }
        )
    return pd.DataFrame(rows)


def measured_process(
    shape: dict[str, Any], seed: int, encoder: Encoder, rng: np.random.Generator
) -> tuple[dict[str, pd.DataFrame], Process, Trail]:
    """One generated process under every arm.

    Args:
        shape: Arguments of :func:`~gnomon.retrieval.veritrail.generator.make_process`.
        seed: Of the process.
        encoder: Of the offline judge.
        rng: Of the rewired process and the random paths.

    Returns:
        Tables ``claims`` (a claim and arm a row), ``paths`` (a true claim and arm a row) and ``steps`` (a claim and
        iteration a row, of the walk that never stops early); the process; its trail under the treatment.
    """
    process, truth = make_process(seed, **shape)
    index = SentenceIndex(process)
    judge = OfflineJudge(encoder)
    judge.prepare(index, truth.texts)
    trails = {arm: _walk(index, truth, judge, q) for arm, q in QS.items()}
    trail = verify(process, judge=judge, claims=truth.texts, q=Q, index=index)
    rewired = process.rewired(rng)
    trails["rewired"] = _walk(SentenceIndex(rewired), truth, judge, Q)
    trails |= _ablations(index, truth, judge)
    trails |= _without_the_path(index, truth, judge, seed)
    claims = [_claim_rows(arm, found, truth, index) for arm, found in trails.items()]
    paths = _path_rows(trails, truth, process, rng)
    steps = [
        {
            "claim": known.claim.id,
            "kind": known.kind,
            "stage": known.stage or 0,
            "iteration": number,
            "verdict": step.verdict,
        }
        for known, found in zip(truth.claims, trails["no q"], strict=True)
        for number, step in enumerate(found.iterations, start=1)
    ]
    sentences = pd.DataFrame(
        [{"sentences": len(index), "source_sentences": len(index.of_all(process.roots)), "nodes": len(process.nodes)}]
    )
    tables = {
        "claims": pd.concat(claims, ignore_index=True),
        "paths": pd.DataFrame(paths),
        "steps": pd.DataFrame(steps),
        "sizes": sentences.assign(made_with=judge.identity["encoder"]),
    }
    return tables, process, trail


def exact_walks(seeds: Sequence[int]) -> pd.DataFrame:
    """Walks with a judge that is never wrong: does the verdict follow the rule, and is the stage that of the error?

    A row is a claim and a q: ``wrong`` if the verdict is not the label where q exceeds the gap, and unsupported where
    it does not, or an error has another stage; ``broken_wrong`` says the same of a walk that stops one round early.
    """
    rows = []
    shapes: tuple[dict[str, Any], ...] = (
        {"depth": 4, "fan": 4},
        {"depth": 6, "fan": 2, "max_skip": 4},
        {"topology": "graphrag", "fan": 2, "max_skip": 4},
    )
    for seed in seeds:
        for shape in shapes:
            process, truth = make_process(seed, chunks=8, claims=20, kinds=KINDS, p_conflict=0.1, **shape)
            index = SentenceIndex(process)
            judge = oracle(truth)
            short: list[ClaimTrail] | None = None
            for q in (1, 2, 3, 4, 5):
                trails = _walk(index, truth, judge, q)
                for number, (known, found) in enumerate(zip(truth.claims, trails, strict=True)):
                    row = {"seed": seed, "topology": shape.get("topology", "hierarchical"), "depth": process.last_stage}
                    row |= {
                        "kind": known.kind,
                        "gap": len(known.skipped),
                        "q": q,
                        "wrong": _breaks_rule(known, found, q),
                    }
                    row["broken_wrong"] = None if short is None else _breaks_rule(known, short[number], q)
                    rows.append(row)
                short = trails
    return pd.DataFrame(rows)


def _breaks_rule(known: ClaimTruth, found: ClaimTrail, q: int) -> bool:
    expected = known.label if q > len(known.skipped) else "unsupported"
    named = found.origin.stages if found.origin else frozenset()
    return found.verdict != expected or (known.stage is not None and named != {known.stage})


def noisy_walks(seed: int, processes: int, repeats: int) -> pd.DataFrame:
    """Walks with a judge that errs at known rates: how many claims end supported, beside what the Markov chain says.

    A row is a pattern of stages that state the claim (from the final text's sources to the source documents), a q and
    a pair of rates, with the number of claims and of those that ended supported.
    """
    counts: dict[tuple[str, int, float, float], list[int]] = {}
    for number in range(processes):
        shape: dict[str, Any] = {"depth": 5, "fan": 2, "chunks": 4, "facts": 5, "near_duplicates": 0, "max_skip": 3}
        process, truth = make_process(seed * processes + number, claims=14, **shape)
        index = SentenceIndex(process)
        patterns = [
            "".join("1" if node in known.carriers else "0" for node in known.route[-2::-1]) for known in truth.claims
        ]
        for missed, invented in RATES:
            for repeat in range(repeats):
                judge = NoisyJudge(
                    _support(truth), false_unsupported=missed, false_supported=invented, seed=1000 * number + repeat
                )
                for q in (1, 2, 3):
                    for pattern, found in zip(patterns, _walk(index, truth, judge, q), strict=True):
                        cell = counts.setdefault((pattern, q, missed, invented), [0, 0])
                        cell[0] += 1
                        cell[1] += found.verdict == "supported"
    return pd.DataFrame(
        [
            {
                "pattern": pattern,
                "q": q,
                "missed": missed,
                "invented": invented,
                "claims": claims,
                "supported": supported,
                "predicted": _predicted(pattern, q, missed, invented),
                "predicted_one_more": _predicted(pattern, q + 1, missed, invented),
            }
            for (pattern, q, missed, invented), (claims, supported) in sorted(counts.items())
        ]
    )


def _predicted(pattern: str, q: int, missed: float, invented: float) -> float:
    states = [state == "1" for state in pattern]
    return support_probability(states, q, false_unsupported=missed, false_supported=invented)


def reading(seed: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Sentences read for a true claim by a walk with a judge that is never wrong, over the size of the source.

    The hierarchy grows with the source, as it does where texts must fit into a context: the final text is made of at
    most four.
    """
    rows = []
    for chunks in sizes:
        depth = 3 + int(np.ceil(np.log(chunks / 4) / np.log(4)))
        process, truth = make_process(seed, chunks=chunks, depth=max(depth, 4), fan=4, p_error=0.3, p_skip=0.0)
        index = SentenceIndex(process)
        trails = _walk(index, truth, oracle(truth), Q)
        read = [_read(found, index) for known, found in zip(truth.claims, trails, strict=True) if known.stage is None]
        rows.append(
            {
                "chunks": chunks,
                "source_sentences": len(index.of_all(process.roots)),
                "sentences_read": float(np.mean(read)),
            }
        )
    return pd.DataFrame(rows)


def oracle(truth: Truth) -> OracleJudge:
    """The judge that is never wrong about a generated process."""
    return OracleJudge(_support(truth), {known.claim.id: known.contradicting for known in truth.claims})


def _support(truth: Truth) -> dict[str, frozenset[str]]:
    return {known.claim.id: known.supporting for known in truth.claims}


def _walk(index: SentenceIndex, truth: Truth, judge: Judge, q: int | None) -> list[ClaimTrail]:
    return list(verify(index.process, judge=judge, claims=truth.texts, q=q, index=index).claims)


def _ablations(index: SentenceIndex, truth: Truth, judge: OfflineJudge) -> dict[str, list[ClaimTrail]]:
    """The treatment with one part of the judge taken away."""
    arms = {
        "random-evidence": judge.with_options(select_by="chance"),
        "cosine-evidence": judge.with_options(select_by="cosine"),
        **{f"no-{check}": judge.with_options(ignore=(check,)) for check in CHECKS},
    }
    return {arm: _walk(index, truth, other, Q) for arm, other in arms.items()}


def _without_the_path(
    index: SentenceIndex, truth: Truth, judge: OfflineJudge, seed: int
) -> dict[str, list[ClaimTrail]]:
    """Checks that do not follow the path, and the treatment at the budgets at which they are compared."""
    claims = truth.texts
    few = judge.with_options(most=FEW)
    short = LengthLimitedJudge(judge, SHORT, seed=seed)
    return {
        "direct": direct(index, claims, judge),
        "few": _walk(index, truth, few, Q),
        "few-direct": direct(index, claims, few),
        "few-terminal-only": terminal_only(index, claims, few),
        "few-flat-pool": flat_pool(index, claims, few),
        "short": _walk(index, truth, short, Q),
        "short-direct": direct(index, claims, short),
    }


def _claim_rows(arm: str, found: list[ClaimTrail], truth: Truth, index: SentenceIndex) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "arm": arm,
            "claim": known.claim.id,
            "kind": known.kind,
            "gap": len(known.skipped),
            "stage": known.stage or 0,
            "supports": known.label == "supported",
            "verdict": trail.verdict or "missing",
            "score": trail.score if trail.verdict else 0.5,
            "named": ",".join(str(stage) for stage in sorted(trail.origin.stages)) if trail.origin else "",
            "read": _read(trail, index),
        }
        for known, trail in zip(truth.claims, found, strict=True)
    )


def _read(trail: ClaimTrail, index: SentenceIndex) -> int:
    """Sentences searched for a claim, those of every iteration counted."""
    return sum(len(index.of(node)) for step in trail.iterations for node in step.candidates)


def _path_rows(
    trails: dict[str, list[ClaimTrail]], truth: Truth, process: Process, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """How well the path of every true claim was found, by the walk, in the rewired process, and by chance."""
    rows = []
    edges = set(process.edges)
    for number, known in enumerate(truth.claims):
        if known.label != "supported":
            continue
        true = {(u, v) for u in known.carriers for v in known.carriers if (u, v) in edges}
        for arm in ("treatment", "rewired", "random-path"):
            if arm == "random-path":
                found = _random_path(process, rng)
                reached = {node for edge in found for node in edge}
            else:
                trail = trails[arm][number]
                found = set(trail.provenance.edges) if trail.provenance else set()
                supported = [step for step in trail.iterations if step.verdict == "supported"]
                reached = {node for step in supported for node in step.grounds}
            root = known.route[0] in reached
            rows.append({"arm": arm, "claim": known.claim.id, "edge_f1": edge_f1(found, true), "root_found": root})
    return rows


def _random_path(process: Process, rng: np.random.Generator) -> set[tuple[str, str]]:
    """Edges of a random walk from the final text to a source document."""
    node, edges = process.terminal, set()
    while sources := process.sources(node):
        source = sources[int(rng.integers(len(sources)))]
        edges.add((source, node))
        node = source
    return edges
