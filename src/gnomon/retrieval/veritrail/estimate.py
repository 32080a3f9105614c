"""What a verification may cost at most, before a question is asked."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.reading import portions, sentence_tokens
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.verify import MAX_INPUT_TOKENS


@dataclass(frozen=True)
class Estimate:
    """Upper bounds over all claims.

    Args:
        calls: Questions to the judge: selections and rulings.
        tokens: Tokens of evidence read in them; instructions and answers come on top.
        sentences: Sentences read in selections.
        steps: Rounds a claim may walk.
    """

    calls: int
    tokens: int
    sentences: int
    steps: int


def estimate(
    process: Process,
    claims: int,
    *,
    max_input_tokens: int | None = MAX_INPUT_TOKENS,
    index: SentenceIndex | None = None,
) -> Estimate:
    """Calls and tokens if every claim were unsupported in every step and had evidence in every source document.

    That walk searches the widest sets a walk can search: all sources of all it searched before. Stopping after q
    rounds, and following only what supports a claim, make real ones cheaper. Extraction of the claims, and evidence
    that has to be searched again because it does not fit, are not in it.

    Args:
        process: The process.
        claims: Number of claims.
        max_input_tokens: As in :func:`~gnomon.retrieval.veritrail.verify.verify`.
        index: Sentences of the process, where they have been split already.
    """
    index = index or SentenceIndex(process)
    searched: list[tuple[str, ...]] = []
    following = tuple(process.in_order(process.sources(process.terminal)))
    while not searched or following != searched[-1]:
        searched.append(following)
        wider: set[str] = set()
        for node in following:
            wider.update([node] if process.is_root(node) else process.sources(node))
        following = tuple(process.in_order(wider))
    selections = tokens = sentences = 0
    for nodes in searched:
        read = portions(index.of_all(nodes), max_input_tokens)
        selections += len(read)
        sentences += sum(map(len, read))
        # A ruling is shown no more than was read.
        tokens += 2 * sum(sentence_tokens(sentence) for portion in read for sentence in portion)
    return Estimate(claims * (selections + len(searched)), claims * tokens, claims * sentences, len(searched))
