"""Calls of the layers that own parameters, and the gradient factors that each call leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from transformers.pytorch_utils import Conv1D

from gnomon.models.gradient_factors import Instantiated, OuterProducts, Use, accumulator


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer: its input, where the gradient of its output will appear, names of its parameters."""

    layer: nn.Module
    inputs: Tensor
    edge: Any
    names: dict[str, str]

    def uses(self, gradient: Tensor) -> Iterator[tuple[str, Use]]:
        """What each parameter of the layer gets from this call."""
        precise = accumulator(gradient)
        outputs = gradient.to(precise)
        factors = _factors(self.layer, self.inputs, outputs)
        if factors is None:
            local = _local_gradients(self.layer, self.names, self.inputs, gradient)
            yield from ((own, Instantiated(value.to(precise).flatten(1))) for own, value in local.items())
            return
        if "weight" in self.names:
            yield "weight", factors
        if "bias" in self.names:
            channels = 1 if isinstance(self.layer, nn.Conv2d) else -1
            yield (
                "bias",
                Instantiated(outputs.movedim(channels, -1).reshape(len(outputs), -1, outputs.shape[channels]).sum(1)),
            )


def _factors(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> OuterProducts | None:
    """The factors of the layer's weight gradient, if it is a layer whose rule is known."""
    forward = type(layer).forward
    if isinstance(layer, nn.Linear) and forward is nn.Linear.forward:
        return OuterProducts(_positions(outputs), _positions(inputs.to(outputs.dtype)), layer.out_features)
    if isinstance(layer, Conv1D) and forward is Conv1D.forward:
        return OuterProducts(_positions(inputs.to(outputs.dtype)), _positions(outputs), layer.weight.shape[0])
    if isinstance(layer, nn.Conv2d) and forward is nn.Conv2d.forward and layer.groups == 1:
        if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            return None
        patches = F.unfold(
            inputs.to(outputs.dtype),
            layer.kernel_size,
            dilation=layer.dilation,
            padding=layer.padding,
            stride=layer.stride,
        )
        return OuterProducts(outputs.flatten(2).transpose(1, 2), patches.transpose(1, 2), layer.out_channels)
    if isinstance(layer, nn.Embedding) and forward is nn.Embedding.forward:
        if layer.max_norm is not None or layer.scale_grad_by_freq:
            raise ValueError("embeddings with max_norm or scale_grad_by_freq have no per-example gradient")
        if layer.padding_idx is not None:
            outputs = outputs * (inputs != layer.padding_idx).unsqueeze(-1)
        return OuterProducts(inputs.reshape(len(inputs), -1), _positions(outputs), layer.num_embeddings)
    return None


def _positions(values: Tensor) -> Float[Tensor, "example position feature"]:
    return values.reshape(len(values), -1, values.shape[-1])


def _local_gradients(layer: nn.Module, names: Mapping[str, str], inputs: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """Per-example gradients of one layer by its own parameters, from its input and the gradient of its output."""
    own = {name: layer.get_parameter(name).detach() for name in names}

    def pulled_back(one: Tensor, cotangent: Tensor) -> dict[str, Tensor]:
        pull = vjp(lambda values: functional_call(layer, values, (one.unsqueeze(0),)), own)[1]
        return pull(cotangent.unsqueeze(0))[0]

    return vmap(pulled_back)(inputs, gradient)


@contextmanager
def traced_calls(model: nn.Module, owners: Mapping[str, nn.Parameter], examples: int) -> Iterator[list[LayerCall]]:
    """Inside, every call of a layer that owns one of the parameters is noted, in order.

    Args:
        model: The model.
        owners: Parameters that matter, by name.
        examples: Rows that every such layer must get.

    Raises:
        ValueError: From the forward pass, if a layer mixes examples, gets other rows, or runs without autograd.
    """
    names = {id(parameter): name for name, parameter in owners.items()}
    calls: list[LayerCall] = []

    def widen(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        # Position embeddings get one row of ids for the whole batch; each example needs its own to have a gradient.
        first = arguments[0] if arguments else None
        if isinstance(first, Tensor) and first.dim() > 1 and len(first) == 1 and examples > 1:
            return (first.expand(examples, *first.shape[1:]), *arguments[1:])
        return None

    def note(layer: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        own = {key: names[id(value)] for key, value in layer.named_parameters(recurse=False) if id(value) in names}
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training:
            raise ValueError(f"batch norm ({own['weight']}) in training mode mixes examples: call model.eval()")
        inputs = arguments[0] if arguments else None
        where = f"layer {type(layer).__name__} of {next(iter(own.values()))!r}"
        if not (isinstance(inputs, Tensor) and isinstance(output, Tensor) and len(inputs) == examples):
            raise ValueError(f"{where} does not get one row an example: leave its parameters out through parameters=")
        if not output.requires_grad:
            raise ValueError(f"{where} ran without autograd: switch gradient checkpointing off")
        calls.append(LayerCall(layer, inputs.detach(), torch.autograd.graph.get_gradient_edge(output), own))

    handles = []
    for layer in model.modules():
        if any(id(parameter) in names for parameter in layer.parameters(recurse=False)):
            handles += [layer.register_forward_pre_hook(widen), layer.register_forward_hook(note)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
