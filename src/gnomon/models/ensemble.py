"""Many small nets of one architecture trained as one: seeds, data masks or permuted labels along a leading axis."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap


class StackedNets(nn.Module):
    r"""R nets whose parameters are stacked along a leading replicate axis.

    One forward pass evaluates all nets with batched matrix products, so that R refits cost a few times one fit instead
    of R times. A sum of the replicates' losses has block-diagonal gradients, hence training the stack with an
    elementwise optimiser is training the nets one by one.

    Args:
        build: Makes one net; called once a seed, with torch's global generator set to that seed.
        seeds: One a replicate. Equal seeds give equal initial nets.
        dtype: Of the parameters.

    Raises:
        ValueError: If there is no seed.

    >>> nets = StackedNets(lambda: nn.Linear(3, 2), seeds=range(5))
    >>> nets(torch.zeros(5, 10, 3)).shape, nets.shared(torch.zeros(10, 3)).shape
    (torch.Size([5, 10, 2]), torch.Size([5, 10, 2]))
    """

    def __init__(
        self, build: Callable[[], nn.Module], seeds: Sequence[int], *, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        if len(seeds) == 0:
            raise ValueError("a stack needs at least one seed")
        nets = [_built(build, int(seed)).to(dtype) for seed in seeds]
        parameters, buffers = stack_module_state(nets)
        self._names = tuple(parameters)
        self._buffer_names = tuple(buffers)
        self.stacked = nn.ParameterList(nn.Parameter(value.detach()) for value in parameters.values())
        for index, value in enumerate(buffers.values()):
            self.register_buffer(f"_buffer_{index}", value)
        # In a tuple, so that the skeleton's own parameters are not registered as ours.
        self._skeleton = (copy.deepcopy(nets[0]).to("meta"),)

    def __len__(self) -> int:
        return len(self.stacked[0])

    def forward(self, inputs: Float[Tensor, "replicate rows ..."]) -> Float[Tensor, "replicate rows ..."]:
        """Outputs of every net on its own batch."""
        return self._evaluate(inputs, 0)

    def shared(self, inputs: Float[Tensor, "rows ..."]) -> Float[Tensor, "replicate rows ..."]:
        """Outputs of every net on one common batch."""
        return self._evaluate(inputs, None)

    def net(self, replicate: int) -> nn.Module:
        """A plain copy of one net."""
        net = copy.deepcopy(self._skeleton[0]).to_empty(device=self.stacked[0].device).to(self.stacked[0].dtype)
        net.load_state_dict({name: value[replicate].detach() for name, value in self._state().items()})
        return net

    def norms(self, values: Sequence[Tensor]) -> Float[Tensor, " replicate"]:
        """Euclidean norm over all tensors of a list shaped like the parameters, by replicate."""
        return torch.stack([value.flatten(1).square().sum(1) for value in values]).sum(0).sqrt()

    def _state(self) -> dict[str, Tensor]:
        parameters = dict(zip(self._names, self.stacked, strict=True))
        buffers = {name: getattr(self, f"_buffer_{index}") for index, name in enumerate(self._buffer_names)}
        return {**parameters, **buffers}

    def _evaluate(self, inputs: Tensor, axis: int | None) -> Tensor:
        skeleton = self._skeleton[0]
        if inputs.dim() == (3 if axis == 0 else 2) and _is_perceptron(skeleton):
            return self._perceptron(inputs if axis == 0 else inputs.expand(len(self), -1, -1))

        def one(state: dict[str, Tensor], batch: Tensor) -> Tensor:
            return functional_call(skeleton, state, (batch,))

        return vmap(one, in_dims=(0, axis), randomness="different")(self._state(), inputs)

    def _perceptron(self, hidden: Tensor) -> Tensor:
        """Perceptrons by batched products directly: half the cost of vmap when nets are small."""
        state = dict(zip(self._names, self.stacked, strict=True))
        for name, layer in self._skeleton[0].named_children():
            if isinstance(layer, nn.Linear):
                weight, bias = state[f"{name}.weight"].transpose(1, 2), state[f"{name}.bias"].unsqueeze(1)
                hidden = torch.baddbmm(bias, hidden, weight)
            else:
                hidden = layer(hidden)
        return hidden


def masked_mean(
    losses: Float[Tensor, "replicate batch"], weights: Float[Tensor, "replicate batch"]
) -> Float[Tensor, " replicate"]:
    """Weighted mean loss by replicate; a replicate whose weights are all zero gets 0."""
    return (losses * weights).sum(1) / weights.sum(1).clamp_min(torch.finfo(losses.dtype).tiny)


def train_stacked(
    nets: StackedNets,
    objective: Callable[[Tensor], Float[Tensor, " replicate"]],
    n_examples: int,
    *,
    steps: int,
    batch_size: int = 256,
    learning_rate: float = 3e-3,
    weight_decay: float = 1e-4,
    clip: float | None = 1.0,
    seed: int = 0,
    watch: Callable[[int], bool] | None = None,
) -> int:
    """Train a stack with AdamW and a learning rate that falls to zero along a cosine.

    All replicates see the same minibatches (common random numbers): what differs between them is the seed, the mask or
    the labels. With ``batch_size >= n_examples`` every step uses all rows in order.

    Args:
        nets: Trained in place.
        objective: From row indices to each replicate's loss on these rows; it closes over the nets and the data.
        n_examples: Rows to draw minibatches from, without replacement within an epoch.
        steps: Optimiser steps; the schedule ends there.
        batch_size: Rows a step.
        learning_rate: Initial rate.
        weight_decay: Decoupled decay.
        clip: Largest gradient norm of a replicate; ``None`` for no clipping.
        seed: Of the minibatch stream.
        watch: Called with the number of finished steps; training ends when it returns true.

    Returns:
        Steps taken.

    Raises:
        RuntimeError: If a replicate's loss is not finite, naming the step and the replicate.
    """
    parameters = list(nets.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(steps, 1))
    device = parameters[0].device
    batches = _minibatches(n_examples, batch_size, seed)
    for step in range(1, steps + 1):
        losses = objective(next(batches).to(device))
        if not bool(torch.isfinite(losses).all()):
            diverged = int((~torch.isfinite(losses)).nonzero()[0, 0])
            raise RuntimeError(f"training diverged at step {step}: replicate {diverged} has loss {losses[diverged]}")
        optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        if clip is not None:
            _clip_by_replicate(nets, parameters, clip)
        optimizer.step()
        schedule.step()
        if watch is not None and watch(step):
            return step
    return steps


def _is_perceptron(net: nn.Module) -> bool:
    elementwise = (nn.Identity, nn.ReLU, nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid)
    return isinstance(net, nn.Sequential) and all(
        layer.bias is not None if isinstance(layer, nn.Linear) else isinstance(layer, elementwise) for layer in net
    )


def _built(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def _minibatches(n_examples: int, batch_size: int, seed: int):
    if batch_size >= n_examples:
        rows = torch.arange(n_examples)
        while True:
            yield rows
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(n_examples, generator=generator)
        yield from order[: n_examples - n_examples % batch_size].split(batch_size)


def _clip_by_replicate(nets: StackedNets, parameters: Sequence[nn.Parameter], clip: float) -> None:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    factor = (clip / nets.norms(gradients).clamp_min(1e-12)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.dim() - 1)))
