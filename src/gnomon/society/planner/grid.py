r"""Solvers that interpolate: the naive belief grid, and planners who know that their agents are not Bayesian.

Agents with biases or noise move the public belief to places no lattice contains, so their planner's value is
interpolated, linear in belief, on a grid that is refined until the answer settles.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from gnomon.society.planner.agents import respond
from gnomon.society.planner.lattice import Move
from gnomon.society.planner.model import HerdModel
from gnomon.society.planner.solution import ConvergenceError, Solution

Floats = NDArray[np.float64]


def solve_belief_grid(
    model: HerdModel, *, beliefs: int = 1001, precisions: int = 201, tol: float = 1e-10, max_iter: int = 10_000
) -> Solution:
    """Value iteration on an even grid of beliefs and precisions, values interpolated between them.

    It blurs the one-sided limits that the optimum lives on; use it as a yardstick and for costs with fine structure.
    """
    grid = np.linspace(0, 1, beliefs)
    choices = np.unique(np.append(np.linspace(model.q_min, model.q_max, precisions), model.p))
    return _value_iteration(model, logit(grid), logit(choices), tol=tol, max_iter=max_iter)


def solve_aware(
    model: HerdModel, *, m: int = 10, L: float = 8.0, settle: float = 1e-4, max_doublings: int = 3, tol: float = 1e-8
) -> Solution:
    r"""The optimum against the agents as they are: ``model.agent``, with a public that knows them too.

    The grid starts with ``m`` points per free move and doubles until the value changes by less than ``settle``
    in the mean over beliefs, at most ``max_doublings`` times. Noisy agents leak a little in every round, so that no
    cascade is final.

    Returns:
        A solution whose ``residual`` is the change at the last doubling.
    """
    previous: Solution | None = None
    change = np.inf
    for doubling in range(max_doublings + 1):
        step = model.lam_p / (m * 2**doubling)
        points = np.arange(-int(L / step), int(L / step) + 1) * step
        logodds = np.concatenate([[-np.inf], points, [np.inf]])
        coarse = logit(np.linspace(model.q_min, model.q_max, 20 * 2**doubling + 1))
        # The precisions at which biased agents begin to follow contrary signals are where the optimum sits.
        lam = np.unique(np.concatenate([coarse, [model.lam_p]]))
        now = _value_iteration(model, logodds, lam, tol=tol, max_iter=10_000, evaluations=40)
        if previous is not None:
            common = np.linspace(0.01, 0.99, 99)
            change = float(np.mean(np.abs(now.V(common) - previous.V(common))))
            if change < settle:
                return dataclasses.replace(now, residual=change)
        previous = now
    assert previous is not None
    return dataclasses.replace(previous, residual=change)


def _value_iteration(
    model: HerdModel, logodds: Floats, lam: Floats, *, tol: float, max_iter: int, evaluations: int = 0
) -> Solution:
    """Value iteration, with ``evaluations`` sweeps of the current policy between improvements."""
    beliefs, q = expit(logodds), expit(lam)
    here = respond(model.agent, logodds[:, None], lam[None, :], update="aware")
    b = beliefs[:, None]
    good = b * here.good_if_good + (1 - b) * here.good_if_bad
    wrong = b * (1 - here.good_if_good) + (1 - b) * here.good_if_bad
    loss = wrong if model.objective == "altruistic" else 1 - good
    reward = -model.spend(q)[None, :] - model.C * loss
    up, up_share = _between(beliefs, expit(here.after_good))
    down, down_share = _between(beliefs, expit(here.after_bad))
    values = np.zeros(len(beliefs))
    states = np.arange(len(beliefs))
    stop = tol * (1 - model.delta) / (2 * model.delta) if model.delta > 0 else np.inf
    change = np.inf
    for iteration in range(1, max_iter + 1):
        all_values = _one_policy(values, model.delta, reward, good, up, up_share, down, down_share)
        new_values = all_values.max(axis=1)
        change = float(np.max(np.abs(new_values - values)))
        values = new_values
        if change <= stop:
            best = all_values.argmax(axis=1)
            return Solution(
                model=model,
                m=0,
                logodds=logodds,
                side=np.zeros(len(logodds), dtype=np.int64),
                values=values,
                moves=np.full(len(logodds), int(Move.INTERIOR)),
                lam=lam[best],
                iterations=iteration,
                residual=change,
                n_added=0,
            )
        if evaluations:
            at = states, all_values.argmax(axis=1)
            parts = reward[at], good[at], up[at], up_share[at], down[at], down_share[at]
            for _ in range(evaluations):
                values = _one_policy(values, model.delta, *parts)
    raise ConvergenceError(f"value iteration did not converge in {max_iter} iterations", residual=change)


def _one_policy(
    values: Floats,
    delta: float,
    reward: Floats,
    good: Floats,
    up: NDArray[np.int64],
    up_share: Floats,
    down: NDArray[np.int64],
    down_share: Floats,
) -> Floats:
    ahead_good = (1 - up_share) * values[up] + up_share * values[up + 1]
    ahead_bad = (1 - down_share) * values[down] + down_share * values[down + 1]
    return reward + delta * (good * ahead_good + (1 - good) * ahead_bad)


def _between(beliefs: Floats, at: Floats) -> tuple[NDArray[np.int64], Floats]:
    left = np.clip(np.searchsorted(beliefs, at, side="right") - 1, 0, len(beliefs) - 2)
    width = beliefs[left + 1] - beliefs[left]
    return left, np.clip((at - beliefs[left]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
