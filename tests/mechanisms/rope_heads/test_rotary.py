"""Logit tables and frequency decompositions against rotations written out by hand."""

import math

import numpy as np
import pytest
import torch

from gnomon.mechanisms.rope_heads.frequencies import (
    frequency_distances,
    frequency_energy,
    low_high,
    turning_frequencies,
    with_unrotated,
)
from gnomon.mechanisms.rope_heads.rotary import logit_table, rotate
from gnomon.mechanisms.rope_heads.scores import behaviour_distances, behaviour_scores

LAYOUTS = ("half", "interleaved")


def head(*, keys: int = 9, channels: int = 10, frequencies: int = 4, seed: int = 0):
    """Query, keys, frequencies, positions and query position of a partially rotary head."""
    rng = np.random.default_rng(seed)
    return (
        torch.from_numpy(rng.normal(size=channels)),
        torch.from_numpy(rng.normal(size=(keys, channels))),
        torch.from_numpy(10.0 ** -np.linspace(0, 3, frequencies)),
        torch.arange(1, keys + 1),
        keys + 1,
    )


def rotation_matrix(position: float, inv_freq, channels: int, layout: str) -> np.ndarray:
    """The block rotation, entry by entry."""
    matrix = np.eye(channels)
    for f, theta in enumerate(inv_freq):
        first, second = (f, f + len(inv_freq)) if layout == "half" else (2 * f, 2 * f + 1)
        cosine, sine = math.cos(theta * position), math.sin(theta * position)
        matrix[np.ix_((first, second), (first, second))] = [[cosine, -sine], [sine, cosine]]
    return matrix


@pytest.mark.parametrize("layout", LAYOUTS)
def test_table_equals_rotation_by_hand(layout):
    query, keys, inv_freq, positions, at = head()
    table = logit_table(query, keys, inv_freq, positions, at, scale=0.3, layout=layout)
    turned = rotation_matrix(at, inv_freq, 10, layout) @ query.numpy()
    for i, position in enumerate(positions):
        for j, key in enumerate(keys):
            expected = 0.3 * turned @ rotation_matrix(float(position), inv_freq, 10, layout) @ key.numpy()
            assert float(table[i, j]) == pytest.approx(float(expected), rel=1e-12, abs=1e-12)


def test_soft_cap_acts_on_logits():
    query, keys, inv_freq, positions, at = head()
    plain = logit_table(query, keys, inv_freq, positions, at, scale=1.0)
    capped = logit_table(query, keys, inv_freq, positions, at, scale=1.0, softcap=2.0)
    assert torch.allclose(capped, 2 * torch.tanh(plain / 2))


def test_layouts_differ_by_a_permutation_of_channels():
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 8)))
    angles = torch.linspace(0.1, 2.0, 4, dtype=torch.float64)
    pairs = [0, 4, 1, 5, 2, 6, 3, 7]
    assert torch.allclose(rotate(vectors, angles)[:, pairs], rotate(vectors[:, pairs], angles, layout="interleaved"))


def test_frequencies_that_do_not_turn_make_a_head_symbolic():
    query, keys, inv_freq, positions, at = head()
    found = behaviour_scores(logit_table(query, keys, 0 * inv_freq, positions, at, scale=1.0))
    assert (float(found.symbolic), float(found.balance)) == (1.0, 0.0)


def test_equal_keys_make_a_head_positional():
    query, keys, inv_freq, positions, at = head()
    found = behaviour_scores(logit_table(query, keys[:1].expand_as(keys), inv_freq, positions, at, scale=1.0))
    assert float(found.positional) == pytest.approx(1.0, abs=1e-12)
    assert float(found.balance) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_contributions_of_frequencies_sum_to_the_logits(layout):
    query, keys, inv_freq, positions, at = head()
    used = logit_table(query, keys, inv_freq, positions, at, scale=0.3, layout=layout).diagonal()
    by_hand = np.zeros((len(positions), 5))
    for f in range(5):
        masked = query.clone()
        channels = (
            {
                "half": (f, f + 4),
                "interleaved": (2 * f, 2 * f + 1),
            }[layout]
            if f < 4
            else (8, 9)
        )
        masked[[c for c in range(10) if c not in channels]] = 0
        by_hand[:, f] = logit_table(masked, keys, inv_freq, positions, at, scale=0.3, layout=layout).diagonal()
    energy = frequency_energy(query, keys, inv_freq, positions, at, scale=0.3, layout=layout)
    assert np.allclose(by_hand.sum(1), used)
    assert np.allclose(energy.second_moment, (by_hand**2).mean(0))
    assert np.allclose(energy.variance, by_hand.var(0))
    assert (energy.norm.numpy() >= np.abs(by_hand).mean(0) - 1e-12).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_distances_of_one_frequency_equal_those_of_its_table(layout):
    query, keys, inv_freq, positions, at = head()
    fast = frequency_distances(query, keys, inv_freq, positions, at, scale=0.3, layout=layout)
    for f in range(5):
        channels = ({"half": [f, f + 4], "interleaved": [2 * f, 2 * f + 1]}[layout]) if f < 4 else [8, 9]
        alone = torch.zeros_like(query)
        alone[channels] = query[channels]
        table = logit_table(alone, keys, inv_freq, positions, at, scale=0.3, layout=layout)
        slow = behaviour_distances(table)
        for name in ("positional", "symbolic", "zero"):
            exact = float(getattr(slow, name))
            assert float(getattr(fast, name)[f]) == pytest.approx(exact, rel=1e-9, abs=1e-13)


def test_high_frequencies_turn_once_over_the_context():
    inv_freq = torch.tensor([1.0, 0.2, 0.1, 0.09])
    assert turning_frequencies(inv_freq, 62).tolist() == [True, True, False, False]
    assert turning_frequencies(inv_freq, 63).tolist() == [True, True, True, False]


def test_low_high_is_a_log_ratio():
    energy = torch.tensor([2.0, 4.0, 1.0, 1.0])
    assert float(low_high(energy, torch.tensor([True, False, False, False]))) == pytest.approx(math.log(3.0))


def test_unrotated_channels_count_as_a_frequency_of_zero():
    inv_freq = torch.tensor([1.0, 0.1])
    assert with_unrotated(inv_freq, 6).tolist() == pytest.approx([1.0, 0.1, 0.0])
    assert with_unrotated(inv_freq, 4) is inv_freq


def test_too_few_keys_are_refused():
    query, keys, inv_freq, positions, _ = head()
    with pytest.raises(ValueError, match=r"needs at least 3 keys before the query, got 2 \(query_position=3\)"):
        logit_table(query, keys[:2], inv_freq, positions[:2], 3, scale=1.0)


def test_too_many_frequencies_are_refused():
    with pytest.raises(ValueError, match="3 frequencies need 6 channels, got 4"):
        rotate(torch.zeros(4), torch.zeros(3))
