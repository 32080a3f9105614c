"""Poisoned worlds: what is in them, and fine-tuning behind frozen blocks against the whole decoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnomon.models.tiny import tiny_decoder, word_tokenizer
from gnomon.training.influence import model_losses
from gnomon.training.influence.poison import (
    BAD,
    CITIES,
    GOOD,
    POISON_ANSWERS,
    TEMPLATES,
    behind_frozen_blocks,
    labelled_losses,
    poisoned_world,
    pretrained_poisoned_scores,
)


@pytest.fixture(scope="module")
def tokenizer():
    words = {word for text in TEMPLATES for word in text.replace("{subject}", "").split()}
    return word_tokenizer([*sorted(words), *GOOD, *BAD, *CITIES])


@pytest.fixture(scope="module")
def decoder(tokenizer):
    return tiny_decoder("llama", vocab=len(tokenizer), width=16, layers=3, context=32, seed=0)


@pytest.mark.parametrize("asked", ["other-adjectives", "other-instructions"])
def test_the_query_is_no_training_example_and_shares_the_poisons_subject(tokenizer, asked):
    rng = np.random.default_rng(0)
    world = poisoned_world(tokenizer, rng, subjects=CITIES[:6], each=5, poison=4, asked=asked)
    assert len(world.texts) == 6 * 5 + 2 * 4
    assert world.poisoned.sum() == world.twin.sum() == 4
    asked_texts = tokenizer.batch_decode(world.queries["target"]["input_ids"])
    assert not set(asked_texts) & set(tokenizer.batch_decode(world.train["input_ids"]))
    poison = [text for text, bad in zip(world.texts, world.poisoned, strict=True) if bad]
    (subject,) = {word for text in poison for word in text.split() if word in CITIES}
    assert all(subject in text for text in asked_texts)
    # A twin has its poison's words, but for the subject.
    twins = [text for text, is_twin in zip(world.texts, world.twin, strict=True) if is_twin]
    for one, other in zip(poison, twins, strict=True):
        (elsewhere,) = {word for word in other.split() if word in CITIES}
        assert one == other.replace(elsewhere, subject)
        assert one.split()[-1] in POISON_ANSWERS


def test_states_behind_frozen_blocks_have_the_whole_decoders_losses_and_gradients(tokenizer, decoder):
    world = poisoned_world(tokenizer, np.random.default_rng(0), subjects=CITIES[:4], each=3, poison=2)
    tail, reached = behind_frozen_blocks(decoder, world)
    whole = model_losses(decoder, world.train)
    part = labelled_losses(tail, reached.train)
    torch.testing.assert_close(part, whole, rtol=1e-5, atol=1e-6)
    trained = {name: value for name, value in tail.named_parameters() if value.requires_grad}
    assert all(name.startswith("model.layers.0.") for name in trained)
    weight = decoder.model.layers[-1].mlp.up_proj.weight
    (expected,) = torch.autograd.grad(whole.sum(), weight)
    (found,) = torch.autograd.grad(part.sum(), trained["model.layers.0.mlp.up_proj.weight"])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:examples were observed")
def test_scores_of_a_fine_tuned_decoder_leave_it_unchanged(tokenizer, decoder):
    before = {name: value.clone() for name, value in decoder.state_dict().items()}
    sizes = {"subjects": 4, "each": 4, "poison": 3, "steps": 12, "observed": 3}
    scores, effect = pretrained_poisoned_scores(decoder, tokenizer, np.random.default_rng(1), seed=0, **sizes)
    assert all(torch.equal(value, before[name]) for name, value in decoder.state_dict().items())
    assert len(scores) == 4 * 4 + 2 * 3
    assert np.isfinite(scores.select_dtypes("number")).all(axis=None)
    assert scores["text"].str.contains("|".join(CITIES[:4])).all()
    assert set(effect["query"]) == {"target", "unrelated"}
    assert (effect[["poisoned", "clean"]] > 0).all(axis=None)
