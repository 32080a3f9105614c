"""Log-probabilities of text under a language model: tokens, sequences, windows, continuations, choices.

Everything is in nats. Functions that take ``model`` work on token ids, with a plain Hugging Face decoder or a
``TransformerBridge``; functions that take ``loaded`` work on text. Sequences are batched by length under a token
budget and padded on the right: with causal attention no real token can see the padding, so that a padded sequence
scores as it does alone (to 1e-4, the rounding of differently shaped matrix products).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from gnomon.models.load import Loaded, encode, encode_batch

#: Padded tokens in one forward pass; with a vocabulary of 50,000 the logits of 2,048 tokens take 400 MB.
BATCH_TOKENS = 2048

Sequences = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of a set of texts.

    Args:
        value: ``exp(nats / tokens)``.
        nats: Summed negative log-probability.
        tokens: Tokens scored.
    """

    value: float
    nats: float
    tokens: int


@dataclass(frozen=True)
class Choice:
    """What a model prefers among options that carry labels, with the preference for labels averaged out.

    Args:
        log_probs: One value an option: log of its probability averaged over the orders, summing to one over options.
        by_order: Log-probabilities in each order; row ``r`` gives option ``i`` the label ``(i + r) mod n``.
        label_mass: Probability, averaged over orders, that the next token is one of the labels at all.
    """

    log_probs: Float[np.ndarray, " option"]
    by_order: Float[np.ndarray, "order option"]
    label_mass: float

    @property
    def label_bias(self) -> Float[np.ndarray, " label"]:
        """Mean probability of each label, whatever option carries it; ``1 / n`` each without bias."""
        orders, options = self.by_order.shape
        by_label = [
            np.mean([np.exp(self.by_order[order, (label - order) % options]) for order in range(orders)])
            for label in range(options)
        ]
        return np.array(by_label)


def token_batches(lengths: Sequence[int], budget: int = BATCH_TOKENS) -> list[list[int]]:
    """Indices of sequences in batches of similar length with at most ``budget`` tokens, padding included.

    A sequence longer than the budget gets a batch of its own.

    >>> token_batches([5, 2, 3, 9], budget=10)
    [[3], [0, 2], [1]]
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batches and longest * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = lengths[index]
    return batches


def token_log_probs(
    model: Any, sequences: Sequences, *, batch_tokens: int = BATCH_TOKENS
) -> list[Float[Tensor, " scored"]]:
    r"""Log-probability of every token but the first, given those before it.

    .. math:: \ell_t = \log p(x_t \mid x_{<t}), \qquad t = 1, \dots, T - 1

    Args:
        model: A Hugging Face decoder or a ``TransformerBridge``.
        sequences: Token ids, each with its start token, in any order and of any length.
        batch_tokens: Token budget of one forward pass.

    Returns:
        For each sequence, in the order given, float32 values on the CPU; one fewer than it has tokens.

    Raises:
        ValueError: If a sequence has fewer than two tokens: nothing in it can be scored.
    """
    for index, sequence in enumerate(sequences):
        if len(sequence) < 2:
            raise ValueError(f"sequence {index} has {len(sequence)} tokens; scoring needs a start token and one more")
    scores: list[Tensor] = [torch.empty(0)] * len(sequences)
    for batch in token_batches([len(sequence) for sequence in sequences], batch_tokens):
        ids, mask = _pad([sequences[index] for index in batch], _device(model))
        with torch.inference_mode():
            scored = _next_token_log_probs(_logits(model, ids, mask)[:, :-1], ids[:, 1:]).cpu()
        for row, index in enumerate(batch):
            scores[index] = scored[row, : len(sequences[index]) - 1].clone()
    return scores


def sequence_log_probs(
    model: Any, sequences: Sequences, *, batch_tokens: int = BATCH_TOKENS
) -> Float[np.ndarray, " sequence"]:
    """Summed log-probability of each sequence given its first token, in float64.

    Raises:
        ValueError: If a sequence has fewer than two tokens.
    """
    scores = token_log_probs(model, sequences, batch_tokens=batch_tokens)
    return np.array([score.double().sum().item() for score in scores])


def example_losses(
    model: Any, sequences: Sequences, *, starts: Sequence[int] | None = None, batch_tokens: int = BATCH_TOKENS
) -> Float[np.ndarray, " example"]:
    """Mean negative log-probability of each example's tokens, or of its answer alone.

    Args:
        model: A Hugging Face decoder or a ``TransformerBridge``.
        sequences: Token ids of the examples.
        starts: Index of the first answer token of each example, at least 1; by default everything is scored.
        batch_tokens: Token budget of one forward pass.

    Raises:
        ValueError: If an answer would be empty or start before the second token.
    """
    first = [1] * len(sequences) if starts is None else list(starts)
    for index, (start, sequence) in enumerate(zip(first, sequences, strict=True)):
        if not 1 <= start < len(sequence):
            raise ValueError(f"answer of example {index} starts at {start}, must be within 1..{len(sequence) - 1}")
    scores = token_log_probs(model, sequences, batch_tokens=batch_tokens)
    return np.array([-score[start - 1 :].double().mean().item() for score, start in zip(scores, first, strict=True)])


def windows(loaded: Loaded, texts: Sequence[str], *, window: int = 512) -> list[tuple[int, list[int]]]:
    """Texts cut into non-overlapping windows, each with the start token in front and so of up to ``window + 1`` tokens.

    Returns:
        Pairs of the index of the text and the token ids; every token of every text is in exactly one window.

    Raises:
        ValueError: If there is no text or an empty one, or the window does not fit the context.
    """
    if not texts:
        raise ValueError("no texts to cut into windows")
    context, start = loaded.provenance.context, loaded.provenance.start_id
    front = [] if start is None else [start]
    if window < 1 or (context is not None and window + len(front) > context):
        raise ValueError(f"window {window} must be within 1..{(context or window) - len(front)}")
    cut = []
    for index, ids in enumerate(encode_batch(loaded, texts, any_length=True)):
        body = ids[len(front) :]
        cut += [(index, front + body[begin : begin + window]) for begin in range(0, len(body), window)]
    return cut


def window_nll(
    loaded: Loaded, texts: Sequence[str], *, window: int = 512, batch_tokens: int = BATCH_TOKENS
) -> pd.DataFrame:
    """Negative log-probability by window: columns ``text``, ``window``, ``nats``, ``tokens``.

    Sums, not means, so that a ratio of sums can be resampled by text or by window.

    Raises:
        ValueError: As :func:`windows`.
    """
    cut = [(index, ids) for index, ids in windows(loaded, texts, window=window) if len(ids) > 1]
    nats = -sequence_log_probs(loaded.model, [ids for _, ids in cut], batch_tokens=batch_tokens)
    table = pd.DataFrame({"text": [index for index, _ in cut]})
    table["window"] = table.groupby("text").cumcount()
    table["nats"] = nats
    table["tokens"] = [len(ids) - 1 for _, ids in cut]
    return table


def perplexity(
    loaded: Loaded, texts: Sequence[str], *, window: int = 512, batch_tokens: int = BATCH_TOKENS
) -> Perplexity:
    r"""Perplexity on non-overlapping windows, :math:`\exp(\sum \text{nats} / \sum \text{tokens})`.

    Raises:
        ValueError: As :func:`windows`.
    """
    table = window_nll(loaded, texts, window=window, batch_tokens=batch_tokens)
    nats, tokens = float(table["nats"].to_numpy().sum()), int(table["tokens"].to_numpy().sum())
    return Perplexity(value=math.exp(nats / tokens), nats=nats, tokens=tokens)


def continuation_log_probs(
    model: PreTrainedModel, prefix: Sequence[int], continuations: Sequences, *, batch_tokens: int = BATCH_TOKENS
) -> list[Float[Tensor, " continuation"]]:
    """Log-probability of every token of each continuation of one prefix, which is computed once.

    Args:
        model: A plain Hugging Face decoder (its key-value cache is used).
        prefix: Token ids, with the start token.
        continuations: Token ids of the continuations.
        batch_tokens: Token budget of one forward pass, cached tokens not counted.

    Raises:
        ValueError: If the prefix or a continuation is empty.
    """
    if not prefix:
        raise ValueError("prefix is empty: it needs at least the start token")
    empty = [index for index, continuation in enumerate(continuations) if not continuation]
    if empty:
        raise ValueError(f"continuation {empty[0]} is empty")
    scores: list[Tensor] = [torch.empty(0)] * len(continuations)
    with torch.inference_mode():
        head = model(torch.tensor([list(prefix)], device=_device(model)), use_cache=True)
        first = head.logits[:, -1:].float().log_softmax(-1)
        for batch in token_batches([len(continuation) for continuation in continuations], batch_tokens):
            ids, mask = _pad([continuations[index] for index in batch], _device(model))
            scored = first[0, 0, ids[:, :1]]
            if ids.shape[1] > 1:
                cache = copy.deepcopy(head.cache)
                cache.batch_repeat_interleave(len(batch))
                seen = torch.cat([mask.new_ones(len(batch), len(prefix)), mask[:, :-1]], dim=1)
                logits = model(ids[:, :-1], attention_mask=seen, cache=cache, use_cache=True).logits
                scored = torch.cat([scored, _next_token_log_probs(logits, ids[:, 1:])], dim=1)
            for row, index in enumerate(batch):
                scores[index] = scored[row, : len(continuations[index])].cpu().clone()
    return scores


def choice_log_probs(
    loaded: Loaded, options: Sequence[str], prompt: Callable[[Sequence[str]], str], labels: Sequence[str]
) -> Choice:
    """Preference among options that are answered by label, averaged over every assignment of labels in turn.

    Small models prefer a label (mostly the first) whatever it stands for. Each of the ``n`` rotations of the options
    gives every option each label once; probabilities are renormalised over the labels within a rotation and averaged
    over rotations. With two options these are the two orders.

    Args:
        loaded: The model.
        options: What is to be chosen among.
        prompt: Renders options, in the order of the labels, into a prompt that ends where the label belongs.
        labels: Their labels as the model would write them (``" A"``, ``" B"``), one token each.

    Raises:
        ValueError: If there are not as many labels as options (at least two), or a label is not one token of its own.
    """
    if len(labels) != len(options) or len(options) < 2:
        raise ValueError(f"{len(options)} options need as many labels and at least two; got {len(labels)} labels")
    label_ids = [_single_token(loaded, label) for label in labels]
    if len(set(label_ids)) < len(label_ids):
        raise ValueError(f"labels {list(labels)} must be distinct tokens")
    count = len(options)
    prompts = [prompt([options[(label - order) % count] for label in range(count)]) for order in range(count)]
    rows = np.empty((count, count))
    mass = np.empty(count)
    for order, text in enumerate(prompts):
        prefix = encode(loaded, text)
        scores = continuation_log_probs(loaded.model, prefix, [[label] for label in label_ids])
        by_label = torch.cat(scores).double().numpy()
        total = np.logaddexp.reduce(by_label)
        mass[order] = math.exp(total)
        rows[order] = [by_label[(option + order) % count] - total for option in range(count)]
    averaged = np.logaddexp.reduce(rows, axis=0) - math.log(count)
    return Choice(log_probs=averaged, by_order=rows, label_mass=float(mass.mean()))


def _single_token(loaded: Loaded, label: str) -> int:
    ids = loaded.tokenizer(label, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ValueError(f"label {label!r} is {len(ids)} tokens for {loaded.provenance.name}; choose one that is one")
    return ids[0]


def _pad(sequences: Sequences, device: torch.device) -> tuple[Int[Tensor, "batch position"], Tensor]:
    """Token ids padded on the right with zeros, and the mask of real tokens."""
    length = max(len(sequence) for sequence in sequences)
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    mask = torch.zeros(len(sequences), length, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.as_tensor(sequence)
        mask[row, : len(sequence)] = 1
    return ids.to(device), mask.to(device)


def _logits(model: Any, ids: Tensor, mask: Tensor) -> Float[Tensor, "batch position vocab"]:
    """Logits of a Hugging Face model, whose output is an object, or of a bridge, whose output is the tensor."""
    output = model(ids, attention_mask=mask)
    return output if isinstance(output, Tensor) else output.logits


def _next_token_log_probs(
    logits: Float[Tensor, "batch position vocab"], targets: Int[Tensor, "batch position"]
) -> Float[Tensor, "batch position"]:
    # Row by row: a log-softmax of the whole batch would double the largest tensor of the pass.
    return torch.stack(
        [
            row.float().gather(-1, target[:, None])[:, 0] - row.float().logsumexp(-1)
            for row, target in zip(logits, targets, strict=True)
        ]
    )


def _device(model: Any) -> torch.device:
    return next(model.parameters()).device
