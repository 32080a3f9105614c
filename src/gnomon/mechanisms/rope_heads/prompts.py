"""Prompts of one length, so that all queries see the same number of keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from gnomon.models.load import Loaded


def windows(
    loaded: Loaded, documents: Sequence[str], *, length: int, count: int | None = None
) -> Int[Tensor, "prompt position"]:
    """Prompts of exactly ``length`` tokens, start token included: the first of every document, then the second ones.

    Args:
        loaded: Whose tokenizer and start token to use.
        documents: Texts; a prompt never spans two.
        length: Tokens a prompt, the start token included.
        count: How many to cut; by default all there are.

    Raises:
        ValueError: If the documents hold fewer prompts than asked for, or none.
    """
    start = loaded.provenance.start_id
    front = [] if start is None else [start]
    body = length - len(front)
    by_document = [loaded.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in documents]
    longest = max(map(len, by_document), default=0)
    found = [
        front + tokens[at : at + body]
        for at in range(0, longest - body + 1, body)
        for tokens in by_document
        if at + body <= len(tokens)
    ]
    if not found or (count is not None and len(found) < count):
        wanted = "at least one prompt" if count is None else f"{count} prompts"
        raise ValueError(
            f"the text holds {len(found)} prompts of {length} tokens, {wanted} needed; shorten the prompts"
        )
    return torch.tensor(found[:count])


def repeated_random_tokens(
    vocabulary: int, *, prompts: int, half: int, rng: np.random.Generator, start: int | None
) -> Int[Tensor, "prompt position"]:
    """Random tokens followed by the same tokens again: whoever looks one back from an earlier copy predicts them."""
    first = torch.from_numpy(rng.integers(0, vocabulary, size=(prompts, half)))
    parts = [first, first] if start is None else [torch.full((prompts, 1), start), first, first]
    return torch.cat(parts, dim=1)
