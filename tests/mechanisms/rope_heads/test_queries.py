"""The capture of queries and keys proves itself on every architecture, and refuses where it cannot."""

import math

import numpy as np
import pytest
import torch

from gnomon.mechanisms.rope_heads.queries import capture_qk, model_frequencies, model_layouts
from gnomon.mechanisms.rope_heads.rotary import logit_table
from gnomon.models.capture import CaptureError
from gnomon.models.tiny import tiny_decoder

ROTARY = (
    "llama",
    "smollm",
    "llama3",
    "gptj",
    "gpt-neox",
    "phi",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "olmo2",
)


def tokens(prompts: int = 2, length: int = 40) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(3, 64, size=(prompts, length)))


def peaked(family: str, **overrides):
    return tiny_decoder(family, initializer_range=0.3, **overrides)


@pytest.mark.parametrize("family", ROTARY)
def test_every_layer_rebuilds_the_models_own_pattern(family):
    layers = capture_qk(peaked(family), tokens())
    assert [layer.layer for layer in layers] == [0, 1]
    assert max(layer.error for layer in layers) < 2e-6
    assert {layer.layout for layer in layers} == {"interleaved" if family == "gptj" else "half"}


@pytest.mark.parametrize("family", ROTARY)
def test_diagonal_of_the_table_gives_the_models_probabilities(family):
    """Independent of the self-check: softmax over a row of the logit table's diagonal is the model's attention."""
    model = peaked(family)
    own = model(tokens(), output_attentions=True).attentions
    for layer in capture_qk(model, tokens()):
        at = 30
        seen = layer.visible_keys(at, skip_first=0, include_self=True)
        table = logit_table(
            layer.query[:, :, at].double(),
            layer.keys_of_heads()[:, :, seen.start : seen.stop].double(),
            layer.inv_freq,
            torch.arange(seen.start, seen.stop),
            at,
            scale=layer.scale,
            layout=layer.layout,
            softcap=layer.softcap,
        )
        used = table.diagonal(dim1=-2, dim2=-1).softmax(-1)
        assert torch.allclose(used, own[layer.layer][:, :, at, seen.start : seen.stop].double(), atol=1e-5)


def test_traits_of_families_are_read_from_the_model():
    gemma = capture_qk(peaked("gemma2", attn_logit_softcapping=3.0, query_pre_attn_scalar=24), tokens())
    assert gemma[0].softcap == 3.0
    assert gemma[0].scale == pytest.approx(24**-0.5)
    assert [layer.sliding_window for layer in gemma] == [16, None]
    local, globe = capture_qk(peaked("gemma3"), tokens())
    assert not torch.allclose(local.inv_freq, globe.inv_freq)
    assert capture_qk(peaked("gpt-neox"), tokens())[0].rotary_dim == 2
    assert capture_qk(peaked("gptj"), tokens())[0].rotary_dim == 4
    plain, scaled = model_frequencies(peaked("llama"))[0], model_frequencies(peaked("llama3"))[0]
    assert torch.allclose(plain[0], scaled[0])
    assert float(scaled[-1]) == pytest.approx(float(plain[-1]) / 8)


def test_gptj_frequencies_follow_the_formula():
    found = model_frequencies(peaked("gptj"))[0]
    assert found.tolist() == pytest.approx([10_000.0 ** (-2 * f / 4) for f in range(2)], rel=1e-6)


def test_yarn_scaling_of_vectors_is_kept():
    rope = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    layers = capture_qk(peaked("llama", rope_parameters=rope), tokens())
    assert max(layer.error for layer in layers) < 2e-6


def test_sliding_window_hides_keys():
    layer = capture_qk(peaked("mistral"), tokens())[0]
    assert layer.visible_keys(30) == range(15, 30)
    assert layer.visible_keys(30, include_self=True) == range(15, 31)
    assert layer.visible_keys(10, skip_first=2) == range(2, 10)


def test_left_padding_shifts_no_position():
    model, ids = peaked("llama"), tokens(1, 12)
    padded = torch.cat([torch.full((1, 6), 2), ids], dim=1)
    mask = torch.cat([torch.zeros(1, 6, dtype=torch.long), torch.ones_like(ids)], dim=1)
    plain, shifted = capture_qk(model, ids)[1], capture_qk(model, padded, attention_mask=mask)[1]
    assert torch.allclose(shifted.query[:, :, 6:], plain.query, atol=1e-5)
    assert torch.equal(shifted.positions[:, 6:], plain.positions)


def test_bfloat16_passes_with_its_own_tolerance():
    layers = capture_qk(peaked("llama", dtype=torch.bfloat16), tokens())
    assert 1e-6 < max(layer.error for layer in layers) < 2e-2


@pytest.mark.parametrize(
    "turned",
    [
        lambda cosine, sine: (cosine, -sine),  # turns the other way
        lambda cosine, sine: (cosine.roll(1, -1), sine.roll(1, -1)),  # frequencies in another order
    ],
)
def test_a_model_that_rotates_otherwise_is_caught(turned):
    model = peaked("llama")
    model.model.rotary_emb.register_forward_hook(lambda _module, _args, output: turned(*output))
    with pytest.raises(CaptureError, match="layer 0 of LlamaForCausalLM: neither half-split nor interleaved"):
        capture_qk(model, tokens())


def test_model_without_rotation_is_refused():
    with pytest.raises(ValueError, match="model GPT2LMHeadModel has no rotary embedding; rope-heads needs one"):
        capture_qk(peaked("gpt2"), tokens())


def test_length_dependent_frequencies_are_refused():
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    with pytest.raises(ValueError, match="uses 'dynamic' RoPE, whose frequencies change with the length"):
        capture_qk(peaked("llama", rope_parameters=rope), tokens())


def test_infinite_query_names_layer_and_head():
    model = peaked("llama")
    model.model.layers[1].self_attn.q_proj.weight.data[2 * 8] = math.inf  # first channel of head 2
    with pytest.raises(ValueError, match="query of layer 1, head 2 is not finite"):
        capture_qk(model, tokens())


def test_layouts_are_found_by_a_short_probe():
    assert model_layouts(peaked("gptj")) == ["interleaved", "interleaved"]
    assert model_layouts(peaked("phi")) == ["half", "half"]
