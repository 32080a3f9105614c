"""Influence in the loop: TracIn's scores against dattri, inner products against written-out gradients, what recording
costs a training loop, and memory by number of examples."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from dattri.algorithm.tracin import TracInAttributor
from dattri.task import AttributionTask
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

from gnomon.models.per_example import materialised_gradients, per_example_gradients
from gnomon.training.influence import FInfluence, per_example_dots
from gnomon.training.influence.nulls import random_group_sums
from gnomon.training.influence.products import flatten, mean_gradient

EXAMPLES, QUERIES, FEATURES, WIDTH, CLASSES, BATCH = 200, 20, 256, 1024, 10, 64
REPEATS = 3


def run() -> dict:
    """Seconds for TracIn's scores of all pairs of 200 examples and 20 queries under a million parameters."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 700), nn.ReLU(), nn.Linear(700, CLASSES)
    )
    train, query = drawn(EXAMPLES), drawn(QUERIES)

    def ours() -> torch.Tensor:
        return per_example_gradients(net, losses, train).gram(per_example_gradients(net, losses, query))

    peer = dattri_tracin(net, train, query)
    expected: list[torch.Tensor] = []
    peer_seconds = best(lambda: expected.append(peer()), repeats=1)
    scores, seconds = ours(), best(ours)
    plain, recorded = loop_seconds()
    return {
        "name": "influence",
        "ours": seconds,
        "peer": peer_seconds,
        "ratio": seconds / peer_seconds,
        "unit": f"seconds for TracIn of {EXAMPLES} examples by {QUERIES} queries; peer: dattri, unprojected",
        "parameters": sum(value.numel() for value in net.parameters()),
        "relative_error": relative_error(scores, expected[0]),
        "loop_overhead": recorded / plain - 1,
        **inner_products(net, train, query),
        **memory(),
        "null_seconds_100k_examples": null_seconds(),
    }


def drawn(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(examples, FEATURES), torch.randint(CLASSES, (examples,))


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def best(call: Callable[[], Any], *, repeats: int = REPEATS) -> float:
    """Fewest seconds of processor time of a few repetitions, which is wall time on one thread of a quiet machine."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def dattri_tracin(net: nn.Module, train: Any, query: Any) -> Callable[[], torch.Tensor]:
    """The same scores by dattri: from one checkpoint, with weight 1 and without projection."""

    def loss(parameters: Any, data: Any) -> torch.Tensor:
        inputs, labels = data
        return F.cross_entropy(functional_call(net, parameters, (inputs.unsqueeze(0),)), labels.reshape(1))

    task = AttributionTask(loss_func=loss, model=net, checkpoints=[net.state_dict()])
    attributor = TracInAttributor(task=task, weight_list=torch.ones(1), normalized_grad=False, device="cpu")
    attributor.projector_kwargs = None  # pyright: ignore[reportAttributeAccessIssue] - exact, as ours
    loaders = [DataLoader(TensorDataset(*data), batch_size=50, shuffle=False) for data in (train, query)]

    def scores() -> torch.Tensor:
        with torch.no_grad():
            return attributor.attribute(*loaders)

    return scores


def inner_products(net: nn.Module, train: Any, query: Any) -> dict[str, float]:
    """With one query's mean gradient, which is what a recorder needs at a step: three ways."""
    direction, _ = mean_gradient(net, losses, query, dict(net.named_parameters()))
    along = torch.cat([value.flatten() for value in direction.values()])

    def written() -> torch.Tensor:
        parts = ([tensor[i : i + 50] for tensor in train] for i in range(0, EXAMPLES, 50))
        return torch.cat([flatten(materialised_gradients(net, losses, tuple(part))) @ along for part in parts])

    found: dict[str, torch.Tensor] = {}
    seconds = {"vmap_seconds": best(lambda: found.update(vmap=written()), repeats=1)}
    for method in ("jvp", "ghost"):
        found[method] = per_example_dots(net, losses, train, [direction], method)[0][:, 0]
        seconds[f"{method}_seconds"] = best(
            lambda method=method: per_example_dots(net, losses, train, [direction], method)
        )
    worst = max(relative_error(found[method], found["vmap"]) for method in ("jvp", "ghost"))
    return {**seconds, "jvp_ratio": seconds["jvp_seconds"] / seconds["vmap_seconds"], "products_error": worst}


def loop_seconds(*, steps: int = 40, every: int = 10) -> tuple[float, float]:
    """A training loop without a recorder, and observing its own batch every tenth step; taken in turn."""
    data = drawn(EXAMPLES)

    def trained(*, record: bool) -> float:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        query = tuple(tensor[:BATCH] for tensor in data)
        recorder = FInfluence(net, losses, query=query, optimizer=optimizer, every=every)
        started = time.process_time()
        for step in range(steps):
            index = torch.randperm(EXAMPLES)[:BATCH]
            batch = tuple(tensor[index] for tensor in data)
            if record and recorder.due(step):
                recorder.observe(batch, index)
            optimizer.zero_grad()
            losses(net, batch).mean().backward()
            optimizer.step()
        return time.process_time() - started

    pairs = [(trained(record=False), trained(record=True)) for _ in range(6)]
    return min(plain for plain, _ in pairs), min(recorded for _, recorded in pairs)


def memory(sizes: tuple[int, ...] = (10_000, 40_000, 160_000), steps: int = 4) -> dict[str, float]:
    """Peak of Python's and numpy's memory while a pool is observed, streamed to disk and scored; bytes an example."""
    peaks = {}
    for examples in sizes:
        x, y = torch.randn(examples, 4), torch.randint(2, (examples,))
        with tempfile.TemporaryDirectory() as folder:
            net = nn.Linear(4, 2)
            pool = ((x, y), np.arange(examples))
            recorder = FInfluence(
                net, losses, query=(x[:50], y[:50]), pool=pool, batch_size=50, method="ghost", chunk=4096, folder=folder
            )
            tracemalloc.start()
            for step in range(steps):
                recorder.observe(step=step, lr=0.1)
                recorder.close_step()
                recorder.record.flush()
            assert len(recorder.finalize().scores) == examples
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        peaks[f"bytes_an_example_at_{examples}"] = peak / examples
    return peaks


def null_seconds(examples: int = 100_000) -> float:
    """The null of a group of 50: 500 random groups."""
    rng = np.random.default_rng(0)
    rates = rng.normal(size=examples)
    return best(lambda: random_group_sums(rates, np.arange(50), draws=500, rng=rng))
