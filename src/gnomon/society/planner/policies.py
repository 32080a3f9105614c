r"""Policies: from public belief to the precision of the next signal.

A policy's primary form is log-odds to log-odds, because :math:`\operatorname{logit}\sigma(\ell)` loses :math:`\ell` to
rounding and a planner's optimum sits exactly on such boundaries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from gnomon.society.planner.agents import TIE
from gnomon.society.planner.lattice import Move
from gnomon.society.planner.model import HerdModel, belief_logodds, precision_logodds

Floats = NDArray[np.float64]


class Policy(ABC):
    """A planner's rule. Subclasses give :meth:`precision`; randomised ones also :meth:`choices`."""

    @abstractmethod
    def precision(self, l: Floats) -> Floats:  # noqa: E741
        """Precision log-odds at each public log-odds."""

    def choices(self, l: Floats) -> tuple[Floats, Floats]:  # noqa: E741
        """Probabilities ``[k]`` and precision log-odds ``[k, states]`` of the precisions the policy may draw."""
        return np.ones(1), self.precision(l)[None]

    def __call__(self, b: ArrayLike) -> Floats:
        """Precision ``q`` at each public belief.

        Raises:
            ValueError: If a belief is NaN or outside [0, 1].
        """
        return expit(self.precision(belief_logodds(b)))


@dataclass(frozen=True)
class FixedPolicy(Policy):
    """The same precision at every belief.

    Raises:
        ValueError: If ``q`` is outside [1/2, 1].
    """

    q: float

    def __post_init__(self) -> None:
        precision_logodds(self.q)

    def precision(self, l: Floats) -> Floats:  # noqa: E741
        """Precision log-odds at each public log-odds."""
        return np.full(np.shape(l), float(logit(self.q)))


@dataclass(frozen=True)
class CallablePolicy(Policy):
    """A user's own vectorised function from belief to precision.

    Raises:
        ValueError: On use, if the function leaves [1/2, 1].
    """

    function: Callable[[Floats], ArrayLike]

    def precision(self, l: Floats) -> Floats:  # noqa: E741
        """Precision log-odds at each public log-odds."""
        belief = expit(np.asarray(l, dtype=float))
        return precision_logodds(np.broadcast_to(np.asarray(self.function(belief), dtype=float), belief.shape))


@dataclass(frozen=True)
class InterpolatedPolicy(Policy):
    """Precisions reported at some beliefs, linear between them and constant beyond: how an LLM's answers are read.

    Raises:
        ValueError: If the beliefs are not increasing or a value is out of range.
    """

    beliefs: tuple[float, ...]
    precisions: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.beliefs) != len(self.precisions) or np.any(np.diff(self.beliefs) <= 0):
            raise ValueError(
                f"beliefs must increase and match the precisions, got {self.beliefs} and {self.precisions}"
            )
        belief_logodds(self.beliefs)
        precision_logodds(self.precisions)

    def precision(self, l: Floats) -> Floats:  # noqa: E741
        """Precision log-odds at each public log-odds."""
        return logit(np.interp(expit(np.asarray(l, dtype=float)), self.beliefs, self.precisions))


@dataclass(frozen=True)
class RandomPolicy(Policy):
    """A coin between ``p - spread`` and ``p + spread`` each round, clipped to [1/2, 1]: effort without direction.

    It spends the same in expectation at every belief, so it can match another planner's spend exactly.

    Args:
        p: The free precision.
        spread: Distance of the two precisions from it.
        high: Probability of the higher one.

    Raises:
        ValueError: If a value is out of range.
    """

    p: float
    spread: float
    high: float = 0.5

    def __post_init__(self) -> None:
        if not (0.5 < self.p < 1 and 0 <= self.spread <= 0.5 and 0 <= self.high <= 1):
            raise ValueError(f"need p in (0.5, 1), spread in [0, 0.5] and high in [0, 1], got {self!r}")

    @classmethod
    def matching(cls, model: HerdModel, spend: float) -> RandomPolicy:
        """The random policy that spends ``spend`` a round in expectation under the model's cost.

        The coin is fair; if even a fair coin between 1/2 and 1 spends less, it leans to the dearer of the two.

        Raises:
            ValueError: If no precision costs that much.
        """

        def costs(spread: float) -> Floats:
            return model.cost(_two_sided(model.p, spread), model.p)

        low, high = costs(0.5)
        if spend > max(low, high) + 1e-12:
            raise ValueError(f"the dearest precision costs {max(low, high):.4g} a round, less than {spend:.4g}")
        if spend <= 0:
            return cls(model.p, 0.0)
        if spend <= (low + high) / 2:
            spread = brentq(lambda x: float(np.mean(costs(x))) - spend, 0.0, 0.5, xtol=1e-12)
            return cls(model.p, float(spread))  # pyright: ignore[reportArgumentType]
        return cls(model.p, 0.5, high=float(np.clip((spend - low) / (high - low), 0, 1)))

    def precision(self, l: Floats) -> Floats:  # noqa: E741
        """Log-odds of the mean precision; :meth:`choices` has the two values."""
        mean = np.array([1 - self.high, self.high]) @ _two_sided(self.p, self.spread)
        return np.full(np.shape(l), float(logit(mean)))

    def choices(self, l: Floats) -> tuple[Floats, Floats]:  # noqa: E741
        """The two precisions and their probabilities."""
        both = logit(_two_sided(self.p, self.spread))
        return np.array([1 - self.high, self.high]), np.broadcast_to(both[:, None], (2, np.size(l)))


@dataclass(frozen=True)
class LatticePolicy(Policy):
    r"""An optimal policy read off the lattice: a rule for each interval of beliefs, open or closed as it must be.

    Between lattice points the rule of the nearer one applies, never across 1/2, p or 1-p, and the one-sided states
    speak for the beliefs beside them: looking up :math:`1/2 + 10^{-6}` as 1/2 turns a favourable cascade into a coin
    flip. Suprema are approached within ``epsilon`` in log-odds.
    """

    model: HerdModel
    logodds: Floats
    side: NDArray[np.int64]
    moves: NDArray[np.int64]
    lam: Floats
    epsilon: float = 4e-6
    _finite: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # searchsorted needs the one-sided states apart from their points, by less than any belief that is not a tie.
        object.__setattr__(self, "_finite", self.logodds + TIE * self.side)

    def precision(self, l: Floats) -> Floats:  # noqa: E741
        """Precision log-odds at each public log-odds."""
        belief = np.atleast_1d(np.asarray(l, dtype=float))
        right = np.clip(np.searchsorted(self._finite, belief), 1, len(self._finite) - 1)
        left = right - 1
        with np.errstate(invalid="ignore"):
            to_right = self._finite[right] - belief < belief - self._finite[left]
        near, far = np.where(to_right, right, left), np.where(to_right, left, right)
        # A point itself, reached by addition, is that point although it is off by rounding.
        exact = np.flatnonzero(self.side == 0)
        at = exact[np.clip(np.searchsorted(self.logodds[exact], belief - TIE), 0, len(exact) - 1)]
        with np.errstate(invalid="ignore"):
            on_point = (belief == self.logodds[at]) | (np.abs(belief - self.logodds[at]) <= TIE)
        near = np.where(on_point, at, near)
        lam, works = self._rule(near, belief)
        if not works.all():
            other, other_works = self._rule(far, belief)
            lam = np.where(works, lam, np.where(other_works, other, self.model.lam_p))
        return lam.reshape(np.shape(l))

    def _rule(self, node: NDArray[np.int64], belief: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """The precision a node's move means at a belief near it, and whether it still does what it did there."""
        move, distance, lam_p = self.moves[node], np.abs(belief), self.model.lam_p
        with np.errstate(invalid="ignore"):
            lam = np.select(
                [move == kind for kind in Move],
                [
                    np.full_like(belief, lam_p),
                    np.full_like(belief, np.inf),
                    distance,
                    distance + self.epsilon,
                    np.maximum(distance - self.epsilon, 0.0),
                    lam_p - belief,
                    lam_p - belief + self.epsilon,
                    belief + lam_p,
                    self.lam[node],
                ],
            )
        reveals_there = self.lam[node] >= np.abs(self.logodds[node]) - TIE
        must_reveal = (move != Move.BASELINE) & (move != Move.OBFUSCATE) & reveals_there
        works = ~must_reveal | (lam >= distance - TIE)
        return np.clip(lam, self.model.lam_min, self.model.lam_max), works


def _two_sided(p: float, spread: float) -> Floats:
    return np.clip(np.array([p - spread, p + spread]), 0.5, 1.0)
