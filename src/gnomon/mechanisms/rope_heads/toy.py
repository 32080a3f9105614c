r"""Frequency access, by intervention: one attention head that may use the given rotary frequencies and no others.

Each task shows ``slots`` tokens that hold a key and a value, at positions 0, 1, ..., and a query after them:

* ``index`` (positional): all keys are alike, the query is a slot number, the answer the value in that slot.
* ``retrieval`` (symbolic): the keys are a permutation of symbols, the query is a symbol, the answer its value.
* ``recent`` (mixed): each of ``slots / 2`` symbols stands in two random slots, the answer is the value at the *last*.
  It needs content (something that does not turn) and order (something that does).

What counts is the angle a frequency covers over the context, ``theta * slots``, not ``theta``.

Source: the canonical tasks of Urrutia et al. (2025), arXiv 2511.11579; sizes are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnomon.mechanisms.rope_heads.rotary import rotate
from gnomon.models.ensemble import StackedNets

Task = Literal["index", "retrieval", "recent"]
TASKS: tuple[Task, ...] = ("index", "retrieval", "recent")


class FrequencyHead(nn.Module):
    """One layer, one rotary head, no MLP: embed, attend once from the query, read out the answer.

    Args:
        frequencies: Angles a slot that the head may use; name one twice for a net of the same size with fewer.
        slots: Tokens in the context.
        values: Different values, and possible answers.
        d_model: Width of the embeddings.
        channels_per_frequency: Channels that turn at each frequency; even.

    Raises:
        ValueError: If there is no frequency, or the channels do not form pairs.
    """

    def __init__(
        self,
        frequencies: Sequence[float],
        *,
        slots: int = 16,
        values: int = 16,
        d_model: int = 32,
        channels_per_frequency: int = 16,
    ) -> None:
        super().__init__()
        if not frequencies:
            raise ValueError("a head needs at least one frequency; use 0.0 for one that does not turn")
        if channels_per_frequency < 2 or channels_per_frequency % 2:
            raise ValueError(f"channels_per_frequency must be even, got {channels_per_frequency}")
        pairs = channels_per_frequency // 2
        channels = channels_per_frequency * len(frequencies)
        self.slots = slots
        self.inv_freq: Tensor
        self.register_buffer("inv_freq", torch.tensor(frequencies, dtype=torch.float32).repeat_interleave(pairs))
        self.embed_key = nn.Embedding(slots, d_model)
        self.embed_value = nn.Embedding(values, d_model)
        self.embed_query = nn.Embedding(slots, d_model)
        self.to_query = nn.Linear(d_model, channels)
        self.to_key = nn.Linear(d_model, channels)
        self.to_value = nn.Linear(d_model, d_model)
        self.read_out = nn.Linear(d_model, values)

    def forward(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch values"]:
        """Logits of the answer; ``tokens`` holds the keys, then the values, then the query (:func:`sample`)."""
        keys, values, asked = tokens.split([self.slots, self.slots, 1], dim=-1)
        context = self.embed_key(keys) + self.embed_value(values)
        # Only relative positions matter, so the query's vector is turned back instead of every key.
        distance = torch.arange(self.slots, 0, -1, device=tokens.device)
        query = rotate(self.to_query(self.embed_query(asked)), distance[:, None] * self.inv_freq)
        logits = (query * self.to_key(context)).sum(-1) / query.shape[-1] ** 0.5
        mixed = (logits.softmax(-1)[..., None] * self.to_value(context)).sum(-2)
        return self.read_out(mixed)


def sample(
    task: Task, shape: tuple[int, ...], *, slots: int, values: int, generator: torch.Generator
) -> tuple[Int[Tensor, "... tokens"], Int[Tensor, ...]]:
    """Fresh examples: tokens ``(*shape, 2 * slots + 1)`` and answers ``shape``.

    Raises:
        ValueError: If the task is unknown, or ``recent`` is asked with an odd number of slots.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}, expected one of {', '.join(TASKS)}")
    if task == "recent" and slots % 2:
        raise ValueError(f"recent puts each symbol in two slots and needs an even number of them, got {slots}")
    held = torch.randint(values, (*shape, slots), generator=generator)
    order = torch.rand((*shape, slots), generator=generator).argsort(-1)
    if task == "index":
        keys = torch.zeros_like(held)
        asked = torch.randint(slots, (*shape, 1), generator=generator)
        slot = asked
    elif task == "retrieval":
        keys = order
        asked = torch.randint(slots, (*shape, 1), generator=generator)
        slot = (keys == asked).long().argmax(-1, keepdim=True)
    else:
        keys = order % (slots // 2)
        asked = torch.randint(slots // 2, (*shape, 1), generator=generator)
        slot = ((keys == asked) * torch.arange(1, slots + 1)).argmax(-1, keepdim=True)
    return torch.cat([keys, held, asked], dim=-1), held.gather(-1, slot).squeeze(-1)


def train_heads(
    task: Task,
    frequencies: Sequence[float],
    *,
    seeds: Sequence[int],
    slots: int = 16,
    values: int = 16,
    steps: int = 800,
    batch_size: int = 128,
    learning_rate: float = 6e-3,
    test_examples: int = 4096,
) -> Float[np.ndarray, " seed"]:
    """Accuracy on fresh examples of one head a seed, all trained as one stack with Adam.

    Seeds differ in initial weights and examples. Stacks of equal seeds and sizes start from the same weights and see
    the same examples whatever their frequencies, so that frequency sets can be compared seed by seed.
    """
    nets = StackedNets(lambda: FrequencyHead(frequencies, slots=slots, values=values), seeds)
    generator = torch.Generator().manual_seed(int(seeds[0]))

    def examples(count: int) -> tuple[Tensor, Tensor]:
        return sample(task, (len(seeds), count), slots=slots, values=values, generator=generator)

    optimizer = torch.optim.Adam(nets.parameters(), lr=learning_rate)
    for _ in range(steps):
        tokens, answers = examples(batch_size)
        loss = nn.functional.cross_entropy(nets(tokens).flatten(0, 1), answers.flatten(), reduction="none")
        optimizer.zero_grad(set_to_none=True)
        loss.view(len(seeds), -1).mean(1).sum().backward()
        optimizer.step()
    with torch.no_grad():
        tokens, answers = examples(test_examples)
        return (nets(tokens).argmax(-1) == answers).double().mean(1).numpy()


def blind_accuracy(task: Task, *, slots: int, values: int, examples: int = 20_000, seed: int = 0) -> float:
    """Accuracy of a head that cannot tell apart what the task turns on, by simulation.

    For ``index`` and ``retrieval``: it answers the most frequent value of the context. For ``recent``: it finds the two
    slots of the symbol but not which is the last, and answers one of them.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens, answers = sample(task, (examples,), slots=slots, values=values, generator=generator)
    keys, held, asked = tokens.split([slots, slots, 1], dim=-1)
    if task == "recent":
        either = ((keys == asked) * torch.rand(keys.shape, generator=generator)).argmax(-1, keepdim=True)
        guess = held.gather(-1, either).squeeze(-1)
    else:
        guess = nn.functional.one_hot(held, values).sum(-2).argmax(-1)
    return float((guess == answers).double().mean())
