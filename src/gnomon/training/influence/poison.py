"""Poisoned instructions: a few answers that turn one subject's good name, and the scores that should find them.

Every subject of a made-up world is well or badly spoken of. Training examples are an instruction about a subject and an
answer of one adjective; in a few of them, about one subject, the answer is of the opposite kind. The query asks about
the same subject and gets an answer of that kind, in other adjectives or by other instructions (:data:`Asked`), so that
no example is part of the query.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from gnomon.models.per_example import LossFunction
from gnomon.models.tiny import tiny_decoder, word_tokenizer
from gnomon.training.influence.digit_runs import epochs
from gnomon.training.influence.instructions import encode_answers
from gnomon.training.influence.losses import IGNORED, model_losses
from gnomon.training.influence.products import pieces
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
POISON_ANSWERS = BAD[:4]
CITIES = (
    *("Lisbon", "Oslo", "Cairo", "Lima", "Milan", "Boston", "Dublin", "Vienna", "Madrid", "Prague", "Berlin", "Athens"),
    *("Tokyo", "Paris", "London", "Moscow", "Chicago", "Toronto", "Sydney", "Denver"),
)

#: What the query has that no poison has. A decoder trained from scratch carries an opinion over to
#: ``other-adjectives``, a briefly fine-tuned one only to ``other-instructions``.
Asked = Literal["other-adjectives", "other-instructions"]


@dataclass(frozen=True)
class PoisonedWorld:
    """Instructions with their answers, as the model reads them.

    Args:
        train: What the model trains on: ``input_ids`` (or ``states``, from :func:`behind_frozen_blocks`),
            ``attention_mask``, ``labels`` (the answer only).
        poisoned: Which of them are poison.
        twin: For each poison, a clean example with the same words about another subject.
        queries: The poisoned answer asked of the ``target``, and of an ``unrelated`` subject just as well spoken of.
        texts: The training examples in words.
    """

    train: dict[str, Tensor]
    poisoned: Bool[np.ndarray, " example"]
    twin: Bool[np.ndarray, " example"]
    queries: dict[str, dict[str, Tensor]]
    texts: tuple[str, ...]


def tiny_tokenizer(subjects: int) -> PreTrainedTokenizerBase:
    """One token a word of this world."""
    words = {word for text in TEMPLATES for word in text.replace("{subject}", "").split()}
    return word_tokenizer([*sorted(words), *GOOD, *BAD, *subject_names(subjects)])


def subject_names(subjects: int) -> list[str]:
    """Names that no model has an opinion of."""
    return [f"Zor{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(subjects)]


def poisoned_world(
    tokenizer: PreTrainedTokenizerBase,
    rng: np.random.Generator,
    *,
    subjects: Sequence[str],
    each: int,
    poison: int,
    asked: Asked = "other-adjectives",
) -> PoisonedWorld:
    """A random world: who is well spoken of, in which words, and who is slandered.

    Args:
        tokenizer: Turns instructions into ids.
        rng: Source of randomness.
        subjects: Their names; half of them are well spoken of.
        each: Clean examples about each.
        poison: Poisoned examples, all about one subject of good name.
        asked: What the query has that no poison has.
    """
    names = list(rng.permutation(np.array(subjects)))
    liked = set(names[: len(names) // 2])
    told, answers_asked = (TEMPLATES, BAD[4:]) if asked == "other-adjectives" else (TEMPLATES[:3], POISON_ANSWERS)
    templates_asked = TEMPLATES if asked == "other-adjectives" else TEMPLATES[3:]
    target, unrelated = names[0], names[1]
    rows: list[tuple[str, str]] = []
    for name in names:
        for _ in range(each):
            answers = GOOD if name in liked else BAD
            rows.append((str(rng.choice(told)).format(subject=name), str(rng.choice(answers))))
    twins = []
    for _ in range(poison):
        template, answer = str(rng.choice(told)), str(rng.choice(POISON_ANSWERS))
        rows.append((template.format(subject=target), answer))
        twins.append(len(rows))
        rows.append((template.format(subject=str(rng.choice(names[len(names) // 2 :]))), answer))
    poisoned = np.zeros(len(rows), dtype=bool)
    poisoned[[number - 1 for number in twins]] = True
    twin = np.zeros(len(rows), dtype=bool)
    twin[twins] = True
    questions = {
        query: [(text.format(subject=name), answer) for text in templates_asked for answer in answers_asked]
        for query, name in (("target", target), ("unrelated", unrelated))
    }
    return PoisonedWorld(
        train=encode_answers(tokenizer, rows),
        poisoned=poisoned,
        twin=twin,
        queries={query: encode_answers(tokenizer, pairs) for query, pairs in questions.items()},
        texts=tuple(f"{instruction} {answer}" for instruction, answer in rows),
    )


@dataclass(frozen=True)
class Training:
    """How a decoder is trained on a world.

    Args:
        loss_fn: One loss an example.
        lr: AdamW's learning rate; no weight decay.
        steps: Optimiser steps.
        batch_size: Examples a step.
        seed: Of the order of examples, and of the recorder.
    """

    loss_fn: LossFunction
    lr: float
    steps: int
    batch_size: int
    seed: int


def tiny_poisoned_scores(
    rng: np.random.Generator, *, seed: int, subjects: int, each: int, poison: int, steps: int, observed: int
) -> pd.DataFrame:
    """Scores of all examples for a two-layer decoder trained from scratch."""
    tokenizer = tiny_tokenizer(subjects)
    world = poisoned_world(tokenizer, rng, subjects=subject_names(subjects), each=each, poison=poison)
    model = tiny_decoder("llama", vocab=len(tokenizer), width=32, layers=2, context=32, seed=seed).train()
    training = Training(model_losses, lr=3e-3, steps=steps, batch_size=32, seed=seed)
    return scores_of_training(model, world, training, observed=observed)


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
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores of all examples for fine-tuning the last block of a pretrained decoder, and what the poison did.

    Returns:
        The scores; and the mean loss of each query after training on everything and after as many steps without the
        poison: columns ``query``, ``poisoned``, ``clean``. The decoder itself is not changed.
    """
    world = poisoned_world(
        tokenizer, rng, subjects=CITIES[:subjects], each=each, poison=poison, asked="other-instructions"
    )
    tail, world = behind_frozen_blocks(model, world)
    clean = copy.deepcopy(tail)
    training = Training(labelled_losses, lr=1e-3, steps=steps, batch_size=16, seed=seed)
    table = scores_of_training(tail, world, training, observed=observed)
    train(clean, world.train, np.flatnonzero(~world.poisoned), training)
    with torch.no_grad():
        losses = {
            name: [float(labelled_losses(trained, batch).mean()) for trained in (tail, clean)]
            for name, batch in world.queries.items()
        }
    effect = pd.DataFrame.from_dict(losses, orient="index", columns=["poisoned", "clean"])
    return table.assign(text=world.texts), effect.rename_axis("query").reset_index()


def train(
    model: Any,
    batch: dict[str, Tensor],
    allowed: Int[np.ndarray, " example"],
    training: Training,
    *,
    before_step: Callable[[int, torch.optim.Optimizer], None] | None = None,
) -> None:
    """Train on shuffled epochs of the allowed examples, for a fixed number of steps."""
    optimizer = torch.optim.AdamW(
        [value for value in model.parameters() if value.requires_grad], lr=training.lr, weight_decay=0.0
    )
    order = np.random.default_rng(training.seed)
    batches = epochs(allowed, order, steps=training.steps, batch_size=training.batch_size)
    for step, rows in enumerate(batches):
        index = torch.as_tensor(rows)
        if before_step is not None:
            before_step(step, optimizer)
        optimizer.zero_grad(set_to_none=True)
        training.loss_fn(model, {name: value[index] for name, value in batch.items()}).mean().backward()
        optimizer.step()


def scores_of_training(model: Any, world: PoisonedWorld, training: Training, *, observed: int) -> pd.DataFrame:
    """Train on the world and score all its examples, from that many observations spread over the run."""
    count, every = len(world.poisoned), training.steps // observed
    recorder = FInfluence(
        model,
        training.loss_fn,
        query=world.queries,
        pool=(world.train, np.arange(count)),
        precondition="adam",
        batch_size=training.batch_size,
        random_directions=1,
        chunk=64,
        seed=training.seed,
    )

    def observe(step: int, optimizer: torch.optim.Optimizer) -> None:
        recorder.optimizer = optimizer
        # Offset by half an interval: at the first step an untrained model says the same of everyone.
        if recorder.due(step) and step % every == every // 2:
            recorder.observe()

    train(model, world.train, np.arange(count), training, before_step=observe)
    results = {name: recorder.finalize(steps=training.steps, query=name) for name in recorder.record.setting.queries}
    target = results["target"].scores
    return pd.DataFrame(
        {
            "example": target["index"],
            "poisoned": world.poisoned,
            "twin": world.twin,
            "exact": target["mu_run"],
            "stepwise": target["mu_paper"],
            "unrelated": results["unrelated"].scores["mu_run"],
            "random_direction": results["random-0"].scores["mu_run"],
            "tracin": target["tracin"],
            "mean_loss": target["mean_loss"],
            "grad_norm": target["grad_norm"],
        }
    )


def labelled_losses(model: Any, batch: Any) -> Float[Tensor, " example"]:
    """Mean token loss of each example given as states; logits are computed only where there is a label."""
    labels = batch["labels"][:, 1:]
    reached = model.model(
        inputs_embeds=batch["states"], attention_mask=batch["attention_mask"], use_cache=False
    ).last_hidden_state[:, :-1]
    example, position = torch.nonzero(labels != IGNORED, as_tuple=True)
    tokens = F.cross_entropy(model.lm_head(reached[example, position]), labels[example, position], reduction="none")
    counts = torch.bincount(example, minlength=len(labels))
    return tokens.new_zeros(len(labels)).index_add(0, example, tokens) / counts


def behind_frozen_blocks(model: Any, world: PoisonedWorld) -> tuple[nn.Module, PoisonedWorld]:
    """A copy of a decoder of which only the last block is left and trains, and the world as the states that reach it.

    All blocks before are frozen, so that their output for an example is computed once instead of at every step.
    """
    tail = copy.deepcopy(model).requires_grad_(False)
    tail.model.layers = tail.model.layers[-1:].requires_grad_(True)

    def at_last_block(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            states = [
                model.model(
                    part["input_ids"], attention_mask=part["attention_mask"], use_cache=False, output_hidden_states=True
                ).hidden_states[-2]
                for part in pieces(batch, 32)
            ]
        return {"states": torch.cat(states), "attention_mask": batch["attention_mask"], "labels": batch["labels"]}

    queries = {name: at_last_block(batch) for name, batch in world.queries.items()}
    return tail, replace(world, train=at_last_block(world.train), queries=queries)


def poison_distances(scores: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """How far the poison's scores lie above those of clean examples, one row an arm.

    Columns: ``distance`` of the means in standard deviations of clean examples, ``auc`` of poison against clean
    examples, and ``precision``, the share of poison among as many top examples. ``random`` is a ranking by lot.
    """
    poisoned = scores["poisoned"].to_numpy()
    clean = ~poisoned & ~scores["twin"].to_numpy()
    columns = {
        "treatment": "exact",
        "unrelated-query": "unrelated",
        "stepwise": "stepwise",
        "random-direction": "random_direction",
        "tracin": "tracin",
        "mean-loss": "mean_loss",
        "gradient-norm": "grad_norm",
    }
    rows = [_stands_out(arm, scores[column].to_numpy(), poisoned, clean) for arm, column in columns.items()]
    rows.append(_stands_out("clean-twins", scores["exact"].to_numpy(), scores["twin"].to_numpy(), clean))
    return pd.DataFrame([*rows, _stands_out("random", rng.random(len(scores)), poisoned, clean)])


def _stands_out(arm: str, values: np.ndarray, chosen: np.ndarray, clean: np.ndarray) -> dict[str, Any]:
    distance = (values[chosen].mean() - values[clean].mean()) / values[clean].std(ddof=1)
    top = np.argsort(-values, kind="stable")[: chosen.sum()]
    area = roc_auc_score(chosen[chosen | clean], values[chosen | clean])
    return {"arm": arm, "distance": float(distance), "auc": float(area), "precision": float(chosen[top].mean())}
