r"""The controlled sequential learning problem: a state, a planner who sets signal precision, agents who follow.

A state :math:`\omega \in \{G, B\}` is fixed and unknown. Each round the planner picks a precision :math:`q`, everyone
sees it, one agent draws a private signal that is right with probability :math:`q`, and acts; everyone sees the action.
Beliefs are log-odds :math:`\ell = \operatorname{logit} b` and precisions are :math:`\lambda = \operatorname{logit} q`
throughout, because Bayes' rule is then addition and certainty (:math:`q = 1`) is an ordinary infinity.

Source: Arghal, He, Saeedi Bidokhti & Sarkar (2025), "Steering the Herd", arXiv 2504.02648, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from gnomon.society.planner.agents import AgentModel, BayesianAgent

Objective = Literal["altruistic", "biased"]

_COST_GRID = np.linspace(0.5, 1.0, 101)


@runtime_checkable
class Cost(Protocol):
    """Cost a round of precision ``q`` when ``p`` is free: zero at ``p``, finite, never negative."""

    def __call__(self, q: ArrayLike, p: float) -> NDArray[np.float64]:
        """Cost of each precision."""
        ...


@dataclass(frozen=True)
class LinearCost:
    r"""The paper's cost, :math:`\beta(q) = k\,|q - p|`.

    Raises:
        ValueError: If ``k`` is negative or not finite.
    """

    k: float

    def __post_init__(self) -> None:
        _require(math.isfinite(self.k) and self.k >= 0, "k", self.k, "a finite number >= 0")

    def __call__(self, q: ArrayLike, p: float) -> NDArray[np.float64]:
        """Cost of each precision."""
        return self.k * np.abs(np.asarray(q, dtype=float) - p)


@dataclass(frozen=True)
class PowerCost:
    r"""A convex cost, :math:`\beta(q) = k\,|q - p|^r` with :math:`r \ge 1`.

    Raises:
        ValueError: If ``k`` is negative or not finite, or ``r < 1``.
    """

    k: float
    r: float

    def __post_init__(self) -> None:
        _require(math.isfinite(self.k) and self.k >= 0, "k", self.k, "a finite number >= 0")
        _require(math.isfinite(self.r) and self.r >= 1, "r", self.r, "a finite number >= 1")

    def __call__(self, q: ArrayLike, p: float) -> NDArray[np.float64]:
        """Cost of each precision."""
        return self.k * np.abs(np.asarray(q, dtype=float) - p) ** self.r


@dataclass(frozen=True)
class CallableCost:
    """A user's own cost of a precision, a vectorised function of ``q`` alone.

    :class:`HerdModel` checks that it is finite, never negative, and zero at the model's ``p``.
    """

    function: Callable[[NDArray[np.float64]], ArrayLike]

    def __call__(self, q: ArrayLike, p: float) -> NDArray[np.float64]:  # noqa: ARG002 - the function knows its own p
        """Cost of each precision."""
        precision = np.asarray(q, dtype=float)
        return np.broadcast_to(np.asarray(self.function(precision), dtype=float), precision.shape).astype(float)


@dataclass(frozen=True)
class HerdModel:
    r"""One planner's problem: maximise :math:`E\sum_t \delta^t r_t`.

    Per round, an **altruistic** planner earns :math:`r = -\beta(q) - C\,P(a \ne \omega)` and pays only for precision
    above ``p``; a **biased** one, who wants action ``G``, earns :math:`r = -\beta(q) - C\,P(a = B)` and pays both ways.

    Args:
        p: Precision that costs nothing, in (1/2, 1).
        delta: Discount factor in [0, 1); 1 is allowed with a finite ``horizon``.
        cost: Cost of a round's precision.
        C: An agent's loss from a wrong action.
        objective: Whose welfare the planner pursues.
        q_min: Lowest precision the planner may choose (a transparency rule raises it).
        q_max: Highest precision the planner may choose.
        agent: How agents turn public belief and private signal into an action.
        horizon: Number of rounds; ``None`` for infinitely many.

    Raises:
        ValueError: If a value lies outside its range; the message names value and range.
    """

    p: float
    delta: float
    cost: Cost
    C: float = 1.0
    objective: Objective = "altruistic"
    q_min: float = 0.5
    q_max: float = 1.0
    agent: AgentModel = field(default_factory=BayesianAgent)
    horizon: int | None = None

    def __post_init__(self) -> None:
        _require(0.5 < self.p < 1, "p", self.p, "in (0.5, 1)")
        if self.horizon is None:
            _require(0 <= self.delta < 1, "delta", self.delta, "in [0, 1), or 1 with a finite horizon")
        else:
            _require(self.horizon >= 1, "horizon", self.horizon, "an integer >= 1")
            _require(0 <= self.delta <= 1, "delta", self.delta, "in [0, 1]")
        _require(math.isfinite(self.C) and self.C > 0, "C", self.C, "a finite number > 0")
        _require(self.objective in ("altruistic", "biased"), "objective", self.objective, "'altruistic' or 'biased'")
        _require(0.5 <= self.q_min <= self.p, "q_min", self.q_min, f"in [0.5, p] = [0.5, {self.p:g}]")
        _require(self.p <= self.q_max <= 1, "q_max", self.q_max, f"in [p, 1] = [{self.p:g}, 1]")
        costs = self.cost(_COST_GRID, self.p)
        if not (np.all(np.isfinite(costs)) and np.all(costs >= 0)):
            worst = _COST_GRID[~(np.isfinite(costs) & (costs >= 0))][0]
            raise ValueError(f"cost must be finite and >= 0 on [0.5, 1]; it is {self.cost(worst, self.p)} at q={worst}")
        if abs(float(self.cost(self.p, self.p))) > 1e-12:
            raise ValueError(f"cost must be zero at p={self.p:g}; it is {float(self.cost(self.p, self.p)):g}")

    @property
    def lam_p(self) -> float:
        """Log-odds of the free precision."""
        return float(logit(self.p))

    @property
    def lam_min(self) -> float:
        """Log-odds of the lowest allowed precision."""
        return float(logit(self.q_min))

    @property
    def lam_max(self) -> float:
        """Log-odds of the highest allowed precision; infinite when certainty is allowed."""
        return float(logit(self.q_max))

    @property
    def rounds_weight(self) -> float:
        r"""Total weight of all rounds, :math:`\sum_t \delta^t`; dividing by it gives per-round averages."""
        if self.horizon is None:
            return 1 / (1 - self.delta)
        return float(np.sum(self.delta ** np.arange(self.horizon, dtype=float)))

    def spend(self, q: ArrayLike) -> NDArray[np.float64]:
        """What the planner pays a round for precision ``q``; blurring is free for an altruistic planner."""
        precision = np.asarray(q, dtype=float)
        paid = self.cost(precision, self.p)
        return np.where(precision < self.p, 0.0, paid) if self.objective == "altruistic" else paid


def belief_logodds(b: ArrayLike) -> NDArray[np.float64]:
    """Log-odds of public beliefs; 0 and 1 become infinities.

    Raises:
        ValueError: If a belief is NaN or outside [0, 1].
    """
    belief = np.asarray(b, dtype=float)
    if not np.all((belief >= 0) & (belief <= 1)):
        wrong = np.atleast_1d(belief)[~np.atleast_1d((belief >= 0) & (belief <= 1))][0]
        raise ValueError(f"belief b must lie in [0, 1], got {wrong}")
    return logit(belief)


def precision_logodds(q: ArrayLike, model: HerdModel | None = None) -> NDArray[np.float64]:
    """Log-odds of precisions.

    Raises:
        ValueError: If a precision is NaN or outside [1/2, 1], or outside the model's allowed range.
    """
    low, high = (0.5, 1.0) if model is None else (model.q_min, model.q_max)
    precision = np.asarray(q, dtype=float)
    allowed = (precision >= low - 1e-12) & (precision <= high + 1e-12)
    if not np.all(allowed):
        wrong = np.atleast_1d(precision)[~np.atleast_1d(allowed)][0]
        raise ValueError(f"precision q must lie in [{low:g}, {high:g}], got {wrong}")
    return logit(np.clip(precision, low, high))


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
