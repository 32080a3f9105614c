"""Exact evaluation and simulation against each other, closed forms and measured numbers; traps T2, T7, T9, T10."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.society.planner import simulation
from gnomon.society.planner.agents import BayesianAgent, GretherAgent
from gnomon.society.planner.deviation import policy_deviation
from gnomon.society.planner.evaluation import evaluate
from gnomon.society.planner.model import HerdModel, LinearCost
from gnomon.society.planner.phase_diagram import myopic_policy, without_obfuscation
from gnomon.society.planner.policies import CallablePolicy, FixedPolicy, InterpolatedPolicy, RandomPolicy
from gnomon.society.planner.simulation import cascade_time, run_welfare, simulate, wrong_cascade_rate
from gnomon.society.planner.solver import solve

SHOW = HerdModel(0.7, 0.9, LinearCost(0.3))
BIASED = dataclasses.replace(SHOW, objective="biased")


@pytest.fixture(scope="module")
def optimum():
    return solve(BIASED)


@pytest.mark.parametrize("b", [0.4, 0.5, 0.55, 0.6, 0.77])
def test_the_optimal_policy_is_worth_the_optimal_value(optimum, b):
    # The policy approaches its suprema within 4e-6, hence not equal to rounding.
    assert pytest.approx(float(optimum.V(b)), abs=2e-4) == evaluate(BIASED, optimum.policy, b).V


def test_t2_just_above_one_half_is_not_one_half(optimum):
    policy = optimum.policy
    assert policy(0.5 + 1e-6) < 0.5 + 1e-6
    assert policy(0.5) == pytest.approx(0.5, abs=1e-5)
    assert policy(0.4) > 0.6
    # A lookup by the nearest lattice point does at 1/2+ what is right at 1/2, reveal: half of the value is lost.
    nearest = CallablePolicy(lambda b: np.where(np.abs(b - 0.5) < 1e-3, np.maximum(b, 1 - b) + 1e-6, policy(b)))
    assert pytest.approx(-2.889, abs=1e-3) == evaluate(BIASED, policy, 0.4).V
    assert evaluate(BIASED, nearest, 0.4).V < -4


def test_the_baseline_is_worth_the_uncontrolled_value():
    free = solve(dataclasses.replace(SHOW, q_max=0.7))
    for b in (0.5, 0.7):
        assert pytest.approx(float(free.V(b)), abs=1e-8) == evaluate(SHOW, FixedPolicy(0.7), b).V


def test_measured_welfare_at_the_showcase_setting(optimum):
    baseline, biased = evaluate(BIASED, FixedPolicy(0.7), 0.5), evaluate(BIASED, optimum.policy, 0.5)
    assert pytest.approx((-0.197, -0.197), abs=5e-4) == (baseline.W_G, baseline.W_B)
    assert (biased.W_G, biased.W_B, biased.spend, biased.share_G) == pytest.approx(
        (-0.091, -0.909, 0.060, 0.909), abs=5e-4
    )
    altruistic = evaluate(SHOW, solve(SHOW).policy, 0.5)
    assert (altruistic.W, altruistic.spend) == pytest.approx((0.0, 0.009), abs=1e-9)
    assert pytest.approx(-0.42, abs=5e-3) == evaluate(BIASED, myopic_policy(BIASED), 0.5).W_B


def test_most_of_the_harm_is_obfuscation_and_random_spend_helps(optimum):
    harm = evaluate(BIASED, optimum.policy, 0.5)
    ruled = evaluate(BIASED, solve(without_obfuscation(BIASED)).policy, 0.5)
    random = evaluate(BIASED, RandomPolicy.matching(BIASED, harm.spend), 0.5)
    baseline = evaluate(BIASED, FixedPolicy(0.7), 0.5)
    assert pytest.approx(-0.411, abs=5e-3) == ruled.W_B
    assert (baseline.W_B - ruled.W_B) / (baseline.W_B - harm.W_B) < 0.35
    assert random.W_B > baseline.W_B


@pytest.mark.parametrize("spend", [0.0, 0.01, 0.06, 0.085])
def test_t10_random_policies_match_spend_exactly(spend):
    policy = RandomPolicy.matching(BIASED, spend)
    assert evaluate(BIASED, policy, 0.5).spend == pytest.approx(spend, rel=1e-6, abs=1e-12)


def test_no_random_policy_outspends_the_dearest_precision():
    with pytest.raises(ValueError, match=r"the dearest precision costs 0.09 a round"):
        RandomPolicy.matching(BIASED, 0.2)


def test_obfuscation_is_brittle_against_over_reaction():
    model = HerdModel(0.7, 0.9, LinearCost(1.0), objective="biased")
    policy = solve(model).policy
    asymmetric = GretherAgent(gamma_agree=0.6, gamma_contra=1.4)
    worth = {
        agent: evaluate(dataclasses.replace(model, agent=agent), policy, 0.65).W_B
        for agent in (BayesianAgent(), asymmetric, GretherAgent(gamma_agree=0.6, gamma_contra=0.6))
    }
    assert list(worth.values()) == pytest.approx([-1.0, -0.35, -1.0], abs=1e-3)


policies = st.one_of(
    st.floats(0.5, 1.0).map(FixedPolicy),
    st.floats(0.0, 0.3).map(lambda spread: RandomPolicy(0.7, spread)),
    st.tuples(st.floats(0.5, 1.0), st.floats(0.5, 1.0)).map(lambda q: InterpolatedPolicy((0.2, 0.8), q)),
)
agents = st.sampled_from([BayesianAgent(), GretherAgent(0.9, 0.6, 1.4), GretherAgent(temperature=0.7)])


@settings(max_examples=20, deadline=None)
@given(policies, agents, st.floats(0.05, 0.95), st.sampled_from(["altruistic", "biased"]))
def test_simulation_agrees_with_exact_evaluation(policy, agent, b, objective):
    model = HerdModel(0.7, 0.8, LinearCost(0.3), objective=objective, agent=agent)
    exact = evaluate(model, policy, b, tol=1e-6)
    runs = simulate(model, policy, b, n_runs=3000, rounds=50, seed=7)
    welfare = run_welfare(runs, 0.8)
    slack = 4.5 * welfare.std() / 3000**0.5 + 0.8**50 + exact.error + 1e-9
    assert abs(welfare.mean() - exact.W) < slack
    assert pytest.approx(b * exact.W_G + (1 - b) * exact.W_B, abs=1e-9) == exact.W


def test_t9_welfare_given_the_state_uses_its_own_signals(optimum):
    for good, exact in ((True, "W_G"), (False, "W_B")):
        runs = simulate(BIASED, optimum.policy, 0.4, good=good, n_runs=20_000, rounds=120, seed=1)
        welfare = run_welfare(runs, 0.9)
        expected = getattr(evaluate(BIASED, optimum.policy, 0.4), exact)
        assert abs(welfare.mean() - expected) < 4 * welfare.std() / 20_000**0.5 + 1e-5


def test_simulated_beliefs_are_a_martingale():
    runs = simulate(SHOW, FixedPolicy(0.8), 0.45, n_runs=40_000, rounds=12, seed=2)
    assert np.max(np.abs(runs.b.mean(axis=0) - 0.45)) < 4 * 0.5 / 40_000**0.5


def test_planners_with_the_same_seed_share_their_luck():
    first = simulate(SHOW, FixedPolicy(0.7), 0.5, n_runs=500, rounds=10, seed=3)
    second = simulate(SHOW, FixedPolicy(0.8), 0.5, n_runs=500, rounds=10, seed=3)
    assert np.array_equal(first.good, second.good)
    right = [(runs.s[:, 0] > 0) == runs.good for runs in (first, second)]
    assert np.all(right[1][right[0]])


def test_t7_broken_cascades_are_counted_not_divided_by():
    noisy = GretherAgent(temperature=1.0)
    runs = simulate(SHOW, FixedPolicy(0.6), 0.8, agents=noisy, n_runs=500, rounds=20, seed=4)
    assert runs.off_path_actions > 0
    assert np.isfinite(runs.b).all()
    assert evaluate(dataclasses.replace(SHOW, agent=noisy), FixedPolicy(0.6), 0.8).off_path > 0


def test_cascades_of_the_baseline_match_their_closed_form():
    p = 0.7
    runs = simulate(SHOW, FixedPolicy(p), 0.5, n_runs=40_000, rounds=60, seed=5)
    exact = evaluate(SHOW, FixedPolicy(p), 0.5)
    wrong = (1 - p) ** 2 / (p**2 + (1 - p) ** 2)
    assert exact.cascade == pytest.approx(1.0, abs=1e-6)
    assert exact.wrong_cascade == pytest.approx(wrong, abs=1e-6)
    assert wrong_cascade_rate(runs) == pytest.approx(wrong, abs=0.01)
    times = cascade_time(runs)
    assert times[np.isfinite(times)].mean() == pytest.approx(exact.cascade_time, abs=0.05)


def test_a_finite_horizon_ends_the_sum():
    model = dataclasses.replace(SHOW, delta=1.0, horizon=3)
    exact = evaluate(model, FixedPolicy(0.7), 0.5)
    # Two rounds follow their signals, the third a lead of two if there is one.
    third = 0.49 * 0 + 0.09 * 1 + 0.42 * 0.3
    assert pytest.approx(-(0.3 + 0.3 + third) / 3, abs=1e-12) == exact.W


@pytest.mark.parametrize("q", [0.3, 1.2, float("nan")])
def test_policies_refuse_impossible_precisions(q):
    with pytest.raises(ValueError, match=r"precision q must lie in \[0.5, 1\]"):
        CallablePolicy(lambda b: np.full(b.shape, q))(0.5)


def test_bad_sizes_and_beliefs_are_refused():
    with pytest.raises(ValueError, match="n_runs and rounds must be >= 1"):
        simulate(SHOW, FixedPolicy(0.7), 0.5, n_runs=0)
    with pytest.raises(ValueError, match="belief b must lie"):
        evaluate(SHOW, FixedPolicy(0.7), 1.2)
    with pytest.raises(ValueError, match="beliefs must increase"):
        InterpolatedPolicy((0.8, 0.2), (0.6, 0.7))
    with pytest.raises(ValueError, match="more than 100"):
        evaluate(
            dataclasses.replace(SHOW, agent=GretherAgent(temperature=1.0)),
            FixedPolicy(0.8),
            0.5,
            update="aware",
            max_states=100,
        )


def test_deviations_are_shares_of_the_range_and_of_the_optimum(optimum):
    found = policy_deviation(FixedPolicy(0.75), FixedPolicy(0.6), [0.2, 0.8])
    assert found.of_range == pytest.approx([0.3, 0.3])
    assert found.relative == pytest.approx([0.25, 0.25])
    assert (found.share_within(0.3001), found.share_within(0.29)) == (1.0, 0.0)
    assert policy_deviation(optimum.policy, optimum.policy, np.linspace(0, 1, 11)).of_range.max() == 0.0


def test_llm_like_agents_act_at_random_though_they_name_no_temperature():
    class Hesitant:
        def probability_good(self, l, lam, signal):  # noqa: E741
            return np.full(np.broadcast_shapes(np.shape(l), np.shape(lam)), 0.7 if signal > 0 else 0.4)

    runs = simulate(SHOW, FixedPolicy(0.8), 0.5, agents=Hesitant(), good=True, n_runs=20_000, rounds=2, seed=6)
    assert np.mean(runs.a[:, 0] > 0) == pytest.approx(0.8 * 0.7 + 0.2 * 0.4, abs=0.02)


def test_forgetting_beliefs_changes_nothing(monkeypatch):
    noisy = GretherAgent(temperature=0.5)
    options = {"agents": noisy, "update": "aware", "n_runs": 50, "rounds": 12, "seed": 7}
    kept = simulate(SHOW, FixedPolicy(0.7), 0.5, **options)
    monkeypatch.setattr(simulation, "_CELLS", 60)
    forgetful = simulate(SHOW, FixedPolicy(0.7), 0.5, **options)
    assert len(forgetful.cells.q) > 60
    for name in ("b", "q", "s", "a", "u", "cost", "ignored"):
        assert np.array_equal(getattr(kept, name), getattr(forgetful, name)), name


def test_random_policies_draw_anew_each_round_and_share_the_signals_luck():
    coin = RandomPolicy(0.7, 0.2)
    random, fixed = (simulate(SHOW, policy, 0.5, n_runs=4000, rounds=6, seed=8) for policy in (coin, FixedPolicy(0.7)))
    assert sorted(set(random.q.ravel().round(12))) == pytest.approx([0.5, 0.9])
    assert np.mean(random.q == random.q.max()) == pytest.approx(0.5, abs=0.02)
    assert 0.3 < np.mean(random.q[:, 0] == random.q[:, 1]) < 0.7
    assert np.array_equal(random.good, fixed.good)
    right = [(runs.s > 0) == runs.good[:, None] for runs in (random, fixed)]
    assert np.all(right[0][(random.q > 0.7) & right[1]])
