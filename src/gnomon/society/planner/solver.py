r"""Optimal planners: policy iteration on the lattice, checked by a Bellman sweep over every precision.

.. math:: V(b) = \max_{q} \; r(b, q) + \delta\, E[V(b') \mid b, q]

The candidate moves of :mod:`~gnomon.society.planner.lattice` suffice where the value is convex. It is not always (see
:mod:`~gnomon.society.planner.convexity`), and a convex cost has interior optima, so a sweep over all lattice
precisions verifies the answer: every state where one improves on the candidates by more than ``verify_tol`` gets it
as an extra move and the iteration resumes.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.sparse.linalg import spsolve
from scipy.special import expit

from gnomon.society.planner.agents import BayesianAgent
from gnomon.society.planner.grid import solve_belief_grid
from gnomon.society.planner.lattice import Lattice, MoveTable, move_table, steps_table
from gnomon.society.planner.model import HerdModel
from gnomon.society.planner.solution import ConvergenceError, Solution

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Method = Literal["endpoint", "lattice", "qgrid"]

VERIFY_ROUNDS = 20


def solve(
    model: HerdModel,
    method: Method = "endpoint",
    *,
    m: int = 40,
    L: float = 16.0,
    tol: float = 1e-10,
    verify: bool = True,
    verify_tol: float = 1e-6,
    max_iter: int = 10_000,
) -> Solution:
    r"""The optimal policy for Bayesian agents over an infinite horizon.

    Args:
        model: The problem.
        method: ``endpoint`` is policy iteration over candidate moves plus verification; ``lattice`` is value
            iteration over every lattice precision, the slow reference; ``qgrid`` is the naive belief grid with linear
            interpolation (1001 beliefs, 201 precisions), kept as the yardstick.
        m: Lattice points per free move.
        L: Log-odds covered; clipping there errs by at most :math:`C e^{-L} / (1 - \delta)`.
        tol: Sup-norm accuracy of the value on the lattice.
        verify: Whether ``endpoint`` runs the verify sweep.
        verify_tol: Improvement that the sweep must find to add a move.
        max_iter: Iterations before giving up.

    Raises:
        ValueError: If the model has a finite horizon (see :func:`solve_rounds`) or agents that are not Bayesian
            (see :func:`~gnomon.society.planner.grid.solve_aware`).
        ConvergenceError: If ``max_iter`` does not suffice; it carries the residual.
    """
    if model.horizon is not None:
        raise ValueError(f"solve takes an infinite horizon, got horizon={model.horizon}; use solve_rounds")
    _require_bayesian(model)
    if method == "qgrid":
        return solve_belief_grid(model, tol=tol, max_iter=max_iter)
    lattice = Lattice.over(model, m, L)
    table = move_table(model, lattice)
    if method == "lattice":
        return _value_iteration(model, lattice, table, tol=tol, max_iter=max_iter)
    chosen = np.zeros(lattice.size, dtype=np.int64)
    values, chosen, iterations = _policy_iteration(model, table, chosen, tol=tol, max_iter=max_iter)
    added = 0
    for _ in range(VERIFY_ROUNDS if verify else 0):
        best, steps = best_steps(model, lattice, values)
        improves = best > values[: lattice.points] + verify_tol
        if not improves.any():
            break
        added += int(improves.sum())
        table = table.extended(_extra_row(model, lattice, steps, improves))
        chosen = np.where(np.append(improves, np.zeros(6, dtype=bool)), len(table.move) - 1, chosen)
        values, chosen, more = _policy_iteration(model, table, chosen, tol=tol, max_iter=max_iter)
        iterations += more
    residual = float(np.max(np.abs(table.value(values, model.delta).max(axis=0) - values)))
    return _solution(model, lattice, table, values, chosen, iterations, residual, added)


def solve_rounds(model: HerdModel, *, m: int = 40, L: float = 16.0) -> list[Solution]:
    """Optimal policies of a finite horizon, one a round from first to last, by exact backward recursion.

    Every lattice precision is tried in every round, beside the candidate moves.

    Raises:
        ValueError: If the model has no horizon or its agents are not Bayesian.
    """
    if model.horizon is None:
        raise ValueError("solve_rounds takes a finite horizon; set HerdModel(horizon=...)")
    _require_bayesian(model)
    lattice = Lattice.over(model, m, L)
    table = move_table(model, lattice)
    values = np.zeros(lattice.size)
    rounds: list[Solution] = []
    for left in range(1, model.horizon + 1):
        new_values, chosen, swept = _sweep(model, lattice, table, values)
        now = dataclasses.replace(model, horizon=left)
        rounds.append(_solution(now, lattice, swept, new_values, chosen, left, 0.0, 0))
        values = new_values
    return rounds[::-1]


def best_steps(model: HerdModel, lattice: Lattice, values: Floats) -> tuple[Floats, Ints]:
    r"""One Bellman sweep over all lattice precisions: the best one-step value of every lattice point, and its steps.

    Precisions below ``p`` are included for both planners. Cost :math:`O(n^2)` in slices, without gathers.
    """
    n, points = lattice.n, lattice.points
    position = np.arange(-n, n + 1)
    belief = expit(position * lattice.step)
    plain = values[:points]
    padded = np.concatenate([np.full(n, plain[0]), plain, np.full(n, plain[-1])])
    all_steps = np.arange(n + 1)
    lam = all_steps * lattice.step
    allowed = (lam >= model.lam_min - 1e-12) & (lam <= model.lam_max + 1e-12)
    q = expit(lam)
    spend = model.spend(q)
    best, steps = _best_ignored(model, lattice, plain, spend, allowed)
    for i in all_steps[allowed]:
        inner = slice(n - i, n + i + 1)
        chance = q[i] * belief[inner] + (1 - q[i]) * (1 - belief[inner])
        up, down = padded[n + n : n + n + 2 * i + 1], padded[n + n - 2 * i : n + n + 1]
        loss = 1 - q[i] if model.objective == "altruistic" else 1 - chance
        value = -spend[i] - model.C * loss + model.delta * (chance * up + (1 - chance) * down)
        better = value > best[inner]
        best[inner] = np.where(better, value, best[inner])
        steps[inner] = np.where(better, i, steps[inner])
    return best, steps


def _best_ignored(
    model: HerdModel, lattice: Lattice, plain: Floats, spend: Floats, allowed: NDArray[np.bool_]
) -> tuple[Floats, Ints]:
    """The cheapest precision that each lattice point's agents ignore, and its value; ``-inf`` where there is none."""
    n = lattice.n
    price = np.where(allowed, spend, np.inf)
    cheapest = np.minimum.accumulate(price)
    at = np.maximum.accumulate(np.where(price <= cheapest, np.arange(n + 1), 0))
    position = np.arange(-n, n + 1)
    below = np.maximum(np.abs(position) - 1, 0)
    belief = expit(position * lattice.step)
    loss = np.minimum(belief, 1 - belief) if model.objective == "altruistic" else (position < 0).astype(float)
    value = -cheapest[below] - model.C * loss + model.delta * plain
    return np.where(position == 0, -np.inf, value), at[below]


def _extra_row(model: HerdModel, lattice: Lattice, steps: Ints, improves: NDArray[np.bool_]) -> MoveTable:
    """A row with the sweep's finds; one-sided states may use the precision found for the point they belong to."""
    beside = np.clip(lattice.position[lattice.points :], -lattice.n, lattice.n) + lattice.n
    return steps_table(
        model, lattice, np.concatenate([steps, steps[beside]]), np.concatenate([improves, improves[beside]])
    )


def _sweep(model: HerdModel, lattice: Lattice, table: MoveTable, values: Floats) -> tuple[Floats, Ints, MoveTable]:
    """A Bellman backup over candidate moves and all lattice precisions; the table gains the latter as a row."""
    candidates = table.value(values, model.delta)
    best, steps = best_steps(model, lattice, values)
    improves = best > candidates.max(axis=0)[: lattice.points] + 1e-13
    full = table.extended(_extra_row(model, lattice, steps, improves))
    all_values = full.value(values, model.delta)
    chosen = all_values.argmax(axis=0)
    return all_values.max(axis=0), chosen, full


def _value_iteration(model: HerdModel, lattice: Lattice, table: MoveTable, *, tol: float, max_iter: int) -> Solution:
    values = np.full(
        lattice.size, -(model.C + float(np.max(model.spend(np.linspace(0.5, 1, 101))))) / (1 - model.delta)
    )
    stop = tol * (1 - model.delta) / (2 * model.delta) if model.delta > 0 else np.inf
    change = np.inf
    for iteration in range(1, max_iter + 1):
        new_values, chosen, full = _sweep(model, lattice, table, values)
        change = float(np.max(np.abs(new_values - values)))
        values = new_values
        if change <= stop:
            return _solution(model, lattice, full, values, chosen, iteration, change, 0)
    raise ConvergenceError(f"value iteration did not converge in {max_iter} iterations", residual=change)


def _policy_iteration(
    model: HerdModel, table: MoveTable, chosen: Ints, *, tol: float, max_iter: int
) -> tuple[Floats, Ints, int]:
    size = table.reward.shape[1]
    states = np.arange(size)
    improvement = np.inf
    for iteration in range(1, max_iter + 1):
        chance = table.chance[chosen, states]
        transition = sparse.csc_matrix(
            (
                np.concatenate([chance, 1 - chance]),
                (np.tile(states, 2), np.concatenate([table.up[chosen, states], table.down[chosen, states]])),
            ),
            shape=(size, size),
        )
        system = sparse.csc_matrix(sparse.identity(size, format="csc") - model.delta * transition)
        values = np.asarray(spsolve(system, table.reward[chosen, states]))
        q_values = table.value(values, model.delta)
        gain = q_values.max(axis=0) - q_values[chosen, states]
        improvement = float(gain.max())
        if improvement <= tol * (1 - model.delta):
            return values, chosen, iteration
        # Keep the current move on ties: two equally good moves would otherwise alternate for ever.
        chosen = np.where(gain > 1e-13, q_values.argmax(axis=0), chosen)
    raise ConvergenceError(f"policy iteration did not converge in {max_iter} iterations", residual=improvement)


def _solution(
    model: HerdModel,
    lattice: Lattice,
    table: MoveTable,
    values: Floats,
    chosen: Ints,
    iterations: int,
    residual: float,
    added: int,
) -> Solution:
    order, states = lattice.order, np.arange(lattice.size)
    return Solution(
        model=model,
        m=lattice.m,
        logodds=lattice.logodds[order],
        side=lattice.side[order],
        values=values[order],
        moves=table.move[chosen][order],
        lam=table.lam[chosen, states][order],
        iterations=iterations,
        residual=residual,
        n_added=added,
    )


def _require_bayesian(model: HerdModel) -> None:
    if not isinstance(model.agent, BayesianAgent):
        raise ValueError(f"the lattice is exact for Bayesian agents only, got {model.agent!r}; use solve_aware")
