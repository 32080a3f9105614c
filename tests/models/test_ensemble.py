"""Stacked nets against nets trained one by one."""

import pytest
import torch
from torch import nn

from gnomon.models.ensemble import StackedNets, masked_mean, train_stacked


def perceptron():
    return nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 2))


class Normalised(nn.Module):
    """Not a plain perceptron, and with a buffer: takes the vmap path."""

    def __init__(self):
        super().__init__()
        self.net = perceptron()
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x):
        return self.net(nn.functional.layer_norm(x + self.shift, (3,)))


@pytest.mark.parametrize("build", [perceptron, Normalised])
def test_outputs_are_those_of_the_single_nets(build):
    nets = StackedNets(build, seeds=range(4), dtype=torch.float64)
    batches = torch.randn(4, 6, 3, dtype=torch.float64)
    together, shared = nets(batches), nets.shared(batches[0])
    for replicate in range(4):
        single = nets.net(replicate)
        torch.testing.assert_close(together[replicate], single(batches[replicate]))
        torch.testing.assert_close(shared[replicate], single(batches[0]))


def test_seeds_decide_the_initial_weights_and_leave_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    nets = StackedNets(perceptron, seeds=[5, 5, 6])
    torch.testing.assert_close(torch.rand(3), expected)
    weight = nets.stacked[0]
    assert torch.equal(weight[0], weight[1])
    assert not torch.equal(weight[0], weight[2])
    torch.manual_seed(5)
    torch.testing.assert_close(weight[0].detach(), perceptron()[0].weight.detach())


def test_training_the_stack_is_training_one_by_one():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(5, 40, 2, generator=generator, dtype=torch.float64)

    def trained(seeds, targets):
        nets = StackedNets(perceptron, seeds, dtype=torch.float64)

        def objective(batch):
            return (nets.shared(x[batch]) - targets[:, batch]).square().mean((1, 2))

        steps = train_stacked(nets, objective, 40, steps=30, batch_size=16, learning_rate=0.05, seed=3)
        assert steps == 30
        return nets

    together = trained(range(5), y)
    for replicate in range(5):
        alone = trained([replicate], y[replicate : replicate + 1])
        for stacked, single in zip(together.stacked, alone.stacked, strict=True):
            torch.testing.assert_close(stacked[replicate], single[0], rtol=1e-9, atol=1e-12)


def test_masks_leave_rows_out():
    losses = torch.tensor([[1.0, 3.0, 100.0], [1.0, 3.0, 5.0]])
    weights = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(masked_mean(losses, weights), torch.tensor([2.0, 0.0]))


def test_an_epoch_visits_every_row_once():
    nets = StackedNets(perceptron, [0])
    seen = []

    def objective(batch):
        seen.append(batch)
        return nets.shared(torch.ones(len(batch), 3)).mean((1, 2))

    train_stacked(nets, objective, 12, steps=3, batch_size=4)
    assert sorted(torch.cat(seen).tolist()) == list(range(12))


def test_clipping_bounds_each_replicate_on_its_own():
    nets = StackedNets(perceptron, [0, 1], dtype=torch.float64)
    scale = torch.tensor([1e6, 1e-3], dtype=torch.float64)
    x = torch.ones(4, 3, dtype=torch.float64)
    norms = []

    def objective(batch):
        gradients = [parameter.grad for parameter in nets.stacked]
        if gradients[0] is not None:
            norms.append(nets.norms([gradient for gradient in gradients if gradient is not None]))
        return scale * nets.shared(x[batch]).square().mean((1, 2))

    train_stacked(nets, objective, 4, steps=2, clip=1.0)
    assert norms[0][0] == pytest.approx(1.0)
    assert norms[0][1] < 0.1


def test_watch_ends_training():
    nets = StackedNets(perceptron, [0])
    steps = train_stacked(
        nets, lambda batch: nets.shared(torch.ones(len(batch), 3)).mean((1, 2)), 4, steps=50, watch=lambda s: s == 7
    )
    assert steps == 7


def test_divergence_names_step_and_replicate():
    nets = StackedNets(perceptron, [0, 1])
    poison = torch.tensor([0.0, float("nan")])
    with pytest.raises(RuntimeError, match="diverged at step 1: replicate 1"):
        train_stacked(nets, lambda batch: nets.shared(torch.ones(len(batch), 3)).mean((1, 2)) + poison, 4, steps=2)


def test_a_stack_needs_a_seed():
    with pytest.raises(ValueError, match="at least one seed"):
        StackedNets(perceptron, [])
