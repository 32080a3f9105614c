"""Tiny decoders with random weights, one for each family of architectures, and a tokenizer to match.

They are ordinary Hugging Face models built from a config, so that hooks, capture, saving and loading work on them as
on a real one. Each keeps the trait that sets its family apart: grouped keys, partial or interleaved rotation, query-key
norms, sliding windows, soft-capped logits, scaled rotary frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from gnomon.names import nearest

#: Special tokens of :func:`word_tokenizer`, ids 0 to 2.
UNKNOWN, START, END = "<unk>", "<s>", "</s>"


def tiny_decoder(
    family: str = "llama",
    *,
    vocab: int = 64,
    width: int = 32,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    mlp_width: int = 64,
    context: int = 128,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    attn: str = "eager",
    **overrides: Any,
) -> PreTrainedModel:
    """A decoder of that family with random weights, in evaluation mode.

    Args:
        family: One of :data:`FAMILIES`; underscores count as hyphens.
        vocab: Number of tokens.
        width: Size of the residual stream.
        layers: Number of blocks.
        heads: Query heads in a block.
        kv_heads: Key and value heads, for families that group them.
        mlp_width: Hidden size of the MLP.
        context: Longest input.
        seed: Of the weights; the global generator is left as it was.
        dtype: Of the weights.
        attn: Attention implementation.
        overrides: Further fields of the family's config.

    Raises:
        ValueError: If there is no such family, or the heads do not divide the width.

    >>> tiny_decoder("gpt-neox")(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 64])
    """
    name = family.replace("_", "-")
    if name not in FAMILIES:
        raise ValueError(f"unknown family {family!r}{nearest(name, FAMILIES)}; known: {', '.join(FAMILIES)}")
    if width % heads or heads % kv_heads:
        raise ValueError(f"width {width}, heads {heads} and kv_heads {kv_heads} must divide each other in that order")
    shape = {
        "vocab_size": vocab,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": mlp_width,
        "max_position_embeddings": context,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
    }
    model_type, fields = FAMILIES[name](shape)
    config = AutoConfig.for_model(model_type, **{**fields, **overrides})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attn)
    model.config.architectures = [type(model).__name__]
    return model.eval()


def word_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token a word, split at white space; it saves and loads as part of a model folder.

    ``<unk>``, ``<s>`` and ``</s>`` get ids 0 to 2, the words follow in their order. It adds no start token by itself.

    Raises:
        ValueError: If a word occurs twice or contains white space.

    >>> word_tokenizer(["a", "b"])("b a c")["input_ids"]
    [4, 3, 0]
    """
    vocabulary = [UNKNOWN, START, END, *words]
    if len(set(vocabulary)) < len(vocabulary) or any(len(word.split()) != 1 for word in vocabulary):
        raise ValueError("words must be distinct and free of white space")
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token=UNKNOWN, bos_token=START, eos_token=END, pad_token=END
    )


Shape = dict[str, Any]


def _without(shape: Shape, *names: str) -> Shape:
    return {name: value for name, value in shape.items() if name not in names}


def _llama(shape: Shape) -> tuple[str, Shape]:
    return "llama", {**shape, "tie_word_embeddings": False}


def _smollm(shape: Shape) -> tuple[str, Shape]:
    rope = {"rope_type": "default", "rope_theta": 100_000.0}
    return "llama", {**shape, "tie_word_embeddings": True, "rope_parameters": rope}


def _llama3(shape: Shape) -> tuple[str, Shape]:
    original = shape["max_position_embeddings"] // 4
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    return "llama", {**shape, "tie_word_embeddings": False, "rope_parameters": rope}


def _gpt2(shape: Shape) -> tuple[str, Shape]:
    return "gpt2", {
        "vocab_size": shape["vocab_size"],
        "n_embd": shape["hidden_size"],
        "n_layer": shape["num_hidden_layers"],
        "n_head": shape["num_attention_heads"],
        "n_inner": shape["intermediate_size"],
        "n_positions": shape["max_position_embeddings"],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _gptj(shape: Shape) -> tuple[str, Shape]:
    _, fields = _gpt2(shape)
    half = shape["hidden_size"] // shape["num_attention_heads"] // 2
    return "gptj", {**fields, "rotary_dim": half, "tie_word_embeddings": False}


def _gpt_neox(shape: Shape) -> tuple[str, Shape]:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25}
    return "gpt_neox", {**_without(shape, "num_key_value_heads"), "rope_parameters": rope}


def _phi(shape: Shape) -> tuple[str, Shape]:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    return "phi", {**shape, "num_key_value_heads": shape["num_attention_heads"], "rope_parameters": rope}


def _mistral(shape: Shape) -> tuple[str, Shape]:
    head = shape["hidden_size"] // shape["num_attention_heads"]
    return "mistral", {**shape, "head_dim": head, "sliding_window": 16}


def _qwen2(shape: Shape) -> tuple[str, Shape]:
    return "qwen2", {**shape, "use_sliding_window": False}


def _qwen3(shape: Shape) -> tuple[str, Shape]:
    return "qwen3", {**shape, "head_dim": shape["hidden_size"] // shape["num_attention_heads"]}


def _gemma2(shape: Shape) -> tuple[str, Shape]:
    head = shape["hidden_size"] // shape["num_attention_heads"]
    return "gemma2", {**shape, "head_dim": head, "query_pre_attn_scalar": head, "sliding_window": 16}


def _gemma3(shape: Shape) -> tuple[str, Shape]:
    _, fields = _gemma2(shape)
    kinds = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(shape["num_hidden_layers"])]
    return "gemma3_text", {**fields, "layer_types": kinds}


def _olmo2(shape: Shape) -> tuple[str, Shape]:
    return "olmo2", shape


#: Families and how each turns the common shape into its config.
FAMILIES: dict[str, Callable[[Shape], tuple[str, Shape]]] = {
    "llama": _llama,
    "smollm": _smollm,
    "llama3": _llama3,
    "gpt2": _gpt2,
    "gptj": _gptj,
    "gpt-neox": _gpt_neox,
    "phi": _phi,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "olmo2": _olmo2,
}
