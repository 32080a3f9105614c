"""Closed forms against enumeration of all permutations, and the properties that follow from the definitions."""

import itertools

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.mechanisms.rope_heads.scores import (
    behaviour_distances,
    behaviour_scores,
    exclusion_slack,
    permuted_distances,
    scores,
    swap_distances,
    table_variance,
)

TABLES = st.integers(3, 6).flatmap(
    lambda keys: arrays.arrays(np.float64, (keys, keys), elements=st.floats(-8, 8, width=32))
)


def random_table(keys: int, *, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(keys, keys)))


def enumerated(table: np.ndarray, orders, *, centred: bool = True) -> dict[str, float]:
    """The definitions, read literally, over the given permutations."""
    keys = len(table)
    rows, used = np.arange(keys), table.diagonal()
    square = (lambda x: x.var()) if centred else (lambda x: (x**2).mean())
    found = {"positional": [], "symbolic": [], "zero": []}
    for order in orders:
        order = list(order)
        permuted, moved = table[rows, order], used[order]
        found["positional"].append(square(permuted - used))
        found["symbolic"].append(square(permuted - moved))
        found["zero"].append(square(moved - used))
    return {name: float(np.mean(values)) for name, values in found.items()}


@pytest.mark.parametrize("keys", [3, 4, 5, 6])
@pytest.mark.parametrize("centred", [True, False])
def test_closed_forms_equal_enumeration_of_all_permutations(keys, centred):
    table = random_table(keys, seed=keys)
    exact = behaviour_distances(table, shift_invariant=centred)
    expected = enumerated(table.numpy(), itertools.permutations(range(keys)), centred=centred)
    for name, value in expected.items():
        assert float(getattr(exact, name)) == pytest.approx(value, rel=1e-12)


def test_swap_variant_equals_enumeration_of_all_swaps():
    table = random_table(5)
    swaps = []
    for i, j in itertools.combinations(range(5), 2):
        order = list(range(5))
        order[i], order[j] = j, i
        swaps.append(order)
    expected = enumerated(table.numpy(), swaps)
    broken = swap_distances(table)
    assert float(broken.positional) == pytest.approx(expected["positional"], rel=1e-12)
    assert float(broken.symbolic) == pytest.approx(expected["symbolic"], rel=1e-12)


def test_monte_carlo_estimate_approaches_the_exact_distances():
    table = random_table(12)
    exact = behaviour_distances(table)
    drawn = permuted_distances(table, draws=4000, generator=torch.Generator().manual_seed(0))
    for name in ("positional", "symbolic", "zero"):
        # 4,000 draws of a quantity with a relative spread of about 1/2: 4 standard errors are 3 %.
        assert float(getattr(drawn, name)) == pytest.approx(float(getattr(exact, name)), rel=0.03)


def test_pure_position_scores_one_and_zero():
    table = torch.tensor([0.0, 2.0, 5.0, 6.0], dtype=torch.float64)[:, None].expand(4, 4)
    found = behaviour_scores(table)
    assert (float(found.positional), float(found.balance)) == (1.0, 1.0)
    assert float(found.symbolic) == pytest.approx(0.0, abs=1e-12)


def test_pure_content_scores_zero_and_one():
    found = behaviour_scores(torch.tensor([0.0, 2.0, 5.0, 6.0], dtype=torch.float64).expand(4, 4))
    assert (float(found.symbolic), float(found.balance)) == (1.0, 0.0)
    assert float(found.positional) == pytest.approx(0.0, abs=1e-12)


def test_additive_table_has_textbook_distances():
    rng = np.random.default_rng(1)
    where, what = rng.normal(size=7), rng.normal(size=7)
    found = behaviour_distances(torch.from_numpy(where[:, None] + what))
    assert float(found.positional) == pytest.approx(2 * what.var(), rel=1e-12)
    assert float(found.symbolic) == pytest.approx(2 * where.var(), rel=1e-12)
    assert float(found.zero) == pytest.approx(2 * (where + what).var(), rel=1e-12)


def test_unstructured_table_scores_about_zero_on_both():
    tables = torch.from_numpy(np.random.default_rng(2).normal(size=(50, 40, 40)))
    found = scores(behaviour_distances(tables).sum(0))
    shares = table_variance(tables)
    assert abs(float(found.positional)) < 0.1
    assert abs(float(found.symbolic)) < 0.1
    assert float(shares.row_share.mean()) == pytest.approx(1 / 40, rel=0.2)
    assert float(shares.column_share.mean()) == pytest.approx(1 / 40, rel=0.2)


def test_constant_table_is_undefined_and_silent():
    found = behaviour_scores(torch.full((2, 4, 4), 3.7, dtype=torch.float64))
    for value in (found.positional, found.symbolic, found.balance):
        assert torch.isnan(value).all()
    assert torch.isnan(table_variance(torch.full((4, 4), 0.1)).row_share)


@settings(max_examples=150, deadline=None)
@given(TABLES)
def test_no_table_crosses_the_exclusion_bound(table):
    slack = exclusion_slack(behaviour_distances(torch.from_numpy(table)))
    assert torch.isnan(slack) or float(slack) > -1e-9


def test_exclusion_bound_is_reached():
    """Position and content that agree at every key: the two triangle sides are parallel."""
    ramp = torch.arange(5, dtype=torch.float64)
    assert float(exclusion_slack(behaviour_distances(ramp[:, None] + ramp))) == pytest.approx(0.0, abs=1e-12)


def test_broken_variant_crosses_the_bound():
    assert float(exclusion_slack(swap_distances(random_table(20)))) < -0.2


@settings(max_examples=60, deadline=None)
@given(TABLES, st.floats(-1e4, 1e4), st.floats(0.1, 20), st.randoms(use_true_random=False))
def test_offset_scale_and_order_of_keys_do_not_matter(table, offset, scale, random):
    table = torch.from_numpy(table)
    if float((table - table[0, 0]).abs().max()) < 1e-3:
        return  # a nearly constant table loses its digits to the offset
    order = list(range(len(table)))
    random.shuffle(order)
    changed = behaviour_distances((scale * table + offset)[order][:, order])
    original = behaviour_distances(table)
    size = float(table.abs().max()) ** 2 + 1
    for name in ("positional", "symbolic", "zero"):
        expected = scale**2 * getattr(original, name)
        assert float(getattr(changed, name)) == pytest.approx(float(expected), rel=1e-6, abs=1e-9 * scale**2 * size)


def test_scores_of_several_queries_are_ratios_of_sums():
    tables = torch.stack([random_table(6, seed=1), 100 * random_table(6, seed=2)])
    pooled = scores(behaviour_distances(tables).sum(0))
    loud = behaviour_scores(tables[1])
    assert float(pooled.positional) == pytest.approx(float(loud.positional), abs=1e-3)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (torch.zeros(3, 4), r"table must be square .* got shape \(3, 4\)"),
        (torch.zeros(2, 2), "at least 3 keys, got 2"),
        (torch.eye(3).log(), r"not finite at index \[0, 1\]"),
    ],
)
def test_bad_tables_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        behaviour_distances(table)
