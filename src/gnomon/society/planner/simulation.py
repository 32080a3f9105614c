r"""Simulated populations: many runs of one planner at once, with common random numbers across planners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from gnomon.society.planner.agents import AgentModel, BayesianAgent, Update, informative, respond
from gnomon.society.planner.model import HerdModel, belief_logodds
from gnomon.society.planner.policies import Policy

Floats = NDArray[np.float64]
Signs = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Runs in rows, rounds in columns.

    Args:
        good: Whether each run's state is G, ``[runs]``.
        b: Public belief before each round, ``[runs, rounds]``.
        q: Precision of each round.
        s: Signal, +1 for G and -1 for B.
        a: Action, +1 for G and -1 for B.
        u: Agent's utility, 0 or ``-C``.
        cost: Planner's cost.
        ignored: Whether the agent's action did not depend on its signal.
        off_path_actions: Actions the public held impossible, over all runs.
    """

    good: NDArray[np.bool_]
    b: Floats
    q: Floats
    s: Signs
    a: Signs
    u: Floats
    cost: Floats
    ignored: NDArray[np.bool_]
    off_path_actions: int

    @property
    def shape(self) -> tuple[int, int]:
        """Runs and rounds."""
        return self.b.shape[0], self.b.shape[1]


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
    agents = agents or model.agent
    rng = np.random.default_rng(seed)
    state = rng.random(n_runs) < b1 if good is None else np.full(n_runs, good)
    l = np.full(n_runs, float(belief_logodds(b1)))  # noqa: E741
    q, lam, belief = np.empty(n_runs), np.empty(n_runs), np.empty(n_runs)
    cost = np.empty(n_runs)
    shape = (rounds, n_runs)
    record = {name: np.empty(shape) for name in ("b", "q", "u", "cost")}
    signals, actions = np.empty(shape, dtype=np.int8), np.empty(shape, dtype=np.int8)
    ignored = np.empty(shape, dtype=bool)
    probability = {name: np.empty(n_runs) for name in ("plus", "minus")}
    after = {name: np.empty(n_runs) for name in ("good", "bad")}
    follows = np.empty(n_runs, dtype=bool)
    moved = np.arange(n_runs)
    surprises = 0
    redraws = len(policy.choices(l[:1])[0]) > 1
    for t in range(rounds):
        moved = np.arange(n_runs) if redraws else moved
        if len(moved):
            # Only runs whose belief moved need a new decision: the others stay in their cascade.
            lam[moved] = _drawn(policy, l[moved], rng)
            q[moved], belief[moved] = expit(lam[moved]), expit(l[moved])
            cost[moved] = model.spend(q[moved])
            for name, signal in (("plus", 1), ("minus", -1)):
                probability[name][moved] = agents.probability_good(l[moved], lam[moved], signal)
            here = respond(agents, l[moved], lam[moved], update=update)
            after["good"][moved], after["bad"][moved] = here.after_good, here.after_bad
            follows[moved] = informative(l[moved], lam[moved])
        luck = rng.random(n_runs)
        plus = (luck < q) == state
        chance = np.where(plus, probability["plus"], probability["minus"])
        acts = chance > rng.random(n_runs) if _noisy(agents) else chance > 0.5
        signals[t], actions[t] = 2 * plus - 1, 2 * acts - 1
        record["b"][t], record["q"][t], record["cost"][t] = belief, q, cost
        record["u"][t] = np.where(acts == state, 0.0, -model.C)
        ignored[t] = probability["plus"] == probability["minus"]
        if update == "naive" and not isinstance(agents, BayesianAgent):
            surprises += int(np.sum(~follows & (acts != (l > 0)) & (l != 0)))
        new = np.where(acts, after["good"], after["bad"])
        moved = np.flatnonzero(new != l)
        l = new  # noqa: E741
    return Trajectories(
        good=state,
        b=record["b"].T,
        q=record["q"].T,
        s=signals.T,
        a=actions.T,
        u=record["u"].T,
        cost=record["cost"].T,
        ignored=ignored.T,
        off_path_actions=surprises,
    )


def simulate_log(
    model: HerdModel, policy: Policy, b1: float, *, n_runs: int = 200, rounds: int = 20, seed: int = 0
) -> pd.DataFrame:
    """Simulated runs as a mediator's log, ready for :func:`~gnomon.society.planner.audit.audit_log`."""
    runs = simulate(model, policy, b1, n_runs=n_runs, rounds=rounds, seed=seed)
    index = np.indices(runs.shape)
    return pd.DataFrame(
        {
            "run": index[0].ravel(),
            "round": index[1].ravel(),
            "omega": np.repeat(np.where(runs.good, 1, -1), runs.shape[1]),
            "b": runs.b.ravel(),
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
    wrong = (runs.a[:, -1] > 0) != runs.good
    return float(np.mean(herds & wrong))


def run_welfare(runs: Trajectories, delta: float) -> Floats:
    """Discounted welfare a round of each run; bootstrap over these for an interval."""
    weights = delta ** np.arange(runs.shape[1], dtype=float)
    return runs.u @ weights / weights.sum()


def _drawn(policy: Policy, l: Floats, rng: np.random.Generator) -> Floats:  # noqa: E741
    weights, lam = policy.choices(l)
    if len(weights) == 1:
        return lam[0]
    return lam[rng.choice(len(weights), size=len(l), p=weights), np.arange(len(l))]


def _noisy(agents: AgentModel) -> bool:
    return getattr(agents, "temperature", 0.0) > 0
