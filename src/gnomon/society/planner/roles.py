"""The study's questions to a model in both seats, with their controls, and what each cluster's answers amount to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gnomon.models.chat import ChatModel
from gnomon.society.planner.agents import GretherAgent
from gnomon.society.planner.estimation import cluster_slopes
from gnomon.society.planner.evaluation import evaluate
from gnomon.society.planner.grid import solve_aware
from gnomon.society.planner.model import HerdModel, LinearCost, Objective
from gnomon.society.planner.policies import InterpolatedPolicy
from gnomon.society.planner.readouts import ask_agents, ask_planner
from gnomon.society.planner.scenarios import SCENARIOS
from gnomon.society.planner.scripted import scripted_agent, scripted_planner
from gnomon.society.planner.solver import solve

__all__ = ["AGENT_ARMS", "PLANNER_ARMS", "SCENARIOS", "agent_records", "cluster_estimates", "planner_records"]

AGENT_ARMS = ("treatment", "random-init", "bayesian", "grether")
PLANNER_ARMS = ("treatment", "no-future", "random-init", "scripted")
OBJECTIVES: tuple[Objective, ...] = ("altruistic", "biased")

PLANTED_AGENT = GretherAgent(alpha=0.8, gamma_agree=0.6, gamma_contra=1.4)
"""The scripted agent whose weights the pipeline must give back."""

AGENT_BELIEFS = (0.2, 0.35, 0.5, 0.65, 0.8)
AGENT_PRECISIONS = (0.6, 0.75, 0.9)
PLANNER_BELIEFS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
SEAT = {"p": 0.7, "k": 2.0, "delta": 0.6}
"""What a model in the planner's seat is told: costs at which both optima change over the beliefs it is asked at."""

PRIORS = (0.3, 0.5, 0.6)
CLOSE = 0.1

_CUT = 1e-5
"""Weight below which a path is cut off when a model's policy is played out: its beliefs never merge."""


def agent_records(at: Mapping[str, Any], run: Any) -> pd.DataFrame:
    """Answers in the agent's seat of one scenario, paraphrase and arm."""
    scenario = SCENARIOS[at["scenario"]]
    if at["arm"] == "bayesian":
        chat: ChatModel = scripted_agent("bayesian", GretherAgent(), scenario)
    elif at["arm"] == "grether":
        chat = scripted_agent("grether", PLANTED_AGENT, scenario)
    else:
        chat = _chat(at, run)
    records = ask_agents(
        chat, scenario, at["paraphrase"], beliefs=AGENT_BELIEFS, precisions=AGENT_PRECISIONS, p=SEAT["p"]
    )
    return records.assign(cluster=_cluster(at))


def planner_records(at: Mapping[str, Any], run: Any) -> pd.DataFrame:
    """Answers in the planner's seat of one scenario, paraphrase and arm, for both objectives."""
    scenario = SCENARIOS[at["scenario"]]
    models = {objective: seat_model(objective) for objective in OBJECTIVES}
    if at["arm"] == "scripted":
        policies = {objective: solve(model, m=20).policy for objective, model in models.items()}
        chat: ChatModel = scripted_planner("scripted", policies)
    else:
        chat = _chat(at, run)
    frames = [
        ask_planner(
            chat,
            scenario,
            at["paraphrase"],
            model,
            beliefs=PLANNER_BELIEFS,
            variant="no-future" if at["arm"] == "no-future" else "standard",
        ).assign(objective=objective)
        for objective, model in models.items()
    ]
    return pd.concat(frames, ignore_index=True).assign(cluster=_cluster(at))


def seat_model(objective: Objective) -> HerdModel:
    """The problem that a model in the planner's seat is told."""
    return HerdModel(SEAT["p"], SEAT["delta"], LinearCost(SEAT["k"]), objective=objective)


def cluster_estimates(agents: pd.DataFrame, seats: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What one cluster's answers amount to.

    Returns:
        ``slopes``: weights of every agent arm, and of ``swapped-labels``, the part of the model's answers that follows
        the letter instead of the option. ``seats``: distance from the optimum of every planner arm (``source``), as
        answered (``arm`` = treatment), with the answers dealt to other beliefs, and with their mean for all.
        ``played``: values of policies on agents with the model's estimated weights.
    """
    (cluster,) = agents["cluster"].unique()
    slopes = [
        {"arm": arm, **cluster_slopes(rows), "label_bias": rows["label_bias"].mean()}
        for arm, rows in agents.groupby("arm", sort=False)
    ]
    model_rows = agents.query("arm == 'treatment'")
    by_letter = model_rows.assign(logodds=model_rows["label_bias"] - model_rows["label_bias"].mean())
    slopes.append({"arm": "swapped-labels", **cluster_slopes(by_letter), "label_bias": 0.0})
    optimal = {objective: solve(seat_model(objective), m=20) for objective in OBJECTIVES}
    deviations = [
        row
        for source, rows in seats.groupby("arm", sort=False)
        for row in _deviations(str(source), rows, {name: solution.q for name, solution in optimal.items()})
    ]
    fitted = next(row for row in slopes if row["arm"] == "treatment")
    agent = GretherAgent(
        fitted["alpha"], fitted["gamma_agree"], fitted["gamma_contra"], fitted["intercept"], temperature=1.0
    )
    own_answers = {objective: seats.query("arm == 'treatment' and objective == @objective") for objective in OBJECTIVES}
    played = _played(own_answers["biased"], agent)
    regrets = {objective: _regret(own_answers[objective], optimal[objective]) for objective in OBJECTIVES}
    table = pd.DataFrame(deviations).assign(regret=np.nan)
    own = (table["source"] == "treatment") & (table["arm"] == "treatment")
    table.loc[own, "regret"] = float(np.mean(list(regrets.values())))
    return {
        "slopes": pd.DataFrame(slopes).assign(cluster=cluster),
        "seats": table.assign(cluster=cluster),
        "played": played.assign(cluster=cluster),
    }


def phase_of(precision: float, p: float) -> str:
    """Operating phase of a stated precision: none, max, raised or lowered, to half a step of the answers."""
    if precision >= 0.975:
        return "max"
    if abs(precision - p) <= 0.025:
        return "none"
    return "raised" if precision > p else "lowered"


def _deviations(source: str, rows: pd.DataFrame, optimum: Mapping[str, Any]) -> list[dict[str, Any]]:
    arms: dict[str, list[float]] = {"treatment": [], "shuffled-belief": [], "constant": []}
    close, phase = [], []
    for objective, answers in rows.groupby("objective"):
        said = answers["precision"].to_numpy(dtype=float)
        best = np.asarray(optimum[str(objective)](answers["belief"].to_numpy(dtype=float)))
        apart = np.abs(said[:, None] - best[None, :]) / 0.5
        n = len(said)
        arms["treatment"].append(float(np.trace(apart)) / n)
        arms["shuffled-belief"].append(float(apart.sum() - np.trace(apart)) / (n * (n - 1)))
        arms["constant"].append(float(np.mean(np.abs(said.mean() - best)) / 0.5))
        close.append(np.mean(np.diag(apart) <= CLOSE))
        phase.append(
            np.mean([phase_of(a, SEAT["p"]) == phase_of(b, SEAT["p"]) for a, b in zip(said, best, strict=True)])
        )
    shares = {"share_close": float(np.mean(close)), "share_phase": float(np.mean(phase))}
    return [
        {"source": source, "arm": arm, "deviation": float(np.mean(values)), **shares} for arm, values in arms.items()
    ]


def _policy(rows: pd.DataFrame) -> InterpolatedPolicy:
    ordered = rows.sort_values("belief")
    return InterpolatedPolicy(tuple(ordered["belief"]), tuple(ordered["precision"]))


def _regret(rows: pd.DataFrame, solution: Any) -> float:
    """Value lost against the optimum on Bayesian agents, mean over priors."""
    own = [evaluate(solution.model, _policy(rows), prior, tol=_CUT).V for prior in PRIORS]
    return float(np.mean(solution.V(np.array(PRIORS)) - np.array(own)))


def _played(rows: pd.DataFrame, agent: GretherAgent) -> pd.DataFrame:
    """Biased planners' value a round on the estimated agents, mean over priors.

    ``hybrid`` is the optimum for Bayesian agents, ``aware`` the optimum for the agents as they are.
    """
    believed = seat_model("biased")
    model = dataclasses.replace(believed, agent=agent)
    weight = model.rounds_weight
    policies = {"treatment": _policy(rows), "hybrid": solve(believed, m=20).policy}
    values = {
        arm: float(np.mean([evaluate(model, policy, prior, tol=_CUT).V for prior in PRIORS])) / weight
        for arm, policy in policies.items()
    }
    values["aware"] = float(np.mean(solve_aware(model, max_doublings=1).V(np.array(PRIORS)))) / weight
    return pd.DataFrame([{"arm": arm, "value": float(value)} for arm, value in values.items()])


def _cluster(at: Mapping[str, Any]) -> str:
    return f"{at['scenario']}-{at['paraphrase']}"


def _chat(at: Mapping[str, Any], run: Any) -> ChatModel:
    """The model of the unit: a server's through the run's budget, else local, re-initialised for the control."""
    if "@" in at["model"]:
        return run.chat(at["model"])
    # Imported here so that exact units do not wait for torch.
    from gnomon.models.load import load
    from gnomon.models.local_chat import LocalChat
    from gnomon.models.randomize import randomize

    loaded = load(at["model"], attn="sdpa")
    run.note("model", loaded.provenance.to_dict())
    if at["arm"] != "random-init":
        return LocalChat(loaded)
    # One copy a cluster: each is a draw of its own.
    seed = 100 * list(SCENARIOS).index(at["scenario"]) + at["paraphrase"]
    twin = dataclasses.replace(loaded, model=randomize(loaded.model, "random-init", seed))
    return LocalChat(twin, variant=f"random-init {seed}")
