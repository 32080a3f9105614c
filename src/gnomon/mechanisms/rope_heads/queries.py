"""Unrotated queries and keys of every rotary head of a decoder, with proof that they are the model's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from gnomon.mechanisms.rope_heads.rotary import Layout, rotate
from gnomon.models.attention import Attended, AttentionCall, attention_modules, unrotated_attention
from gnomon.models.capture import PATTERN_TOLERANCE, CaptureError, pattern_error, run_decoder

LENGTH_DEPENDENT = ("dynamic", "longrope")
"""Kinds of RoPE whose frequencies change with the length of the prompt."""


@dataclass(frozen=True)
class RotaryLayer:
    """Queries and keys of one layer, and how that layer compares them.

    Args:
        layer: Index of the layer.
        query: Final but for the rotation.
        key: Likewise, one a key-value head.
        positions: Where each token stands; padding stands at position 0.
        inv_freq: Angle a position of every rotated channel pair, float64, from the model.
        layout: Which channels form a pair.
        scale: Factor on products of queries and keys.
        softcap: Logits pass through ``softcap * tanh(. / softcap)``; ``None`` for none.
        sliding_window: Keys at most this far back are seen; ``None`` for all.
        error: Largest difference on the first prompt between the attention pattern rebuilt from these numbers and the
            model's own; NaN if it was not checked.
    """

    layer: int
    query: Float[Tensor, "prompt head position channels"]
    key: Float[Tensor, "prompt kv_head position channels"]
    positions: Int[Tensor, "prompt position"]
    inv_freq: Float[Tensor, " frequencies"]
    layout: Layout
    scale: float
    softcap: float | None
    sliding_window: int | None
    error: float

    @property
    def rotary_dim(self) -> int:
        """Channels that are rotated; the rest pass unchanged (partial rotary)."""
        return 2 * len(self.inv_freq)

    def keys_of_heads(self) -> Float[Tensor, "prompt head position channels"]:
        """Keys, repeated for the query heads that share them (head ``h`` reads key-value head ``h // groups``)."""
        return self.key.repeat_interleave(self.query.shape[1] // self.key.shape[1], dim=1)

    def visible_keys(self, query_position: int, *, skip_first: int = 1, include_self: bool = False) -> range:
        """Keys a query compares: causal, inside the sliding window, without the first tokens of the prompt."""
        stop = query_position + 1 if include_self else query_position
        start = skip_first
        if self.sliding_window is not None:
            start = max(start, query_position - self.sliding_window + 1)
        return range(start, stop)


@torch.no_grad()
def for_each_layer(
    model: PreTrainedModel,
    input_ids: Int[Tensor, "prompt position"],
    observe: Callable[[RotaryLayer], None],
    *,
    attention_mask: Int[Tensor, "prompt position"] | None = None,
    check: bool = True,
) -> None:
    """Run the decoder over the prompts and hand ``observe`` one layer after the other; no layer is kept.

    With ``check``, each layer's pattern is rebuilt on the first prompt from the *unrotated* queries and keys, the
    model's frequencies, the pairing of channels, scale, soft-cap and mask, and compared with the model's own.

    Raises:
        ValueError: If the model has no rotary embedding, or one that changes with the length of the prompt; or if a
            query or key is not finite (naming layer and head).
        CaptureError: If the pattern cannot be rebuilt.
    """
    frequencies = model_frequencies(model)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    waiting: dict[int, tuple[Tensor, Tensor]] = {}
    name = type(model).__name__

    def attend(call: AttentionCall) -> Attended:
        query, key = (value.cpu() for value in waiting.pop(call.layer))
        _require_finite(query, call.layer, "query")
        _require_finite(key, call.layer, "key")
        inv_freq = frequencies[call.layer]
        layout = _layout(query, call.query.cpu(), positions, inv_freq, call.layer, name)
        mixed, pattern = call.own()
        error = float("nan")
        if check and pattern is not None:
            turns = positions[:1, None, :, None] * inv_freq
            first = [rotate(value[:1].double(), turns, layout=layout).to(call.query.device) for value in (query, key)]
            error = _first_prompt_error(call, first[0], first[1], pattern, name)
        observe(
            RotaryLayer(
                layer=call.layer,
                query=query,
                key=key,
                positions=positions,
                inv_freq=inv_freq,
                layout=layout,
                scale=call.scale,
                softcap=call.softcap,
                sliding_window=call.sliding_window,
                error=error,
            )
        )
        return mixed, pattern

    def unrotated(layer: int, query: Tensor, key: Tensor) -> None:
        waiting[layer] = (query, key)

    with unrotated_attention(model, attend, unrotated):
        run_decoder(model, input_ids, attention_mask)


def capture_qk(
    model: PreTrainedModel,
    input_ids: Int[Tensor, "prompt position"],
    *,
    attention_mask: Int[Tensor, "prompt position"] | None = None,
    check: bool = True,
) -> list[RotaryLayer]:
    """All layers of :func:`for_each_layer`, kept in memory."""
    layers: list[RotaryLayer] = []
    for_each_layer(model, input_ids, layers.append, attention_mask=attention_mask, check=check)
    return layers


def model_frequencies(model: PreTrainedModel) -> list[Float[Tensor, " frequencies"]]:
    """Angle a position of every rotated channel pair, a layer: read from the model, so that scaled RoPE is right.

    Raises:
        ValueError: If the model has no rotary embedding, or one whose frequencies depend on the prompt's length.
    """
    embeddings = [module for module in model.get_decoder().modules() if "rotary" in type(module).__name__.lower()]
    if not embeddings:
        raise ValueError(f"model {type(model).__name__} has no rotary embedding; rope-heads needs one")
    embedding = embeddings[0]
    return [_layer_frequencies(model, embedding, module) for module in attention_modules(model)]


@torch.no_grad()
def model_layouts(model: PreTrainedModel) -> list[Layout]:
    """The pairing of rotated channels of every layer, found by running a few tokens."""
    probe = torch.arange(min(8, model.config.get_text_config().vocab_size))[None]
    return [layer.layout for layer in capture_qk(model, probe, check=False)]


def _layer_frequencies(model: PreTrainedModel, embedding: nn.Module, attention: nn.Module) -> Tensor:
    kind = getattr(embedding, "rope_type", "default")
    layer_type = getattr(attention, "layer_type", None)
    kind = kind.get(layer_type, "default") if isinstance(kind, dict) else kind
    if kind in LENGTH_DEPENDENT:
        raise ValueError(
            f"model {type(model).__name__} uses {kind!r} RoPE, whose frequencies change with the length of the prompt; "
            "rope-heads needs fixed ones"
        )
    for name in (f"{layer_type}_inv_freq", "inv_freq"):
        if hasattr(embedding, name):
            return getattr(embedding, name).detach().double().cpu()
    if hasattr(embedding, "embed_positions"):  # GPT-J keeps a table: sines of every position, then cosines
        sine, cosine = embedding.embed_positions[1].detach().double().cpu().chunk(2)  # pyright: ignore
        return torch.atan2(sine, cosine)
    raise ValueError(
        f"the rotary embedding of {type(model).__name__} ({type(embedding).__name__}) names no frequencies"
    )


def _layout(
    plain: Tensor, rotated: Tensor, positions: Tensor, inv_freq: Tensor, layer: int, architecture: str
) -> Layout:
    """The pairing of channels that turns the unrotated queries into the rotated ones, on the first prompt."""
    turns = positions[:1, None, :, None] * inv_freq
    target = rotated[:1].double()
    errors: dict[Layout, float] = {}
    for layout in ("half", "interleaved"):
        turned = rotate(plain[:1].double(), turns, layout=layout)
        errors[layout] = float((turned - target).norm() / target.norm().clamp(min=1e-30))
    best = min(errors, key=lambda layout: errors[layout])
    # A wrong pairing of channels or a wrong frequency is off by order 1; rounding is off by the dtype's precision.
    tolerance = max(1e-3, PATTERN_TOLERANCE[rotated.dtype])
    if not errors[best] <= tolerance:
        raise CaptureError(
            f"layer {layer} of {architecture}: neither half-split nor interleaved rotation turns the unrotated queries "
            f"into the rotated ones (relative differences {errors['half']:.2g} and {errors['interleaved']:.2g})"
        )
    return best


def _first_prompt_error(call: AttentionCall, query: Tensor, key: Tensor, own: Tensor, architecture: str) -> float:
    first = AttentionCall(
        layer=call.layer,
        query=call.query[:1],
        key=call.key[:1],
        value=call.value[:1],
        mask=None if call.mask is None else call.mask[:1],
        scale=call.scale,
        softcap=call.softcap,
        sliding_window=call.sliding_window,
        own=call.own,
    )
    return pattern_error(first, query, key, own[:1], architecture=architecture)


def _require_finite(vectors: Tensor, layer: int, kind: str) -> None:
    if not torch.isfinite(vectors).all():
        head = int((~torch.isfinite(vectors)).nonzero()[0, 1])
        raise ValueError(f"{kind} of layer {layer}, head {head} is not finite")
