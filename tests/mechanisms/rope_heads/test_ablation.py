"""Stopped frequencies: nothing chosen changes nothing, everything stopped is a model without rotation."""

import numpy as np
import pandas as pd
import pytest
import torch

from gnomon.mechanisms.rope_heads.ablation import without_frequencies
from gnomon.mechanisms.rope_heads.queries import model_frequencies
from gnomon.mechanisms.rope_heads.study import heads_to_ablate
from gnomon.models.attention import decoder_layers, intercept_attention
from gnomon.models.capture import run_decoder
from gnomon.models.tiny import tiny_decoder
from gnomon.studies.unit import Gated

FAMILIES = ("llama", "gptj", "gpt-neox", "gemma2", "qwen3")


def tokens() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(3, 64, size=(2, 20)))


def everything(model, *, stopped: bool) -> tuple[list[tuple[int, int]], torch.Tensor]:
    heads = [(layer, head) for layer in range(len(decoder_layers(model))) for head in range(4)]
    return heads, torch.full_like(model_frequencies(model)[0], float(stopped)).bool()


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_recomputed_heads_equal_the_models_when_nothing_is_stopped(family):
    model = tiny_decoder(family, initializer_range=0.3)
    own = run_decoder(model, tokens())
    heads, nothing = everything(model, stopped=False)
    with without_frequencies(model, heads, nothing):
        assert torch.allclose(run_decoder(model, tokens()), own, atol=1e-4)
    assert torch.equal(run_decoder(model, tokens()), own)


@torch.no_grad()
def test_stopping_everything_is_a_model_whose_positions_are_all_zero():
    model = tiny_decoder("llama", initializer_range=0.3)
    still = tiny_decoder("llama", initializer_range=0.3)
    still.model.rotary_emb.inv_freq.zero_()
    heads, all_of_them = everything(model, stopped=True)
    with without_frequencies(model, heads, all_of_them):
        found = run_decoder(model, tokens())
    assert torch.allclose(found, run_decoder(still, tokens()), atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_key_value_cache_does_not_get_in_the_way(family):
    """Scoring calls the model with its cache on; the second look at each layer must not append to it."""
    model = tiny_decoder(family, initializer_range=0.3)
    heads, nothing = everything(model, stopped=False)
    own = model(tokens(), use_cache=False).logits
    with without_frequencies(model, heads, nothing):
        assert torch.allclose(model(tokens(), use_cache=True).logits, own, atol=1e-3)


@torch.no_grad()
def test_other_heads_of_the_layer_are_untouched():
    """Heads 0 and 1 share a key-value head; only head 0 is changed."""
    model = tiny_decoder("llama", layers=1, initializer_range=0.3)
    seen = {}

    def look(name):
        def handler(call):
            seen[name] = call.own()[0]
            return call.own()

        return handler

    with intercept_attention(model, look("plain")):
        run_decoder(model, tokens())
    _, stopped = everything(model, stopped=True)
    projection = model.model.layers[0].self_attn.o_proj
    with without_frequencies(model, [(0, 0)], stopped):
        handle = projection.register_forward_pre_hook(lambda _, args: seen.update(changed=args[0].view(2, 20, 4, 8)))
        run_decoder(model, tokens())
        handle.remove()
    assert torch.equal(seen["changed"][:, :, 1:], seen["plain"][:, :, 1:])
    assert not torch.allclose(seen["changed"][:, :, 0], seen["plain"][:, :, 0], atol=1e-3)


@pytest.mark.parametrize(
    ("heads", "frequencies", "message"),
    [
        ([(9, 0)], 4, "layer 9 does not exist: LlamaForCausalLM has 2"),
        ([(0, 0)], 3, "removed must mark 4 frequencies, got 3"),
        ([(0, 7)], 4, "head 7 of layer 0 does not exist: it has 4"),
    ],
)
def test_bad_requests_are_refused(heads, frequencies, message):
    model = tiny_decoder("llama")
    removed = torch.ones(frequencies, dtype=torch.bool)
    with pytest.raises(ValueError, match=message), without_frequencies(model, heads, removed):
        run_decoder(model, tokens())


def labelled(labels: list[list[str]]) -> pd.DataFrame:
    rows = [
        {"layer": layer, "head": head, "label": label, "positional": 1 - 0.1 * head}
        for layer, heads in enumerate(labels)
        for head, label in enumerate(heads)
    ]
    return pd.DataFrame(rows)


def test_random_sets_match_layers_and_avoid_positional_heads():
    table = labelled(
        [
            ["positional", "mixed", "mixed"],
            ["positional", "positional", "symbolic"],
            ["mixed"] * 3,
            ["positional", "flat", "mixed"],
        ]
    )
    rng = np.random.default_rng(0)
    assert heads_to_ablate(table, "none", rng) == []
    # Layer 1 has one head to compare with, so only its most positional head is taken.
    assert heads_to_ablate(table, "positional", rng) == [(0, 0), (1, 0), (3, 0)]
    for draw in range(20):
        drawn = heads_to_ablate(table, str(draw), rng)
        assert [layer for layer, _ in drawn] == [0, 1, 3]
        assert drawn[1] == (1, 2)
        assert (0, 0) not in drawn


def test_too_few_positional_heads_are_a_gate():
    with pytest.raises(Gated, match="1 heads are labelled positional, needs >= 3"):
        heads_to_ablate(labelled([["positional", "mixed"]]), "positional", np.random.default_rng(0))
