"""The lattice solver against a naive belief grid and QuantEcon's DiscreteDP on that grid, and simulation in bulk.

* ``ratio``: median over settings of the time of value iteration on 1001 beliefs x 201 precisions over that of the
  lattice, both to 1e-10; ``grid_error`` is the grid's error, which the lattice does not have.
* ``quantecon``: the same grid as state-action pairs, policy iteration by ``quantecon.markov.DiscreteDP``.
* ``full_lattice``: value iteration over every lattice precision, over the candidate moves with verification.
* ``steps_per_second``: simulated agent decisions, and how many times as many as a Python loop over agents makes.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sparse
from quantecon.markov import DiscreteDP
from scipy.special import expit, logit

from gnomon.society.planner.agents import respond
from gnomon.society.planner.model import HerdModel, LinearCost, Objective
from gnomon.society.planner.policies import FixedPolicy
from gnomon.society.planner.simulation import simulate
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
    ratios, errors, ours = [], [], []
    for p, k, delta, objective in SETTINGS:
        model = HerdModel(p, delta, LinearCost(k), objective=objective)
        lattice, lattice_seconds = _best_of(3, lambda model=model: solve(model))
        grid, grid_seconds = _best_of(1, lambda model=model: solve(model, "qgrid"))
        ratios.append(grid_seconds / lattice_seconds)
        ours.append(lattice_seconds)
        # Away from 1/2, p and 1-p, where the grid blurs a jump of the value.
        inner = np.linspace(0.02, 0.98, 97)
        inner = inner[np.min(np.abs(inner[:, None] - np.array([0.5, p, 1 - p])), axis=1) > 0.03]
        errors.append(float(np.max(np.abs(lattice.V(inner) - grid.V(inner)))))
    model = HerdModel(0.7, 0.9, LinearCost(0.3))
    quantecon_value, quantecon_seconds = _best_of(1, lambda: quantecon_grid(model))
    small, small_seconds = _best_of(3, lambda: solve(model, m=20))
    full, full_seconds = _best_of(1, lambda: solve(model, "lattice", m=20))
    _, bulk_seconds = _best_of(2, lambda: simulate(model, FixedPolicy(0.8), 0.5, n_runs=20_000, rounds=100))
    _, loop_seconds = _best_of(1, lambda: python_loop(0.8, 0.5, runs=200, rounds=100))
    steps, loop_steps = 20_000 * 100 / bulk_seconds, 200 * 100 / loop_seconds
    return {
        "name": "planner",
        "ours": float(np.median(ours)),
        "peer": "value iteration on a belief grid",
        "ratio": float(np.median(ratios)),
        "grid_error_altruistic": max(errors[:2]),
        "grid_error_biased": max(errors[2:]),
        "quantecon": quantecon_seconds / ours[0],
        "quantecon_error": float(np.max(np.abs(quantecon_value - solve(model).V(np.linspace(0, 1, BELIEFS))))),
        "full_lattice": full_seconds / small_seconds,
        "full_lattice_difference": float(np.max(np.abs(full.values - small.values))),
        "steps_per_second": steps,
        "steps_ratio": steps / loop_steps,
    }


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


def python_loop(q: float, b1: float, *, runs: int, rounds: int) -> float:
    """Mean utility of Bayesian agents, one decision at a time: what a notebook would do."""
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
        started = time.perf_counter()
        result = task()
        seconds = min(seconds, time.perf_counter() - started)
    return result, seconds
