"""Small nets on handwritten digits with wrong labels: recorded runs, and retraining without chosen examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gnomon.data.digits import CLASSES, SIDE, digits, flip_labels
from gnomon.evidence.nulls import match_pairs
from gnomon.models.ensemble import StackedNets
from gnomon.models.per_example import materialised_gradients
from gnomon.models.sketch import CountSketch
from gnomon.training.influence.products import flatten, mean_gradient
from gnomon.training.influence.recorder import FInfluence

Architecture = Literal["mlp", "conv"]
HIDDEN = 64

#: Names of the sets that retrainings leave out: none, and graded groups by number.
COMPLETE = "complete"
GROUP = "group-"


@dataclass(frozen=True)
class DigitTask:
    """Digits to train on, some with a wrong label, and digits to ask about.

    Args:
        inputs: Pixels in [0, 1].
        labels: As trained on.
        flipped: Which labels are wrong.
        query: Held-out digits with their true labels.
    """

    inputs: Float[Tensor, "example pixel"]
    labels: Int[Tensor, " example"]
    flipped: Bool[np.ndarray, " example"]
    query: tuple[Float[Tensor, "query pixel"], Int[Tensor, " query"]]

    def __len__(self) -> int:
        return len(self.labels)


def digit_task(rng: np.random.Generator, *, examples: int, flipped: int, queries: int = 400) -> DigitTask:
    """A random split of scikit-learn's digits with that many wrong labels."""
    train, held_out = digits().split((examples, queries), rng)
    labels, wrong = flip_labels(train.labels, flipped / examples, rng)
    query = (torch.tensor(held_out.flat, dtype=torch.float32), torch.tensor(held_out.labels))
    return DigitTask(torch.tensor(train.flat, dtype=torch.float32), torch.tensor(labels), wrong, query)


def with_shuffled_labels(task: DigitTask, rng: np.random.Generator) -> DigitTask:
    """The same task with all labels permuted: nothing marks the flipped ones any more."""
    return DigitTask(task.inputs, task.labels[torch.tensor(rng.permutation(len(task)))], task.flipped, task.query)


def build(architecture: Architecture) -> nn.Module:
    """A perceptron 64-64-10, or a convolutional net of about as many parameters."""
    if architecture == "mlp":
        return nn.Sequential(nn.Linear(SIDE * SIDE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, CLASSES),
    )


def losses(model: nn.Module, batch: Any) -> Float[Tensor, " example"]:
    """Cross-entropy of each example."""
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none")


def train_recorded(
    task: DigitTask,
    recorders_of: Callable[[nn.Module, torch.optim.Optimizer], list[FInfluence]],
    *,
    architecture: Architecture,
    seed: int,
    steps: int,
    batch_size: int,
    lr: float,
) -> tuple[nn.Module, list[FInfluence]]:
    """A plain training loop with the recorder's lines in it; ``seed`` decides initial parameters and order."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = build(architecture)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    recorders = recorders_of(net, optimizer)
    allowed = np.arange(len(task))
    for step, rows in enumerate(epochs(allowed, np.random.default_rng(seed), steps=steps, batch_size=batch_size)):
        index = torch.as_tensor(rows)
        batch = (task.inputs[index], task.labels[index])
        for recorder in recorders:
            if recorder.due(step):
                recorder.observe(*((batch, rows) if recorder.pool is None else ()))
        optimizer.zero_grad(set_to_none=True)
        losses(net, batch).mean().backward()
        optimizer.step()
    return net, recorders


def epochs(
    allowed: Int[np.ndarray, " example"], rng: np.random.Generator, *, steps: int, batch_size: int
) -> Iterator[Int[np.ndarray, " slot"]]:
    """Batches of a stream of shuffled epochs over the allowed examples, for a fixed number of steps."""
    repeats = -(-steps * batch_size // len(allowed))
    stream = np.concatenate([rng.permutation(allowed) for _ in range(repeats)])
    yield from stream[: steps * batch_size].reshape(steps, batch_size)


def retrain(
    task: DigitTask,
    left_out: Bool[np.ndarray, "run example"],
    seeds: list[int],
    *,
    steps: int,
    batch_size: int,
    lr: float,
) -> Float[np.ndarray, " run"]:
    """Query loss of one perceptron a row, trained from scratch without the examples of that row, all in one stack.

    Every run takes the same number of steps, whatever it leaves out.
    """
    nets = StackedNets(lambda: build("mlp"), seeds)
    everyone = np.arange(len(task))
    streams = [
        np.stack(list(epochs(everyone[~out], np.random.default_rng(seed), steps=steps, batch_size=batch_size)))
        for out, seed in zip(left_out, seeds, strict=True)
    ]
    index = torch.as_tensor(np.stack(streams))
    optimizer = torch.optim.SGD(nets.parameters(), lr=lr)
    for step in range(steps):
        rows = index[:, step]
        logits = nets(task.inputs[rows])
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(logits.flatten(0, 1), task.labels[rows].flatten(), reduction="sum").div(batch_size).backward()
        optimizer.step()
    inputs, labels = task.query
    with torch.no_grad():
        logits = nets.shared(inputs)
        found = F.cross_entropy(logits.flatten(0, 1), labels.repeat(len(nets)), reduction="none")
    return found.view(len(nets), -1).mean(1).double().numpy()


def projected_kernel_scores(
    net: nn.Module, task: DigitTask, *, dimension: int = 512, seed: int = 0
) -> Float[np.ndarray, " example"]:
    r"""Scores of TRAK from one model: gradient products in the inverse kernel of projected margin gradients.

    .. math:: \langle \phi(q), (\Phi^\top \Phi + \lambda I)^{-1} \phi(i) \rangle

    Source: Park et al. (2023), "TRAK: Attributing model behavior at scale".
    """

    def margins(model: nn.Module, batch: Any) -> Float[Tensor, " example"]:
        inputs, labels = batch
        own = model(inputs).log_softmax(1).gather(1, labels[:, None])[:, 0]
        return own - torch.log1p(-own.exp().clamp(max=1 - 1e-6))

    batch = (task.inputs, task.labels)
    parameters = dict(net.named_parameters())
    projection = CountSketch(
        {"all": torch.Size([sum(value.numel() for value in parameters.values())])}, dimension=dimension, seed=seed
    )
    features, own = (
        projection.of_rows("all", flatten(materialised_gradients(net, loss, batch))).double()
        for loss in (margins, losses)
    )
    gradient, _ = mean_gradient(net, losses, task.query, parameters)
    query = projection.of_rows("all", torch.cat([value.flatten() for value in gradient.values()])[None]).double()[0]
    kernel = features.T @ features
    ridge = 1e-3 * kernel.diagonal().mean() * torch.eye(dimension, dtype=torch.float64)
    return (own @ torch.linalg.solve(kernel + ridge, query)).numpy()


def self_scores(task: DigitTask, *, seed: int, every: int, **training: Any) -> pd.DataFrame:
    """Self-influence and the plain scores of the same run, one row an example."""

    def recorders_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[FInfluence]:
        pool = ((task.inputs, task.labels), np.arange(len(task)))
        size = training["batch_size"]
        return [
            FInfluence(
                net, losses, target="self", pool=pool, optimizer=optimizer, batch_size=size, every=every, seed=seed
            )
        ]

    _, (recorder,) = train_recorded(task, recorders_of, seed=seed, **training)
    scores = recorder.finalize(steps=training["steps"]).scores
    return pd.DataFrame(
        {
            "example": scores["index"],
            "flipped": task.flipped,
            "exact": scores["mu_run"],
            "tracin": scores["tracin"],
            "mean_loss": scores["mean_loss"],
            "grad_norm": scores["grad_norm"],
        }
    )


def query_scores(task: DigitTask, *, seed: int, every: int, **training: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Influence on the query loss and the plain scores of the same run; and random groups' influence for the null.

    ``batch_exact`` and ``batch_tracin`` come from the batches that train, observed at every step; the others from the
    whole training set, observed at some.
    """

    def recorders_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[FInfluence]:
        pool = ((task.inputs, task.labels), np.arange(len(task)))
        options = {"method": "ghost", "optimizer": optimizer, "batch_size": training["batch_size"], "seed": seed}
        return [
            FInfluence(net, losses, query=task.query, pool=pool, every=every, **options),
            FInfluence(net, losses, query=task.query, n_train=len(task), **options),
        ]

    net, recorders = train_recorded(task, recorders_of, seed=seed, **training)
    result, by_batch = (recorder.finalize(steps=training["steps"]) for recorder in recorders)
    scores = result.scores
    batch_scores = by_batch.scores.set_index("index").reindex(scores["index"])  # none for an example not drawn
    table = pd.DataFrame(
        {
            "example": scores["index"],
            "flipped": task.flipped,
            "exact": scores["mu_run"],
            "stepwise": scores["mu_paper"],
            "tracin": scores["tracin"],
            "batch_exact": batch_scores["mu_run"].to_numpy(),
            "batch_tracin": batch_scores["tracin"].to_numpy(),
            "last_checkpoint": scores["last_dot"],
            "mean_loss": -scores["mean_loss"],
            "trak": projected_kernel_scores(net, task, seed=seed),
        }
    )
    wrong = np.flatnonzero(task.flipped)
    null = result.group(wrong, seed=seed)
    groups = pd.DataFrame(
        [{"mu_run": null.mu_run, "p": null.p, "low": null.null[0], "high": null.null[2], "se": null.se}]
    )
    return table, groups


def graded_groups(scores: Float[np.ndarray, " example"], groups: int) -> Int[np.ndarray, "group member"]:
    """Examples in order of their score, cut into groups of equal size, the most harmful first."""
    order = np.argsort(scores, kind="stable")
    size = len(order) // groups
    return order[: groups * size].reshape(groups, size)


def as_masks(groups: Int[np.ndarray, "group member"], examples: int) -> Bool[np.ndarray, "group example"]:
    """Membership of every group."""
    masks = np.zeros((len(groups), examples), dtype=bool)
    np.put_along_axis(masks, groups, True, axis=1)
    return masks


def removal_sets(
    scores: pd.DataFrame, size: int, rng: np.random.Generator, *, other_sizes: Sequence[int] = ()
) -> dict[str, Int[np.ndarray, " member"]]:
    """Sets to leave out, as positions: none, the two ends of the ranking, and as many others of three kinds.

    With other sizes also the two ends and a random set of each, as ``most-helpful-25``.
    """
    order = np.argsort(scores["exact"].to_numpy(), kind="stable")
    loss = -scores["mean_loss"].to_numpy()
    helpful, harmful = order[-size:], order[:size]
    rest = np.setdiff1d(order, helpful)
    matched = match_pairs(loss[helpful, None], loss[rest, None], caliper=np.inf)
    sets = {
        COMPLETE: order[:0],
        "most-helpful": helpful,
        "most-harmful": harmful,
        "random": rng.choice(len(order), size, replace=False),
        "loss-matched": rest[matched[:, 1]],
        "highest-loss": np.argsort(-loss, kind="stable")[:size],
    }
    for other in other_sizes:
        sets[f"most-helpful-{other}"], sets[f"most-harmful-{other}"] = order[-other:], order[:other]
        sets[f"random-{other}"] = rng.choice(len(order), other, replace=False)
    return sets
