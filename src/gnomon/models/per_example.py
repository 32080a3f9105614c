r"""Gradients of every example of a batch, from one forward and one backward pass and without a loop over examples.

A layer that multiplies by a matrix has per-example gradients that are short sums of outer products,

.. math:: \nabla_W \ell_i = \sum_t d_{it}\, a_{it}^\top ,

with a its input and d the gradient of the loss by its output, so that inner products of whole gradients follow from
inner products of a and of d ("ghost" products): nothing of the size of the parameters is formed for each example.
Hooks collect (a, d) once; everything else here is a product of them:

========================================  =======================================================================
:meth:`PerExampleGradients.gram`          all inner products of one batch with itself or with another
:meth:`PerExampleGradients.dot`           inner products with one direction in parameter space
:meth:`PerExampleGradients.squared_norms` the diagonal of the Gram matrix
:meth:`PerExampleGradients.sum`           the gradient of the summed loss
:meth:`PerExampleGradients.sum_of_squares`  elementwise: the diagonal of the empirical Fisher matrix, times n
:meth:`PerExampleGradients.sketch`        a random projection (:mod:`gnomon.models.sketch`)
========================================  =======================================================================

A parameter that is used twice (tied embeddings, shared layers) has the sum of its uses as its gradient; uses are
summed before anything is squared or multiplied. :func:`materialised_gradients` is the plain ``vmap(grad)``, for small
models and as the oracle.

Source: Goodfellow (2015), "Efficient per-example gradient computations"; Li et al. (2022), "Large language models can
be strong differentially private learners" (sequences).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gnomon.models.gradient_factors import (
    OuterProducts,
    Use,
    accumulator,
    inner_products,
    matched_products,
    sum_of_squares,
)
from gnomon.models.layer_calls import traced_calls
from gnomon.models.sketch import CountSketch

#: From model and batch to one loss an example.
LossFunction = Callable[[nn.Module, Any], Float[Tensor, " example"]]


@dataclass(frozen=True)
class PerExampleGradients:
    """Gradients of every example's loss by the parameters, in factors.

    Args:
        losses: Loss of each example.
        uses: For each parameter, by name, the uses whose sum is its gradient.
        shapes: Shape of each parameter.
    """

    losses: Float[Tensor, " example"]
    uses: Mapping[str, tuple[Use, ...]]
    shapes: Mapping[str, torch.Size]

    def __len__(self) -> int:
        return len(self.losses)

    def __repr__(self) -> str:
        entries = sum(shape.numel() for shape in self.shapes.values())
        return f"PerExampleGradients({len(self)} examples, {len(self.uses)} parameters with {entries} entries)"

    def gram(self, other: PerExampleGradients | None = None) -> Float[Tensor, "example other"]:
        r"""Inner products :math:`\langle \nabla\ell_i, \nabla\ell_j \rangle` with examples of ``other``, or its own.

        Raises:
            ValueError: If the two do not have the same parameters.
        """
        second = self if other is None else other
        self._require_same(second.uses, "the other gradients")
        total = self.losses.new_zeros(len(self), len(second), dtype=accumulator(self.losses))
        for name, uses in self.uses.items():
            for first, last in itertools.product(uses, second.uses[name]):
                total += inner_products(first, last)
        return total

    def dot(self, direction: Mapping[str, Tensor]) -> Float[Tensor, " example"]:
        """Inner products with a direction, given as one array a parameter.

        Raises:
            ValueError: If the direction lacks a parameter.
        """
        self._require_same(direction, "the direction")
        total = self.losses.new_zeros(len(self), dtype=accumulator(self.losses))
        for name, uses in self.uses.items():
            along = direction[name].to(total.dtype)
            for use in uses:
                total += use.dot(along.reshape(use.rows, -1) if isinstance(use, OuterProducts) else along)
        return total

    def squared_norms(self) -> Float[Tensor, " example"]:
        r"""Squared lengths :math:`\lVert \nabla\ell_i \rVert^2`."""
        total = self.losses.new_zeros(len(self), dtype=accumulator(self.losses))
        for uses in self.uses.values():
            for use in uses:
                total += matched_products(use, use)
            for first, last in itertools.combinations(uses, 2):
                total += 2 * matched_products(first, last)
        return total

    def sum(self) -> dict[str, Tensor]:
        """Gradient of the summed loss, shaped like the parameters."""
        return {
            name: torch.stack([use.sum().reshape(self.shapes[name]) for use in uses]).sum(0)
            for name, uses in self.uses.items()
        }

    def sum_of_squares(self) -> dict[str, Tensor]:
        r"""Elementwise :math:`\sum_i (\nabla\ell_i)^2`, shaped like the parameters."""
        return {name: sum_of_squares(uses, self.shapes[name]) for name, uses in self.uses.items()}

    def sketch(self, projection: CountSketch) -> Float[Tensor, "example dimension"]:
        """Random projection of each example's gradient that keeps inner products on average.

        Raises:
            ValueError: If the projection was made for other parameters.
        """
        self._require_same(projection.shapes, "the projection")
        total = self.losses.new_zeros(len(self), projection.dimension, dtype=accumulator(self.losses))
        for name, uses in self.uses.items():
            for use in uses:
                if isinstance(use, OuterProducts):
                    total += projection.of_outer_products(name, use.left, use.right, rows=use.rows)
                else:
                    total += projection.of_rows(name, use.gradient)
        return total

    def _require_same(self, other: Collection[str], what: str) -> None:
        missing = sorted(self.uses.keys() - set(other))
        if missing:
            raise ValueError(f"{what} have no parameter {missing[0]!r} ({len(missing)} missing)")


def per_example_gradients(
    model: nn.Module, loss_fn: LossFunction, batch: Any, *, parameters: Collection[str] | None = None
) -> PerExampleGradients:
    """Gradients of every example of a batch; ``.grad`` of the parameters is not touched.

    Linear, ``Conv1D``, ``Conv2d`` and embedding layers are kept in factors; any other layer with parameters of its own
    (norms of all kinds, grouped convolutions) is differentiated for itself under ``vmap``.

    Args:
        model: Examples must not mix in it: a batch norm in training mode is refused.
        loss_fn: One loss an example.
        batch: A tensor, or a tuple or mapping of tensors, examples along the first axis.
        parameters: Names of those that enter; by default all that require gradients.

    Raises:
        ValueError: If no parameter is left, the loss is reduced, examples mix, or a parameter is used outside the
            layer that owns it, so that its gradient would be incomplete.
    """
    examples = batch_size(batch)
    owners = trainable(model, parameters)
    with torch.enable_grad(), traced_calls(model, owners, examples) as calls:
        losses = example_losses(model, loss_fn, batch)
        edges = [call.edge for call in calls]
        gradients = torch.autograd.grad(losses.sum(), edges, allow_unused=True) if edges else ()
    uses: dict[str, list[Use]] = {}
    for call, gradient in zip(calls, gradients, strict=True):
        if gradient is not None:
            for own, use in call.uses(gradient):
                uses.setdefault(call.names[own], []).append(use)
    shapes = {name: parameter.shape for name, parameter in owners.items()}
    if unused := [name for name in owners if name not in uses]:
        raise ValueError(
            f"parameter {unused[0]!r} is not used by the layer that owns it (or does not reach the loss); "
            f"leave it out through parameters= ({len(unused)} of {len(owners)} such)"
        )
    return PerExampleGradients(losses.detach(), {name: tuple(found) for name, found in uses.items()}, shapes)


def check_complete(model: nn.Module, loss_fn: LossFunction, batch: Any, gradients: PerExampleGradients) -> None:
    """Check that the per-example gradients of a batch sum to what autograd gives for the summed loss.

    They do not if a weight is also used outside its layer, as by ``F.linear(x, embedding.weight)``, which no hook sees.

    Raises:
        ValueError: Naming the first parameter that differs.
    """
    named = {name: parameter for name, parameter in model.named_parameters() if name in gradients.uses}
    with torch.enable_grad():
        expected = torch.autograd.grad(example_losses(model, loss_fn, batch).sum(), list(named.values()))
    # Hugging Face norms compute in float32 whatever the dtype of the model.
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(gradients.losses.dtype, 0.1)
    summed = gradients.sum()
    for name, value in zip(named, expected, strict=True):
        gap = (summed[name] - value.to(summed[name].dtype)).norm()
        if gap > tolerance * value.norm() + 1e-12:
            raise ValueError(
                f"per-example gradients of {name!r} do not sum to its gradient (relative gap "
                f"{float(gap / value.norm().clamp_min(1e-30)):.1e}): it is used outside the layer that owns it"
            )


def materialised_gradients(
    model: nn.Module, loss_fn: LossFunction, batch: Any, *, parameters: Collection[str] | None = None
) -> dict[str, Float[Tensor, "example ..."]]:
    """Every example's gradient written out, by ``vmap(grad)``: examples times parameters numbers."""
    owners = trainable(model, parameters)
    chosen = {f"model.{name}": parameter.detach() for name, parameter in owners.items()}
    wrapped = ExampleLosses(model, loss_fn)

    def loss(values: dict[str, Tensor], one: Any) -> Tensor:
        return functional_call(wrapped, values, (map_batch(lambda tensor: tensor.unsqueeze(0), one),))[0]

    # HF models branch on the values of masks and positions, which vmap cannot; per example they can be read.
    written = vmap(grad(loss), in_dims=(None, 0))(chosen, batch)
    return {name.removeprefix("model."): value for name, value in written.items()}


class ExampleLosses(nn.Module):
    """Model and loss as one module, so that ``torch.func`` can exchange the parameters below an arbitrary loss."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction) -> None:
        super().__init__()
        self.model = model
        self._loss_fn = loss_fn

    def forward(self, batch: Any) -> Float[Tensor, " example"]:
        """Loss of each example."""
        return self._loss_fn(self.model, batch)


def example_losses(model: nn.Module, loss_fn: LossFunction, batch: Any) -> Float[Tensor, " example"]:
    """Losses of a batch, one an example.

    Raises:
        ValueError: If the loss function reduces over examples.
    """
    losses, examples = loss_fn(model, batch), batch_size(batch)
    if losses.shape != (examples,):
        raise ValueError(
            f"the loss function must give one loss an example: {examples} examples gave shape {tuple(losses.shape)}; "
            "use reduction='none'"
        )
    return losses


def batch_size(batch: Any) -> int:
    """Number of examples of a batch.

    Raises:
        ValueError: If it has no tensor, or its tensors differ in their first axis.
    """
    sizes = {len(tensor) for tensor in _tensors(batch)}
    if len(sizes) != 1:
        raise ValueError(f"a batch needs tensors with examples along the first axis, got lengths {sorted(sizes)}")
    return sizes.pop()


def map_batch(change: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """The batch with a function applied to each of its tensors."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: map_batch(change, value) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return type(batch)(map_batch(change, value) for value in batch)
    return batch


def trainable(model: nn.Module, parameters: Collection[str] | None = None) -> dict[str, nn.Parameter]:
    """The parameters that enter, by name: those that require gradients, or the named ones among them.

    Raises:
        ValueError: If none is left, or a name does not exist.
    """
    open_ones = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if parameters is not None:
        if unknown := sorted(set(parameters) - open_ones.keys()):
            raise ValueError(f"the model has no trainable parameter {unknown[0]!r}")
        open_ones = {name: value for name, value in open_ones.items() if name in set(parameters)}
    if not open_ones:
        raise ValueError("all parameters of the model are frozen: no gradient can be taken")
    return open_ones


def _tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from _tensors(value)
