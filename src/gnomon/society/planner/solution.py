"""A solved planner: values, policy, phases and convexity defect, with a JSON form that needs no pickle to reload."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from gnomon.society.planner.agents import TIE
from gnomon.society.planner.convexity import ConvexityDefect, convexity_defect
from gnomon.society.planner.lattice import Move
from gnomon.society.planner.model import HerdModel, LinearCost, PowerCost, belief_logodds
from gnomon.society.planner.phases import Phase, phases
from gnomon.society.planner.policies import LatticePolicy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SCHEMA_VERSION = 1


class ConvergenceError(RuntimeError):
    """An iteration did not reach its tolerance; ``residual`` is where it stopped."""

    def __init__(self, message: str, *, residual: float) -> None:
        super().__init__(f"{message}; residual {residual:.3g}")
        self.residual = residual


@dataclass(frozen=True, eq=False)
class Solution:
    """Values and moves at beliefs sorted from 0 to 1, one-sided limits beside their points.

    Args:
        model: The problem solved.
        m: Lattice points per free move; 0 for a belief grid.
        logodds: Public log-odds of the states, ``[states]``.
        side: -1 or +1 for one-sided limits, else 0.
        values: Optimal discounted value.
        moves: :class:`~gnomon.society.planner.lattice.Move` of each state.
        lam: Precision in log-odds; the limit where the optimum is a supremum.
        iterations: Iterations used.
        residual: Bellman residual in sup norm.
        n_added: State-precision pairs that the verify sweep added.
    """

    model: HerdModel
    m: int
    logodds: Floats
    side: Ints
    values: Floats
    moves: Ints
    lam: Floats
    iterations: int
    residual: float
    n_added: int

    @property
    def beliefs(self) -> Floats:
        """Public beliefs of the states."""
        return expit(self.logodds)

    @property
    def policy(self) -> LatticePolicy:
        """The optimal policy at any belief."""
        return LatticePolicy(self.model, self.logodds, self.side, self.moves, self.lam)

    def q(self, b: ArrayLike) -> Floats:
        """Optimal precision at each belief."""
        return self.policy(b)

    def V(self, b: ArrayLike) -> Floats:
        """Optimal value at each belief; between states linear in belief, never across 1/2, p or 1-p.

        Raises:
            ValueError: If a belief is NaN or outside [0, 1].
        """
        wanted = belief_logodds(b)
        belief = np.atleast_1d(np.asarray(b, dtype=float))
        flat = np.atleast_1d(wanted)
        exact = np.flatnonzero(self.side == 0)
        at = exact[np.clip(np.searchsorted(self.logodds[exact], flat - TIE), 0, len(exact) - 1)]
        with np.errstate(invalid="ignore"):
            on_point = (flat == self.logodds[at]) | (np.abs(flat - self.logodds[at]) <= TIE)
        right = np.clip(np.searchsorted(self.logodds + TIE * self.side, flat), 1, len(self.logodds) - 1)
        low, high = self.beliefs[right - 1], self.beliefs[right]
        share = np.where(high > low, (belief - low) / np.where(high > low, high - low, 1.0), 0.0)
        between = (1 - share) * self.values[right - 1] + share * self.values[right]
        return np.where(on_point, self.values[at], between).reshape(np.shape(b))

    def just_above(self, b: float) -> float:
        """The limit of the value from above at 1/2 or p.

        Raises:
            ValueError: If the lattice keeps no one-sided limit there.
        """
        wanted = float(belief_logodds(b))
        found = np.flatnonzero((self.side > 0) & (np.abs(self.logodds - wanted) <= TIE))
        if not len(found):
            raise ValueError(f"one-sided values are kept at 1/2 and p={self.model.p:g}, got b={b}")
        return float(self.values[found[0]])

    def phases(self, *, min_width: int = 2) -> list[Phase]:
        """Operating phases from b = 0 to 1; those narrower than ``min_width`` states are marked ``mixed``."""
        return phases(self.logodds, self.side, self.moves, self.lam, self.model, min_width=min_width)

    def convexity_defect(self) -> ConvexityDefect:
        """How far the value rises above its lower convex envelope, and where."""
        return convexity_defect(self.beliefs, self.values)

    def to_frame(self) -> pd.DataFrame:
        """One row a state: belief, side, value, precision, move."""
        return pd.DataFrame(
            {
                "belief": self.beliefs,
                "side": self.side,
                "value": self.values,
                "precision": expit(self.lam),
                "move": [Move(move).name.lower() for move in self.moves],
            }
        )

    def to_json(self) -> str:
        """The solution as JSON; infinities are strings.

        Raises:
            ValueError: If the cost is a Python function, which JSON cannot hold.
        """
        cost = self.model.cost
        if not isinstance(cost, LinearCost | PowerCost):
            raise ValueError(f"only LinearCost and PowerCost can be stored as JSON, got {cost!r}")
        model = self.model
        return json.dumps(
            {
                "schema": SCHEMA_VERSION,
                "model": {
                    **{
                        name: getattr(model, name)
                        for name in ("p", "delta", "C", "objective", "q_min", "q_max", "horizon")
                    },
                    "k": cost.k,
                    "r": cost.r if isinstance(cost, PowerCost) else None,
                },
                **{name: getattr(self, name) for name in ("m", "iterations", "residual", "n_added")},
                **{name: [str(x) for x in getattr(self, name)] for name in ("logodds", "lam")},
                **{name: getattr(self, name).tolist() for name in ("side", "values", "moves")},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Solution:
        """Rebuild a stored solution.

        Raises:
            ValueError: If the schema is not ours.
        """
        stored = json.loads(text)
        if stored.get("schema") != SCHEMA_VERSION:
            raise ValueError(f"solution has schema {stored.get('schema')!r}, this gnomon reads {SCHEMA_VERSION}")
        fields = dict(stored["model"])
        k, r = fields.pop("k"), fields.pop("r")
        model = HerdModel(cost=LinearCost(k) if r is None else PowerCost(k, r), **fields)
        numbers = {name: np.array(stored[name], dtype=np.float64) for name in ("logodds", "lam", "values")}
        labels = {name: np.array(stored[name], dtype=np.int64) for name in ("side", "moves")}
        counts = {name: stored[name] for name in ("m", "iterations", "residual", "n_added")}
        fields_of_solution: dict[str, Any] = {**numbers, **labels, **counts}
        return cls(model=model, **fields_of_solution)

    def __repr__(self) -> str:
        model = self.model
        return (
            f"Solution({model.objective}, p={model.p:g}, delta={model.delta:g}, {len(self.values)} states, "
            f"{self.iterations} iterations, residual {self.residual:.1e})"
        )
