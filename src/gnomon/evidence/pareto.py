r"""Two-dimensional trade-offs: the front of a set of points, and the area between two fronts.

The first axis is a cost (smaller is better), the second a quality (larger is better); negate a column to turn it
round. A front's area is what it dominates within the box below and left of a reference point
:math:`(c_{\max}, q_{\min})`: the two-dimensional hypervolume.

Source: Zitzler & Thiele (1999), "Multiobjective evolutionary algorithms: a comparative case study and the strength
Pareto approach".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from gnomon.evidence._arrays import finite


def front(points: ArrayLike) -> Int[np.ndarray, " member"]:
    """Indices of the points that no other point dominates, by rising cost.

    A point is dominated if another costs no more, is no worse, and differs in one of the two. Of equal points the
    first is kept.

    Args:
        points: (points, 2): cost and quality.

    Raises:
        ValueError: If a coordinate is not finite or there are not two.

    >>> front([[1, 0.5], [2, 0.4], [3, 0.9]])
    array([0, 2])
    """
    cost, quality = _columns(points)
    order = np.lexsort((-quality, cost))
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(quality[order])[:-1]])
    return order[quality[order] > best_before]


def dominated_area(points: ArrayLike, reference: tuple[float, float]) -> float:
    r"""Area of the box :math:`\{(c, q): c \le c_{\max},\ q \ge q_{\min}\}` that the points dominate.

    Args:
        points: (points, 2): cost and quality; points outside the box add nothing.
        reference: Worst cost and worst quality still counted.

    Raises:
        ValueError: If a coordinate is not finite.

    >>> dominated_area([[1, 0.5], [3, 0.9]], reference=(4, 0.0))
    1.9
    """
    cost, quality = _columns(points)
    worst_cost, worst_quality = reference
    inside = (cost < worst_cost) & (quality > worst_quality)
    if not inside.any():
        return 0.0
    kept = np.column_stack([cost[inside], quality[inside]])
    members = kept[front(kept)]
    widths = np.diff(np.append(members[:, 0], worst_cost))
    return float((widths * (members[:, 1] - worst_quality)).sum())


def areas_between(
    treatment: Sequence[ArrayLike], control: Sequence[ArrayLike], *, reference: tuple[float, float] | None = None
) -> Float[np.ndarray, " unit"]:
    """Dominated area of the treatment's front minus that of the control's, for each unit of analysis.

    Feed the result to :func:`~gnomon.evidence.contrasts.against_constant` with 0: positive means the treatment offers
    more quality at equal cost.

    Args:
        treatment: One set of points a unit (query, seed), each (points, 2): cost and quality.
        control: The control's sets, in the same order of units.
        reference: Worst cost and quality counted, the same for all units; by default the worst seen in any arm.

    Raises:
        ValueError: If the numbers of units differ, or a coordinate is not finite.
    """
    if len(treatment) != len(control) or not len(treatment):
        raise ValueError(f"fronts are compared by unit: treatment has {len(treatment)}, control {len(control)}")
    if reference is None:
        everything = np.vstack([finite(points, "points", dimensions=2) for points in (*treatment, *control)])
        reference = float(everything[:, 0].max()), float(everything[:, 1].min())
    return np.array(
        [
            dominated_area(ours, reference) - dominated_area(theirs, reference)
            for ours, theirs in zip(treatment, control, strict=True)
        ]
    )


def _columns(points: ArrayLike) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    array = finite(points, "points", dimensions=2)
    if array.shape[1] != 2:
        raise ValueError(f"points must have 2 columns, cost and quality, got shape {array.shape}")
    return array[:, 0], array[:, 1]
