"""Influence in the loop: inner products against written-out gradients and dattri, and the overhead of recording."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from gnomon.models.per_example import materialised_gradients
from gnomon.training.influence import FInfluence, per_example_dots
from gnomon.training.influence.products import flatten, mean_gradient

EXAMPLES, FEATURES, WIDTH, CLASSES, BATCH = 1000, 256, 1024, 10, 64
REPEATS = 3


def run() -> dict:
    """Seconds of all inner products of 1000 examples with one query, ours over written-out gradients."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 700), nn.ReLU(), nn.Linear(700, CLASSES)
    )
    x, y = torch.randn(EXAMPLES, FEATURES), torch.randint(CLASSES, (EXAMPLES,))
    batch, query = (x, y), (x[:50] + 0.1, y[:50])
    parameters = dict(net.named_parameters())
    direction, _ = mean_gradient(net, losses, query, parameters)

    def ours() -> torch.Tensor:
        return per_example_dots(net, losses, batch, [direction], "jvp")[0][:, 0]

    def ghost() -> torch.Tensor:
        return per_example_dots(net, losses, batch, [direction], "ghost")[0][:, 0]

    def written() -> torch.Tensor:
        against = torch.cat([value.flatten() for value in direction.values()])
        parts = (
            flatten(materialised_gradients(net, losses, (x[i : i + 100], y[i : i + 100])))
            for i in range(0, EXAMPLES, 100)
        )
        return torch.cat([part @ against for part in parts])

    found, expected = ours(), written()
    error = float((found - expected).abs().max() / expected.abs().max())
    seconds, peer = best(ours), best(written)
    plain, recorded = loop(record=False), loop(record=True)
    numbers = sum(value.numel() for value in parameters.values())
    return {
        "name": "influence",
        "ours": seconds,
        "peer": peer,
        "ratio": seconds / peer,
        "unit": "seconds for 1000 inner products; peer: vmap(grad) in chunks of 100, then the product",
        "parameters": numbers,
        "relative_error": error,
        "ghost_seconds": best(ghost),
        "gradient_numbers_peer": 100 * numbers,
        "gradient_numbers_ours": numbers,
        "loop_overhead": recorded / plain - 1,
        "record_bytes_an_observation": record_bytes(),
        **against_dattri(net, batch, query, direction),
    }


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def best(call: Callable[[], Any]) -> float:
    """Fastest of a few repetitions, after one to warm up."""
    call()
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def loop(*, record: bool, steps: int = 60) -> float:
    """Seconds of a training loop that observes its own batch every tenth step, or does not."""

    def once() -> None:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
        x, y = torch.randn(EXAMPLES, FEATURES), torch.randint(CLASSES, (EXAMPLES,))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        recorder = FInfluence(net, losses, query=(x[:BATCH], y[:BATCH]), optimizer=optimizer, every=10)
        for step in range(steps):
            index = torch.randperm(EXAMPLES)[:BATCH]
            if record and recorder.due(step):
                recorder.observe((x[index], y[index]), index)
            optimizer.zero_grad()
            losses(net, (x[index], y[index])).mean().backward()
            optimizer.step()

    return best(once)


def record_bytes(steps: int = 50) -> float:
    """Memory the recorder holds for one example at one step."""
    net = nn.Linear(FEATURES, CLASSES)
    x, y = torch.randn(EXAMPLES, FEATURES), torch.randint(CLASSES, (EXAMPLES,))
    recorder = FInfluence(net, losses, query=(x[:50], y[:50]), method="ghost")
    tracemalloc.start()
    for step in range(steps):
        recorder.observe((x, y), range(EXAMPLES), step=step, lr=0.1)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / (steps * EXAMPLES)


def against_dattri(net: nn.Module, batch: Any, query: Any, direction: Any) -> dict[str, Any]:
    """The same TracIn scores from dattri, if it is installed (extra ``peers``)."""
    try:
        from dattri.algorithm.tracin import TracInAttributor
        from dattri.task import AttributionTask
    except ImportError:
        return {"dattri": "not installed"}
    from torch.func import functional_call
    from torch.utils.data import DataLoader, TensorDataset

    def loss(parameters: Any, data: Any) -> torch.Tensor:
        inputs, labels = data
        return F.cross_entropy(
            functional_call(net, parameters, (inputs.unsqueeze(0),)), labels.unsqueeze(0).squeeze(-1)
        )

    task = AttributionTask(loss_func=loss, model=net, checkpoints=[net.state_dict()])
    attributor = TracInAttributor(task=task, weight_list=torch.ones(1), normalized_grad=False, device="cpu")
    attributor.projector_kwargs = None  # pyright: ignore[reportAttributeAccessIssue] - exact, as ours
    train = DataLoader(TensorDataset(batch[0], batch[1]), batch_size=50, shuffle=False)
    test = DataLoader(TensorDataset(query[0], query[1]), batch_size=25, shuffle=False)

    def peer() -> torch.Tensor:
        with torch.no_grad():
            return attributor.attribute(train, test).mean(1)

    ours = per_example_dots(net, losses, batch, [direction], "jvp")[0][:, 0]
    theirs = peer()
    started = time.perf_counter()
    peer()
    return {
        "dattri_seconds": time.perf_counter() - started,
        "dattri_correlation": float(torch.corrcoef(torch.stack([ours, theirs]))[0, 1]),
    }
