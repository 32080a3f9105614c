"""Fronts and their areas against the definition and a Monte-Carlo count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.evidence.pareto import areas_between, dominated_area, front

POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=15)


@given(POINTS)
def test_front_is_what_nothing_dominates(points):
    array = np.array(points, dtype=float)

    def dominated(point):
        return any(other[0] <= point[0] and other[1] >= point[1] and (other != point).any() for other in array)

    members = front(array)
    expected = {tuple(point) for point in array if not dominated(point)}
    assert {tuple(point) for point in array[members]} == expected
    assert len(members) == len(expected)
    assert (np.diff(array[members, 0]) > 0).all()
    assert (np.diff(array[members, 1]) > 0).all()


@given(POINTS)
def test_area_counts_the_dominated_cells(points):
    # On integer points the dominated area is the number of unit cells whose upper-left corner is dominated.
    cells = sum(
        any(cost <= left and quality >= top for cost, quality in points) for left in range(5) for top in range(2, 8)
    )
    assert dominated_area(points, reference=(5, 1)) == cells


@given(POINTS, st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_another_point_never_takes_area(points, extra):
    assert dominated_area([*points, extra], (7, -1)) >= dominated_area(points, (7, -1))


def test_points_outside_the_box_add_nothing():
    assert dominated_area([[5.0, 1.0], [1.0, -1.0]], reference=(4.0, 0.0)) == 0.0


def test_areas_between_fronts_by_unit():
    better, worse = [[1.0, 1.0], [2.0, 2.0]], [[1.0, 0.5], [2.0, 1.5]]
    areas = areas_between([better, worse], [worse, better], reference=(3.0, 0.0))
    assert areas == pytest.approx([1.0, -1.0])
    # By default the box reaches to the worst point of any arm: cost 2 and quality 0.5.
    assert areas_between([better], [worse]) == pytest.approx([0.5])
    assert areas_between([better], [better]) == pytest.approx([0.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: front([[1.0, 2.0, 3.0]]), r"points must have 2 columns, cost and quality, got shape \(1, 3\)"),
        (lambda: front([[1.0, np.nan]]), r"points is not finite: nan at index \(0, 1\)"),
        (lambda: areas_between([[[1, 1]]], []), "fronts are compared by unit: treatment has 1, control 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
