r"""Inner products of example gradients with a direction, four ways that agree and one that approximates.

===============  ==================================================================================================
``jvp``          forward-mode derivative of the vector of losses along the direction: about two forward passes, no
                 per-example gradient is formed; memory of one direction
``double-vjp``   the same by two reverse passes, for operations without a forward-mode derivative
``ghost``        one forward and backward pass, then products of layer inputs and output gradients; any number of
                 directions for one pass
``vmap``         every gradient written out: the oracle, for small models
``project``      as ``ghost``, through a count sketch: memory independent of model and sequence length
===============  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jvp

from gnomon.models.per_example import (
    ExampleLosses,
    LossFunction,
    batch_size,
    example_losses,
    map_batch,
    materialised_gradients,
    per_example_gradients,
)
from gnomon.models.sketch import CountSketch

Method = Literal["jvp", "double-vjp", "ghost", "vmap", "project"]
Direction = Mapping[str, Tensor]


def mean_gradient(
    model: nn.Module, loss_fn: LossFunction, batch: Any, parameters: Mapping[str, nn.Parameter], *, chunk: int = 256
) -> tuple[dict[str, Tensor], float]:
    r"""Gradient of the mean loss of a batch, :math:`q = \nabla \tfrac1n \sum_j \ell_j`, and that mean loss.

    Args:
        model: The model.
        loss_fn: One loss an example.
        batch: Any number of examples; they are passed in pieces.
        parameters: Those that enter, by name.
        chunk: Examples a piece.
    """
    examples, at = batch_size(batch), list(parameters.values())
    total: list[Tensor] = []
    loss = 0.0
    for part in pieces(batch, chunk):
        with torch.enable_grad():
            share = example_losses(model, loss_fn, part).sum() / examples
            gradients = torch.autograd.grad(share, at, allow_unused=True, materialize_grads=True)
        total = [held + one for held, one in zip(total, gradients, strict=True)] if total else list(gradients)
        loss += float(share.detach())
    return dict(zip(parameters, total, strict=True)), loss


def per_example_dots(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    directions: Sequence[Direction],
    method: Method = "jvp",
    *,
    dimension: int = 2048,
    seed: int = 0,
) -> tuple[Float[Tensor, "example direction"], Float[Tensor, " example"], Float[Tensor, " example"] | None]:
    r"""Inner products :math:`\langle q, \nabla \ell_i \rangle` of each example's gradient with each direction.

    Args:
        model: The model; its parameters outside the directions count as constants.
        loss_fn: One loss an example.
        batch: The examples.
        directions: One array a parameter each; all with the same parameters.
        method: See the module.
        dimension: Of the sketch, for ``project``.
        seed: Of the sketch.

    Returns:
        Inner products, losses, and squared gradient norms where the method has them for free (else ``None``).

    Raises:
        RuntimeError: From torch, if ``jvp`` meets an operation without a forward-mode derivative.
    """
    names = list(directions[0])
    if method in ("jvp", "double-vjp"):
        along = _forward_products if method == "jvp" else _double_reverse_products
        columns, losses = zip(*(along(model, loss_fn, batch, direction) for direction in directions), strict=True)
        return torch.stack(columns, dim=1).to(_precise(columns[0])), losses[0], None
    if method == "vmap":
        with torch.no_grad():
            losses = example_losses(model, loss_fn, batch)
        written = flatten(materialised_gradients(model, loss_fn, batch, parameters=names))
        against = torch.stack([torch.cat([direction[name].flatten() for name in names]) for direction in directions])
        return written @ against.T, losses, written.square().sum(1)
    gradients = per_example_gradients(model, loss_fn, batch, parameters=names)
    if method == "ghost":
        columns = [gradients.dot(direction) for direction in directions]
        return torch.stack(columns, dim=1), gradients.losses, gradients.squared_norms()
    projection = CountSketch(gradients.shapes, dimension=dimension, seed=seed)
    sketched = gradients.sketch(projection)
    against = torch.stack([sketch_of(direction, projection, sketched.dtype) for direction in directions])
    return sketched @ against.T, gradients.losses, sketched.square().sum(1)


def flatten(written: Mapping[str, Float[Tensor, "example ..."]]) -> Float[Tensor, "example entry"]:
    """Written-out gradients as one row an example."""
    return torch.cat([value.flatten(1) for value in written.values()], dim=1)


def sketch_of(direction: Direction, projection: CountSketch, dtype: torch.dtype) -> Float[Tensor, " dimension"]:
    """Sketch of one direction."""
    rows = [projection.of_rows(name, direction[name].reshape(1, -1).to(dtype)) for name in projection.shapes]
    return torch.stack(rows).sum(0)[0]


def pieces(batch: Any, chunk: int) -> list[Any]:
    """The batch in pieces of at most ``chunk`` examples."""
    return [
        map_batch(lambda tensor, begin=begin: tensor[begin : begin + chunk], batch)
        for begin in range(0, batch_size(batch), chunk)
    ]


def _forward_products(
    model: nn.Module, loss_fn: LossFunction, batch: Any, direction: Direction
) -> tuple[Tensor, Tensor]:
    wrapped = ExampleLosses(model, loss_fn)
    parameters = dict(model.named_parameters())
    at = {f"model.{name}": parameters[name].detach() for name in direction}
    tangent = {f"model.{name}": value.to(parameters[name].dtype) for name, value in direction.items()}
    with torch.no_grad():
        moved = jvp(lambda values: functional_call(wrapped, values, (batch,)), (at,), (tangent,))
    return moved[1], moved[0]


def _double_reverse_products(
    model: nn.Module, loss_fn: LossFunction, batch: Any, direction: Direction
) -> tuple[Tensor, Tensor]:
    parameters = dict(model.named_parameters())
    with torch.enable_grad():
        losses = example_losses(model, loss_fn, batch)
        weights = torch.ones_like(losses, requires_grad=True)
        gradients = torch.autograd.grad(losses @ weights, [parameters[name] for name in direction], create_graph=True)
        # The weighted gradient is linear in the weights: its derivative by weight i is the inner product of example i.
        along = [(gradient * value).sum() for gradient, value in zip(gradients, direction.values(), strict=True)]
        (products,) = torch.autograd.grad(torch.stack(along).sum(), weights)
    return products, losses.detach()


def _precise(values: Tensor) -> torch.dtype:
    return torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else values.dtype
