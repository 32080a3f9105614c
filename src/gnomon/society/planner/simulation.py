r"""Simulated populations: many runs of one planner at once, with common random numbers across planners."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gnomon.society.planner.agents import AgentModel, Update
from gnomon.society.planner.belief_table import BeliefTable, Cells
from gnomon.society.planner.model import HerdModel, belief_logodds
from gnomon.society.planner.policies import Policy

Floats = NDArray[np.float64]
Signs = NDArray[np.int8]

_CELLS = 1 << 16
"""Cells after which beliefs that no run is at any more are forgotten: noisy agents reach new ones in every round."""


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Runs in rows, rounds in columns: where each run was, what was signalled and done; the rest is looked up there.

    Args:
        good: Whether each run's state is G, ``[runs]``.
        at: Cell of each round, ``[runs, rounds]``.
        signal_good: Whether the signal was G.
        action_good: Whether the action was.
        cells: Belief, precision and cost of the cells.
        C: An agent's loss from a wrong action.
        off_path_actions: Actions the public held impossible, over all runs.
    """

    good: NDArray[np.bool_]
    at: NDArray[np.int32]
    signal_good: NDArray[np.bool_]
    action_good: NDArray[np.bool_]
    cells: Cells
    C: float
    off_path_actions: int

    @property
    def shape(self) -> tuple[int, int]:
        """Runs and rounds."""
        return self.at.shape[0], self.at.shape[1]

    @cached_property
    def b(self) -> Floats:
        """Public belief before each round."""
        return self.cells.belief[self.at]

    @cached_property
    def q(self) -> Floats:
        """Precision of each round."""
        return self.cells.q[self.at]

    @cached_property
    def cost(self) -> Floats:
        """Planner's cost of each round."""
        return self.cells.cost[self.at]

    @cached_property
    def ignored(self) -> NDArray[np.bool_]:
        """Whether the agent's action did not depend on its signal."""
        return self.cells.ignored[self.at]

    @cached_property
    def s(self) -> Signs:
        """Signal, +1 for G and -1 for B."""
        return _signs(self.signal_good)

    @cached_property
    def a(self) -> Signs:
        """Action, +1 for G and -1 for B."""
        return _signs(self.action_good)

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether the action is not the state."""
        return self.action_good != self.good[:, None]

    @cached_property
    def u(self) -> Floats:
        """Agent's utility, 0 or ``-C``."""
        return np.where(self.wrong, -self.C, 0.0)


def simulate(
    model: HerdModel,
    policy: Policy,
    b1: float,
    *,
    agents: AgentModel | None = None,
    good: bool | None = None,
    n_runs: int = 10_000,
    rounds: int = 100,
    seed: int | np.random.Generator = 0,
    update: Update = "naive",
) -> Trajectories:
    """Simulate runs of a planner; the same seed gives the same states and signal luck to every planner.

    Args:
        model: The problem; its horizon, if any, limits ``rounds``.
        policy: The planner.
        b1: Public prior of the good state.
        agents: Who acts; ``model.agent`` by default.
        good: Fix the state of the world, or draw it from the prior.
        n_runs: Independent runs.
        rounds: Rounds a run.
        seed: Seed or generator.
        update: Whether the public takes agents for Bayesian (``naive``) or knows them (``aware``).

    Raises:
        ValueError: If ``b1`` is not a probability or a size is below one.
    """
    if n_runs < 1 or rounds < 1:
        raise ValueError(f"n_runs and rounds must be >= 1, got {n_runs} and {rounds}")
    rounds = min(rounds, model.horizon) if model.horizon else rounds
    # Streams of their own, so that a planner or agents who draw do not shift the luck of the signals.
    worlds, signal_luck, choice_luck, action_luck = np.random.default_rng(seed).spawn(4)
    state = worlds.random(n_runs) < b1 if good is None else np.full(n_runs, good)
    table = BeliefTable(model, policy, agents or model.agent, update, np.array([float(belief_logodds(b1))]))
    cell = np.zeros(n_runs, dtype=np.intp)
    left_behind: list[Cells] = []
    offset, surprises = 0, 0
    at = np.empty((rounds, n_runs), dtype=np.int32)
    plus, acts = np.empty(at.shape, dtype=bool), np.empty(at.shape, dtype=bool)
    for t in range(rounds):
        if len(table) > _CELLS:
            left_behind.append(table.cells)
            offset += len(table)
            table, cell = table.restarted(cell)
        cells, noisy = table.cells, table.noisy
        if len(table.weights) > 1:
            cell = cell + choice_luck.choice(len(table.weights), size=n_runs, p=table.weights)
        np.add(cell, offset, out=at[t], casting="unsafe")
        np.equal(signal_luck.random(n_runs) < np.take(cells.q, cell, mode="clip"), state, out=plus[t])
        events = 2 * cell
        chance = np.take(cells.chance, events + plus[t], mode="clip")
        np.greater(chance, action_luck.random(n_runs) if noisy else 0.5, out=acts[t])
        turns = np.add(events, acts[t], out=events)
        if cells.surprise.any():
            surprises += int(cells.surprise[turns].sum())
        cell = np.take(cells.successor, turns, mode="clip")
        if cell.min() < 0:
            table.reach(np.unique(turns[cell < 0]))
            cell = table.cells.successor[turns]
    return Trajectories(
        good=state,
        at=at.T,
        signal_good=plus.T,
        action_good=acts.T,
        cells=functools.reduce(Cells.followed_by, [*left_behind, table.cells]),
        C=model.C,
        off_path_actions=surprises,
    )


def simulate_log(
    model: HerdModel, policy: Policy, b1: float, *, n_runs: int = 200, rounds: int = 20, seed: int = 0
) -> pd.DataFrame:
    """Simulated runs as a mediator's log: records ready for :func:`~gnomon.society.planner.audit.audit_log`."""
    runs = simulate(model, policy, b1, n_runs=n_runs, rounds=rounds, seed=seed)
    index = np.indices(runs.shape)
    return pd.DataFrame(
        {
            "run_id": index[0].ravel(),
            "round": index[1].ravel(),
            "omega": np.repeat(np.where(runs.good, 1, -1), runs.shape[1]),
            "b_public": runs.b.ravel(),
            "q_declared": runs.q.ravel(),
            "q_used": runs.q.ravel(),
            "signal": runs.s.ravel(),
            "action": runs.a.ravel(),
        }
    )


def cascade_time(runs: Trajectories) -> Floats:
    """First round from which every later action ignores its signal, one a run; infinite if there is none."""
    backwards = np.logical_and.accumulate(runs.ignored[:, ::-1], axis=1)[:, ::-1]
    return np.where(backwards.any(axis=1), backwards.argmax(axis=1), np.inf)


def wrong_cascade_rate(runs: Trajectories) -> float:
    """Share of runs that end in a cascade on the wrong action."""
    herds = np.isfinite(cascade_time(runs))
    return float(np.mean(herds & runs.wrong[:, -1]))


def run_welfare(runs: Trajectories, delta: float) -> Floats:
    """Discounted welfare a round of each run; bootstrap over these for an interval."""
    weights = delta ** np.arange(runs.shape[1], dtype=float)
    return -runs.C * np.einsum("rt,t->r", runs.wrong, weights) / weights.sum()


def _signs(good: NDArray[np.bool_]) -> Signs:
    return 2 * good.astype(np.int8) - 1
