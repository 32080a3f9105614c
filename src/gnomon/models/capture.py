"""Activations of a decoder, by TransformerLens' hook names: hooks x layers x positions in one forward pass.

=========================  ==============================  ====================================================
hook                       shape a prompt                  what it is
=========================  ==============================  ====================================================
``hook_resid_pre``         (position, model)               residual stream before the block
``hook_resid_post``        (position, model)               residual stream after the block
``hook_attn_out``          (position, model)               what attention adds to the residual stream
``hook_mlp_out``           (position, model)               what the MLP adds to the residual stream
``attn.hook_q``            (position, head, channels)      queries, final but for the rotation
``attn.hook_k``            (position, kv_head, channels)   keys, final but for the rotation
``attn.hook_rot_q``        (position, head, channels)      queries that attention uses
``attn.hook_rot_k``        (position, kv_head, channels)   keys that attention uses
``attn.hook_v``            (position, kv_head, channels)   values
``attn.hook_z``            (position, head, channels)      values mixed by the pattern
``attn.hook_pattern``      (head, position, key)           attention probabilities
``mlp.hook_pre``           (position, neuron)              input of the activation function (of the gate, if gated)
``mlp.hook_post``          (position, neuron)              input of the output projection
=========================  ==============================  ====================================================

Unlike TransformerLens' ``hook_q``, ours is taken after QK-norm, where there is one. The plain transformers model is
read through its own attention interface and forward hooks: nothing is wrapped, copied or changed, and logits are never
computed. Full names are ``blocks.5.attn.hook_z``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from gnomon.models.attention import (
    Attended,
    AttentionCall,
    attention_modules,
    decoder_layers,
    intercept_attention,
    unrotated_attention,
)

RESIDUAL_HOOKS = ("hook_resid_pre", "hook_resid_post", "hook_attn_out", "hook_mlp_out")
ATTENTION_HOOKS = ("attn.hook_rot_q", "attn.hook_rot_k", "attn.hook_v", "attn.hook_z", "attn.hook_pattern")
UNROTATED_HOOKS = ("attn.hook_q", "attn.hook_k")
MLP_HOOKS = ("mlp.hook_pre", "mlp.hook_post")
HOOKS = RESIDUAL_HOOKS + UNROTATED_HOOKS + ATTENTION_HOOKS + MLP_HOOKS

PATTERN_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-2}
"""Largest difference allowed between a rebuilt attention pattern and the model's own."""


class CaptureError(RuntimeError):
    """What was captured does not rebuild what the model computes; never a warning."""


class _Stop(Exception):
    """Raised in a forward hook when no later layer is asked for."""


@dataclass(frozen=True)
class Activations(Mapping[str, Tensor]):
    """Captured arrays by full hook name (``"blocks.5.attn.hook_z"``), one row a prompt.

    Args:
        arrays: The arrays; float16 memory maps if the capture wrote to a folder.
        layers: Layers captured.
        pattern_error: Largest difference between rebuilt and own attention pattern on the first prompt, by layer;
            empty where no attention hook was asked for.
    """

    arrays: Mapping[str, Tensor]
    layers: tuple[int, ...]
    pattern_error: Mapping[int, float]

    def __getitem__(self, name: str) -> Tensor:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def stacked(self, hook: str) -> Float[Tensor, "layer prompt ..."]:
        """All layers of one hook."""
        return torch.stack([self.arrays[f"blocks.{layer}.{hook}"] for layer in self.layers])


@dataclass(frozen=True)
class TokenMask:
    """Tokens that statistics should use, and the share of real tokens that was left out."""

    keep: Bool[Tensor, "prompt position"]
    excluded: float


@torch.no_grad()
def capture(
    model: PreTrainedModel,
    input_ids: Int[Tensor, "prompt position"],
    hooks: Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    positions: Int[Tensor, " chosen"] | Int[Tensor, "prompt chosen"] | Sequence[int] | None = None,
    attention_mask: Int[Tensor, "prompt position"] | None = None,
    stop_at_layer: int | None = None,
    batch_size: int = 16,
    folder: Path | None = None,
    check: bool = True,
) -> Activations:
    """Run the decoder once over the prompts and keep the named activations.

    Args:
        model: A plain transformers decoder, in evaluation mode.
        input_ids: Token ids; padding anywhere, marked by ``attention_mask``.
        hooks: Names of the table above, without the layer.
        layers: Layers to keep, by default all that run.
        positions: Positions to keep, the same for all prompts or one row a prompt; by default all. For the pattern
            they choose queries.
        attention_mask: 1 for tokens, 0 for padding.
        stop_at_layer: Blocks from this one on are not run. Nothing beyond the last layer asked for is run anyway.
        batch_size: Prompts a forward pass.
        folder: Stream the arrays there as float16 ``.npy`` memory maps; by default they are float32 in memory.
        check: Rebuild the first prompt's attention patterns and compare, if an attention hook is asked for.

    Raises:
        ValueError: If a hook, layer or position does not exist, the input is empty, or a value overflows float16.
        CaptureError: If a rebuilt pattern differs from the model's own.
    """
    chosen = _chosen_layers(model, hooks, layers, stop_at_layer)
    if input_ids.ndim != 2 or input_ids.numel() == 0:
        raise ValueError(f"input_ids must be (prompt, position) and not empty, got shape {tuple(input_ids.shape)}")
    rows = _chosen_positions(positions, *input_ids.shape)
    store = _Store(len(input_ids), folder)
    errors: dict[int, float] = {}
    for start in range(0, len(input_ids), batch_size):
        batch = slice(start, start + batch_size)
        recorder = _Recorder(model, hooks, chosen, rows[batch], store, start, errors if check and start == 0 else None)
        recorder.run(input_ids[batch], None if attention_mask is None else attention_mask[batch])
    return Activations(store.arrays(), tuple(chosen), errors)


def run_decoder(
    model: PreTrainedModel, input_ids: Int[Tensor, "prompt position"], attention_mask: Tensor | None = None
) -> Float[Tensor, "prompt position model"]:
    """Final hidden states, without logits or cache, each prompt starting at position 0 whatever its padding."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    device = model.device
    return model.get_decoder()(
        input_ids=input_ids.to(device),
        attention_mask=mask.to(device),
        position_ids=(mask.cumsum(-1) - 1).clamp(min=0).to(device),
        use_cache=False,
    )[0]


def pattern_error(call: AttentionCall, query: Tensor, key: Tensor, own: Tensor, *, architecture: str) -> float:
    """Largest difference between the pattern rebuilt from queries and keys, and the model's own.

    Raises:
        CaptureError: If it exceeds the tolerance of the model's dtype; names layer, difference and architecture.
    """
    rebuilt = call.pattern(query, key, dtype=torch.float64)
    difference = float((rebuilt - own.double()).abs().max())
    tolerance = PATTERN_TOLERANCE[call.query.dtype]
    if not difference <= tolerance:
        raise CaptureError(
            f"layer {call.layer} of {architecture}: the pattern rebuilt from captured queries and keys differs from "
            f"the model's own by {difference:.2g}, more than {tolerance:g}"
        )
    return difference


def ordinary_tokens(
    residual: Float[Tensor, "prompt position model"],
    attention_mask: Int[Tensor, "prompt position"] | None = None,
    *,
    skip_first: int = 1,
    largest_norm: float = 10.0,
) -> TokenMask:
    """Tokens that are no attention sinks: not among the first of a prompt, and of no outlying norm.

    Args:
        residual: A residual stream.
        attention_mask: 1 for tokens, 0 for padding.
        skip_first: Tokens dropped at the start of every prompt.
        largest_norm: Tokens whose norm exceeds so many times the median norm are dropped.
    """
    real = torch.ones(residual.shape[:2], dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    norms = residual.norm(dim=-1)
    median = norms[real].median()
    keep = real & (real.cumsum(-1) > skip_first) & (norms <= largest_norm * median)
    return TokenMask(keep, excluded=1 - float(keep.sum() / real.sum()))


class _Store:
    """Arrays that fill up prompt by prompt, in memory or on disk."""

    def __init__(self, prompts: int, folder: Path | None) -> None:
        self._prompts = prompts
        self._folder = folder
        self._arrays: dict[str, Tensor] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, start: int, values: Tensor) -> None:
        if name not in self._arrays:
            self._arrays[name] = self._new(name, (self._prompts, *values.shape[1:]))
        target = self._arrays[name][start : start + len(values)]
        target.copy_(values)
        if self._folder is not None and not torch.isfinite(target).all():
            raise ValueError(
                f"{name} holds values up to {float(values.abs().max()):.3g}, beyond float16; capture it in memory"
            )

    def _new(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if self._folder is None:
            return torch.empty(shape, dtype=torch.float32)
        path = self._folder / f"{name}.npy"
        return torch.from_numpy(np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape))

    def arrays(self) -> dict[str, Tensor]:
        return dict(self._arrays)


class _Recorder:
    """Hooks of one forward pass."""

    def __init__(
        self,
        model: PreTrainedModel,
        hooks: Sequence[str],
        layers: Sequence[int],
        positions: Tensor,
        store: _Store,
        start: int,
        errors: dict[int, float] | None,
    ) -> None:
        self._model, self._hooks, self._layers = model, set(hooks), list(layers)
        self._positions, self._store, self._start, self._errors = positions, store, start, errors

    def run(self, input_ids: Tensor, attention_mask: Tensor | None) -> None:
        with ExitStack() as stack:
            for layer in self._layers:
                self._hook_block(stack, layer)
            last = decoder_layers(self._model)[self._layers[-1]]
            stack.callback(last.register_forward_hook(_stop).remove)
            if self._hooks & set(UNROTATED_HOOKS):
                stack.enter_context(unrotated_attention(self._model, self._attend, self._keep_unrotated))
            elif self._hooks & set(ATTENTION_HOOKS):
                stack.enter_context(intercept_attention(self._model, self._attend))
            with suppress(_Stop):
                run_decoder(self._model, input_ids, attention_mask)

    def _hook_block(self, stack: ExitStack, layer: int) -> None:
        block = decoder_layers(self._model)[layer]

        def on_input(module: nn.Module, name: str) -> None:
            hook = lambda _, args, options: self._keep(layer, name, _first(args, options))  # noqa: E731
            stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

        def on_output(module: nn.Module, name: str) -> None:
            hook = lambda _module, _args, output: self._keep(layer, name, _tensor(output))  # noqa: E731
            stack.callback(module.register_forward_hook(hook).remove)

        places: dict[str, Callable[[], None]] = {
            "hook_resid_pre": lambda: on_input(block, "hook_resid_pre"),
            "hook_resid_post": lambda: on_output(block, "hook_resid_post"),
            "hook_attn_out": lambda: on_output(
                _post_norm(block, "post_attention_layernorm") or attention_modules(self._model)[layer], "hook_attn_out"
            ),
            "hook_mlp_out": lambda: on_output(
                _post_norm(block, "post_feedforward_layernorm") or _mlp(block, layer), "hook_mlp_out"
            ),
            "mlp.hook_pre": lambda: on_input(_activation(_mlp(block, layer), layer), "mlp.hook_pre"),
            "mlp.hook_post": lambda: on_input(_output_projection(_mlp(block, layer), layer), "mlp.hook_post"),
        }
        for name, place in places.items():
            if name in self._hooks:
                place()

    def _attend(self, call: AttentionCall) -> Attended:
        mixed, pattern = call.own()
        if call.layer in self._layers:
            if self._errors is not None and pattern is not None:
                name = type(self._model).__name__
                self._errors[call.layer] = pattern_error(call, call.query, call.key, pattern, architecture=name)
            vectors = {"rot_q": call.query, "rot_k": call.key, "v": call.value}
            for short, value in vectors.items():
                self._keep(call.layer, f"attn.hook_{short}", value.transpose(1, 2))
            self._keep(call.layer, "attn.hook_z", mixed)
            if pattern is not None:
                self._keep(call.layer, "attn.hook_pattern", pattern.transpose(1, 2))
        return mixed, pattern

    def _keep_unrotated(self, layer: int, query: Tensor, key: Tensor) -> None:
        if layer in self._layers:
            self._keep(layer, "attn.hook_q", query.transpose(1, 2))
            self._keep(layer, "attn.hook_k", key.transpose(1, 2))

    def _keep(self, layer: int, hook: str, values: Float[Tensor, "prompt position ..."]) -> None:
        if hook not in self._hooks:
            return
        prompts = torch.arange(len(values))[:, None]
        kept = values.detach().cpu()[prompts, self._positions]
        if hook == "attn.hook_pattern":  # TransformerLens' order: heads before queries
            kept = kept.transpose(1, 2)
        self._store.write(f"blocks.{layer}.{hook}", self._start, kept.float())


def _stop(*_: Any) -> None:
    raise _Stop


def _first(args: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    return args[0] if args else options["hidden_states"]


def _tensor(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _post_norm(block: nn.Module, name: str) -> nn.Module | None:
    """The norm between a module and the residual stream, in families that have one (Gemma 2 and 3, OLMo 2).

    Llama's ``post_attention_layernorm`` is none: it stands before the MLP. The norm after the MLP tells them apart.
    """
    return getattr(block, name) if hasattr(block, "post_feedforward_layernorm") else None


def _mlp(block: nn.Module, layer: int) -> nn.Module:
    mlp = getattr(block, "mlp", None)
    if mlp is None:
        raise ValueError(f"block {layer} ({type(block).__name__}) has no MLP module")
    return mlp


def _activation(mlp: nn.Module, layer: int) -> nn.Module:
    """The one child without parameters that is no dropout."""
    own = [
        child
        for child in mlp.children()
        if not isinstance(child, nn.Dropout) and not any(True for _ in child.parameters())
    ]
    if len(own) != 1:
        raise ValueError(f"the MLP of block {layer} ({type(mlp).__name__}) has no single activation function")
    return own[0]


def _output_projection(mlp: nn.Module, layer: int) -> nn.Module:
    """The last child with parameters, in the order of definition."""
    own = [child for child in mlp.children() if any(True for _ in child.parameters(recurse=False))]
    if not own:
        raise ValueError(f"the MLP of block {layer} ({type(mlp).__name__}) has no output projection of its own")
    return own[-1]


def _chosen_layers(
    model: PreTrainedModel, hooks: Sequence[str], layers: Sequence[int] | None, stop_at_layer: int | None
) -> list[int]:
    unknown = sorted(set(hooks) - set(HOOKS))
    if unknown or not hooks:
        raise ValueError(f"unknown hook {unknown[0]!r}, expected some of {', '.join(HOOKS)}" if unknown else "no hooks")
    depth = len(decoder_layers(model))
    run = depth if stop_at_layer is None else min(stop_at_layer, depth)
    chosen = sorted(range(run) if layers is None else layers)
    wrong = [layer for layer in chosen if not 0 <= layer < run]
    if wrong or not chosen:
        raise ValueError(f"layers must lie in 0..{run - 1} ({type(model).__name__}), got {wrong or chosen}")
    return chosen


def _chosen_positions(positions: Any, prompts: int, length: int) -> Int[Tensor, "prompt chosen"]:
    chosen = torch.arange(length) if positions is None else torch.as_tensor(positions)
    if chosen.ndim == 1:
        chosen = chosen.expand(prompts, -1)
    if chosen.numel() and not (int(chosen.min()) >= 0 and int(chosen.max()) < length):
        raise ValueError(f"positions must lie in 0..{length - 1}, got {int(chosen.min())}..{int(chosen.max())}")
    return chosen
