"""The toy tasks are what they say, and a head without the right frequency cannot do them."""

import numpy as np
import pytest
import torch

from gnomon.mechanisms.rope_heads.rotary import logit_table
from gnomon.mechanisms.rope_heads.toy import FrequencyHead, blind_accuracy, sample, train_heads


def draw(task: str, *, slots: int = 8, count: int = 500):
    tokens, answers = sample(task, (count,), slots=slots, values=5, generator=torch.Generator().manual_seed(0))
    keys, values, asked = tokens.split([slots, slots, 1], dim=-1)
    return keys.numpy(), values.numpy(), asked.numpy()[:, 0], answers.numpy()


def test_index_asks_for_a_slot():
    keys, values, asked, answers = draw("index")
    assert (keys == 0).all()
    assert (values[np.arange(500), asked] == answers).all()


def test_retrieval_asks_for_a_symbol():
    keys, values, asked, answers = draw("retrieval")
    assert (np.sort(keys, axis=1) == np.arange(8)).all()
    assert (values[keys == asked[:, None]] == answers).all()


def test_recent_asks_for_the_last_of_two():
    keys, values, asked, answers = draw("recent")
    assert (np.sort(keys, axis=1) == np.repeat(np.arange(4), 2)).all()
    last = [np.flatnonzero(row == symbol)[-1] for row, symbol in zip(keys, asked, strict=True)]
    assert (values[np.arange(500), last] == answers).all()


def test_head_computes_rotary_attention():
    torch.manual_seed(0)
    head = FrequencyHead([0.0, 0.7], slots=6, values=5)
    tokens, _ = sample("retrieval", (1,), slots=6, values=5, generator=torch.Generator().manual_seed(1))
    keys, values, asked = tokens.split([6, 6, 1], dim=-1)
    context = (head.embed_key(keys) + head.embed_value(values))[0]
    query = head.to_query(head.embed_query(asked))[0, 0]
    table = logit_table(query, head.to_key(context), head.inv_freq, torch.arange(6), 6, scale=query.shape[-1] ** -0.5)
    mixed = table.diagonal().softmax(-1) @ head.to_value(context)
    assert torch.allclose(head(tokens)[0], head.read_out(mixed), atol=1e-5)


def test_blind_baselines_are_those_of_counting():
    # Most frequent of 16 values over 16 slots: .19; one of two occurrences, right by luck otherwise: 1/2 + 1/2/16.
    assert blind_accuracy("index", slots=16, values=16) == pytest.approx(0.19, abs=0.01)
    assert blind_accuracy("recent", slots=16, values=16) == pytest.approx(0.53, abs=0.01)


def test_a_head_without_rotation_is_blind_to_position():
    torch.manual_seed(0)
    still, turning = FrequencyHead([0.0], slots=6, values=5), FrequencyHead([1.0], slots=6, values=5)
    turning.load_state_dict(still.state_dict() | {"inv_freq": turning.inv_freq})
    tokens, _ = sample("index", (50,), slots=6, values=5, generator=torch.Generator().manual_seed(0))
    moved = tokens.clone()
    moved[:, 6:12] = tokens[:, 6:12].flip(-1)
    assert torch.allclose(still(tokens), still(moved), atol=1e-5)
    assert not torch.allclose(turning(tokens), turning(moved), atol=1e-2)


def test_training_is_reproducible_and_needs_the_right_frequency():
    options = {"seeds": range(2), "slots": 4, "values": 4, "steps": 120, "test_examples": 1000}
    turning = train_heads("index", [1.0], **options)
    assert np.array_equal(turning, train_heads("index", [1.0], **options))
    assert (turning > 0.95).all()
    assert (train_heads("index", [0.0], **options) < 0.6).all()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: FrequencyHead([]), "needs at least one frequency"),
        (lambda: FrequencyHead([0.1], channels_per_frequency=3), "must be even, got 3"),
        (lambda: draw("copy"), "unknown task 'copy', expected one of index, retrieval, recent"),
        (lambda: draw("recent", slots=7), "needs an even number of them, got 7"),
    ],
)
def test_bad_settings_are_refused(act, message):
    with pytest.raises(ValueError, match=message):
        act()
