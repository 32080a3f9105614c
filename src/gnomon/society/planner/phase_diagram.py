"""Phase diagrams: one solved planner a setting, summarised in a row."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pandas as pd

from gnomon.society.planner.model import HerdModel, LinearCost, PowerCost
from gnomon.society.planner.phases import Conformity, conforms_altruistic, conforms_biased, sequence, threshold
from gnomon.society.planner.policies import Policy
from gnomon.society.planner.solution import Solution
from gnomon.society.planner.solver import solve

RAISED = frozenset({"max", "increasing", "decreasing", "raised"})


def myopic_policy(model: HerdModel, *, m: int = 40) -> Policy:
    """The policy of a planner who looks at one round only; evaluate it under the true discount factor."""
    return solve(dataclasses.replace(model, delta=0.0), m=m).policy


def without_obfuscation(model: HerdModel) -> HerdModel:
    """The same planner under a rule that forbids precisions below the free one."""
    return dataclasses.replace(model, q_min=model.p)


def conformity(solution: Solution) -> Conformity:
    """Whether a solved planner has the phases its theorem states: Theorem 3 (altruistic) or Theorem 5 (biased)."""
    model = solution.model
    conforms = conforms_altruistic if model.objective == "altruistic" else conforms_biased
    # A belief moves by at most a quarter of a log-odds step, and a threshold is known to two steps.
    return conforms(solution.phases(), model.p, slack=model.lam_p / solution.m / 2)


def summary(solution: Solution) -> dict[str, Any]:
    """One row of a phase diagram.

    ``t_max`` is the lowest belief of the ``max`` phase (Theorem 3's t_A), ``t_pay`` the lowest belief at which the
    planner pays (its d_A); both are 0.5 where there is no such phase. ``sequence`` runs from b = 1/2 up for the
    altruistic planner, whose policy is symmetric, and from 0 to 1 for the biased one.
    """
    model = solution.model
    found = solution.phases()
    upper = [phase for phase in found if phase.b_high > 0.5] if model.objective == "altruistic" else found
    defect = solution.convexity_defect()
    verdict = conformity(solution)
    return {
        "p": model.p,
        "k": getattr(model.cost, "k", float("nan")),
        "r": getattr(model.cost, "r", 1.0),
        "delta": model.delta,
        "C": model.C,
        "objective": model.objective,
        "sequence": sequence(upper),
        "intervals": "; ".join(map(str, found)),
        "t_max": threshold(found, frozenset({"max"})),
        "t_pay": threshold(found, RAISED),
        "convexity_defect": defect.defect,
        "defect_belief": defect.belief,
        "relative_defect": defect.relative,
        "conforms": verdict.conforms,
        "violation": str(verdict.violation or ""),
        "n_added": solution.n_added,
        "value_half": float(solution.V(0.5)),
    }


def phase_diagram(settings: Iterable[HerdModel], *, m: int = 40, jobs: int = 1) -> pd.DataFrame:
    """Solve every setting and summarise it; ``seconds`` is the processor time each took.

    Args:
        settings: The problems, a row each.
        m: Lattice points per free move.
        jobs: Processes to solve in; with more than one the settings must be picklable, and a script calls this under
            ``if __name__ == "__main__":``.

    Raises:
        ValueError: If ``jobs`` is below one.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be >= 1, got {jobs}")
    row = functools.partial(_row, m=m)
    if jobs == 1:
        return pd.DataFrame(map(row, settings))
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pd.DataFrame(pool.map(row, settings, chunksize=8))


def _row(model: HerdModel, *, m: int) -> dict[str, Any]:
    started = time.process_time()
    row = summary(solve(model, m=m))
    return {**row, "seconds": time.process_time() - started}


def cost_of(k: float, r: float) -> LinearCost | PowerCost:
    """The linear cost, or the power cost where ``r`` is not one."""
    return LinearCost(k) if r == 1 else PowerCost(k, r)
