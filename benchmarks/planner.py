"""The lattice solver against a naive belief grid and QuantEcon's DiscreteDP on that grid, and simulation in bulk.

* ``ratio``: median over settings of the time of value iteration on 1001 beliefs x 201 precisions over that of the
  lattice, both to 1e-10. ``grid_error_*`` is the grid's largest error, away from 1/2, p and 1-p; for the biased
  planner also at half the steps, beside the part of it that can be written down (``grid_floor_biased``, see
  docs/decisions/007-what-a-belief-grid-cannot-do.md).
* ``quantecon``: the same grid as state-action pairs, policy iteration by ``quantecon.markov.DiscreteDP``.
* ``full_lattice``: value iteration over every lattice precision, over the candidate moves with verification.
* ``diagram_seconds``: a phase diagram of 112 altruistic settings.
* ``steps_per_second``: simulated decisions with the welfare of every run; ``steps_ratio`` over a loop over agents that
  does the same one decision at a time, ``tight_loop_ratio`` over a loop written for this one policy, without records.

All times are processor time of this process.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse
from quantecon.markov import DiscreteDP
from scipy.special import expit, logit

from gnomon.society.planner.agents import respond
from gnomon.society.planner.grid import solve_belief_grid
from gnomon.society.planner.model import HerdModel, LinearCost, Objective
from gnomon.society.planner.phase_diagram import phase_diagram
from gnomon.society.planner.policies import FixedPolicy
from gnomon.society.planner.simulation import run_welfare, simulate
from gnomon.society.planner.solution import Solution
from gnomon.society.planner.solver import solve

SETTINGS: list[tuple[float, float, float, Objective]] = [
    (0.7, 0.3, 0.9, "altruistic"),
    (0.8, 0.5, 0.9, "altruistic"),
    (0.7, 0.3, 0.9, "biased"),
    (0.8, 0.5, 0.9, "biased"),
]
BELIEFS, PRECISIONS = 1001, 201


def run() -> dict[str, Any]:
    """Measure all ratios in this process."""
    solve(HerdModel(0.7, 0.9, LinearCost(0.3)))  # loads what is loaded once
    ratios, ours, floors = [], [], []
    errors: dict[str, list[float]] = {"altruistic": [], "biased": [], "biased_half_step": []}
    for p, k, delta, objective in SETTINGS:
        model = HerdModel(p, delta, LinearCost(k), objective=objective)
        lattice, lattice_seconds = _best_of(3, lambda model=model: solve(model))
        grid, grid_seconds = _best_of(1, lambda model=model: solve(model, "qgrid"))
        ratios.append(grid_seconds / lattice_seconds)
        ours.append(lattice_seconds)
        errors[objective].append(_largest_error(grid, lattice))
        if objective == "biased":
            finer = solve_belief_grid(model, beliefs=2 * BELIEFS - 1, precisions=2 * PRECISIONS - 1, tol=1e-6)
            errors["biased_half_step"].append(_largest_error(finer, lattice))
            floors.append(k * 0.5 / (PRECISIONS - 1) / (1 - delta))
    model = HerdModel(0.7, 0.9, LinearCost(0.3))
    quantecon_value, quantecon_seconds = _best_of(1, lambda: quantecon_grid(model))
    small, small_seconds = _best_of(3, lambda: solve(model, m=20))
    full, full_seconds = _best_of(1, lambda: solve(model, "lattice", m=20))
    grid = itertools.product((0.6, 0.7, 0.8, 0.9), (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0), (0.3, 0.6, 0.9, 0.95))
    _, diagram_seconds = _best_of(1, lambda: phase_diagram(HerdModel(p, d, LinearCost(k)) for p, k, d in grid))
    _, bulk_seconds = _best_of(3, lambda: _simulated_welfare(model, runs=20_000, rounds=100))
    _, agents_seconds = _best_of(2, lambda: loop_over_agents(model, 0.3, 0.8, 0.5, runs=200, rounds=100))
    _, tight_seconds = _best_of(2, lambda: tight_loop(0.8, 0.5, runs=200, rounds=100))
    steps = 20_000 * 100 / bulk_seconds
    return {
        "name": "planner",
        "ours": float(np.median(ours)),
        "peer": "value iteration on a belief grid",
        "ratio": float(np.median(ratios)),
        **{f"grid_error_{name}": max(found) for name, found in errors.items()},
        "grid_floor_biased": max(floors),
        "quantecon": quantecon_seconds / ours[0],
        "quantecon_error": float(np.max(np.abs(quantecon_value - solve(model).V(np.linspace(0, 1, BELIEFS))))),
        "full_lattice": full_seconds / small_seconds,
        "full_lattice_difference": float(np.max(np.abs(full.values - small.values))),
        "diagram_seconds": diagram_seconds,
        "steps_per_second": steps,
        "steps_ratio": steps / (200 * 100 / agents_seconds),
        "tight_loop_ratio": steps / (200 * 100 / tight_seconds),
    }


def _largest_error(grid: Solution, lattice: Solution) -> float:
    """Away from 1/2, p and 1-p, where the grid blurs a jump of the value."""
    p = lattice.model.p
    inner = np.linspace(0.02, 0.98, 97)
    inner = inner[np.min(np.abs(inner[:, None] - np.array([0.5, p, 1 - p])), axis=1) > 0.03]
    return float(np.max(np.abs(lattice.V(inner) - grid.V(inner))))


def _simulated_welfare(model: HerdModel, *, runs: int, rounds: int) -> np.ndarray:
    return run_welfare(simulate(model, FixedPolicy(0.8), 0.5, n_runs=runs, rounds=rounds), model.delta)


def quantecon_grid(model: HerdModel) -> np.ndarray:
    """Values of the grid's beliefs from QuantEcon's policy iteration over state-action pairs."""
    beliefs = np.linspace(0, 1, BELIEFS)
    q = np.linspace(model.p, 1, PRECISIONS)
    here = respond(model.agent, logit(beliefs)[:, None], logit(q)[None, :])
    b = beliefs[:, None]
    good = b * here.good_if_good + (1 - b) * here.good_if_bad
    wrong = b * (1 - here.good_if_good) + (1 - b) * here.good_if_bad
    reward = -model.spend(q)[None, :] - model.C * wrong
    pairs = BELIEFS * PRECISIONS
    rows = np.arange(pairs)
    entries = []
    for after, weight in ((here.after_good, good), (here.after_bad, 1 - good)):
        at = expit(after).ravel() * (BELIEFS - 1)
        left = np.clip(np.floor(at).astype(int), 0, BELIEFS - 2)
        share = at - left
        entries += [(weight.ravel() * (1 - share), left), (weight.ravel() * share, left + 1)]
    transition = sparse.csr_matrix(
        (
            np.concatenate([value for value, _ in entries]),
            (np.tile(rows, 4), np.concatenate([column for _, column in entries])),
        ),
        shape=(pairs, BELIEFS),
    )
    states, actions = np.repeat(np.arange(BELIEFS), PRECISIONS), np.tile(np.arange(PRECISIONS), BELIEFS)
    problem = DiscreteDP(reward.ravel(), transition, model.delta, s_indices=states, a_indices=actions)
    return problem.solve(method="policy_iteration").v


@dataclass
class Person:
    """An agent as a notebook would write it."""

    believes: float

    def acts_good(self, q: float, signal: bool) -> bool:
        """Bayes' rule for the private signal; a tie follows it."""
        right = q if signal else 1 - q
        posterior = right * self.believes / (right * self.believes + (1 - right) * (1 - self.believes))
        return signal if abs(posterior - 0.5) < 1e-12 else posterior > 0.5


def loop_over_agents(model: HerdModel, k: float, q: float, b1: float, *, runs: int, rounds: int) -> list[float]:
    """Discounted welfare of every run: a planner, a person a round, a record of each decision."""
    draw = random.Random(0)

    def planner(belief: float) -> float:  # noqa: ARG001 - any policy would do
        return q

    welfare = []
    for _ in range(runs):
        good, belief, record = draw.random() < b1, b1, []
        for _ in range(rounds):
            precision = planner(belief)
            signal = good if draw.random() < precision else not good
            acts = Person(belief).acts_good(precision, signal)
            utility = 0.0 if acts == good else -model.C
            cost = k * abs(precision - model.p)
            record.append((belief, precision, signal, acts, utility, cost))
            if 1 - precision - 1e-12 <= belief <= precision + 1e-12:
                right = precision if acts else 1 - precision
                belief = right * belief / (right * belief + (1 - right) * (1 - belief))
        weights = [model.delta**t for t in range(rounds)]
        welfare.append(sum(w * row[4] for w, row in zip(weights, record, strict=True)) / sum(weights))
    return welfare


def tight_loop(q: float, b1: float, *, runs: int, rounds: int) -> float:
    """Mean utility of Bayesian agents under one fixed precision, as little work a decision as Python allows."""
    draw = random.Random(0)
    lam, total = math.log(q / (1 - q)), 0.0
    for _ in range(runs):
        good, belief = draw.random() < b1, math.log(b1 / (1 - b1))
        for _ in range(rounds):
            signal = 1 if (draw.random() < q) == good else -1
            follows = abs(belief) <= lam + 1e-12
            acts_good = signal > 0 if follows else belief > 0
            belief += signal * lam if follows else 0.0
            total -= float(acts_good != good)
    return total / (runs * rounds)


def _best_of(times: int, task: Callable[[], Any]) -> tuple[Any, float]:
    seconds, result = math.inf, None
    for _ in itertools.repeat(None, times):
        started = time.process_time()
        result = task()
        seconds = min(seconds, time.process_time() - started)
    return result, seconds
