import copy
import dataclasses
import logging

import pytest
import torch

from gnomon.models.load import bridge
from gnomon.models.randomize import SCHEMES, randomize, register_scheme, state_hash, weight_statistics
from gnomon.models.tiny import tiny_decoder

IDS = torch.arange(3, 27).reshape(2, 12)


@pytest.fixture(scope="module")
def trained():
    """A stand-in for a trained model: weights unlike those of an initialisation, norm gains and biases too."""
    model = tiny_decoder("smollm", layers=4, width=64, heads=4, mlp_width=96)
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.3 + 0.2 * torch.rand(weight.shape, generator=generator) ** 3)
    return model


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family", ["smollm", "gpt2", "gpt-neox", "gemma3"])
def test_a_copy_is_new_reproducible_and_tied_as_before(scheme, family):
    model = tiny_decoder(family)
    before, torch_state = state_hash(model), torch.get_rng_state()
    first, same, other = (randomize(model, scheme, seed) for seed in (1, 1, 2))
    assert torch.equal(logits(first), logits(same))
    if scheme != "shuffled-layers":  # two layers have one other order
        assert not torch.equal(logits(first), logits(other))
    assert not torch.equal(logits(first), logits(model))
    assert torch.isfinite(logits(first)).all()
    assert not first.training
    assert state_hash(model) == before
    assert torch.equal(torch.get_rng_state(), torch_state)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert (first.get_output_embeddings().weight is first.get_input_embeddings().weight) == tied


def test_random_init_has_the_spread_of_the_models_own_initialisation(trained):
    twin = randomize(trained, "random-init", 0)
    table = weight_statistics(twin).set_index("tensor")
    matrices = table[table["shape"].str.contains("x")]
    assert matrices["std"].to_numpy() == pytest.approx(trained.config.initializer_range, rel=0.05)
    assert (table.loc[table.index.str.contains("norm"), "mean"] == 1.0).all()


def test_resampled_keeps_mean_and_spread_of_every_tensor(trained):
    before, after = weight_statistics(trained), weight_statistics(randomize(trained, "resampled", 0))
    for old, new, weight in zip(
        before.itertuples(), after.itertuples(), dict(trained.named_parameters()).values(), strict=True
    ):
        assert abs(new.mean - old.mean) < 5 * old.std / weight.numel() ** 0.5
        assert abs(new.std - old.std) < 5 * old.std / (2 * weight.numel()) ** 0.5


def test_resampling_leaves_embeddings_alone_if_told_so(trained):
    twin = randomize(trained, "resampled-keep-embeddings", 0)
    assert torch.equal(twin.model.embed_tokens.weight, trained.model.embed_tokens.weight)
    assert not torch.equal(twin.model.layers[0].mlp.up_proj.weight, trained.model.layers[0].mlp.up_proj.weight)
    gpt2 = tiny_decoder("gpt2")
    kept = randomize(gpt2, "resampled-keep-embeddings", 0)
    assert torch.equal(kept.transformer.wpe.weight, gpt2.transformer.wpe.weight)


def test_permuted_weights_keep_exactly_the_values(trained):
    twin = randomize(trained, "permuted-weights", 0)
    for old, new in zip(trained.parameters(), twin.parameters(), strict=True):
        assert torch.equal(old.flatten().sort().values, new.flatten().sort().values)
        assert torch.equal(old, new) == (old.ndim == 1)


def test_matched_spectra_have_the_singular_values_and_other_vectors(trained):
    twin = randomize(trained, "spectrum-matched", 0)
    for old, new in zip(trained.parameters(), twin.parameters(), strict=True):
        if old.ndim == 2:
            spectrum = torch.linalg.svdvals(old.double())
            assert torch.allclose(torch.linalg.svdvals(new.double()), spectrum, atol=1e-5 * spectrum[0].item())
            assert not torch.allclose(old, new, atol=0.01)
        else:
            assert torch.equal(old, new)


def test_random_singular_vectors_have_no_preferred_direction():
    model = tiny_decoder(width=8, heads=2, kv_heads=2, mlp_width=8, vocab=8, layers=1)
    entries = torch.stack(
        [randomize(model, "spectrum-matched", seed).lm_head.weight.detach().flatten() for seed in range(200)]
    )
    spread = entries.std(0).mean() / 200**0.5
    assert (entries.mean(0).abs() < 5 * spread).all()


def test_shuffled_layers_are_the_same_layers_elsewhere(trained):
    twin = randomize(trained, "shuffled-layers", 0)

    def prints(model):
        return [state_hash(layer) for layer in model.model.layers]

    assert sorted(prints(twin)) == sorted(prints(trained))
    assert prints(twin) != prints(trained)
    assert [layer.self_attn.layer_idx for layer in twin.model.layers] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="LlamaForCausalLM has fewer than two layers to shuffle"):
        randomize(tiny_decoder(layers=1), "shuffled-layers", 0)


def test_embedding_noise_is_fresh_for_each_occurrence_and_has_the_embeddings_size(trained):
    twin = randomize(trained, "noise-embeddings", 0)
    assert state_hash(twin) == state_hash(trained)
    ids = torch.tensor([[5] * 12, [6] * 12])
    noise, true = twin.model.embed_tokens(ids), trained.model.embed_tokens(ids)
    assert torch.equal(noise, twin.model.embed_tokens(ids))
    assert torch.equal(noise[:1], twin.model.embed_tokens(ids[:1]))  # whatever else is in the batch
    assert noise.pow(2).mean().sqrt().item() == pytest.approx(true.pow(2).mean().sqrt().item(), rel=0.1)
    cosine = torch.nn.functional.normalize(noise[0], dim=-1)
    off_diagonal = (cosine @ cosine.T)[~torch.eye(12, dtype=torch.bool)]
    assert off_diagonal.abs().mean() < 0.3  # 64 dimensions: .1 for independent directions, 1 for the same


def test_embedding_noise_survives_copies_and_bridges(trained, tiny):
    twin = randomize(trained, "noise-embeddings", 0)
    assert torch.equal(logits(copy.deepcopy(twin)), logits(twin))
    wrapped = bridge(dataclasses.replace(tiny, model=twin))
    with torch.no_grad():
        assert torch.allclose(wrapped(IDS), logits(twin), rtol=0, atol=1e-4)


def test_statistics_are_logged(trained, caplog):
    with caplog.at_level(logging.INFO, logger="gnomon"):
        randomize(trained, "random-init", 3)
    assert "random-init (seed 3): mean standard deviation of a tensor" in caplog.text


def test_state_hash_sees_one_changed_bit(trained):
    twin = copy.deepcopy(trained)
    assert state_hash(twin) == state_hash(trained)
    with torch.no_grad():
        twin.model.norm.weight[0] = torch.nextafter(twin.model.norm.weight[0], torch.tensor(9.0))
    assert state_hash(twin) != state_hash(trained)


def test_a_scheme_can_be_added(monkeypatch):
    monkeypatch.setattr("gnomon.models.randomize.SCHEMES", dict(SCHEMES))

    @register_scheme("zeroed-head")
    def zeroed_head(model, generator):
        model.lm_head.weight.zero_()

    assert (logits(randomize(tiny_decoder(), "zeroed-head", 0)) == 0).all()


def test_bad_schemes_and_bridges_are_refused(tiny):
    with pytest.raises(ValueError, match=r"^unknown scheme 'resample'; nearest is 'resampled'; known: random-init"):
        randomize(tiny.model, "resample", 0)
    with pytest.raises(
        ValueError, match="needs the plain Hugging Face model, got TransformerBridge; build bridges last"
    ):
        randomize(bridge(tiny), "resampled", 0)
