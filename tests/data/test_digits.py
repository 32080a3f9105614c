"""Digits: scaling, stratified splits, wrong labels, point sets and user groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from gnomon.data.digits import digits, flip_labels, point_sets, quadrants


@pytest.fixture(scope="module")
def everything():
    return digits()


def test_all_digits_in_the_unit_interval(everything):
    assert len(everything) == 1797
    assert everything.images.shape == (1797, 8, 8)
    assert everything.images.min() == 0
    assert everything.images.max() == 1
    np.testing.assert_array_equal(everything.flat * 16, load_digits().data)


@given(seed=st.integers(0, 100), first=st.integers(50, 700), second=st.integers(50, 700))
@settings(max_examples=15, deadline=None)
def test_parts_are_disjoint_and_hold_the_classes_in_proportion(seed, first, second):
    whole = digits()
    parts = whole.split((first, second), np.random.default_rng(seed))
    assert [len(part) for part in parts] == [first, second]
    rows = np.concatenate([part.rows for part in parts])
    assert len(np.unique(rows)) == first + second
    for part in parts:
        np.testing.assert_array_equal(part.labels, whole.labels[part.rows])
        expected = len(part) * np.bincount(whole.labels) / len(whole)
        assert np.abs(np.bincount(part.labels, minlength=10) - expected).max() <= 2


def test_a_split_of_a_part_is_a_part(everything):
    outer, _ = everything.split((500, 400), np.random.default_rng(0))
    inner, _ = outer.split((100, 100), np.random.default_rng(0))
    assert set(inner.rows) <= set(outer.rows)


def test_too_large_parts_are_refused(everything):
    with pytest.raises(ValueError, match=r"need 1798 digits, there are 1797"):
        everything.split((1000, 798), np.random.default_rng(0))


@given(share=st.floats(0, 1))
@settings(max_examples=20, deadline=None)
def test_flipped_labels_are_wrong_and_no_others(share):
    labels = np.arange(200) % 10
    flipped, where = flip_labels(labels, share, np.random.default_rng(0))
    assert where.sum() == round(share * 200)
    assert (flipped[where] != labels[where]).all()
    assert (flipped[~where] == labels[~where]).all()
    assert set(flipped) <= set(range(10))


def test_flips_go_to_every_other_class():
    flipped, _ = flip_labels(np.zeros(5000, dtype=np.int64), 1.0, np.random.default_rng(0))
    counts = np.bincount(flipped, minlength=10)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 5000 / 9).max() < 5 * (5000 / 9) ** 0.5
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\]"):
        flip_labels(np.zeros(3, dtype=np.int64), 1.5, np.random.default_rng(0))


def test_points_have_the_density_of_the_image():
    image = np.zeros((1, 2, 2))
    image[0, 0, 1] = 3.0  # upper right
    image[0, 1, 0] = 1.0  # lower left
    points = point_sets(image, 4000, np.random.default_rng(0))[0]
    upper_right = (points > 0).all(1)
    lower_left = (points < 0).all(1)
    assert (upper_right | lower_left).all()
    assert upper_right.mean() == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 4000) ** 0.5)
    assert np.abs(points).max() <= 1
    with pytest.raises(ValueError, match="image 0 is blank"):
        point_sets(np.zeros((1, 2, 2)), 5, np.random.default_rng(0))


def test_quadrants_do_not_depend_on_the_order_of_rows(everything):
    group = quadrants(everything.flat)
    assert set(group) == {0, 1, 2, 3}
    order = np.random.default_rng(0).permutation(len(everything))
    np.testing.assert_array_equal(quadrants(everything.flat[order]), group[order])
