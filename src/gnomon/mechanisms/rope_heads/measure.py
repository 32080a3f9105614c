"""Behaviour and frequency use of every head of a model, summed over the queries of each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from gnomon.mechanisms.rope_heads.frequencies import (
    FrequencyEnergy,
    frequency_distances,
    frequency_energy,
    turning_frequencies,
    with_unrotated,
)
from gnomon.mechanisms.rope_heads.queries import RotaryLayer, for_each_layer
from gnomon.mechanisms.rope_heads.rotary import logit_table
from gnomon.mechanisms.rope_heads.scores import (
    Distances,
    TableVariance,
    behaviour_distances,
    scores,
    swap_distances,
    table_variance,
)

ENERGIES = ("second_moment", "variance", "norm")

Summed = TypeVar("Summed", Distances, TableVariance, FrequencyEnergy)


@dataclass(frozen=True)
class LayerSums:
    """What one layer's heads did, summed over the queries of each prompt; sums of prompts add up.

    Args:
        layer: Index of the layer.
        frequencies: Angle a position; a last 0 stands for unrotated channels, if there are.
        distances: Each (prompt, head).
        swapped: The same with the broken expectation of :func:`~gnomon.mechanisms.rope_heads.scores.swap_distances`.
        variance: Each (prompt, head).
        energy: Each (prompt, head, frequency).
        balance: Balance of every frequency alone: arithmetic, not learning.
        dropped: Keys that queries did not see because of a sliding window.
        error: Largest difference between rebuilt and own attention pattern on the first prompt.
    """

    layer: int
    frequencies: Float[Tensor, " frequency"]
    distances: Distances
    swapped: Distances
    variance: TableVariance
    energy: FrequencyEnergy
    balance: Float[Tensor, "prompt head frequency"]
    dropped: int
    error: float


def query_positions(length: int, queries: int, *, skip_first: int = 1, include_self: bool = False) -> list[int]:
    """Positions of the queries, evenly spaced over the second half of a prompt; the last token is one of them.

    Raises:
        ValueError: If the first of them would see fewer than 3 keys.

    >>> query_positions(64, 2)
    [32, 63]
    """
    first = max(length // 2, skip_first + 3 - include_self)
    if first > length - 1:
        raise ValueError(
            f"needs at least 3 keys before the query, got {max(length - 1 - skip_first + include_self, 0)} "
            f"(query_position={length - 1}, skip_first={skip_first})"
        )
    return sorted({round(float(position)) for position in np.linspace(first, length - 1, queries)})


def measure_heads(
    model: PreTrainedModel,
    input_ids: Int[Tensor, "prompt position"],
    queries: Sequence[int],
    *,
    skip_first: int = 1,
    include_self: bool = False,
    dtype: torch.dtype = torch.float64,
    check: bool = True,
) -> list[LayerSums]:
    """Measure all heads on prompts of one length, layer after layer; keys and queries of a layer are dropped with it.

    Args:
        model: A plain transformers decoder with rotary embeddings.
        input_ids: Prompts of equal length, without padding.
        queries: Positions of the queries (:func:`query_positions`).
        skip_first: Keys at the start of the prompt that are left out. The first token is an attention sink: its key is
            an outlier that makes every head look symbolic.
        include_self: Whether a query sees its own key.
        dtype: To compute tables in. In float32 the centred differences drown in large offsets.
        check: Prove the capture on the first prompt.

    Raises:
        ValueError: If a query sees fewer than 3 keys, or the model has no fixed rotary embedding.
        CaptureError: If the attention pattern cannot be rebuilt from what was captured.
    """
    measured: list[LayerSums] = []

    def observe(layer: RotaryLayer) -> None:
        measured.append(_measure_layer(layer, queries, skip_first, include_self, dtype))

    for_each_layer(model, input_ids, observe, check=check)
    return measured


def head_rows(measured: Sequence[LayerSums], *, context: int, first_prompt: int = 0) -> pd.DataFrame:
    r"""One row a prompt and head: sums over queries, of which scores are ratios.

    Args:
        measured: Of :func:`measure_heads`.
        context: Most keys that a query sees; frequencies count as high from :math:`2\pi` / ``context`` on.
        first_prompt: Number of the first prompt.

    Returns:
        Columns ``prompt``, ``layer``, ``head``; ``positional``, ``symbolic``, ``zero`` (distances);
        ``swapped_positional``, ``swapped_symbolic`` (the broken variant); ``total``, ``row``, ``column`` (variance of
        the table); for each energy ``ENERGY_low`` and ``ENERGY_high``.
    """
    return pd.concat([_layer_rows(layer, context, first_prompt) for layer in measured], ignore_index=True)


def energy_rows(measured: Sequence[LayerSums]) -> pd.DataFrame:
    """One row a head and frequency: the energies summed over prompts and queries, in float32."""
    frames = []
    for layer in measured:
        sums = {name: getattr(layer.energy, name).sum(0).float() for name in ENERGIES}
        heads, frequencies = sums["norm"].shape
        frames.append(
            pd.DataFrame(
                {
                    "layer": layer.layer,
                    "head": np.repeat(np.arange(heads), frequencies),
                    "frequency": np.tile(np.arange(frequencies), heads),
                    "theta": np.tile(layer.frequencies.numpy(), heads),
                    **{name: values.flatten().numpy() for name, values in sums.items()},
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def balance_rows(measured: Sequence[LayerSums], *, first_prompt: int = 0) -> pd.DataFrame:
    """One row a prompt and frequency: mean over all heads of the balance of that frequency alone."""
    frames = []
    for layer in measured:
        prompts, heads, frequencies = layer.balance.shape
        frames.append(
            pd.DataFrame(
                {
                    "prompt": first_prompt + np.repeat(np.arange(prompts), heads * frequencies),
                    "theta": np.tile(layer.frequencies.numpy(), prompts * heads),
                    "balance": layer.balance.flatten().numpy(),
                }
            )
        )
    return pd.DataFrame(pd.concat(frames).groupby(["prompt", "theta"], as_index=False)["balance"].mean())


def _layer_rows(layer: LayerSums, context: int, first_prompt: int) -> pd.DataFrame:
    prompts, heads = layer.distances.zero.shape
    high = turning_frequencies(layer.frequencies, context)
    columns = {
        "positional": layer.distances.positional,
        "symbolic": layer.distances.symbolic,
        "zero": layer.distances.zero,
        "swapped_positional": layer.swapped.positional,
        "swapped_symbolic": layer.swapped.symbolic,
        "total": layer.variance.total,
        "row": layer.variance.row,
        "column": layer.variance.column,
    }
    for name in ENERGIES:
        energy = getattr(layer.energy, name)
        columns[f"{name}_low"] = energy[..., ~high].sum(-1)
        columns[f"{name}_high"] = energy[..., high].sum(-1)
    return pd.DataFrame(
        {
            "prompt": first_prompt + np.repeat(np.arange(prompts), heads),
            "layer": layer.layer,
            "head": np.tile(np.arange(heads), prompts),
            **{name: values.flatten().numpy() for name, values in columns.items()},
        }
    )


def _measure_layer(
    layer: RotaryLayer, queries: Sequence[int], skip_first: int, include_self: bool, dtype: torch.dtype
) -> LayerSums:
    query, key = layer.query.to(dtype), layer.keys_of_heads().to(dtype)
    inv_freq = layer.inv_freq.to(dtype)
    distances, swapped, variance, energy, alone = [], [], [], [], []
    dropped = 0
    for position in queries:
        visible = layer.visible_keys(position, skip_first=skip_first, include_self=include_self)
        dropped += visible.start - skip_first
        where = torch.arange(visible.start, visible.stop)
        head = (query[:, :, position], key[:, :, visible.start : visible.stop], inv_freq, where, position)
        table = logit_table(*head, scale=layer.scale, layout=layer.layout, softcap=layer.softcap)
        distances.append(behaviour_distances(table))
        swapped.append(swap_distances(table))
        variance.append(table_variance(table))
        energy.append(frequency_energy(*head, scale=layer.scale, layout=layer.layout))
        alone.append(frequency_distances(*head, scale=layer.scale, layout=layer.layout))
    return LayerSums(
        layer=layer.layer,
        frequencies=with_unrotated(inv_freq, query.shape[-1]),
        distances=_summed(distances),
        swapped=_summed(swapped),
        variance=_summed(variance),
        energy=_summed(energy),
        balance=scores(_summed(alone)).balance,
        dropped=dropped,
        error=layer.error,
    )


def _summed(parts: Sequence[Summed]) -> Summed:
    """One of the same kind, each field summed over queries."""
    names = [field.name for field in fields(parts[0])]
    return type(parts[0])(**{name: torch.stack([getattr(part, name) for part in parts]).sum(0) for name in names})
