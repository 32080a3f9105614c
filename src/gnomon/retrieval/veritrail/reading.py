"""How much a judge reads at once: sentences in prompts that fit its input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from gnomon.retrieval.veritrail.sentences import Sentence

_CHARACTERS_A_TOKEN = 4
_TOKENS_OF_A_MARK = 4  # the alias before a sentence, the line break after it


def token_count(text: str) -> int:
    """Tokens of a text, counted as a quarter of its characters: judges differ in their tokenizers.

    >>> token_count("The plant was closed.")
    6
    """
    return -(-len(text) // _CHARACTERS_A_TOKEN)


def sentence_tokens(sentence: Sentence) -> int:
    """Tokens of a sentence as a judge is shown it, its mark included."""
    return token_count(sentence.text) + _TOKENS_OF_A_MARK


def portions(sentences: Iterable[Sentence], max_tokens: int | None) -> tuple[tuple[Sentence, ...], ...]:
    """Sentences, grouped by node in reading order, in portions of at most ``max_tokens``.

    A node stays whole where it fits. A larger one is cut between sentences, and each portion begins with the last
    sentence of the one before, so that a statement over two sentences is seen whole. A sentence that does not fit by
    itself is a portion of its own.

    Args:
        sentences: Sentences of a node stand together.
        max_tokens: Most tokens a portion; ``None``: one portion.
    """
    nodes = [tuple(group) for _, group in groupby(sentences, key=lambda sentence: sentence.node)]
    if max_tokens is None:
        return (tuple(sentence for node in nodes for sentence in node),) if nodes else ()
    cut: list[tuple[Sentence, ...]] = []
    room = 0
    for node in nodes:
        size = sum(map(sentence_tokens, node))
        if size <= room:
            cut[-1] += node
            room -= size
        elif size <= max_tokens:
            cut.append(node)
            room = max_tokens - size
        else:
            cut += _cut(node, max_tokens)
            room = 0
    return tuple(cut)


def _cut(node: Sequence[Sentence], max_tokens: int) -> list[tuple[Sentence, ...]]:
    portions: list[tuple[Sentence, ...]] = []
    portion: list[Sentence] = []
    size = 0
    for sentence in node:
        tokens = sentence_tokens(sentence)
        if portion and size + tokens > max_tokens:
            portions.append(tuple(portion))
            overlap = sentence_tokens(portion[-1])
            portion = [portion[-1]] if overlap + tokens <= max_tokens else []
            size = overlap if portion else 0
        portion.append(sentence)
        size += tokens
    return [*portions, tuple(portion)]
