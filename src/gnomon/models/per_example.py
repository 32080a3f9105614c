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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap
from transformers.pytorch_utils import Conv1D

from gnomon.models.sketch import CountSketch

#: From model and batch to one loss an example.
LossFunction = Callable[[nn.Module, Any], Float[Tensor, " example"]]

#: Most numbers in one intermediate array of a product (float32: 64 MB).
CHUNK = 1 << 24


@dataclass(frozen=True)
class OuterProducts:
    """One use of a matrix parameter: each example's gradient is the sum over positions of left times right transposed.

    Args:
        left: What stands for the rows; row indices if the row factors are one-hot (embeddings).
        right: What stands for the columns.
        rows: Rows of the parameter.
    """

    left: Float[Tensor, "example position row"] | Int[Tensor, "example position"]
    right: Float[Tensor, "example position column"]
    rows: int

    def __len__(self) -> int:
        return len(self.right)

    @property
    def one_hot(self) -> bool:
        """Whether ``left`` holds row indices."""
        return self.left.dim() == 2

    @property
    def size(self) -> int:
        """Entries of the parameter."""
        return self.rows * self.right.shape[2]

    def take(self, examples: slice) -> OuterProducts:
        """The same for some of the examples."""
        return OuterProducts(self.left[examples], self.right[examples], self.rows)

    def dense(self) -> Float[Tensor, "example row column"]:
        """Each example's gradient, written out."""
        if not self.one_hot:
            return torch.einsum("etr,etc->erc", self.left, self.right)
        written = self.right.new_zeros(len(self.right), self.rows, self.right.shape[2])
        example = torch.arange(len(self.right), device=self.right.device)[:, None].expand_as(self.left)
        return written.index_put_((example, self.left), self.right, accumulate=True)

    def sum(self) -> Float[Tensor, "row column"]:
        """The gradient of all examples together."""
        if not self.one_hot:
            return torch.einsum("etr,etc->rc", self.left, self.right)
        return self.right.new_zeros(self.rows, self.right.shape[2]).index_add_(
            0, self.left.flatten(), self.right.flatten(0, 1)
        )

    def dot(self, direction: Float[Tensor, "row column"]) -> Float[Tensor, " example"]:
        """Inner products with one matrix."""
        rows = direction[self.left] if self.one_hot else self.left @ direction
        return (rows * self.right).sum((1, 2))


@dataclass(frozen=True)
class Instantiated:
    """One use of a small parameter (bias, norm weight): each example's gradient, written out and flattened."""

    gradient: Float[Tensor, "example entry"]

    def __len__(self) -> int:
        return len(self.gradient)

    def take(self, examples: slice) -> Instantiated:
        """The same for some of the examples."""
        return Instantiated(self.gradient[examples])

    def dense(self) -> Float[Tensor, "example entry"]:
        """Each example's gradient."""
        return self.gradient

    def sum(self) -> Float[Tensor, " entry"]:
        """The gradient of all examples together."""
        return self.gradient.sum(0)

    def dot(self, direction: Float[Tensor, "*shape"]) -> Float[Tensor, " example"]:
        """Inner products with one array."""
        return self.gradient @ direction.flatten()


Use = OuterProducts | Instantiated


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
        total = self.losses.new_zeros(len(self), len(second), dtype=_accumulator(self.losses))
        for name, uses in self.uses.items():
            for first, last in itertools.product(uses, second.uses[name]):
                total += _inner_products(first, last)
        return total

    def dot(self, direction: Mapping[str, Tensor]) -> Float[Tensor, " example"]:
        """Inner products with a direction, given as one array a parameter.

        Raises:
            ValueError: If the direction lacks a parameter.
        """
        self._require_same(direction, "the direction")
        total = self.losses.new_zeros(len(self), dtype=_accumulator(self.losses))
        for name, uses in self.uses.items():
            along = direction[name].to(total.dtype)
            for use in uses:
                total += use.dot(along.reshape(use.rows, -1) if isinstance(use, OuterProducts) else along)
        return total

    def squared_norms(self) -> Float[Tensor, " example"]:
        r"""Squared lengths :math:`\lVert \nabla\ell_i \rVert^2`."""
        total = self.losses.new_zeros(len(self), dtype=_accumulator(self.losses))
        for uses in self.uses.values():
            for use in uses:
                total += _matched_products(use, use)
            for first, last in itertools.combinations(uses, 2):
                total += 2 * _matched_products(first, last)
        return total

    def sum(self) -> dict[str, Tensor]:
        """Gradient of the summed loss, shaped like the parameters."""
        return {
            name: torch.stack([use.sum().reshape(self.shapes[name]) for use in uses]).sum(0)
            for name, uses in self.uses.items()
        }

    def sum_of_squares(self) -> dict[str, Tensor]:
        r"""Elementwise :math:`\sum_i (\nabla\ell_i)^2`, shaped like the parameters."""
        return {name: _sum_of_squares(uses, self.shapes[name]) for name, uses in self.uses.items()}

    def sketch(self, projection: CountSketch) -> Float[Tensor, "example dimension"]:
        """Random projection of each example's gradient that keeps inner products on average.

        Raises:
            ValueError: If the projection was made for other parameters.
        """
        self._require_same(projection.shapes, "the projection")
        total = self.losses.new_zeros(len(self), projection.dimension, dtype=_accumulator(self.losses))
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
    with torch.enable_grad(), _traced(model, owners, examples) as calls:
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
) -> dict[str, Float[Tensor, example * shape]]:
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


@dataclass(frozen=True)
class _Call:
    """One call of a layer: its input, where the gradient of its output will appear, names of its parameters."""

    layer: nn.Module
    inputs: Tensor
    edge: Any
    names: dict[str, str]

    def uses(self, gradient: Tensor) -> Iterator[tuple[str, Use]]:
        """What each parameter of the layer gets from this call."""
        precise = _accumulator(gradient)
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
        _, pull = vjp(lambda values: functional_call(layer, values, (one.unsqueeze(0),)), own)
        return pull(cotangent.unsqueeze(0))[0]

    return vmap(pulled_back)(inputs, gradient)


@contextmanager
def _traced(model: nn.Module, owners: Mapping[str, nn.Parameter], examples: int) -> Iterator[list[_Call]]:
    names = {id(parameter): name for name, parameter in owners.items()}
    calls: list[_Call] = []

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
        calls.append(_Call(layer, inputs.detach(), torch.autograd.graph.get_gradient_edge(output), own))

    handles = []
    for layer in model.modules():
        if any(id(parameter) in names for parameter in layer.parameters(recurse=False)):
            handles += [layer.register_forward_pre_hook(widen), layer.register_forward_hook(note)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _inner_products(first: Use, last: Use) -> Float[Tensor, "example other"]:
    if not (isinstance(first, OuterProducts) and isinstance(last, OuterProducts)) or _writing_out_is_cheaper(
        first, last
    ):
        return first.dense().flatten(1) @ last.dense().flatten(1).T
    step = max(1, CHUNK // (first.right.shape[1] * last.right.shape[0] * last.right.shape[1]))
    return torch.cat(
        [
            torch.einsum(
                "itjs,itjs->ij", _left_products(part, last), torch.einsum("itc,jsc->itjs", part.right, last.right)
            )
            for part in (first.take(slice(start, start + step)) for start in range(0, len(first.right), step))
        ]
    )


def _matched_products(first: Use, last: Use) -> Float[Tensor, " example"]:
    """Inner products of each example's two gradients."""
    if not (isinstance(first, OuterProducts) and isinstance(last, OuterProducts)):
        return (first.dense().flatten(1) * last.dense().flatten(1)).sum(1)
    if first.one_hot and last.one_hot:
        left = (first.left[:, :, None] == last.left[:, None, :]).to(first.right.dtype)
    elif first.one_hot:
        left = last.left.gather(2, first.left[:, None, :].expand(-1, last.left.shape[1], -1)).transpose(1, 2)
    elif last.one_hot:
        left = first.left.gather(2, last.left[:, None, :].expand(-1, first.left.shape[1], -1))
    else:
        left = torch.einsum("etr,esr->ets", first.left, last.left)
    return (left * torch.einsum("etc,esc->ets", first.right, last.right)).sum((1, 2))


def _left_products(first: OuterProducts, last: OuterProducts) -> Float[Tensor, "example position other position2"]:
    if first.one_hot and last.one_hot:
        return (first.left[:, :, None, None] == last.left[None, None]).to(first.right.dtype)
    if first.one_hot:
        return last.left[:, :, first.left].permute(2, 3, 0, 1)
    if last.one_hot:
        return first.left[:, :, last.left]
    return torch.einsum("itr,jsr->itjs", first.left, last.left)


def _writing_out_is_cheaper(first: OuterProducts, last: OuterProducts) -> bool:
    pairs = first.right.shape[1] * last.right.shape[1]
    return first.size < pairs and first.size * max(len(first.right), len(last.right)) <= CHUNK


def _sum_of_squares(uses: Sequence[Use], shape: torch.Size) -> Tensor:
    first = uses[0]
    if isinstance(first, OuterProducts) and len(uses) == 1:
        if first.one_hot:
            return _sum_of_row_squares(first)
        if first.right.shape[1] == 1:
            return torch.einsum("etr,etc->rc", first.left.square(), first.right.square()).reshape(shape)
    like = first.right if isinstance(first, OuterProducts) else first.gradient
    step = max(1, CHUNK // shape.numel())
    total = torch.zeros(shape, dtype=like.dtype, device=like.device)
    for start in range(0, len(first), step):
        total += _summed(uses, slice(start, start + step), shape).square().sum(0)
    return total


def _summed(uses: Sequence[Use], examples: slice, shape: torch.Size) -> Float[Tensor, example * shape]:
    return torch.stack([use.take(examples).dense().reshape(-1, *shape) for use in uses]).sum(0)


def _sum_of_row_squares(use: OuterProducts) -> Tensor:
    """Squares of embedding gradients; only the rows that an example touches are written out."""
    total = use.right.new_zeros(use.rows, use.right.shape[2])
    for rows, values in zip(use.left, use.right, strict=True):
        touched, where = rows.unique(return_inverse=True)
        summed = values.new_zeros(len(touched), values.shape[1]).index_add_(0, where, values)
        total.index_add_(0, touched, summed.square())
    return total


def _accumulator(values: Tensor) -> torch.dtype:
    """Products of half-precision factors are summed in float32."""
    return torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else values.dtype


def _tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from _tensors(value)
