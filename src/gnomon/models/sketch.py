r"""Count sketch of gradients: a random projection that needs no matrix and takes outer products in factors.

Entry e of the vector is added, with a random sign s(e), to bucket h(e) of D. For two vectors x and y

.. math:: \mathbb E \langle Sx, Sy \rangle = \langle x, y \rangle, \qquad
    \operatorname{Var} \approx \bigl(\lVert x \rVert^2 \lVert y \rVert^2 + \langle x, y \rangle^2\bigr) / D .

A matrix entry (r, c) gets bucket :math:`h_1(r) + h_2(c) \bmod D` and sign :math:`s_1(r) s_2(c)`, so that the sketch of
an outer product is the circular convolution of the sketches of its factors: two FFTs instead of a written-out matrix.

Sources: Charikar, Chen & Farach-Colton (2002), "Finding frequent items in data streams"; Pagh (2013), "Compressed
matrix multiplication".
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor


class CountSketch:
    """A fixed random projection of all parameters together to ``dimension`` numbers.

    Args:
        shapes: Shape of each parameter, by name.
        dimension: Numbers that are kept; the relative error of an inner product is about its inverse square root.
        seed: Of hashes and signs; equal seeds give equal projections.

    Raises:
        ValueError: If the dimension is not positive.
    """

    def __init__(self, shapes: Mapping[str, torch.Size], *, dimension: int = 2048, seed: int = 0) -> None:
        if dimension < 1:
            raise ValueError(f"a sketch needs a positive dimension, got {dimension}")
        self.shapes = dict(shapes)
        self.dimension = dimension
        self._rows: dict[str, tuple[Tensor, Tensor]] = {}
        self._columns: dict[str, tuple[Tensor, Tensor]] = {}
        for name, shape in self.shapes.items():
            generator = torch.Generator().manual_seed(seed * 1_000_003 + zlib.crc32(name.encode()))
            rows = shape[0] if len(shape) > 1 else 1
            self._rows[name] = self._draw(rows, generator)
            self._columns[name] = self._draw(shape.numel() // max(rows, 1), generator)

    def of_outer_products(
        self,
        name: str,
        left: Float[Tensor, "example position row"] | Int[Tensor, "example position"],
        right: Float[Tensor, "example position column"],
        *,
        rows: int,
    ) -> Float[Tensor, "example dimension"]:
        """Sketch of each example's sum over positions of left times right transposed.

        Args:
            name: The parameter.
            left: Row factors, or row indices.
            right: Column factors.
            rows: Rows of the parameter as the factors see it.

        Raises:
            ValueError: If the factors do not fit the parameter.
        """
        buckets, signs = (value.to(right.device) for value in self._rows[name])
        if rows != len(buckets):
            raise ValueError(f"{name} has {len(buckets)} rows, the factors {rows}")
        if left.dim() == 2:
            shifts, row_signs = buckets[left], signs[left].to(right.dtype)
            sketched = self._scatter(right * row_signs.unsqueeze(-1), *self._columns[name])
            # A one-hot row factor only shifts the column sketch; the shift differs by position.
            places = (torch.arange(self.dimension, device=right.device) - shifts.unsqueeze(-1)) % self.dimension
            return sketched.gather(2, places).sum(1)
        first = torch.fft.rfft(self._scatter(left, buckets, signs))
        second = torch.fft.rfft(self._scatter(right, *self._columns[name]))
        return torch.fft.irfft((first * second).sum(1), n=self.dimension)

    def of_rows(self, name: str, gradient: Float[Tensor, "example entry"]) -> Float[Tensor, "example dimension"]:
        """Sketch of written-out gradients of one parameter."""
        (row_buckets, row_signs), (buckets, signs) = self._rows[name], self._columns[name]
        place = ((row_buckets[:, None] + buckets) % self.dimension).flatten()
        return self._scatter(gradient, place, (row_signs[:, None] * signs).flatten())

    def _draw(self, entries: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        buckets = torch.randint(self.dimension, (entries,), generator=generator)
        return buckets, 2 * torch.randint(2, (entries,), generator=generator) - 1

    def _scatter(self, values: Tensor, buckets: Tensor, signs: Tensor) -> Tensor:
        signed = values * signs.to(values)
        return values.new_zeros(*values.shape[:-1], self.dimension).index_add_(-1, buckets.to(values.device), signed)
