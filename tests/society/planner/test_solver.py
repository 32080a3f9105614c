"""The solver against closed forms F1-F8, brute force, the reference lattice and the naive grid; traps T1, T4, T6."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from gnomon.society.planner.agents import GretherAgent
from gnomon.society.planner.grid import solve_aware, solve_belief_grid
from gnomon.society.planner.lattice import Lattice, move_table
from gnomon.society.planner.model import CallableCost, HerdModel, LinearCost, PowerCost
from gnomon.society.planner.solution import ConvergenceError, Solution
from gnomon.society.planner.solver import best_steps, solve, solve_rounds

SHOW = HerdModel(0.7, 0.9, LinearCost(0.3))
BIASED = dataclasses.replace(SHOW, objective="biased")
models = st.builds(
    lambda p, k, delta, objective: HerdModel(p, delta, LinearCost(k), objective=objective),
    st.sampled_from([0.6, 0.7, 0.8]),
    st.floats(0.05, 2.0),
    st.sampled_from([0.0, 0.3, 0.6, 0.9]),
    st.sampled_from(["altruistic", "biased"]),
)


def uncontrolled(p, delta):
    """F6 by hand: value at p and at 1/2 when the planner may not act."""
    p_b = 2 * p * (1 - p)
    at_p = (-(1 - p) - delta * (1 - p) ** 2 / (1 - delta) - delta * p_b * (1 - p)) / (1 - delta**2 * p_b)
    return at_p, -(1 - p) + delta * at_p


@pytest.mark.parametrize("objective", ["altruistic", "biased"])
def test_f1_in_a_cascade_nothing_changes(objective):
    model = HerdModel(0.7, 0.9, LinearCost(50.0), objective=objective, q_min=0.7, q_max=0.7)
    solution = solve(model)
    b = float(solution.beliefs[np.searchsorted(solution.beliefs, 0.85)])
    low = float(solution.beliefs[np.searchsorted(solution.beliefs, 0.15)])
    if objective == "altruistic":
        assert solution.V(b) == pytest.approx(-(1 - b) / 0.1, abs=1e-8)
    else:
        assert solution.V(b) == pytest.approx(0.0, abs=1e-8)
        assert solution.V(low) == pytest.approx(-10.0, abs=1e-8)


def test_f2_certainty_bought_at_once():
    assert solve(SHOW).V(0.5) == pytest.approx(-0.09, abs=1e-8)


def test_f3_blurring_for_ever_and_t1_the_value_jumps_at_one_half():
    solution = solve(BIASED)
    assert solution.just_above(0.5) == pytest.approx(-0.3 * 0.2 / 0.1, abs=1e-8)
    assert solution.V(0.6) == pytest.approx(-0.3 * 0.1 / 0.1, abs=1e-4)
    assert solution.just_above(0.5) - float(solution.V(0.5)) > 0.8


@pytest.mark.parametrize(("p", "k"), [(0.7, 0.3), (0.6, 0.5), (0.8, 0.9), (0.7, 2.0)])
def test_f4_the_myopic_threshold(p, k):
    solution = solve(HerdModel(p, 0.0, LinearCost(k)))
    certain = [phase for phase in solution.phases() if phase.kind == "max"]
    price = k * (1 - p)
    if price < 1 - p:
        assert certain[0].b_low == pytest.approx(price, abs=logit(p) / 40 / 4)
    else:
        assert not certain


def test_f5_the_least_revealing_precision_lands_on_one_half_and_twice_the_log_odds():
    lattice = Lattice.over(BIASED, 40, 16.0)
    table = move_table(BIASED, lattice)
    row = [int(move) for move in table.move].index(2)
    state = lattice.n + 7
    assert lattice.logodds[table.down[row, state]] == 0.0
    b = expit(7 * lattice.step)
    assert expit(lattice.logodds[table.up[row, state]]) == pytest.approx(b**2 / (b**2 + (1 - b) ** 2))


@pytest.mark.parametrize(
    ("p", "delta", "at_p", "half"), [(0.7, 0.9, -1.854198, -1.968778), (0.8, 0.6, -0.337251, -0.402351)]
)
def test_f6_the_uncontrolled_value_jumps_down_at_p(p, delta, at_p, half):
    solution = solve(HerdModel(p, delta, LinearCost(0.3), q_max=p))
    assert (float(solution.V(p)), float(solution.V(0.5))) == pytest.approx(uncontrolled(p, delta), abs=1e-8)
    assert (float(solution.V(p)), float(solution.V(0.5))) == pytest.approx((at_p, half), abs=1e-6)
    assert solution.just_above(p) == pytest.approx(-(1 - p) / (1 - delta), abs=1e-8)
    assert float(solution.V(p)) - solution.just_above(p) >= delta * 2 * p * (1 - p) * (p - 0.5) / (1 - delta)


def brute_force(model, steps, step, b, left):
    """Exact recursion over every precision of a list, and over limits from both sides, on the tree of beliefs."""
    if left == 0:
        return 0.0
    best = -math.inf
    for lam in steps:
        q = expit(lam)
        l = logit(b)  # noqa: E741
        if abs(l) <= lam + 1e-12:
            good = b * q + (1 - b) * (1 - q)
            loss = 1 - q if model.objective == "altruistic" else 1 - good
            ahead = good * brute_force(model, steps, step, expit(l + lam), left - 1)
            ahead += (1 - good) * brute_force(model, steps, step, expit(l - lam), left - 1)
        else:
            loss = min(b, 1 - b) if model.objective == "altruistic" else float(b < 0.5)
            ahead = brute_force(model, steps, step, b, left - 1)
        best = max(best, -float(model.spend(q)) - model.C * loss + model.delta * ahead)
    return best


@pytest.mark.parametrize("delta", [0.8, 1.0])
@pytest.mark.parametrize("b_steps", [0, 1, -3])
def test_f7_a_finite_horizon_equals_brute_force(delta, b_steps):
    m, rounds = 4, 4
    step = float(logit(0.7)) / m
    model = HerdModel(0.7, delta, LinearCost(0.2), horizon=rounds, q_max=float(expit(6 * step)))
    b = float(expit(b_steps * step))
    steps = [i * step for i in range(7)]
    first = solve_rounds(model, m=m, L=40 * step)[0]
    assert float(first.V(b)) == pytest.approx(brute_force(model, steps, step, b, rounds), abs=1e-12)


@pytest.mark.parametrize("delta", [0.0, 0.3, 0.6, 0.9])
def test_f8_the_threshold_of_certainty_falls_with_patience(delta):
    solution = solve(HerdModel(0.6, delta, LinearCost(0.3)))
    certain = [phase.b_low for phase in solution.phases() if phase.kind == "max"]
    assert certain[0] == pytest.approx((1 - delta) * 0.12, abs=float(logit(0.6)) / 40 / 4)


def test_published_values_of_the_biased_planner_and_t4_atoms_matter():
    assert solve(BIASED).V(0.4) == pytest.approx(-2.8885, abs=5e-5)
    coarse = HerdModel(0.6, 0.95, LinearCost(1.0), objective="biased")
    assert solve(coarse).V(0.4) == pytest.approx(-6.0931, abs=5e-5)
    # With the limits as states a coarse lattice errs by its interpolation; without them by .11, the step (m = 20).
    assert solve(BIASED, m=20).V(0.4) == pytest.approx(float(solve(BIASED, m=80).V(0.4)), abs=5e-4)


@settings(max_examples=6, deadline=None)
@given(models.filter(lambda model: model.delta < 0.9))
def test_the_endpoint_solution_is_the_full_lattice_solution(model):
    endpoint, full = solve(model, m=6, L=6.0), solve(model, "lattice", m=6, L=6.0)
    assert np.max(np.abs(endpoint.values - full.values)) < 1e-6


@settings(max_examples=10, deadline=None)
@given(models)
def test_after_verification_no_lattice_precision_is_better(model):
    solution = solve(model, m=12)
    lattice = Lattice.over(model, 12, 16.0)
    values = np.empty(lattice.size)
    values[lattice.order] = solution.values
    best, _ = best_steps(model, lattice, values)
    assert np.max(best - values[: lattice.points]) <= 1e-6


def test_the_naive_grid_converges_to_the_lattice():
    beliefs = np.linspace(0.05, 0.95, 19)
    exact = solve(SHOW).V(beliefs)
    errors = [
        np.max(np.abs(solve_belief_grid(SHOW, beliefs=n, precisions=n // 5 + 1).V(beliefs) - exact)) for n in (51, 201)
    ]
    assert errors[1] < errors[0] / 4 + 1e-9
    assert errors[1] <= 3e-3


@pytest.mark.parametrize("precisions", [51, 101])
def test_a_grid_loses_a_step_of_precision_where_the_biased_planner_blurs(precisions):
    # Just below the belief for ever is a supremum; precisions h apart stay h below it, at k h / (1 - delta).
    step = 0.5 / (precisions - 1)
    beliefs = np.array([0.55, 0.6, 0.65])
    grid = solve_belief_grid(BIASED, beliefs=201, precisions=precisions, tol=1e-7)
    assert solve(BIASED).V(beliefs) - grid.V(beliefs) == pytest.approx(0.3 * step / 0.1, abs=1e-4)


@settings(max_examples=8, deadline=None)
@given(models)
def test_the_altruistic_value_is_symmetric(model):
    solution = solve(dataclasses.replace(model, objective="altruistic"), m=12)
    assert np.allclose(solution.values, solution.values[::-1], atol=1e-9)


@settings(max_examples=8, deadline=None)
@given(models, st.floats(1.0, 3.0))
def test_dearer_precision_never_helps(model, factor):
    dearer = dataclasses.replace(model, cost=LinearCost(model.cost.k * factor))
    assert np.max(solve(dearer, m=12).values - solve(model, m=12).values) <= 1e-6


@settings(max_examples=8, deadline=None)
@given(models, st.floats(0.5, 3.0))
def test_values_scale_with_the_stakes(model, stakes):
    scaled = dataclasses.replace(model, C=stakes, cost=LinearCost(model.cost.k * stakes))
    assert np.allclose(solve(scaled, m=12).values, stakes * solve(model, m=12).values, atol=1e-6)


@settings(max_examples=8, deadline=None)
@given(models)
def test_forbidding_obfuscation_never_raises_the_planners_value(model):
    free = dataclasses.replace(model, objective="biased")
    bound = dataclasses.replace(free, q_min=free.p)
    assert np.max(solve(bound, m=12).values - solve(free, m=12).values) <= 1e-8


def test_free_certainty_is_perfect():
    assert np.max(np.abs(solve(HerdModel(0.7, 0.9, LinearCost(0.0))).values)) < 1e-12


def test_t6_great_patience_is_solved_to_the_same_residual():
    solution = solve(HerdModel(0.7, 0.999, LinearCost(0.3), objective="biased"), m=20)
    assert solution.residual < 1e-8


def test_a_convex_cost_has_interior_optima_that_verification_finds():
    solution = solve(HerdModel(0.6, 0.3, PowerCost(2.0, 2.0)))
    grid = solve_belief_grid(HerdModel(0.6, 0.3, PowerCost(2.0, 2.0)))
    assert solution.n_added > 0
    assert 0.9 < float(solution.q(0.5)) < 0.99
    assert np.max(np.abs(solution.V(np.linspace(0.1, 0.9, 9)) - grid.V(np.linspace(0.1, 0.9, 9)))) < 1e-3


def test_a_users_cost_is_solved_like_ours():
    own = HerdModel(0.7, 0.9, CallableCost(lambda q: 0.3 * np.abs(q - 0.7)), objective="biased")
    assert np.allclose(solve(own, m=12).values, solve(BIASED, m=12).values)


def test_an_aware_planner_of_bayesian_agents_approaches_the_exact_value():
    beliefs = np.array([0.2, 0.4, 0.6, 0.8])
    aware = solve_aware(SHOW, max_doublings=2)
    assert np.max(np.abs(aware.V(beliefs) - solve(SHOW).V(beliefs))) < 5e-3


def test_knowing_its_agents_pays():
    agent = GretherAgent(gamma_agree=0.6, gamma_contra=1.4)
    model = dataclasses.replace(HerdModel(0.7, 0.9, LinearCost(1.0), objective="biased"), agent=agent)
    from gnomon.society.planner.evaluation import evaluate

    hybrid = evaluate(model, solve(dataclasses.replace(model, agent=BIASED.agent)).policy, 0.65, tol=1e-7)
    assert float(solve_aware(model, max_doublings=2).V(0.65)) > hybrid.V + 1.0


def test_solutions_survive_json():
    solution = solve(BIASED, m=8)
    again = Solution.from_json(solution.to_json())
    beliefs = np.array([0.1, 0.4, 0.5, 0.6, 0.9])
    assert np.array_equal(again.V(beliefs), solution.V(beliefs))
    assert np.array_equal(again.q(beliefs), solution.q(beliefs))
    with pytest.raises(ValueError, match="schema None"):
        Solution.from_json("{}")


def test_what_the_lattice_cannot_do_is_refused():
    with pytest.raises(ValueError, match="m must be >= 4"):
        solve(SHOW, m=3)
    with pytest.raises(ValueError, match="use solve_rounds"):
        solve(dataclasses.replace(SHOW, horizon=3))
    with pytest.raises(ValueError, match="use solve_aware"):
        solve(dataclasses.replace(SHOW, agent=GretherAgent(alpha=0.5)))
    with pytest.raises(ValueError, match="finite horizon"):
        solve_rounds(SHOW)
    with pytest.raises(ConvergenceError, match="residual"):
        solve(BIASED, "lattice", m=6, L=4.0, max_iter=3)


def test_tables_have_a_row_for_every_state():
    frame = solve(SHOW, m=8).to_frame()
    assert list(frame) == ["belief", "side", "value", "precision", "move"]
    assert frame["belief"].is_monotonic_increasing
    assert set(itertools.chain(frame["move"])) <= {"baseline", "perfect", "minimal", "interior"}
