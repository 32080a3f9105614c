r"""A log-odds lattice on which the planner's useful moves land exactly, and those moves as a table.

With step :math:`h = \lambda_p / m` the free precision moves a belief by :math:`m` points, the least informative
revealing precision :math:`\lambda = |\ell|` moves it to 0 or :math:`2\ell`, and so on: nothing is interpolated. The
planner's optimum is often a supremum that no precision attains (blur to just below the public belief; reveal to just
above it), so one-sided limits are states of their own: 1/2-, 1/2+, p+ and (1-p)-, beside certainty at 0 and 1. The
values at 1/2 and 1/2+ typically differ by the size of the stakes; a lattice without them is wrong by O(h).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gnomon.society.planner.model import HerdModel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Move(IntEnum):
    """The planner's candidate precisions at a belief; ``INTERIOR`` are those found by the verify sweep."""

    BASELINE = 0
    PERFECT = 1
    MINIMAL = 2
    MINIMAL_ABOVE = 3
    OBFUSCATE = 4
    TO_P = 5
    TO_P_ABOVE = 6
    DOWN_TO_P = 7
    INTERIOR = 8


ALTRUISTIC_MOVES = (Move.BASELINE, Move.PERFECT, Move.MINIMAL)
BIASED_MOVES = tuple(move for move in Move if move is not Move.INTERIOR)


@dataclass(frozen=True)
class Lattice:
    """Points ``j * step`` for ``-n <= j <= n``, then the six atoms.

    Args:
        m: Points per free move, ``step = lam_p / m``.
        n: Points on each side of even odds.
        step: Distance of neighbouring points in log-odds.
    """

    m: int
    n: int
    step: float

    @classmethod
    def over(cls, model: HerdModel, m: int, reach: float) -> Lattice:
        """The lattice that covers log-odds up to ``reach`` (at least two free moves).

        Raises:
            ValueError: If ``m < 4`` or ``reach`` is not positive and finite.
        """
        if m < 4:
            raise ValueError(f"m must be >= 4 lattice points a free move, got {m}")
        if not (np.isfinite(reach) and reach > 0):
            raise ValueError(f"L must be a finite number > 0, got {reach}")
        step = model.lam_p / m
        return cls(m, max(2 * m, int(np.ceil(reach / step))), step)

    @property
    def points(self) -> int:
        """Number of lattice points."""
        return 2 * self.n + 1

    @property
    def size(self) -> int:
        """Number of states, atoms included."""
        return self.points + 6

    @property
    def zero(self) -> int:
        """State b = 0."""
        return self.points

    @property
    def p_below(self) -> int:
        """State just below 1 - p."""
        return self.points + 1

    @property
    def half_below(self) -> int:
        """State just below 1/2."""
        return self.points + 2

    @property
    def half_above(self) -> int:
        """State just above 1/2."""
        return self.points + 3

    @property
    def p_above(self) -> int:
        """State just above p."""
        return self.points + 4

    @property
    def one(self) -> int:
        """State b = 1."""
        return self.points + 5

    @property
    def position(self) -> Ints:
        """Lattice position of each state; certainty sits beyond the last point."""
        atoms = [-self.n - 1, -self.m, 0, 0, self.m, self.n + 1]
        return np.concatenate([np.arange(-self.n, self.n + 1), atoms])

    @property
    def side(self) -> Ints:
        """-1 or +1 for the one-sided states, else 0."""
        return np.concatenate([np.zeros(self.points, dtype=np.int64), [0, -1, -1, 1, 1, 0]])

    @property
    def logodds(self) -> Floats:
        """Public log-odds of each state, infinite at certainty."""
        values = (self.position * self.step).astype(np.float64)
        values[self.zero], values[self.one] = -np.inf, np.inf
        return values

    @property
    def order(self) -> Ints:
        """States sorted by belief, one-sided limits on their side of the point."""
        return np.lexsort((self.side, self.logodds))

    def state(self, position: Ints, side: Ints) -> Ints:
        """State at a lattice position approached from ``side``; positions beyond the lattice are clipped."""
        index = np.clip(position, -self.n, self.n) + self.n
        for at, toward, atom in (
            (0, -1, self.half_below),
            (0, 1, self.half_above),
            (self.m, 1, self.p_above),
            (-self.m, -1, self.p_below),
        ):
            index = np.where((position == at) & (np.sign(side) == toward), atom, index)
        return index


@dataclass(frozen=True)
class MoveTable:
    """Candidate moves of every state, one row a move; ``reward`` is ``-inf`` where a move is not available.

    Args:
        move: Which move each row is, ``[rows]``.
        reward: Planner's reward of the round, ``[rows, states]``.
        up: State after action G, ``[rows, states]``.
        down: State after action B.
        chance: P(action G) where the agent reveals its signal; where it does not, ``up == down``.
        lam: Precision in log-odds, the limit where it is one-sided.
    """

    move: Ints
    reward: Floats
    up: Ints
    down: Ints
    chance: Floats
    lam: Floats

    def extended(self, other: MoveTable) -> MoveTable:
        """This table with the rows of another below."""
        return MoveTable(
            *(
                np.concatenate([getattr(self, name), getattr(other, name)])
                for name in ("move", "reward", "up", "down", "chance", "lam")
            )
        )

    def value(self, values: Floats, delta: float) -> Floats:
        """One-step value of every move given next round's values, ``[rows, states]``."""
        return self.reward + delta * (self.chance * values[self.up] + (1 - self.chance) * values[self.down])


def move_table(model: HerdModel, lattice: Lattice) -> MoveTable:
    """The candidate moves whose endpoints suffice where the value is convex in belief.

    On the precisions that reveal the signal, the expected next value is the perspective of the value function, so it
    is convex in ``q`` where the value is convex in ``b``: with a cost linear on each side of ``p`` the best precision
    is an end of an interval.
    """
    moves = ALTRUISTIC_MOVES if model.objective == "altruistic" else BIASED_MOVES
    rows = [_move(model, lattice, move) for move in moves if move is not Move.PERFECT]
    if model.q_max == 1:
        rows.insert(1, _perfect(model, lattice))
    table = rows[0]
    for row in rows[1:]:
        table = table.extended(row)
    return table


def steps_table(model: HerdModel, lattice: Lattice, steps: Ints, available: NDArray[np.bool_]) -> MoveTable:
    """One row of precisions given as lattice steps, a step a state, where ``available``."""
    position = lattice.position
    return _row(model, lattice, Move.INTERIOR, steps, np.zeros_like(position), available)


def _move(model: HerdModel, lattice: Lattice, move: Move) -> MoveTable:
    position, side = lattice.position, lattice.side
    inside = np.abs(position) <= lattice.n
    # |l| of a one-sided state is approached from above: (1-p)- and p+ have |l| = lam_p+, 1/2+- have |l| = 0+.
    distance, beyond = np.abs(position), np.abs(side)
    match move:
        case Move.BASELINE:
            return _row(
                model, lattice, move, np.full_like(position, lattice.m), np.zeros_like(side), np.ones_like(inside)
            )
        case Move.MINIMAL:
            if model.objective == "biased":
                return _row(model, lattice, move, distance, beyond, inside)
            # Below p the altruistic planner's least informative revealing precision is p itself, which is free.
            return _row(model, lattice, move, distance, beyond, inside & (distance >= lattice.m))
        case Move.MINIMAL_ABOVE:
            return _row(model, lattice, move, distance, beyond + 1, inside)
        case Move.OBFUSCATE:
            favourable = (position > 0) | ((position == 0) & (side > 0))
            below_p = (position <= lattice.m) & ~((position == lattice.m) & (side > 0))
            # 1/2+ is already ignored by the precision 1/2 itself; elsewhere the precision stays just below the belief.
            return _row(model, lattice, move, distance, side - 1, inside & favourable & below_p)
        case Move.TO_P:
            return _row(model, lattice, move, lattice.m - position, -side, inside & (position <= lattice.m))
        case Move.TO_P_ABOVE:
            return _row(model, lattice, move, lattice.m - position, 1 - side, inside & (position <= lattice.m))
        case Move.DOWN_TO_P:
            return _row(model, lattice, move, position + lattice.m, side, inside & (position >= -lattice.m))
        case _:
            raise AssertionError(move)


def _perfect(model: HerdModel, lattice: Lattice) -> MoveTable:
    belief = expit(lattice.logodds)
    spend = float(model.spend(1.0))
    wrong = np.zeros_like(belief) if model.objective == "altruistic" else 1 - belief
    shape = (1, lattice.size)
    return MoveTable(
        np.array([Move.PERFECT]),
        (-spend - model.C * wrong)[None],
        np.full(shape, lattice.one),
        np.full(shape, lattice.zero),
        belief[None],
        np.full(shape, np.inf),
    )


def _row(
    model: HerdModel, lattice: Lattice, move: Move, steps: Ints, steps_side: Ints, available: NDArray[np.bool_]
) -> MoveTable:
    """A row of precisions ``steps * step``, approached from ``steps_side``, wherever that reveals the signal or not."""
    position, side = lattice.position, lattice.side
    lam = (steps * lattice.step).astype(np.float64)
    q, belief = expit(lam), expit(lattice.logodds)
    distance, beyond = np.abs(position), np.abs(side)
    certain = distance > lattice.n
    reveals = ~certain & ((steps > distance) | ((steps == distance) & (steps_side >= beyond)))
    too_low = (lam < model.lam_min - 1e-12) | ((np.abs(lam - model.lam_min) <= 1e-12) & (steps_side < 0))
    too_high = (lam > model.lam_max + 1e-12) | ((np.abs(lam - model.lam_max) <= 1e-12) & (steps_side > 0))
    may_herd = move in (Move.BASELINE, Move.OBFUSCATE, Move.INTERIOR)
    valid = available & ~too_low & ~too_high & (reveals | may_herd) & ~(reveals & (move == Move.OBFUSCATE))

    chance = np.where(reveals, q * belief + (1 - q) * (1 - belief), 0.0)
    up = np.where(reveals, lattice.state(position + steps, side + steps_side), np.arange(lattice.size))
    down = np.where(reveals, lattice.state(position - steps, side - steps_side), np.arange(lattice.size))
    if model.objective == "altruistic":
        loss = np.where(reveals, 1 - q, np.minimum(belief, 1 - belief))
    else:
        unfavourable = (position < 0) | ((position == 0) & (side < 0))
        loss = np.where(reveals, 1 - chance, unfavourable.astype(float))
    reward = np.where(valid, -model.spend(q) - model.C * loss, -np.inf)
    return MoveTable(np.array([move]), reward[None], up[None], down[None], chance[None], lam[None])
