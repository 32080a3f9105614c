r"""Rotary position embeddings: what a query would give to each key at each position.

A rotary head turns channel pair :math:`f` of query and key by :math:`\theta_f` times the position, so that logits
depend on differences of positions only: :math:`\langle R(m)q, R(p)k\rangle = \langle R(m-p)q, k\rangle`. Channels
beyond the rotated ones (partial rotary) behave as one more frequency :math:`\theta = 0`.

Source: Su et al. (2021), "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv 2104.09864.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Layout = Literal["half", "interleaved"]


def rotate(
    vectors: Float[Tensor, "... channels"],
    angles: Float[Tensor, "... frequencies"],
    *,
    layout: Layout = "half",
) -> Float[Tensor, "... channels"]:
    """Turn channel pair ``f`` by ``angles[..., f]``; channels beyond the pairs pass unchanged.

    Args:
        vectors: Queries or keys.
        angles: In radians; leading axes broadcast against those of ``vectors``.
        layout: Which channels form a pair: ``(f, f + F)`` for ``half`` (Llama, NeoX), ``(2f, 2f + 1)`` for
            ``interleaved`` (GPT-J).

    Raises:
        ValueError: If there are more pairs than channels allow.
    """
    real, imaginary, passed = split_pairs(vectors, angles.shape[-1], layout=layout)
    cosine, sine = angles.cos(), angles.sin()
    turned = (real * cosine - imaginary * sine, real * sine + imaginary * cosine)
    rotated = torch.cat(turned, dim=-1) if layout == "half" else torch.stack(turned, dim=-1).flatten(-2)
    return torch.cat([rotated, passed.expand(*rotated.shape[:-1], -1)], dim=-1)


def split_pairs(
    vectors: Float[Tensor, "... channels"], frequencies: int, *, layout: Layout = "half"
) -> tuple[Tensor, Tensor, Tensor]:
    """First and second channel of every rotated pair, each ``(..., frequencies)``, and the channels that pass."""
    rotated = 2 * frequencies
    if rotated > vectors.shape[-1]:
        raise ValueError(f"{frequencies} frequencies need {rotated} channels, got {vectors.shape[-1]}")
    turning, passed = vectors[..., :rotated], vectors[..., rotated:]
    if layout == "half":
        return turning[..., :frequencies], turning[..., frequencies:], passed
    return turning[..., 0::2], turning[..., 1::2], passed


def logit_table(
    query: Float[Tensor, "... channels"],
    keys: Float[Tensor, "... keys channels"],
    inv_freq: Float[Tensor, " frequencies"],
    positions: Int[Tensor, " keys"],
    query_position: int,
    *,
    scale: float,
    layout: Layout = "half",
    softcap: float | None = None,
) -> Float[Tensor, "... keys keys"]:
    r"""Logits of one query for every content at every position.

    .. math:: L_{ij} = s\,\langle R(m)\,q,\; R(p_i)\,k_j\rangle

    Args:
        query: Unrotated, otherwise final (after bias and QK-norm).
        keys: Likewise, one a content; the leading axes are those of ``query``.
        inv_freq: Angle a position, of every rotated channel pair.
        positions: :math:`p_i`, where key ``i`` really stands.
        query_position: :math:`m`.
        scale: :math:`s`, ``channels ** -0.5`` unless the model says otherwise.
        layout: Which channels form a pair.
        softcap: Logits pass through ``softcap * tanh(. / softcap)`` (Gemma 2).

    Returns:
        ``table[..., i, j]``: the logit if content ``j`` stood at ``positions[i]``; the diagonal is what the model uses.

    Raises:
        ValueError: If there are fewer than 3 keys.

    >>> table = logit_table(torch.ones(4), torch.eye(4), torch.zeros(2), torch.arange(4), 4, scale=1.0)
    >>> table.unique().tolist()  # nothing turns, all keys match equally
    [1.0]
    """
    if keys.shape[-2] < 3:
        raise ValueError(
            f"needs at least 3 keys before the query, got {keys.shape[-2]} (query_position={query_position})"
        )
    # Relative positions keep angles small: the difference is exact, cosines of large angles are not.
    angles = (query_position - positions).to(inv_freq.dtype)[:, None] * inv_freq
    seen = rotate(query[..., None, :], angles, layout=layout)
    table = scale * seen @ keys.mT
    return table if softcap is None else softcap * torch.tanh(table / softcap)
