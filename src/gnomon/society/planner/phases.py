r"""Operating phases of a policy, computed from what it does, and the paper's two theorems about their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gnomon.society.planner.agents import TIE
from gnomon.society.planner.lattice import Move
from gnomon.society.planner.model import HerdModel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Kind = Literal["none", "max", "increasing", "decreasing", "raised", "obf_block", "obf_min"]

_FLAT = 1e-9


@dataclass(frozen=True)
class Phase:
    """A maximal interval of beliefs on which the policy does one thing.

    Args:
        kind: ``none`` (q = p), ``max`` (q = 1), ``increasing`` / ``decreasing`` / ``raised`` (q > p, by its slope in
            belief), ``obf_block`` (q < p and agents ignore the signal), ``obf_min`` (q < p, they still follow it).
        move: The move behind it.
        b_low: Lower end.
        b_high: Upper end.
        q_low: Precision at the lower end, the limit where it is one-sided.
        q_high: Precision at the upper end.
        closed: Whether each end belongs to the phase; an end at a one-sided limit does not.
        states: Lattice states in it.
        mixed: Whether it is too narrow to count as a phase of its own.
    """

    kind: Kind
    move: Move
    b_low: float
    b_high: float
    q_low: float
    q_high: float
    closed: tuple[bool, bool]
    states: int
    mixed: bool

    def __str__(self) -> str:
        left, right = "[" if self.closed[0] else "(", "]" if self.closed[1] else ")"
        return f"{left}{self.b_low:.3f}, {self.b_high:.3f}{right} {self.kind} q {self.q_low:.3f} -> {self.q_high:.3f}"


@dataclass(frozen=True)
class Conformity:
    """Whether a policy has the structure a theorem states, and the first interval that does not fit."""

    conforms: bool
    violation: Phase | None = None


def phases(
    logodds: Floats, side: Ints, moves: Ints, lam: Floats, model: HerdModel, *, min_width: int = 2
) -> list[Phase]:
    """Phases of a policy given state by state, beliefs in increasing order.

    The ends b = 0 and 1 join their neighbours: nothing is at stake there and every move ties.
    """
    inner = np.isfinite(logodds)
    logodds, side, moves, lam = logodds[inner], side[inner], moves[inner], lam[inner]
    precision, beliefs = expit(lam), expit(logodds)
    blocks = lam < np.abs(logodds) - TIE
    blocks |= (np.abs(lam - np.abs(logodds)) <= TIE) & (moves == Move.OBFUSCATE)
    # Two moves may mean one precision (all precisions are p at b = p): what counts is the precision.
    family = np.where(np.abs(precision - model.p) <= _FLAT, int(Move.BASELINE), moves)
    family = np.where((family != Move.BASELINE) & np.isinf(lam), int(Move.PERFECT), family)
    family = np.where(family == Move.MINIMAL_ABOVE, int(Move.MINIMAL), family)
    family = np.where(family == Move.TO_P_ABOVE, int(Move.TO_P), family)
    region = np.sign(precision - model.p) * (family != Move.BASELINE) + 3 * blocks * (precision < model.p - _FLAT)
    # |b - 1/2| turns at one half, so a minimal precision falls before it and rises after it.
    turn = np.where(family == Move.MINIMAL, np.sign(logodds) * 10, 0)
    turn = np.where((turn == 0) & (family == Move.MINIMAL), 10 * np.where(side < 0, -1, 1), turn)
    code = family * 1000 + region + turn
    starts = np.flatnonzero(np.append(True, np.diff(code) != 0))
    ends = np.append(starts[1:], len(code)) - 1
    found: list[Phase] = []
    for first, last in zip(starts, ends, strict=True):
        # One-sided limits are no width: a phase that holds at a point and its limits is one state wide.
        states = int(np.sum(side[first : last + 1] == 0))
        found.append(
            Phase(
                kind=_kind(Move(int(family[first])), precision[first : last + 1], bool(blocks[first]), model.p),
                move=Move(int(family[first])),
                b_low=float(beliefs[first]),
                b_high=float(beliefs[last]),
                q_low=float(precision[first]),
                q_high=float(precision[last]),
                closed=(bool(side[first] <= 0), bool(side[last] >= 0)),
                states=states,
                mixed=states < min_width,
            )
        )
    return found


def _kind(move: Move, precision: Floats, blocks: bool, p: float) -> Kind:
    if move is Move.BASELINE:
        return "none"
    if move is Move.PERFECT:
        return "max"
    if precision.mean() < p:
        return "obf_block" if blocks else "obf_min"
    slope = precision[-1] - precision[0]
    if abs(slope) <= _FLAT:
        return "raised"
    return "increasing" if slope > 0 else "decreasing"


def sequence(found: list[Phase]) -> str:
    """Kinds of the phases that count, in order: the identity of a phase diagram's cell."""
    kept = [phase.kind for phase in found if not phase.mixed]
    return ",".join(kind for i, kind in enumerate(kept) if i == 0 or kind != kept[i - 1])


def conforms_altruistic(found: list[Phase], p: float, *, slack: float) -> Conformity:
    r"""Theorem 3: from even odds outwards certainty, then :math:`\max(b, 1-b)`, then ``p``; each may be empty.

    The middle precision is read as :math:`\max(b, 1-b, p)`, which is ``p`` itself for beliefs between 1-p and p. Ends
    of phases may be off by ``slack`` in belief, the width of the lattice there.
    """
    upper = [phase for phase in found if phase.b_high > 0.5 and not phase.mixed]
    stage = 0
    for position, phase in enumerate(upper):
        minimal_later = any(later.move is Move.MINIMAL for later in upper[position + 1 :])
        if phase.kind == "max":
            expected = 0
        elif phase.kind == "none" and minimal_later:
            expected = 1 if phase.b_low <= p and phase.b_high <= p + slack else -1
        elif phase.move is Move.MINIMAL:
            expected = 1
        elif phase.kind == "none":
            expected = 2
        else:
            expected = -1
        if expected < stage:
            return Conformity(False, phase)
        stage = expected
    return Conformity(True)


def conforms_biased(found: list[Phase], p: float, *, slack: float) -> Conformity:
    r"""Theorem 5: ``p``; raised up to 1-p; least revealing up to 1/2; raised; blurred up to ``p``; then ``p``.

    Each phase may be empty. Below 1-p and between 1/2 and the blur anything above ``p`` counts as raised. Ends of
    phases may be off by ``slack`` in belief.
    """
    stage = 0
    stages: list[tuple[float, float, frozenset[str]]] = [
        (0.0, 1 - p, frozenset({"none"})),
        (0.0, 1 - p, frozenset({"max", "increasing", "decreasing", "raised"})),
        (1 - p, 0.5, frozenset({"obf_min"})),
        (0.5, p, frozenset({"max", "increasing", "decreasing", "raised"})),
        (0.5, p, frozenset({"obf_block"})),
        (p, 1.0, frozenset({"none"})),
    ]
    for phase in found:
        if phase.mixed:
            continue
        fits = [
            index
            for index, (low, high, kinds) in enumerate(stages)
            if index >= stage and phase.kind in kinds and phase.b_low >= low - slack and phase.b_high <= high + slack
        ]
        if not fits:
            return Conformity(False, phase)
        stage = fits[0]
    return Conformity(True)


def threshold(found: list[Phase], kinds: frozenset[str]) -> float:
    """Lowest belief at which a phase of these kinds begins; 0.5 if none does below even odds."""
    starts = [phase.b_low for phase in found if phase.kind in kinds and phase.b_low < 0.5]
    return min(starts, default=0.5)
