r"""How far a policy is from another one, belief by belief. The paper leaves its "deviation" undefined; here are two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.society.planner.policies import Policy

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Deviation:
    r"""Distances of precisions :math:`q` from those of a reference, :math:`q^*`, one a belief.

    Args:
        beliefs: Where they were compared.
        of_range: :math:`|q - q^*| / \tfrac12`, the share of the range of precisions.
        relative: :math:`|q - q^*| / q^*`.
    """

    beliefs: Floats
    of_range: Floats
    relative: Floats

    def share_within(self, tolerance: float) -> float:
        """Share of the beliefs at which the policies are no further apart than that share of the range."""
        return float(np.mean(self.of_range <= tolerance))


def policy_deviation(policy: Policy, reference: Policy, beliefs: ArrayLike) -> Deviation:
    """Distances of a policy's precisions from a reference's.

    Args:
        policy: Any policy; a randomised one counts with its mean precision.
        reference: Usually the optimum.
        beliefs: Where to compare them.

    Raises:
        ValueError: If a belief is NaN or outside [0, 1].

    >>> from gnomon.society.planner.policies import FixedPolicy
    >>> policy_deviation(FixedPolicy(0.8), FixedPolicy(1.0), [0.3, 0.5]).of_range.round(3).tolist()
    [0.4, 0.4]
    """
    at = np.atleast_1d(np.asarray(beliefs, dtype=float))
    best = reference(at)
    apart = np.abs(policy(at) - best)
    return Deviation(at, apart / 0.5, apart / best)
