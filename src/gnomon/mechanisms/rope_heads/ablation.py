r"""Take rotary frequencies away from chosen heads of a running model, and see what it costs.

For a chosen head the angles :math:`\theta_f` of a set of frequencies are replaced by 0, for query and keys alike: the
contents in these channels still match, but no longer know where they stand. Other heads, also those that share the same
keys, are untouched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers import PreTrainedModel

from gnomon.mechanisms.rope_heads.queries import model_frequencies, model_layouts
from gnomon.mechanisms.rope_heads.rotary import rotate
from gnomon.models.attention import Attended, AttentionCall, unrotated_attention

Head = tuple[int, int]
"""Layer and head."""


@contextmanager
def without_frequencies(
    model: PreTrainedModel, heads: Collection[Head], removed: Bool[Tensor, " frequency"]
) -> Iterator[None]:
    """Within the context, the given heads do not turn at the frequencies marked in ``removed``.

    Args:
        model: A plain rotary decoder.
        heads: (layer, head) pairs.
        removed: Boolean mask over the model's rotary frequencies.

    Raises:
        ValueError: If a head does not exist, or the mask has the wrong length.
    """
    frequencies = model_frequencies(model)
    layouts = model_layouts(model)
    chosen: dict[int, list[int]] = {}
    for layer, head in sorted(heads):
        if not 0 <= layer < len(frequencies):
            raise ValueError(f"layer {layer} does not exist: {type(model).__name__} has {len(frequencies)}")
        chosen.setdefault(layer, []).append(head)
    if any(len(removed) != len(frequencies[layer]) for layer in chosen):
        raise ValueError(f"removed must mark {len(frequencies[0])} frequencies, got {len(removed)}")
    waiting: dict[int, tuple[Tensor, Tensor]] = {}

    def keep(layer: int, query: Tensor, key: Tensor) -> None:
        if layer in chosen:
            waiting[layer] = (query, key)

    def attend(call: AttentionCall) -> Attended:
        mixed, pattern = call.own()
        if call.layer not in chosen:
            return mixed, pattern
        some = torch.tensor(chosen[call.layer], device=mixed.device)
        if int(some.max()) >= call.query.shape[1]:
            raise ValueError(
                f"head {int(some.max())} of layer {call.layer} does not exist: it has {call.query.shape[1]}"
            )
        query, key = waiting.pop(call.layer)
        turning = frequencies[call.layer].masked_fill(removed, 0.0).to(mixed.device)
        angles = (torch.arange(query.shape[2], device=mixed.device)[:, None] * turning).float()
        shared = some // call.groups
        partial = call.pattern(
            rotate(query[:, some].float(), angles, layout=layouts[call.layer]).to(query.dtype),
            rotate(key[:, shared].float(), angles, layout=layouts[call.layer]).to(key.dtype),
        )
        mixed = mixed.clone()
        mixed[:, :, some] = (partial @ call.value[:, shared]).transpose(1, 2)
        return mixed, pattern

    with unrotated_attention(model, attend, keep):
        yield
