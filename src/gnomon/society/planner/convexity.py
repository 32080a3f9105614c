r"""Is the value of information convex in belief? The defect is measured, never assumed.

The paper's Theorem 2 says the altruistic value is convex. Below ``p`` free signals keep agents responsive; right of
``p`` the planner must pay to be heard, a concave kink at :math:`b = p` and :math:`1 - p` that for a large cost becomes
the downward jump of the uncontrolled model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ConvexityDefect:
    r"""How far a function rises above its lower convex envelope.

    Args:
        defect: :math:`\max_b V(b) - \operatorname{env} V(b)`, zero for a convex function.
        belief: Where it is largest.
        relative: The defect as a share of the range of ``V``.
    """

    defect: float
    belief: float
    relative: float


def lower_envelope(beliefs: Floats, values: Floats) -> Floats:
    """The largest convex function below the points, at each belief; monotone chain, linear time.

    Args:
        beliefs: Increasing; the same belief may occur twice (a point and its one-sided limit).
        values: One a belief.

    Raises:
        ValueError: If the beliefs decrease or a value is not finite.
    """
    if np.any(np.diff(beliefs) < 0) or not np.all(np.isfinite(values)):
        raise ValueError("beliefs must not decrease and values must be finite")
    unique, start = np.unique(beliefs, return_index=True)
    lowest = np.minimum.reduceat(values, start)
    hull: list[int] = []
    for i in range(len(unique)):
        while len(hull) >= 2:
            a, c = hull[-2], hull[-1]
            turn = (unique[c] - unique[a]) * (lowest[i] - lowest[a]) - (lowest[c] - lowest[a]) * (unique[i] - unique[a])
            if turn > 0:
                break
            hull.pop()
        hull.append(i)
    return np.interp(beliefs, unique[hull], lowest[hull])


def convexity_defect(beliefs: Floats, values: Floats) -> ConvexityDefect:
    r"""The largest gap between a function and its lower convex envelope.

    >>> convexity_defect(np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.25, 0.0])).defect
    0.25
    """
    gap = values - lower_envelope(beliefs, values)
    worst = int(np.argmax(gap))
    spread = float(np.ptp(values))
    defect = max(float(gap[worst]), 0.0)
    return ConvexityDefect(defect, float(beliefs[worst]), defect / spread if spread > 0 else 0.0)
