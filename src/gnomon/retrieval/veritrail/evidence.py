"""Evidence on claims: which sentences bear on them, and how they are put before the judge (sections 3.5 and 3.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail.claims import Claim
from gnomon.retrieval.veritrail.judges.judge import Judge, NodeEvidence, Selection, SelectionTask, Usage
from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.reading import portions, sentence_tokens, token_count
from gnomon.retrieval.veritrail.sentences import Sentence

_ROUNDS = 3  # selections among the evidence itself before some of it is dropped

Portions = tuple[tuple[Sentence, ...], ...]


@dataclass(frozen=True)
class Found:
    """Sentences that bear on a claim.

    Args:
        sentences: In reading order.
        scores: Relevance by sentence id; empty where the judge gives none.
        summaries: What the judge said the sentences of a node say, by node.
        hallucinated: Ids the judge named that it had not been shown.
        usage: What finding them cost.
    """

    sentences: tuple[Sentence, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    summaries: Mapping[str, str] = field(default_factory=dict)
    hallucinated: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Exhibit:
    """Evidence as a verdict is given on it.

    Args:
        evidence: One entry a node, in reading order.
        truncated: Whether some was left out to fit the judge's input.
        hallucinated: Ids the judge named that it had not been shown.
        usage: What it cost.
    """

    evidence: tuple[NodeEvidence, ...]
    truncated: bool
    hallucinated: int
    usage: Usage


def find_evidence(judge: Judge, searches: Sequence[tuple[Claim, Portions]]) -> list[Found | Missing]:
    """Evidence on each claim among the sentences to read; the judge is asked once for all.

    An id the judge was not shown in that very prompt is discarded and counted, and texts are those of the process,
    never the judge's. A search of which one portion was not answered is missing.
    """
    tasks = [SelectionTask(claim, portion) for claim, parts in searches for portion in parts]
    places: dict[int, dict[str, int]] = {}  # of the sentences of a portion, which many claims share
    for task in tasks:
        if id(task.sentences) not in places:
            places[id(task.sentences)] = {sentence.id: place for place, sentence in enumerate(task.sentences)}
    answers = iter(zip(tasks, judge.select(tasks), strict=True) if tasks else ())
    return [_merged([next(answers) for _ in parts], [places[id(part)] for part in parts]) for _, parts in searches]


def _merged(
    parts: Sequence[tuple[SelectionTask, Selection | Missing]], places: Sequence[Mapping[str, int]]
) -> Found | Missing:
    chosen: dict[str, tuple[int, int]] = {}  # portion, and place in it
    scores: dict[str, float] = {}
    summaries: dict[str, list[str]] = {}
    hallucinated, usage = 0, Usage()
    for portion, ((task, selection), here) in enumerate(zip(parts, places, strict=True)):
        if isinstance(selection, Missing):
            return selection
        named = dict.fromkeys(selection.ids)
        real = {name: here[name] for name in named if name in here}
        for name, place in real.items():
            chosen.setdefault(name, (portion, place))
        hallucinated += len(named) - len(real)
        usage += replace(selection.usage, sentences=len(task.sentences))
        if selection.scores:
            for name, score in zip(selection.ids, selection.scores, strict=True):
                if name in here:
                    scores[name] = max(score, scores.get(name, score))
        if selection.summary:
            for node in dict.fromkeys(task.sentences[place].node for place in real.values()):
                summaries.setdefault(node, []).append(selection.summary)
    sentences = tuple(parts[portion][0].sentences[place] for portion, place in sorted(chosen.values()))
    return Found(sentences, scores, {node: " ".join(said) for node, said in summaries.items()}, hallucinated, usage)


def exhibits(
    judge: Judge, process: Process, found: Sequence[tuple[Claim, Found]], max_tokens: int | None
) -> list[Exhibit | Missing]:
    """Evidence on each claim as a verdict is given on it, within the judge's input.

    Source documents are shown whole, because a sentence of theirs may need its context; generated texts by their
    selected sentences and the summary. Evidence over the limit is searched once more, by itself, up to three times as
    long as that leaves less of it. If it is too much even then, source documents are cut to their selected sentences,
    and the sentences of lowest score (of two alike, the later one) are dropped; the exhibit is marked as truncated.
    """
    results: list[Found | Missing] = [each for _, each in found]
    large = list(range(len(results)))
    for _ in range(_ROUNDS):
        large = [index for index in large if _is_over(process, results[index], max_tokens)]
        searches = [(found[index][0], _again(results[index], max_tokens)) for index in large]
        before = {index: results[index] for index in large}
        for index, narrower in zip(large, find_evidence(judge, searches), strict=True):
            results[index] = _narrowed(before[index], narrower)
        large = [index for index in large if _is_less(results[index], before[index])]
    return [each if isinstance(each, Missing) else _fitted(process, each, max_tokens) for each in results]


def _is_over(process: Process, found: Found | Missing, max_tokens: int | None) -> bool:
    return max_tokens is not None and isinstance(found, Found) and _size(_evidence(process, found)) > max_tokens


def _is_less(found: Found | Missing, before: Found | Missing) -> bool:
    return isinstance(found, Found) and isinstance(before, Found) and len(found.sentences) < len(before.sentences)


def _again(found: Found | Missing, max_tokens: int | None) -> Portions:
    return () if isinstance(found, Missing) else portions(found.sentences, max_tokens)


def _narrowed(found: Found | Missing, narrower: Found | Missing) -> Found | Missing:
    if isinstance(found, Missing) or isinstance(narrower, Missing):
        return narrower
    # A judge that now finds nothing contradicts itself; what it found before is kept.
    kept = narrower if narrower.sentences else found
    return replace(
        kept,
        scores={**found.scores, **narrower.scores},
        summaries={**found.summaries, **narrower.summaries},
        hallucinated=found.hallucinated + narrower.hallucinated,
        usage=found.usage + narrower.usage,
    )


def _fitted(process: Process, found: Found, max_tokens: int | None) -> Exhibit:
    evidence = _evidence(process, found)
    if max_tokens is None or _size(evidence) <= max_tokens:
        return Exhibit(evidence, False, found.hallucinated, found.usage)
    place = {sentence.id: index for index, sentence in enumerate(found.sentences)}
    worst_first = sorted(place, key=lambda name: (found.scores.get(name, 0.0), -place[name]))
    cut = tuple(replace(entry, text="") for entry in evidence)
    for name in worst_first[:-1]:
        if _size(cut) <= max_tokens:
            break
        fewer = (
            replace(entry, sentences=tuple(sentence for sentence in entry.sentences if sentence.id != name))
            for entry in cut
        )
        cut = tuple(entry for entry in fewer if entry.sentences)
    return Exhibit(cut, True, found.hallucinated, found.usage)


def _evidence(process: Process, found: Found) -> tuple[NodeEvidence, ...]:
    by_node: dict[str, list[Sentence]] = {}
    for sentence in found.sentences:
        by_node.setdefault(sentence.node, []).append(sentence)
    return tuple(
        NodeEvidence(node, tuple(sentences), text=process.nodes[node].text)
        if process.is_root(node)
        else NodeEvidence(node, tuple(sentences), summary=found.summaries.get(node, ""))
        for node, sentences in by_node.items()
    )


def _size(evidence: Sequence[NodeEvidence]) -> int:
    return sum(
        token_count(entry.text) + token_count(entry.summary) + sum(map(sentence_tokens, entry.sentences))
        for entry in evidence
    )
