"""Prompts hold what the model conditions on; readouts recover scripted agents and planners; trap T8."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from gnomon.models.chat import ScriptedChat
from gnomon.society.planner.agents import GretherAgent
from gnomon.society.planner.estimation import cluster_slopes, estimate_agent
from gnomon.society.planner.evaluation import evaluate
from gnomon.society.planner.model import HerdModel, LinearCost
from gnomon.society.planner.policies import FixedPolicy
from gnomon.society.planner.readouts import (
    LLMAgent,
    LLMPolicy,
    ask_agents,
    ask_agents_to_state,
    ask_planner,
    parse_percentage,
    parse_precision,
)
from gnomon.society.planner.scenarios import PARAPHRASES, SCENARIOS, agent_prompt, planner_prompt
from gnomon.society.planner.scripted import LABEL_BIAS, scripted_agent, scripted_planner
from gnomon.society.planner.simulation import simulate
from gnomon.society.planner.solver import solve

CAR = SCENARIOS["car"]
MODEL = HerdModel(0.7, 0.9, LinearCost(0.3), objective="biased")
GRETHER = GretherAgent(0.8, 0.6, 1.4)
CELLS = {"beliefs": (0.2, 0.35, 0.5, 0.65, 0.8), "precisions": (0.6, 0.75, 0.9)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.7", 0.7),
        (".7", 0.7),
        ("70", 0.7),
        ("70%", 0.7),
        ("PRECISION: 0.85 because", 0.85),
        ("1", 1.0),
        ("100 %", 1.0),
    ],
)
def test_t8_precisions_are_read_as_meant(text, value):
    assert parse_precision(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["0.3", "30%", "no idea", "PRECISION:", "700"])
def test_t8_what_is_no_precision_is_refused(text):
    with pytest.raises(ValueError, match=r"no number|precision must lie"):
        parse_precision(text)


def test_percentages_are_probabilities():
    assert parse_percentage("about 35%") == pytest.approx(0.35)
    with pytest.raises(ValueError, match="probability must lie"):
        parse_percentage("250")


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=str)
@pytest.mark.parametrize("paraphrase", range(PARAPHRASES))
def test_scripted_agents_are_recovered_in_every_wording(scenario, paraphrase):
    asked = ask_agents(scripted_agent("grether", GRETHER, scenario), scenario, paraphrase, **CELLS)
    slopes = cluster_slopes(asked)
    assert (slopes["alpha"], slopes["gamma_agree"], slopes["gamma_contra"]) == pytest.approx((0.8, 0.6, 1.4), abs=1e-9)
    assert asked["label_bias"].mean() == pytest.approx(LABEL_BIAS)
    assert slopes["intercept"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("paraphrase", range(PARAPHRASES))
@pytest.mark.parametrize("objective", ["altruistic", "biased"])
def test_planner_prompts_hold_objective_cost_horizon_and_belief(paraphrase, objective):
    model = HerdModel(0.7, 0.9, LinearCost(0.3), objective=objective)
    system, user, begun = planner_prompt(CAR, paraphrase, model, belief=0.65)
    text = user["content"]
    for needed in ("65%", "0.090 at 1.00", "Precision 0.70 is free", "About 10 more people", "4 of 6"):
        assert needed in text
    assert ("0.060 at 0.50" if objective == "biased" else "0.000 at 0.50") in text
    assert begun["content"] == "PRECISION:"
    assert ("as many people as possible" in text) == (objective == "biased")
    assert "follow" not in planner_prompt(CAR, paraphrase, model, belief=0.65, variant="no-future")[1]["content"]
    assert "costs" not in planner_prompt(CAR, paraphrase, model, belief=0.65, variant="no-cost")[1]["content"]
    assert system["role"] == "system"


def test_label_orders_differ_in_nothing_but_the_letters():
    shown = [
        agent_prompt(CAR, 1, belief=0.4, precision=0.7, signal=1, swapped=swapped)[1]["content"]
        for swapped in (False, True)
    ]
    assert sorted(shown[0].split()) == sorted(shown[1].split())
    assert "A: buy the car" in shown[0]
    assert "B: buy the car" in shown[1]


def test_scripted_planners_are_recovered_from_their_answers():
    optimum = solve(MODEL, m=20).policy
    chat = scripted_planner("scripted", {"biased": optimum, "altruistic": FixedPolicy(1.0)})
    beliefs = (0.1, 0.3, 0.6, 0.9)
    asked = ask_planner(chat, CAR, 0, MODEL, beliefs=beliefs)
    assert asked["precision"].to_numpy() == pytest.approx(optimum(np.array(beliefs)), abs=0.01)


def test_planners_behind_servers_are_sampled_and_unreadable_replies_counted():
    replies = itertools.cycle(["PRECISION: 0.8", "PRECISION: 0.3", "I cannot say", "0.6"])
    chat = ScriptedChat("server", reply=lambda conversation: next(replies))
    (row,) = ask_planner(chat, CAR, 0, MODEL, beliefs=[0.5]).to_dict("records")
    assert row["unparsed"] == pytest.approx(0.5)
    assert row["precision"] == pytest.approx((3 * 0.8 + 2 * 0.6) / 5)
    assert row["mode"] == 0.8


def test_agents_without_an_answer_are_missing():
    asked = ask_agents(ScriptedChat("mute", reply=lambda conversation: ""), CAR, 0, beliefs=[0.4], precisions=[0.7])
    assert asked["logodds"].isna().all()


def test_stated_beliefs_are_read():
    chat = ScriptedChat(
        "talker", reply=lambda conversation: "80%" if "is unreliable" not in conversation[1]["content"] else "so-so"
    )
    asked = ask_agents_to_state(chat, CAR, 0, beliefs=[0.4], precisions=[0.7])
    assert asked["logodds"].iloc[0] == pytest.approx(math.log(4))
    assert np.isnan(asked["logodds"].iloc[1])


def test_a_model_can_sit_in_both_seats_of_a_simulation():
    agent = LLMAgent(scripted_agent("bayesian", GretherAgent(), CAR), CAR)
    planner = LLMPolicy(scripted_planner("p", {"biased": FixedPolicy(0.8), "altruistic": FixedPolicy(0.8)}), CAR, MODEL)
    runs = simulate(MODEL, planner, 0.5, agents=agent, n_runs=50, rounds=5, seed=0)
    assert np.allclose(runs.q, 0.8, atol=0.01)
    assert evaluate(MODEL, planner, 0.5).share_G == pytest.approx(0.5, abs=0.02)


def test_a_silent_model_stops_the_simulation_with_the_belief_it_was_asked_at():
    planner = LLMPolicy(ScriptedChat("mute", reply=lambda conversation: "no"), CAR, MODEL)
    with pytest.raises(ValueError, match="set no precision at belief 50%"):
        planner(0.5)


def planted(rng, clusters=12, noise=0.3):
    rows = []
    for cluster in range(clusters):
        frame = ask_agents(scripted_agent("g", GRETHER, CAR), CAR, cluster % 4, **CELLS)
        frame["logodds"] += rng.normal(0, 0.2) + rng.normal(0, noise, len(frame))
        rows.append(frame.assign(cluster=cluster))
    return pd.concat(rows)


def test_noisy_answers_give_intervals_that_hold_the_truth():
    hits = np.zeros(3)
    for seed in range(20):
        fit = estimate_agent(planted(np.random.default_rng(seed)))
        read = (fit.alpha, fit.gamma_agree, fit.gamma_contra)
        hits += [estimate.low <= truth <= estimate.high for estimate, truth in zip(read, (0.8, 0.6, 1.4), strict=True)]
    assert hits.min() >= 16
    assert fit.reacts
    assert fit.r2 > 0.8


def test_an_agent_that_ignores_everything_is_said_not_to_react():
    records = planted(np.random.default_rng(0))
    records["logodds"] = np.random.default_rng(1).normal(0, 0.02, len(records))
    fit = estimate_agent(records)
    assert not fit.reacts
    assert fit.r2 < 0.3


def test_designs_that_identify_nothing_are_refused():
    asked = ask_agents(scripted_agent("g", GRETHER, CAR), CAR, 0, beliefs=[0.5], precisions=[0.7])
    with pytest.raises(ValueError, match="vary belief, precision and signal"):
        cluster_slopes(asked)
