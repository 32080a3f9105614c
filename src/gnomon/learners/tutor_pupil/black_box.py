"""Gradients for pupils that only predict: evolution strategies, or a network distilled from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnomon.models.ensemble import StackedNets, train_stacked

Outputs = Callable[[np.ndarray], np.ndarray]


class _EvolutionGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, box: BlackBoxNetwork) -> Tensor:
        ctx.box = box
        ctx.save_for_backward(x)
        return box.evaluate(x.detach())

    @staticmethod
    def backward(ctx, *gradients: Tensor):
        (x,) = ctx.saved_tensors
        return ctx.box.pull_back(x.detach(), gradients[0]), None


class BlackBoxNetwork(nn.Module):
    r"""A function known by its values, with an antithetic evolution-strategies gradient.

    .. math:: \nabla_x \langle g, f \rangle \approx
              \frac{1}{q} \sum_{k=1}^{q} \frac{\langle g, f(x + \sigma S u_k) - f(x - \sigma S u_k) \rangle}{2 \sigma}
              S^{-1} u_k, \qquad u_k \sim N(0, I)

    It is the gradient of f smoothed by a normal of width :math:`\sigma S`, unbiased, with variance of order
    :math:`(d + 1) \lVert \nabla \rVert^2 / q`; a step function has a gradient within :math:`\sigma S` of its steps.

    Args:
        outputs: Vectorised values, ``(n, d) -> (n, q)``.
        scale: S, one a feature.
        directions: q; the backward pass costs 2 q evaluations a row.
        sigma: Width of the smoothing, in units of S.
        seed: Of the directions.
    """

    scale: Tensor

    def __init__(
        self,
        outputs: Outputs,
        scale: Float[np.ndarray, " d"],
        *,
        directions: int = 16,
        sigma: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._outputs = outputs
        self.directions = directions
        self.sigma = sigma
        self._generator = torch.Generator().manual_seed(seed)
        self.register_buffer("scale", torch.from_numpy(np.array(scale, dtype=np.float64)))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n q"]:
        """Values, differentiable by evolution strategies."""
        return _EvolutionGradient.apply(x, self)  # pyright: ignore[reportReturnType]

    def evaluate(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n q"]:
        """Values without gradient."""
        values = self._outputs(x.double().cpu().numpy())
        return torch.as_tensor(values, dtype=x.dtype, device=x.device)

    def pull_back(self, x: Float[Tensor, "n d"], gradient: Float[Tensor, "n q"]) -> Float[Tensor, "n d"]:
        """Estimate of the gradient in x, given the gradient in the outputs."""
        shape = (self.directions, *x.shape)
        noise = torch.randn(shape, generator=self._generator, dtype=torch.float64).to(x)
        step = self.sigma * self.scale * noise
        values = self.evaluate(torch.cat([x + step, x - step]).flatten(0, 1)).view(2, self.directions, len(x), -1)
        slope = ((values[0] - values[1]) * gradient).sum(-1, keepdim=True) / (2 * self.sigma)
        return (slope * noise / self.scale).mean(0)


def distil(
    outputs: Outputs,
    rows: Float[np.ndarray, "n d"],
    scale: Float[np.ndarray, " d"],
    *,
    hidden: int = 128,
    steps: int = 800,
    jitter: float = 0.3,
    seed: int = 0,
) -> nn.Module:
    """A network trained to give a function's values around some rows.

    Half of the rows are jittered (by ``jitter`` standard deviations), because a tutor will move inputs off the data
    and the surrogate has to be right there too.
    """
    generator = np.random.default_rng(seed)
    moved = rows + jitter * scale * generator.normal(size=rows.shape)
    inputs = np.concatenate([rows, moved])
    values = outputs(inputs)
    centre, spread = values.mean(0), np.where(values.std(0) > 0, values.std(0), 1.0)
    mean = rows.mean(0)
    x = torch.from_numpy((inputs - mean) / scale).float()
    y = torch.from_numpy((values - centre) / spread).float()

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Linear(x.shape[1], hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, y.shape[1]),
        )

    nets = StackedNets(build, seeds=[seed])
    train_stacked(nets, lambda batch: (nets.shared(x[batch]) - y[batch]).square().mean((1, 2)), len(x), steps=steps)
    net = nets.net(0).double().requires_grad_(False)
    return _Rescaled(net, mean, scale, centre, spread)


class _Rescaled(nn.Module):
    """A network on standardised inputs and outputs, in the original units."""

    mean: Tensor
    scale: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(
        self, net: nn.Module, mean: np.ndarray, scale: np.ndarray, centre: np.ndarray, spread: np.ndarray
    ) -> None:
        super().__init__()
        self.net = net
        for name, value in {"mean": mean, "scale": scale, "centre": centre, "spread": spread}.items():
            self.register_buffer(name, torch.from_numpy(np.array(value, dtype=np.float64)))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n q"]:
        return self.net((x - self.mean) / self.scale) * self.spread + self.centre
