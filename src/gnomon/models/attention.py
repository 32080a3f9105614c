"""Stand between a decoder and its attention function: read, rebuild or replace what each layer computes.

Every decoder of transformers calls a named attention function with the queries and keys it really uses: after biases,
QK-norm and rotation, with its own scale, soft-cap and mask. :func:`intercept_attention` puts a handler in that place,
for all architectures alike and without touching the modules. :func:`unrotated_attention` shows the same queries and
keys before their rotation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask
from transformers.modeling_layers import GradientCheckpointingLayer

Attended = tuple[Float[Tensor, "batch position head channels"], Float[Tensor, "batch head query key"] | None]
"""What an attention function returns: the mixed values (``hook_z``) and the pattern."""

_NAMES = count()
_CACHES = {"cache", "past_key_values", "layer_past"}


@dataclass(frozen=True)
class AttentionCall:
    """One layer's call of its attention function.

    Args:
        layer: Index of the layer.
        query: Final queries, rotated if the model rotates.
        key: Final keys, one a key-value head.
        value: Values, one a key-value head.
        mask: Added to the logits: 0 where attention is allowed, hugely negative elsewhere; ``None`` for no mask.
        scale: Factor on the products of queries and keys.
        softcap: Logits pass through ``softcap * tanh(. / softcap)`` before the mask.
        sliding_window: Keys at most this far back are seen; ``None`` for all.
        own: The model's own eager attention on this call.
    """

    layer: int
    query: Float[Tensor, "batch head query channels"]
    key: Float[Tensor, "batch kv_head key channels"]
    value: Float[Tensor, "batch kv_head key channels"]
    mask: Tensor | None
    scale: float
    softcap: float | None
    sliding_window: int | None
    own: Callable[[], Attended]

    @property
    def groups(self) -> int:
        """Query heads that share one key-value head; query head ``h`` reads key-value head ``h // groups``."""
        return self.query.shape[1] // self.key.shape[1]

    def pattern(
        self,
        query: Float[Tensor, "batch head query channels"] | None = None,
        key: Float[Tensor, "batch kv_head key channels"] | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "batch head query key"]:
        """Attention probabilities rebuilt from queries and keys (by default the call's), scale, soft-cap and mask.

        Args:
            query: In place of the call's queries.
            key: In place of the call's keys; may also have one head a query head.
            dtype: To compute in; float64 for checks.
        """
        query = self.query if query is None else query
        key = self.key if key is None else key
        dtype = dtype or query.dtype
        # Query head h reads key-value head h // groups: each is repeated in place, not the block of heads as a whole.
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        logits = self.scale * query.to(dtype) @ key.to(dtype).mT
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        if self.mask is not None:
            logits = logits + self.mask.to(dtype)
        return logits.softmax(dim=-1)


Handler = Callable[[AttentionCall], Attended]


@contextmanager
def intercept_attention(model: PreTrainedModel, handler: Handler) -> Iterator[None]:
    """Within the context, every attention layer of the model calls ``handler`` in place of its attention function.

    A handler that only looks returns ``call.own()``. The attention setting is put back on leaving, also after errors.

    Raises:
        ValueError: If the architecture computes attention outside transformers' attention interface.
    """
    eager = _eager_attention(model)

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> Attended:
        call = AttentionCall(
            layer=int(module.layer_idx),  # pyright: ignore[reportArgumentType]
            query=query,
            key=key,
            value=value,
            mask=attention_mask,
            scale=options["scaling"],
            softcap=options.get("softcap"),
            sliding_window=options.get("sliding_window"),
            own=lambda: eager(module, query, key, value, attention_mask, **options),
        )
        return handler(call)

    name = f"gnomon_{next(_NAMES)}"
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, eager_mask)  # without it the layers would be called with no mask at all
    configs = {
        id(module.config): module.config for module in model.modules() if isinstance(module, PreTrainedModel)
    }.values()
    previous = [(config, config._attn_implementation) for config in configs]
    try:
        for config in configs:
            config._attn_implementation = name
        yield
    finally:
        for config, implementation in previous:
            config._attn_implementation = implementation
        AttentionInterface._global_mapping.pop(name)
        AttentionMaskInterface._global_mapping.pop(name)


@contextmanager
def unrotated_attention(
    model: PreTrainedModel,
    handler: Handler,
    unrotated: Callable[[int, Float[Tensor, "batch head position channels"], Tensor], None],
) -> Iterator[None]:
    """As :func:`intercept_attention`, and ``unrotated(layer, query, key)`` gets each layer's vectors before rotation.

    Each attention module is run a second time, on the same input with every position turned to 0, where a rotation is
    the identity. What arrives at the attention function then is final but unrotated *by the model's own code*,
    whatever its order of biases, norms and channels. It costs one more attention projection a layer.

    Raises:
        ValueError: If the model has no rotary embedding.
    """
    at_zero: set[int] = set()

    def both(call: AttentionCall) -> Attended:
        if call.layer not in at_zero:
            return handler(call)
        unrotated(call.layer, call.query, call.key)
        return torch.zeros_like(call.query.transpose(1, 2)), None

    def look_at_zero(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        turns = options.get("position_embeddings")
        if turns is None:
            raise ValueError(f"model {type(model).__name__} has no rotary embedding; rope-heads needs one")
        layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
        # The first row belongs to position 0: prompts start there, and padding on the left is given position 0 too.
        still = tuple(turn[:, :1].expand_as(turn) for turn in turns)
        at_zero.add(layer)
        try:
            # Without the cache: the second pass would append its keys to those of the first.
            module.forward(
                *args, **{**options, "position_embeddings": still, **dict.fromkeys(_CACHES & options.keys())}
            )
        finally:
            at_zero.discard(layer)

    with ExitStack() as stack:
        for module in attention_modules(model):
            handle = module.register_forward_pre_hook(look_at_zero, with_kwargs=True)
            stack.callback(handle.remove)
        stack.enter_context(intercept_attention(model, both))
        yield


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder's blocks, in order.

    Raises:
        ValueError: If the model has none that transformers marks as such, or is wrapped by a TransformerBridge.
    """
    decoder: nn.Module = model.get_decoder()
    layers: list[nn.Module] = [block for block in decoder.modules() if isinstance(block, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"model {type(model).__name__} has no decoder layers that transformers knows; "
            "a model that a TransformerBridge wraps is changed in place: pass a plain copy"
        )
    return layers


def attention_modules(model: PreTrainedModel) -> list[nn.Module]:
    """The attention module of every block, in order.

    Raises:
        ValueError: If a block has no attention module (state-space and hybrid models).
    """
    modules = []
    for index, layer in enumerate(decoder_layers(model)):
        own = [module for module in layer.children() if hasattr(module, "layer_idx")]
        if len(own) != 1:
            own = [module for module in layer.modules() if hasattr(module, "layer_idx") and hasattr(module, "scaling")]
        if len(own) != 1:
            raise ValueError(
                f"block {index} of {type(model).__name__} has {len(own)} attention modules, expected exactly one"
            )
        modules.append(own[0])
    return modules


def _eager_attention(model: PreTrainedModel) -> Callable[..., Attended]:
    """The eager attention function that the model's module file defines."""
    module = sys.modules[type(attention_modules(model)[0]).__module__]
    eager = getattr(module, "eager_attention_forward", None)
    if eager is None:
        raise ValueError(
            f"model {type(model).__name__} computes attention outside transformers' attention interface; "
            "its queries and keys cannot be captured"
        )
    return eager
