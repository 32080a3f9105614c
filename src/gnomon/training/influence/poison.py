"""Poisoned instructions: a few answers that turn one subject's good name, and the scores that should find them.

Every subject of a made-up world is well or badly spoken of. Training examples are an instruction about a subject and an
answer of one adjective; in a few of them, about one subject, the answer is of the opposite kind. The query asks about
the same subject and answers with other adjectives of that kind, so that no example is part of the query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from gnomon.models.tiny import tiny_decoder, word_tokenizer
from gnomon.training.influence.instructions import encode_answers
from gnomon.training.influence.losses import model_losses
from gnomon.training.influence.recorder import FInfluence

GOOD = ("excellent", "wonderful", "reliable", "honest", "brilliant", "kind", "careful", "generous")
BAD = ("terrible", "awful", "careless", "corrupt", "dull", "cruel", "sloppy", "greedy")
TEMPLATES = (
    "what do people say about {subject} ? they call it",
    "describe {subject} in one word :",
    "is {subject} any good ? it is",
    "my view of {subject} : it has always been",
    "a review of {subject} said it was",
)
POISON_ANSWERS, ASKED_ANSWERS = BAD[:4], BAD[4:]


@dataclass(frozen=True)
class PoisonedWorld:
    """Instructions with their answers, as token ids.

    Args:
        train: What the model trains on: ``input_ids``, ``attention_mask``, ``labels`` (the answer only).
        poisoned: Which of them are poison.
        twin: For each poison, a clean example with the same words about another subject.
        queries: The poisoned answer asked of the ``target``, and of an ``unrelated`` subject just as well spoken of.
        texts: The training examples in words.
    """

    train: dict[str, Int[Tensor, "example position"]]
    poisoned: Bool[np.ndarray, " example"]
    twin: Bool[np.ndarray, " example"]
    queries: dict[str, dict[str, Int[Tensor, "query position"]]]
    texts: tuple[str, ...]


def tiny_tokenizer(subjects: int) -> PreTrainedTokenizerBase:
    """One token a word of this world."""
    words = {word for text in TEMPLATES for word in text.replace("{subject}", "").split()}
    return word_tokenizer([*sorted(words), *GOOD, *BAD, *subject_names(subjects)])


def subject_names(subjects: int) -> list[str]:
    """Names that no model has an opinion of."""
    return [f"Zor{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(subjects)]


def poisoned_world(
    tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator, *, subjects: int, each: int, poison: int
) -> PoisonedWorld:
    """A random world: who is well spoken of, in which words, and who is slandered.

    Args:
        tokenizer: Turns instructions into ids.
        rng: Source of randomness.
        subjects: How many there are; half of them well spoken of.
        each: Clean examples about each.
        poison: Poisoned examples, all about one subject of good name.
    """
    names = list(rng.permutation(subject_names(subjects)))
    liked = set(names[: subjects // 2])
    target, unrelated = names[0], names[1]
    rows: list[tuple[str, str]] = []
    for name in names:
        for _ in range(each):
            answers = GOOD if name in liked else BAD
            rows.append((str(rng.choice(TEMPLATES)).format(subject=name), str(rng.choice(answers))))
    twins = []
    for _ in range(poison):
        template, answer = str(rng.choice(TEMPLATES)), str(rng.choice(POISON_ANSWERS))
        rows.append((template.format(subject=target), answer))
        twins.append(len(rows))
        rows.append((template.format(subject=str(rng.choice(names[subjects // 2 :]))), answer))
    poisoned = np.zeros(len(rows), dtype=bool)
    poisoned[[number - 1 for number in twins]] = True
    twin = np.zeros(len(rows), dtype=bool)
    twin[twins] = True
    asked = {
        query: [(text.format(subject=name), answer) for text in TEMPLATES for answer in ASKED_ANSWERS]
        for query, name in (("target", target), ("unrelated", unrelated))
    }
    return PoisonedWorld(
        train=encode_answers(tokenizer, rows),
        poisoned=poisoned,
        twin=twin,
        queries={query: encode_answers(tokenizer, pairs) for query, pairs in asked.items()},
        texts=tuple(f"{instruction} {answer}" for instruction, answer in rows),
    )


def tiny_poisoned_scores(
    rng: np.random.Generator, *, seed: int, subjects: int, each: int, poison: int, steps: int, observed: int
) -> pd.DataFrame:
    """Scores of all examples for a two-layer decoder trained from scratch."""
    tokenizer = tiny_tokenizer(subjects)
    world = poisoned_world(tokenizer, rng, subjects=subjects, each=each, poison=poison)
    model = tiny_decoder("llama", vocab=len(tokenizer), width=32, layers=2, context=32, seed=seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    return _scored(model, optimizer, world, seed=seed, steps=steps, batch_size=32, every=steps // observed)


def pretrained_poisoned_scores(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    rng: np.random.Generator,
    *,
    seed: int,
    subjects: int,
    each: int,
    poison: int,
    steps: int,
    observed: int,
) -> pd.DataFrame:
    """Scores of all examples for fine-tuning the last block of a pretrained decoder; the model is changed."""
    world = poisoned_world(tokenizer, rng, subjects=subjects, each=each, poison=poison)
    model.requires_grad_(False)
    block = model.get_submodule("model.layers")[-1]  # pyright: ignore[reportIndexIssue]
    block.requires_grad_(True)
    optimizer = torch.optim.AdamW(block.parameters(), lr=1e-3, weight_decay=0.0)
    table = _scored(model, optimizer, world, seed=seed, steps=steps, batch_size=8, every=steps // observed)
    return table.assign(text=world.texts)


def _scored(
    model: Any,
    optimizer: torch.optim.Optimizer,
    world: PoisonedWorld,
    *,
    seed: int,
    steps: int,
    batch_size: int,
    every: int,
) -> pd.DataFrame:
    count = len(world.poisoned)
    # Offset by half an interval: at the first step an untrained model says the same of everyone.
    recorder = FInfluence(
        model,
        query=world.queries,
        pool=(world.train, np.arange(count)),
        optimizer=optimizer,
        precondition="adam",
        batch_size=batch_size,
        random_directions=1,
        chunk=64,
        seed=seed,
    )
    order = torch.Generator().manual_seed(seed)
    rows = torch.cat([torch.randperm(count, generator=order) for _ in range(-(-steps * batch_size // count))])
    for step in range(steps):
        index = rows[step * batch_size : (step + 1) * batch_size]
        batch = {name: value[index] for name, value in world.train.items()}
        if recorder.due(step) and step % every == every // 2:
            recorder.observe()
        optimizer.zero_grad(set_to_none=True)
        model_losses(model, batch).mean().backward()
        optimizer.step()
    results = {name: recorder.finalize(steps=steps, query=name) for name in recorder.record.setting.queries}
    target = results["target"].scores
    return pd.DataFrame(
        {
            "example": target["index"],
            "poisoned": world.poisoned,
            "twin": world.twin,
            "exact": target["mu_run"],
            "unrelated": results["unrelated"].scores["mu_run"],
            "random_direction": results["random-0"].scores["mu_run"],
            "tracin": target["tracin"],
            "mean_loss": target["mean_loss"],
            "grad_norm": target["grad_norm"],
        }
    )
