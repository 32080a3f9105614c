import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnomon.data.corpora import prose
from gnomon.models.load import bridge, encode, load
from gnomon.models.scoring import (
    Choice,
    choice_log_probs,
    continuation_log_probs,
    example_losses,
    perplexity,
    sequence_log_probs,
    token_batches,
    token_log_probs,
    window_nll,
    windows,
)
from gnomon.models.tiny import tiny_decoder

SEQUENCES = [[2, 5, 9, 9, 30], [2, 7], [2, *range(3, 60)], [2, 11, 12]]


def oracle(model, sequence):
    """One sequence alone, by the log-softmax of the whole output."""
    with torch.no_grad():
        log_probs = model(torch.tensor([sequence])).logits[0].log_softmax(-1)
    return log_probs[:-1].gather(-1, torch.tensor(sequence)[1:, None])[:, 0]


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120))
def test_batches_hold_every_sequence_once_within_the_budget(lengths, budget):
    batches = token_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= budget


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "gemma3", "mistral"])
def test_padded_scores_equal_unpadded_ones(family):
    model = tiny_decoder(family)
    scores = token_log_probs(model, SEQUENCES, batch_tokens=4096)
    for score, sequence in zip(scores, SEQUENCES, strict=True):
        assert torch.allclose(score, oracle(model, sequence), rtol=0, atol=1e-5)


def test_a_bridge_scores_as_the_plain_model(tiny):
    ours = token_log_probs(bridge(tiny), SEQUENCES)
    for score, other in zip(ours, token_log_probs(tiny.model, SEQUENCES), strict=True):
        assert torch.allclose(score, other, rtol=0, atol=1e-5)


def test_sequence_scores_are_sums_and_losses_are_means_of_the_answer(tiny):
    each = [oracle(tiny.model, sequence).double() for sequence in SEQUENCES]
    assert np.allclose(sequence_log_probs(tiny.model, SEQUENCES), [score.sum() for score in each], atol=1e-5)
    assert np.allclose(example_losses(tiny.model, SEQUENCES), [-score.mean() for score in each], atol=1e-5)
    starts = [3, 1, 50, 2]
    answers = [-score[start - 1 :].mean() for score, start in zip(each, starts, strict=True)]
    assert np.allclose(example_losses(tiny.model, SEQUENCES, starts=starts), answers, atol=1e-5)


def test_what_cannot_be_scored_is_named(tiny):
    with pytest.raises(ValueError, match=r"^sequence 1 has 1 tokens; scoring needs a start token and one more$"):
        sequence_log_probs(tiny.model, [[2, 3], [2]])
    with pytest.raises(ValueError, match=r"^answer of example 0 starts at 2, must be within 1..1$"):
        example_losses(tiny.model, [[2, 3]], starts=[2])
    with pytest.raises(ValueError, match="continuation 1 is empty"):
        continuation_log_probs(tiny.model, [2], [[3], []])
    with pytest.raises(ValueError, match="prefix is empty"):
        continuation_log_probs(tiny.model, [], [[3]])
    with pytest.raises(ValueError, match="no texts to cut into windows"):
        perplexity(tiny, [])
    with pytest.raises(ValueError, match=r"^window 128 must be within 1..127$"):
        perplexity(tiny, ["w1"], window=128)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "gemma2", "gemma3", "mistral"])
def test_continuations_on_a_cached_prefix_equal_whole_sequences(family):
    model = tiny_decoder(family)
    prefix = [2, *range(20, 40)]  # longer than the sliding windows
    continuations = [[5], [9, 8, 7, 6], [30, 31], list(range(3, 23))]
    scores = continuation_log_probs(model, prefix, continuations)
    for score, continuation in zip(scores, continuations, strict=True):
        whole = oracle(model, prefix + continuation)[len(prefix) - 1 :]
        assert torch.allclose(score, whole, rtol=0, atol=1e-5)


def test_windows_hold_every_token_once(tiny):
    texts = [" ".join(f"w{index % 50}" for index in range(200)), "w1 w2 w3"]
    cut = windows(tiny, texts, window=64)
    assert [(index, len(ids)) for index, ids in cut] == [(0, 65), (0, 65), (0, 65), (0, 9), (1, 4)]
    body = [token for index, ids in cut if index == 0 for token in ids[1:]]
    assert body == tiny.tokenizer(texts[0])["input_ids"]
    assert all(ids[0] == tiny.provenance.start_id for _, ids in cut)
    table = window_nll(tiny, texts, window=64)
    assert list(table["window"]) == [0, 1, 2, 3, 0]
    assert list(table["tokens"]) == [64, 64, 64, 8, 3]
    assert np.allclose(table["nats"], [-oracle(tiny.model, ids).sum() for _, ids in cut], atol=1e-4)
    result = perplexity(tiny, texts, window=64)
    assert result.tokens == 203
    assert result.value == pytest.approx(math.exp(table["nats"].sum() / 203))


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(tiny):
    model = tiny_decoder()
    with torch.no_grad():
        model.lm_head.weight.zero_()
    assert perplexity(dataclasses.replace(tiny, model=model), ["w1 w2 w3 w4"], window=16).value == pytest.approx(64)


def fruit(options):
    return f"A {options[0]} B {options[1]} one"


def test_choices_average_over_both_orders(tiny):
    options = ["w1", "w2"]
    choice = choice_log_probs(tiny, options, fruit, ["A", "B"])
    a, b = (tiny.tokenizer(label)["input_ids"][0] for label in "AB")
    rows, mass = [], []
    for order in (options, options[::-1]):
        with torch.no_grad():
            probs = tiny.model(torch.tensor([encode(tiny, fruit(order))])).logits[0, -1].softmax(-1)
        pair = [probs[a].item(), probs[b].item()] if order is options else [probs[b].item(), probs[a].item()]
        rows.append([value / sum(pair) for value in pair])
        mass.append(sum(pair))
    assert np.allclose(np.exp(choice.by_order), rows, atol=1e-5)
    assert np.allclose(np.exp(choice.log_probs), np.mean(rows, axis=0), atol=1e-5)
    assert choice.label_mass == pytest.approx(np.mean(mass), abs=1e-5)


def test_a_model_that_only_likes_a_label_is_undecided(tiny):
    model = tiny_decoder()
    a = tiny.tokenizer("A")["input_ids"][0]
    with torch.no_grad():
        model.lm_head.weight.zero_()
    handle = model.lm_head.register_forward_hook(
        lambda _module, _inputs, logits: logits + 5.0 * torch.nn.functional.one_hot(torch.tensor(a), 64)
    )
    choice = choice_log_probs(dataclasses.replace(tiny, model=model), ["w1", "w2"], fruit, ["A", "B"])
    handle.remove()
    assert np.allclose(np.exp(choice.log_probs), 0.5)
    assert np.allclose(choice.label_bias, [1 / (1 + math.exp(-5)), 1 / (1 + math.exp(5))])


def test_three_options_take_every_label_once():
    rows = np.log([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    bias = Choice(np.zeros(3), rows, 1.0).label_bias  # order r gives option i the label (i + r) mod 3
    assert np.allclose(bias, [np.mean([0.5, 0.3, 0.2]), np.mean([0.3, 0.2, 0.5]), np.mean([0.2, 0.5, 0.3])])


def test_labels_must_be_single_and_distinct_tokens(tiny):
    with pytest.raises(ValueError, match=r"^label 'A B' is 2 tokens for .*; choose one that is one$"):
        choice_log_probs(tiny, ["w1", "w2"], fruit, ["A", "A B"])
    with pytest.raises(ValueError, match=r"must be distinct tokens"):
        choice_log_probs(tiny, ["w1", "w2"], fruit, ["A", "A"])
    with pytest.raises(ValueError, match=r"^2 options need as many labels and at least two; got 3 labels$"):
        choice_log_probs(tiny, ["w1", "w2"], fruit, ["A", "B", "one"])


@pytest.mark.model
def test_smollm2_finds_prose_likelier_than_its_shuffled_words():
    loaded = load("smollm2", attn="sdpa")
    corpus = prose().part("evaluation")
    corpus = dataclasses.replace(corpus, documents=corpus.documents[3:4])
    texts, shuffled = corpus.texts, corpus.shuffled_words(np.random.default_rng(0)).texts
    ordered, scrambled = perplexity(loaded, texts, window=256), perplexity(loaded, shuffled, window=256)
    assert 10 < ordered.value < 80
    assert scrambled.value > 10 * ordered.value


@pytest.mark.model
def test_smollm2_scores_do_not_depend_on_padding():
    loaded = load("smollm2", attn="sdpa")
    sequences = [
        encode(loaded, text) for text in ("The sun casts a shadow on the dial.", "Noon.", "A gnomon is upright.")
    ]
    together = sequence_log_probs(loaded.model, sequences)
    alone = [sequence_log_probs(loaded.model, [sequence])[0] for sequence in sequences]
    assert np.allclose(together, alone, rtol=0, atol=1e-4 * max(map(len, sequences)))
