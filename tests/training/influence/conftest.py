"""A training run small enough for a unit test, and what the recorder is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def cross_entropy(model, batch):
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none")


def squared_error(model, batch):
    inputs, targets = batch
    return (model(inputs).squeeze(-1) - targets) ** 2


@dataclass
class Task:
    """Three noisy classes, 60 to train on and 20 to ask about."""

    inputs: Tensor
    labels: Tensor
    query: tuple[Tensor, Tensor]

    def net(self, seed: int = 0) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    def batches(self, steps: int, size: int = 12, seed: int = 0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        order = torch.cat([torch.randperm(len(self.inputs), generator=generator) for _ in range(steps)])
        return list(order[: steps * size].split(size))

    def train(self, recorder_of, steps: int = 12, *, lr: float = 0.3, watch=None):
        """A plain loop with the three lines of the recorder; ``recorder_of(net, optimizer)`` makes it."""
        net = self.net()
        optimizer = torch.optim.SGD(net.parameters(), lr=lr)
        recorder = recorder_of(net, optimizer)
        for step, index in enumerate(self.batches(steps)):
            batch = (self.inputs[index], self.labels[index])
            if watch is not None:
                watch(step, net)
            if recorder.due(step):
                recorder.observe(*((batch, index) if recorder.pool is None else ()))
            optimizer.zero_grad()
            cross_entropy(net, batch).mean().backward()
            optimizer.step()
        return recorder


@pytest.fixture(scope="session")
def task():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    labels = torch.arange(80) % 3
    inputs = centres[labels] + torch.randn(80, 6, generator=generator, dtype=torch.float64)
    return Task(inputs[:60], labels[:60], (inputs[60:], labels[60:]))


@pytest.fixture(scope="session")
def losses():
    return cross_entropy


@pytest.fixture(scope="session")
def squared():
    return squared_error
