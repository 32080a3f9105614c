"""The exact experiments of the study, as tables: settings solved, planners evaluated, agents replaced, paths."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnomon.society.planner.agents import AgentModel, BayesianAgent, GretherAgent
from gnomon.society.planner.convexity import lower_envelope
from gnomon.society.planner.evaluation import evaluate
from gnomon.society.planner.model import HerdModel, LinearCost, Objective
from gnomon.society.planner.phase_diagram import conformity, cost_of, phase_diagram
from gnomon.society.planner.policies import FixedPolicy, RandomPolicy
from gnomon.society.planner.simulation import cascade_time, simulate
from gnomon.society.planner.solution import Solution
from gnomon.society.planner.solver import solve, solve_rounds
from gnomon.society.planner.welfare import planners, welfare_table

SHOWCASE = {"p": 0.7, "k": 0.3, "delta": 0.9}
"""The setting whose policies, values and paths are drawn."""

KINKED = {"p": 0.9, "k": 2.0, "delta": 0.6}
"""The setting of the largest convexity defect on the default grid."""


def solved_settings(
    p: float, r: float, objective: Objective, ks: Sequence[float], deltas: Sequence[float], *, m: int
) -> pd.DataFrame:
    """One row a setting: its phases, thresholds, defect and conformity."""
    return phase_diagram(
        (HerdModel(p, delta, cost_of(k, r), objective=objective) for k, delta in _grid(ks, deltas)), m=m
    )


def broken_settings(
    p: float,
    r: float,
    objective: Objective,
    ks: Sequence[float],
    deltas: Sequence[float],
    rng: np.random.Generator,
    *,
    m: int,
) -> pd.DataFrame:
    """The same checks on things made wrong on purpose, one row a setting.

    ``permuted_conforms``: the optimal policy with its beliefs permuted, against its theorem. ``uncontrolled_defect``:
    the convexity defect where the planner may not act at all, which jumps down at ``p`` by a closed form.
    """
    rows = []
    for k, delta in _grid(ks, deltas):
        model = HerdModel(p, delta, cost_of(k, r), objective=objective)
        solution = solve(model, m=m)
        uncontrolled = solve(dataclasses.replace(model, q_min=p, q_max=p), m=m).convexity_defect()
        rows.append(
            {
                "p": p,
                "k": k,
                "delta": delta,
                "r": r,
                "objective": objective,
                "permuted_conforms": conformity(permuted(solution, rng)).conforms,
                "uncontrolled_defect": uncontrolled.defect,
            }
        )
    return pd.DataFrame(rows)


def permuted(solution: Solution, rng: np.random.Generator) -> Solution:
    """The solution with its decisions dealt out to other beliefs."""
    order = rng.permutation(len(solution.moves))
    return dataclasses.replace(solution, moves=solution.moves[order], lam=solution.lam[order])


def curves(setting: dict[str, float], *, m: int) -> pd.DataFrame:
    """Policy, value and lower envelope of both planners at one setting, states in order of belief."""
    frames = []
    for objective in ("altruistic", "biased"):
        model = HerdModel(setting["p"], setting["delta"], LinearCost(setting["k"]), objective=objective)
        solution = solve(model, m=m)
        frame = solution.to_frame().assign(
            objective=objective, envelope=lower_envelope(solution.beliefs, solution.values), **setting
        )
        frames.append(frame[frame["belief"].between(0.002, 0.998)])
    return pd.concat(frames, ignore_index=True)


def evaluated_settings(
    p: float, ks: Sequence[float], deltas: Sequence[float], priors: Sequence[float], *, m: int
) -> pd.DataFrame:
    """Exact welfare of every planner at every setting and prior."""
    return pd.concat(
        [
            welfare_table(HerdModel(p, delta, LinearCost(k)), tuple(priors), m=m).assign(p=p, k=k, delta=delta)
            for k, delta in _grid(ks, deltas)
        ],
        ignore_index=True,
    )


def biased_agents() -> dict[str, AgentModel]:
    """Agents whom the planner takes for Bayesian: the real thing, and four known departures from it."""
    return {
        "bayesian": BayesianAgent(),
        "conservative": GretherAgent(gamma_agree=0.6, gamma_contra=0.6),
        "base-rate neglect": GretherAgent(alpha=0.6),
        "asymmetric": GretherAgent(gamma_agree=0.6, gamma_contra=1.4),
        "noisy": GretherAgent(temperature=0.5),
    }


def replaced_agents(*, prior: float = 0.65, k: float = 1.0, m: int) -> pd.DataFrame:
    """Planners solved for Bayesian agents, evaluated on agents who are not: how brittle is steering?"""
    model = HerdModel(SHOWCASE["p"], SHOWCASE["delta"], LinearCost(k))
    rows = []
    compared = planners(model, m=m)
    for (name, (objective, policy)), (label, agent) in itertools.product(compared.items(), biased_agents().items()):
        if name in ("baseline", "altruistic", "biased"):
            worth = evaluate(dataclasses.replace(objective, agent=agent), policy, prior, tol=1e-8)
            rows.append({"planner": name, "agents": label, "prior": prior, "k": k, **dataclasses.asdict(worth)})
    return pd.DataFrame(rows)


def simulated_paths(prior: float, runs: int, rounds: int, rng_seed: int, *, m: int) -> dict[str, pd.DataFrame]:
    """Quantiles of simulated public beliefs, and the share of runs not yet in a cascade, by planner and state."""
    model = HerdModel(SHOWCASE["p"], SHOWCASE["delta"], LinearCost(SHOWCASE["k"]))
    compared = planners(model, m=m)
    biased, policy = compared["biased"]
    spend = evaluate(biased, policy, prior).spend
    chosen = {name: compared[name] for name in ("baseline", "altruistic", "biased", "no-obfuscation")}
    chosen["random-as-biased"] = (biased, RandomPolicy.matching(biased, spend))
    beliefs, survival = [], []
    for name, (objective, planner) in chosen.items():
        for good in (True, False):
            run = simulate(objective, planner, prior, good=good, n_runs=runs, rounds=rounds, seed=rng_seed)
            state = "good" if good else "bad"
            low, mid, high = np.quantile(run.b, [0.05, 0.5, 0.95], axis=0)
            shared = {"planner": name, "state": state, "round": np.arange(rounds), "prior": prior}
            beliefs.append(
                pd.DataFrame({**shared, "low": low, "median": mid, "high": high, "mean": run.b.mean(axis=0)})
            )
            times = cascade_time(run)
            survival.append(pd.DataFrame({**shared, "open": [(times > t).mean() for t in range(rounds)]}))
    return {"beliefs": pd.concat(beliefs, ignore_index=True), "survival": pd.concat(survival, ignore_index=True)}


def finite_horizon(rounds: int, *, m: int) -> pd.DataFrame:
    """Undiscounted planners with an end: precision at each belief with that many rounds left."""
    frames = []
    beliefs = np.round(np.linspace(0.05, 0.95, 19), 3)
    for objective in ("altruistic", "biased"):
        model = HerdModel(SHOWCASE["p"], 1.0, LinearCost(SHOWCASE["k"]), objective=objective, horizon=rounds)
        for index, solution in enumerate(solve_rounds(model, m=m)):
            frames.append(
                pd.DataFrame(
                    {
                        "objective": objective,
                        "left": rounds - index,
                        "belief": beliefs,
                        "precision": solution.q(beliefs),
                        "value": solution.V(beliefs),
                    }
                )
            )
    return pd.concat(frames, ignore_index=True)


def closed_forms(*, m: int) -> pd.DataFrame:
    """The solver against what can be worked out by hand, one row a formula."""
    p, k, delta = SHOWCASE["p"], SHOWCASE["k"], SHOWCASE["delta"]
    altruistic = HerdModel(p, delta, LinearCost(k))
    biased = dataclasses.replace(altruistic, objective="biased")
    free = solve(dataclasses.replace(altruistic, q_max=p), m=m)
    chance_b = 2 * p * (1 - p)
    at_p = (-(1 - p) - delta * (1 - p) ** 2 / (1 - delta) - delta * chance_b * (1 - p)) / (1 - delta**2 * chance_b)
    solved = solve(altruistic, m=m)
    threshold = (1 - delta) * k * (1 - p)
    above = float(free.beliefs[free.beliefs > p + 1e-9].min())
    rows = [
        ("F1", "cascade under p, altruistic", float(free.V(above)), -(1 - above) / (1 - delta)),
        ("F1", "favourable cascade, biased", float(solve(biased, m=m).V(0.9)), 0.0),
        ("F2", "certainty bought at once", float(solved.V(0.5)), -k * (1 - p)),
        ("F3", "blurring for ever from 1/2+", solve(biased, m=m).just_above(0.5), -k * (p - 0.5) / (1 - delta)),
        ("F6", "uncontrolled value at p", float(free.V(p)), at_p),
        ("F6", "uncontrolled value at 1/2", float(free.V(0.5)), -(1 - p) + delta * at_p),
        ("F8", "threshold of certainty", _threshold(solved), threshold),
        (
            "exact",
            "baseline evaluated against uncontrolled value",
            evaluate(altruistic, FixedPolicy(p), 0.5).V,
            float(free.V(0.5)),
        ),
    ]
    table = pd.DataFrame(rows, columns=["formula", "what", "computed", "closed form"])
    return table.assign(difference=(table["computed"] - table["closed form"]).abs())


def _threshold(solution: Solution) -> float:
    return min(phase.b_low for phase in solution.phases() if phase.kind == "max")


def _grid(ks: Sequence[float], deltas: Sequence[float]) -> list[tuple[float, float]]:
    return list(itertools.product(ks, deltas))
