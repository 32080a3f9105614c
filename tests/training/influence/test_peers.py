"""Scores that others define, against dattri's implementations of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

from gnomon.training.influence import FInfluence
from gnomon.training.influence.digit_runs import DigitTask, losses, projected_kernel_scores
from gnomon.training.influence.stability import rank_correlation

# dattri's projector calls what newer numpy and torch deprecate.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
EXAMPLES, QUERIES, FEATURES = 120, 30, 8


@pytest.fixture(scope="module")
def trained():
    """A small net on three noisy classes, and its task."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(3, FEATURES, generator=generator)
    labels = torch.arange(EXAMPLES + QUERIES) % 3
    inputs = centres[labels] + 1.5 * torch.randn(len(labels), FEATURES, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(FEATURES, 6), nn.ReLU(), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    task = DigitTask(
        inputs[:EXAMPLES],
        labels[:EXAMPLES],
        np.zeros(EXAMPLES, dtype=bool),
        (inputs[EXAMPLES:], labels[EXAMPLES:]),
    )
    checkpoints = []
    for step in range(60):
        if step % 20 == 0:
            checkpoints.append({name: value.clone() for name, value in net.state_dict().items()})
        optimizer.zero_grad()
        losses(net, (task.inputs, task.labels)).mean().backward()
        optimizer.step()
    return net, task, checkpoints


def loaders(task):
    data = ((task.inputs, task.labels), task.query)
    return [DataLoader(TensorDataset(*part), batch_size=len(part[0]), shuffle=False) for part in data]


def loss_of(net):
    def loss(parameters, data):
        inputs, labels = data
        return F.cross_entropy(functional_call(net, parameters, (inputs.unsqueeze(0),)), labels.reshape(1))

    return loss


def test_tracin_is_dattris(trained, capsys):
    from dattri.algorithm.tracin import TracInAttributor
    from dattri.task import AttributionTask

    net, task, checkpoints = trained
    rates = torch.tensor([0.3, 0.2, 0.1])
    attributor = TracInAttributor(
        task=AttributionTask(loss_func=loss_of(net), model=net, checkpoints=checkpoints),
        weight_list=rates,
        normalized_grad=False,
        device="cpu",
    )
    attributor.projector_kwargs = None
    with torch.no_grad():
        expected = attributor.attribute(*loaders(task)).mean(1)
    pool = ((task.inputs, task.labels), range(EXAMPLES))
    recorder = FInfluence(net, losses, query=task.query, pool=pool, batch_size=EXAMPLES)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for step, (checkpoint, rate) in enumerate(zip(checkpoints, rates.tolist(), strict=True)):
        net.load_state_dict(checkpoint)
        recorder.observe(step=step, lr=rate)
    net.load_state_dict(before)
    found = recorder.finalize().scores["tracin"].to_numpy()
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-6)


def test_projected_kernel_ranks_as_dattris_trak(trained, capsys):
    from dattri.algorithm.trak import TRAKAttributor
    from dattri.task import AttributionTask

    net, task, _ = trained
    loss = loss_of(net)

    def margin(parameters, data):
        own = -loss(parameters, data)
        return own - torch.log1p(-own.exp().clamp(max=1 - 1e-6))

    attributor = TRAKAttributor(
        task=AttributionTask(loss_func=margin, target_func=loss, model=net, checkpoints=[dict(net.state_dict())]),
        correct_probability_func=lambda parameters, data: torch.exp(-loss(parameters, data)),
        projector_kwargs={"proj_dim": 1024, "proj_max_batch_size": 32},
        device="cpu",
        regularization=1e-3,
    )
    train, test = loaders(task)
    with torch.no_grad():
        attributor.cache(train)
        # Its target is the loss, so that its sign is that of what raises it.
        expected = -attributor.attribute(test).mean(1).numpy()
    found = projected_kernel_scores(net, task, dimension=1024)
    # Two random projections, each of 75 parameters to so many numbers that little is lost.
    assert rank_correlation(found, expected) > 0.95
