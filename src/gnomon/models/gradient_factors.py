"""Gradients of one parameter for every example, as outer products or written out, and their inner products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

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


def inner_products(first: Use, last: Use) -> Float[Tensor, "example other"]:
    """Inner products of every gradient of one use with every gradient of another, in whichever way is cheaper."""
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


def matched_products(first: Use, last: Use) -> Float[Tensor, " example"]:
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
    """Counts multiplications: positions by positions for every pair, or entries once a pair and once a position."""
    (examples, positions, columns), (others, others_positions, _) = first.right.shape, last.right.shape
    rows = 1 if first.one_hot or last.one_hot else first.rows
    in_factors = examples * others * positions * others_positions * (rows + columns)
    written = first.size * (examples * others + examples * positions + others * others_positions)
    return written < in_factors and first.size * max(examples, others) <= CHUNK


def sum_of_squares(uses: Sequence[Use], shape: torch.Size) -> Tensor:
    """Elementwise sum over examples of the squared sum of a parameter's uses."""
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


def _summed(uses: Sequence[Use], examples: slice, shape: torch.Size) -> Float[Tensor, "example ..."]:
    return torch.stack([use.take(examples).dense().reshape(-1, *shape) for use in uses]).sum(0)


def _sum_of_row_squares(use: OuterProducts) -> Tensor:
    """Squares of embedding gradients; only the rows that an example touches are written out."""
    total = use.right.new_zeros(use.rows, use.right.shape[2])
    for rows, values in zip(use.left, use.right, strict=True):
        touched, where = rows.unique(return_inverse=True)
        summed = values.new_zeros(len(touched), values.shape[1]).index_add_(0, where, values)
        total.index_add_(0, touched, summed.square())
    return total


def accumulator(values: Tensor) -> torch.dtype:
    """Products of half-precision factors are summed in float32."""
    return torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else values.dtype
