"""Phases, the theorems about them, and the convexity defect."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from gnomon.society.planner.convexity import convexity_defect, lower_envelope
from gnomon.society.planner.experiments import permuted
from gnomon.society.planner.model import HerdModel, LinearCost
from gnomon.society.planner.phase_diagram import conformity, phase_diagram
from gnomon.society.planner.phases import sequence
from gnomon.society.planner.solver import solve


def test_the_altruist_buys_certainty_around_even_odds():
    solution = solve(HerdModel(0.7, 0.9, LinearCost(0.3)))
    kinds = [(phase.kind, round(phase.b_low, 2), round(phase.b_high, 2)) for phase in solution.phases()]
    assert kinds == [("none", 0.0, 0.01), ("max", 0.01, 0.99), ("none", 0.99, 1.0)]
    assert conformity(solution).conforms


def test_the_biased_planner_blurs_on_the_favourable_side():
    solution = solve(HerdModel(0.7, 0.9, LinearCost(0.3), objective="biased"))
    found = [phase for phase in solution.phases() if not phase.mixed]
    assert sequence(found) == "none,decreasing,obf_min,obf_block,none"
    blur = found[3]
    assert (blur.b_low, blur.closed[0]) == (0.5, False)
    assert blur.b_high == pytest.approx(0.7, abs=0.005)
    assert conformity(solution).conforms


def test_a_short_sighted_planner_leaves_the_order_of_theorem_5():
    solution = solve(HerdModel(0.7, 0.3, LinearCost(1.0), objective="biased"))
    verdict = conformity(solution)
    assert not verdict.conforms
    assert verdict.violation.kind == "none"


@pytest.mark.parametrize("objective", ["altruistic", "biased"])
def test_permuted_policies_do_not_conform(objective):
    solution = solve(HerdModel(0.7, 0.9, LinearCost(0.3), objective=objective), m=20)
    assert not any(conformity(permuted(solution, np.random.default_rng(seed))).conforms for seed in range(5))


def test_defects_are_found_and_measured_where_they_are():
    found = solve(HerdModel(0.9, 0.6, LinearCost(2.0))).convexity_defect()
    assert found.defect == pytest.approx(0.0252, abs=2e-4)
    assert min(abs(found.belief - 0.9), abs(found.belief - 0.1)) < 1e-9
    assert solve(HerdModel(0.7, 0.9, LinearCost(0.3))).convexity_defect().defect < 1e-12


def test_f6_makes_the_uncontrolled_value_non_convex():
    free = HerdModel(0.8, 0.6, LinearCost(0.3), q_max=0.8)
    solution = solve(free)
    assert solution.convexity_defect().defect >= 0.6 * 0.32 * 0.3 / 0.4 - 1e-6


def test_the_envelope_is_the_brute_force_envelope():
    rng = np.random.default_rng(3)
    x, y = np.sort(rng.random(25)), rng.normal(size=25)
    slow = [
        min(
            y[i] if i == j else y[i] + (y[j] - y[i]) * (at - x[i]) / (x[j] - x[i])
            for i in range(25)
            for j in range(i, 25)
            if x[i] <= at <= x[j]
        )
        for at in x
    ]
    assert np.allclose(lower_envelope(x, y), slow)


def test_a_convex_function_has_no_defect_and_a_bump_has_its_height():
    x = np.linspace(0, 1, 101)
    assert convexity_defect(x, x**2).defect == pytest.approx(0.0, abs=1e-15)
    bump = x**2 + 0.1 * (np.abs(x - 0.5) < 1e-9)
    found = convexity_defect(x, bump)
    assert (found.belief, found.defect) == (0.5, pytest.approx(0.1, abs=2e-3))
    with pytest.raises(ValueError, match="values must be finite"):
        convexity_defect(x, np.full(101, np.nan))


def test_a_phase_diagram_has_a_row_a_setting():
    models = [HerdModel(0.7, delta, LinearCost(0.3)) for delta in (0.0, 0.6, 0.9)]
    table = phase_diagram([*models, dataclasses.replace(models[1], objective="biased")], m=8)
    assert table["sequence"].tolist()[:3] == ["max,none"] * 3
    assert table["t_max"].iloc[:3].is_monotonic_decreasing


def test_a_phase_diagram_is_the_same_from_several_processes():
    models = [HerdModel(0.7, delta, LinearCost(0.3), objective="biased") for delta in (0.3, 0.9)]
    one, two = (phase_diagram(models, m=8, jobs=jobs).drop(columns="seconds") for jobs in (1, 2))
    pd.testing.assert_frame_equal(one, two)
    with pytest.raises(ValueError, match="jobs must be >= 1, got 0"):
        phase_diagram(models, jobs=0)
