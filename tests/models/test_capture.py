"""Captured activations against TransformerLens' cache of the same names, and against transformers' own outputs."""

import copy

import numpy as np
import pytest
import torch

from gnomon.models.attention import AttentionCall, intercept_attention
from gnomon.models.capture import (
    HOOKS,
    UNROTATED_HOOKS,
    CaptureError,
    capture,
    ordinary_tokens,
    pattern_error,
    run_decoder,
)
from gnomon.models.quiet import quiet_transformers
from gnomon.models.tiny import tiny_decoder, word_tokenizer

FAMILIES = (
    "llama",
    "llama3",
    "gpt2",
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
QK_NORM = ("qwen3", "gemma3", "olmo2")


def tokens(prompts: int = 3, length: int = 20) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(3, 64, size=(prompts, length)))


def peaked(family: str, **overrides):
    """A tiny decoder whose attention is far from uniform, so that a wrong pattern shows."""
    return tiny_decoder(family, initializer_range=0.3, **overrides)


def hooks_of(family: str) -> list[str]:
    return [hook for hook in HOOKS if not (family == "gpt2" and hook in UNROTATED_HOOKS)]


def bridge_cache(model, input_ids):
    from transformer_lens.model_bridge import TransformerBridge

    tokenizer = word_tokenizer([f"w{index}" for index in range(61)])
    tokenizer.init_kwargs |= {"name_or_path": "tiny", "add_bos_token": True}
    with quiet_transformers():
        bridge = TransformerBridge.boot_transformers(
            "tiny", hf_model=copy.deepcopy(model), tokenizer=tokenizer, device="cpu"
        )
    return bridge.run_with_cache(input_ids)[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_hooks_equal_those_of_transformer_lens(family):
    if family == "llama3":
        family, model = "llama", peaked("llama3")
    else:
        model = peaked(family)
    ours = capture(model, tokens(), hooks_of(family), batch_size=2)
    theirs = bridge_cache(model, tokens())
    compared = 0
    for name, value in ours.items():
        different_place = family in QK_NORM and name.endswith(("attn.hook_q", "attn.hook_k"))
        if name not in theirs or different_place:  # the bridge has no hook_rot_q for GPT-2, GPT-J and NeoX
            continue
        assert value.shape == theirs[name].shape, name
        assert torch.allclose(value, theirs[name], atol=2e-5), name
        compared += 1
    assert compared >= 2 * 9


@pytest.mark.parametrize("family", FAMILIES)
def test_pattern_and_residual_equal_those_of_transformers(family):
    model = peaked(family)
    own = model(tokens(), output_attentions=True, output_hidden_states=True)
    ours = capture(model, tokens(), ["attn.hook_pattern", "hook_resid_pre"])
    assert set(ours.pattern_error) == {0, 1}
    assert max(ours.pattern_error.values()) < 1e-6
    assert float(ours["blocks.1.attn.hook_pattern"].max()) > 0.5
    for layer in range(2):
        assert torch.allclose(ours[f"blocks.{layer}.attn.hook_pattern"], own.attentions[layer], atol=1e-6)
        assert torch.allclose(ours[f"blocks.{layer}.hook_resid_pre"], own.hidden_states[layer], atol=1e-6)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gpt2"])
def test_unrotated_and_rotated_vectors_have_equal_length(family):
    ours = capture(peaked(family), tokens(), ["attn.hook_q", "attn.hook_rot_q"])
    plain, turned = ours.stacked("attn.hook_q"), ours.stacked("attn.hook_rot_q")
    assert torch.allclose(plain.norm(dim=-1), turned.norm(dim=-1), rtol=1e-5)
    assert torch.allclose(plain[:, :, 0], turned[:, :, 0], atol=1e-6)  # position 0 is not turned
    assert not torch.allclose(plain, turned, atol=1e-2)


def test_attention_setting_and_outputs_are_put_back():
    model = peaked("llama", attn="sdpa")
    before = model(tokens()).logits
    capture(model, tokens(), ["attn.hook_z", "attn.hook_q", "hook_resid_post"])
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(tokens()).logits, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_setting_is_put_back_after_an_error():
    model = peaked("llama", attn="sdpa")

    def broken(call: AttentionCall):
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"), intercept_attention(model, broken):
        model(tokens())
    assert model.config._attn_implementation == "sdpa"


def test_padding_on_either_side_changes_nothing():
    model, ids = peaked("llama"), tokens(1, 12)
    pad = torch.full((1, 5), 2)
    plain = capture(model, ids, ["hook_resid_post", "attn.hook_q"])
    for order in (slice(None), slice(None, None, -1)):
        parts = [(pad, 0), (ids, 1)][order]
        padded = torch.cat([part for part, _ in parts], dim=1)
        mask = torch.cat([torch.full_like(part, real) for part, real in parts], dim=1)
        found = capture(
            model, padded, ["hook_resid_post", "attn.hook_q"], attention_mask=mask, positions=mask[0].nonzero()[:, 0]
        )
        for name, value in plain.items():
            assert torch.allclose(found[name], value, atol=1e-5), name


def test_positions_layers_and_batches_select():
    model, ids = peaked("gpt-neox", layers=3), tokens(5, 10)
    everything = capture(model, ids, ["hook_resid_post", "attn.hook_pattern"])
    some = capture(model, ids, ["hook_resid_post", "attn.hook_pattern"], layers=[2, 0], positions=[3, 9], batch_size=2)
    assert some.layers == (0, 2)
    for layer in (0, 2):
        name = f"blocks.{layer}.hook_resid_post"
        assert torch.allclose(some[name], everything[name][:, [3, 9]], atol=1e-6)
        name = f"blocks.{layer}.attn.hook_pattern"
        assert torch.allclose(some[name], everything[name][:, :, [3, 9]], atol=1e-6)
    own = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]])
    each = capture(model, ids, ["hook_resid_post"], positions=own)["blocks.1.hook_resid_post"]
    assert torch.allclose(each[3], everything["blocks.1.hook_resid_post"][3, [6, 7]], atol=1e-6)


def test_later_layers_are_not_run():
    model = peaked("llama", layers=4)
    ran = []
    for index, layer in enumerate(model.model.layers):
        layer.register_forward_pre_hook(lambda *_, index=index: ran.append(index))
    capture(model, tokens(1), ["hook_resid_post"], layers=[1])
    assert ran == [0, 1]
    assert capture(model, tokens(1), ["hook_resid_pre"], stop_at_layer=2).layers == (0, 1)


def test_streaming_to_disk_rounds_to_float16(tmp_path):
    model = peaked("llama")
    kept = capture(model, tokens(), ["mlp.hook_post"], batch_size=2)
    streamed = capture(model, tokens(), ["mlp.hook_post"], batch_size=2, folder=tmp_path)
    name = "blocks.1.mlp.hook_post"
    assert streamed[name].dtype == torch.float16
    assert torch.equal(streamed[name], kept[name].half())
    assert np.array_equal(np.load(tmp_path / f"{name}.npy", mmap_mode="r"), streamed[name].numpy())


def test_overflow_of_float16_is_an_error(tmp_path):
    model = peaked("llama")
    model.model.layers[0].mlp.down_proj.weight.data.mul_(1e6)
    with pytest.raises(ValueError, match=r"blocks\.0\.hook_resid_post holds values up to .* beyond float16"):
        capture(model, tokens(), ["hook_resid_post"], folder=tmp_path)


def test_wrong_pattern_is_refused():
    model, seen = peaked("llama"), []

    def look(call: AttentionCall):
        mixed, pattern = call.own()
        seen.append((call, pattern))
        return mixed, pattern

    with intercept_attention(model, look), torch.no_grad():
        run_decoder(model, tokens())
    call, pattern = seen[1]
    assert pattern_error(call, call.query, call.key, pattern, architecture="Tiny") < 1e-6
    grouped_wrongly = call.key.repeat(1, call.groups, 1, 1)  # the block of heads as a whole, not each head in place
    with pytest.raises(CaptureError, match=r"layer 1 of Tiny: the pattern .* differs from the model's own by"):
        pattern_error(call, call.query, grouped_wrongly, pattern, architecture="Tiny")


def test_token_mask_drops_sinks_and_says_how_many():
    residual = torch.ones(2, 10, 4)
    residual[0, 6] *= 50
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, :3] = 0
    found = ordinary_tokens(residual, mask)
    assert found.keep.sum(1).tolist() == [8, 6]
    assert not found.keep[0, 6]
    assert not found.keep[1, 3]
    assert found.excluded == pytest.approx(1 - 14 / 17)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hooks": ["attn.hook_y"]}, "unknown hook 'attn.hook_y', expected some of hook_resid_pre"),
        ({"hooks": []}, "no hooks"),
        ({"layers": [5]}, r"layers must lie in 0\.\.1"),
        ({"positions": [99]}, r"positions must lie in 0\.\.19, got 99\.\.99"),
        ({"input_ids": torch.zeros(0, 5, dtype=torch.long)}, "not empty"),
    ],
)
def test_bad_requests_are_refused(options, message):
    request = {"input_ids": tokens(), "hooks": ["hook_resid_post"], **options}
    with pytest.raises(ValueError, match=message):
        capture(peaked("llama"), request.pop("input_ids"), request.pop("hooks"), **request)


def test_models_without_rotation_have_no_unrotated_vectors():
    with pytest.raises(ValueError, match="model GPT2LMHeadModel has no rotary embedding"):
        capture(peaked("gpt2"), tokens(), ["attn.hook_q"])
