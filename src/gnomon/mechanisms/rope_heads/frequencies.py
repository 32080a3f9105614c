r"""Which rotary frequencies a head spends its logits on, and how each frequency behaves by itself.

The logit of key ``i`` is a sum over frequencies,

.. math:: c_{if} = s\,\operatorname{Re}\bigl(\bar Q_f K_{if}\, e^{i\theta_f (p_i - m)}\bigr), \qquad
          \sum_f c_{if} + s\,\langle q_{pass}, k_{pass,i}\rangle = L_{ii} .

**Two warnings.** A frequency that barely turns over the context cannot tell positions apart, whatever the weights:
:func:`frequency_distances` shows arithmetic, not learning. And heads that spend on fast frequencies *are* more
positional also without training. Never read either without the same number on an untrained copy.

Source: Urrutia et al. (2025), arXiv 2511.11579; norm usage after Barbero et al. (2024), "Round and Round We Go! What
makes Rotary Positional Encodings useful?", arXiv 2410.06205.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gnomon.mechanisms.rope_heads.rotary import Layout, split_pairs
from gnomon.mechanisms.rope_heads.scores import Distances, permutation_distance


@dataclass(frozen=True)
class FrequencyEnergy:
    r"""What every frequency contributes to the logits of a query; sums over prompts and queries add up.

    Args:
        second_moment: :math:`\operatorname{mean}_i c_{if}^2`, logit energy.
        variance: :math:`\operatorname{Var}_i c_{if}`, contribution to *differences* between keys.
        norm: :math:`\operatorname{mean}_i |Q_f||K_{if}|`, norm usage.
    """

    second_moment: Float[Tensor, "... frequencies"]
    variance: Float[Tensor, "... frequencies"]
    norm: Float[Tensor, "... frequencies"]


def frequency_energy(
    query: Float[Tensor, "... channels"],
    keys: Float[Tensor, "... keys channels"],
    inv_freq: Float[Tensor, " frequencies"],
    positions: Int[Tensor, " keys"],
    query_position: int,
    *,
    scale: float,
    layout: Layout = "half",
) -> FrequencyEnergy:
    """Energy of every frequency in the logits the model uses, before any soft-cap (arguments as in ``logit_table``).

    In partial rotary heads a last entry holds the unrotated channels (:func:`with_unrotated`).
    """
    products = _products(query, keys, inv_freq, positions, query_position, layout)
    contribution = scale * (products.real * products.cosine - products.imaginary * products.sine)
    return FrequencyEnergy(
        second_moment=(contribution**2).mean(-2),
        variance=contribution.var(dim=-2, correction=0),
        norm=scale * products.size.mean(-2),
    )


def frequency_distances(
    query: Float[Tensor, "... channels"],
    keys: Float[Tensor, "... keys channels"],
    inv_freq: Float[Tensor, " frequencies"],
    positions: Int[Tensor, " keys"],
    query_position: int,
    *,
    scale: float,
    layout: Layout = "half",
) -> Distances:
    r"""Behaviour of every frequency alone: distances of the table restricted to it, each ``(..., frequencies)``.

    The restricted table has rank two, :math:`L_{ij} = x_j\cos\phi_i - y_j\sin\phi_i`, so that its row sums, column sums
    and squares follow from sums over keys: :math:`O(M F)` instead of :math:`O(M^2 F)`.
    """
    products = _products(query, keys, inv_freq, positions, query_position, layout)
    real, imaginary, cosine, sine = products.real, products.imaginary, products.cosine, products.sine
    count = real.shape[-2]
    used = real * cosine - imaginary * sine
    rows = cosine * real.sum(-2, keepdim=True) - sine * imaginary.sum(-2, keepdim=True)
    columns = real * cosine.sum(-2, keepdim=True) - imaginary * sine.sum(-2, keepdim=True)
    square = (
        (cosine**2).sum(-2) * (real**2).sum(-2)
        - 2 * (cosine * sine).sum(-2) * (real * imaginary).sum(-2)
        + (sine**2).sum(-2) * (imaginary**2).sum(-2)
    )
    total_used, used_square = used.sum(-2, keepdim=True), (used**2).sum(-2)

    def distance(own: Tensor, difference_rows: Tensor, difference_columns: Tensor) -> Tensor:
        total_square = square - 2 * (used * own).sum(-2) + count * used_square
        return permutation_distance(total_square, difference_rows.mT, difference_columns.mT)

    return Distances(
        positional=scale**2 * distance(rows, rows - count * used, columns - total_used),
        symbolic=scale**2 * distance(columns, rows - total_used, columns - count * used),
        zero=2 * scale**2 * used.var(dim=-2, correction=0),
    )


def turning_frequencies(inv_freq: Float[Tensor, " frequencies"], context: int) -> Tensor:
    r"""Mask of the high frequencies: those that turn at least once over the context, :math:`\theta_f \ge 2\pi/M`.

    What counts is the angle over the context, never :math:`\theta` itself: compare models at the same context only.
    """
    return inv_freq >= 2 * math.pi / context


def low_high(energy: Float[Tensor, "... frequencies"], high: Tensor) -> Float[Tensor, ...]:
    """Log ratio of the energy in the low frequencies to that in the high ones (mask ``high``)."""
    return torch.log(energy[..., ~high].sum(-1) / energy[..., high].sum(-1))


def with_unrotated(inv_freq: Float[Tensor, " frequencies"], channels: int) -> Tensor:
    """Frequencies of a head of so many channels: a last one of 0 stands for the unrotated channels, if there are."""
    if 2 * len(inv_freq) == channels:
        return inv_freq
    return torch.cat([inv_freq, inv_freq.new_zeros(1)])


@dataclass(frozen=True)
class _Products:
    """Per key and frequency: conj(Q) K, its largest possible size |Q||K|, and the turn (p - m) theta."""

    real: Tensor
    imaginary: Tensor
    size: Tensor
    cosine: Tensor
    sine: Tensor


def _products(
    query: Tensor, keys: Tensor, inv_freq: Tensor, positions: Tensor, query_position: int, layout: Layout
) -> _Products:
    query_real, query_imaginary, query_passed = split_pairs(query[..., None, :], len(inv_freq), layout=layout)
    key_real, key_imaginary, key_passed = split_pairs(keys, len(inv_freq), layout=layout)
    real = query_real * key_real + query_imaginary * key_imaginary
    imaginary = query_real * key_imaginary - query_imaginary * key_real
    size = torch.hypot(real, imaginary)
    if query_passed.shape[-1]:
        product = (query_passed * key_passed).sum(-1, keepdim=True)
        bound = query_passed.norm(dim=-1, keepdim=True) * key_passed.norm(dim=-1, keepdim=True)
        real, size = torch.cat([real, product], -1), torch.cat([size, bound], -1)
        imaginary = torch.cat([imaginary, torch.zeros_like(product)], -1)
    angular = with_unrotated(inv_freq, query.shape[-1])
    angles = (positions - query_position).to(angular.dtype)[:, None] * angular
    return _Products(real, imaginary, size, angles.cos(), angles.sin())
