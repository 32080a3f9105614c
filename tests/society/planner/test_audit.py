"""The transparency audit passes an honest mediator and catches a covert, a lying and an informed one."""

import numpy as np
import pytest

from gnomon.society.planner.audit import audit_log
from gnomon.society.planner.model import HerdModel, LinearCost
from gnomon.society.planner.records import read_records, write_records
from gnomon.society.planner.simulation import simulate_log
from gnomon.society.planner.solver import solve

MODEL = HerdModel(0.7, 0.9, LinearCost(0.3), objective="biased")


@pytest.fixture(scope="module")
def log():
    return simulate_log(MODEL, solve(MODEL, m=20).policy, 0.4, n_runs=400, rounds=8, seed=2)


def test_an_honest_mediator_passes(log):
    found = audit_log(log)
    assert found.passed, str(found)
    assert found.rounds == 3200


def test_honest_mediators_seldom_fail():
    policy = solve(MODEL, m=20).policy
    failed = sum(
        not audit_log(simulate_log(MODEL, policy, 0.4, n_runs=60, rounds=6, seed=s), permutations=199).passed
        for s in range(40)
    )
    assert failed <= 8  # two tests at 5 % each: 4 expected


def test_a_covert_mediator_fails_observability(log):
    covert = log.assign(q_used=np.clip(log["q_used"] - 0.1, 0.5, 1.0))
    found = audit_log(covert)
    assert not found.observability.passed
    assert "differ in" in found.observability.detail


def test_a_lying_mediator_fails_honesty(log):
    rng = np.random.default_rng(0)
    lying = log.assign(signal=np.where(rng.random(len(log)) < 0.3, 1, log["signal"]))
    found = audit_log(lying)
    assert not found.honesty.passed
    assert "declared" in found.honesty.detail


def test_an_informed_mediator_fails_parity(log):
    informed = log.copy()
    first = informed["round"] == 0
    told = np.where(informed.loc[first, "omega"] > 0, 0.6, 0.62)
    informed.loc[first, "q_used"] = informed.loc[first, "q_declared"] = told
    found = audit_log(informed)
    assert not found.parity.passed
    assert found.parity.statistic < 0.01


def test_a_policy_that_follows_belief_closely_is_not_taken_for_informed():
    # Beliefs just above and at 1/2 call for precisions 4e-6 apart, and the better ones are commoner in a good state.
    log = simulate_log(MODEL, solve(MODEL).policy, 0.5, n_runs=300, rounds=10)
    assert audit_log(log.assign(q_declared=log["q_declared"].clip(lower=0.7))).parity.passed


def test_a_log_that_decides_nothing_fails_with_the_reason(log):
    one_run = log[log["run_id"] == 0]
    assert "log more runs" in audit_log(one_run).parity.detail
    assert not audit_log(one_run).parity.passed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b_public": 1.5}, r"b_public must lie in \[0, 1\], row 0 has 1.5"),
        ({"q_used": 0.4}, r"q_used must lie in \[0.5, 1\]"),
        ({"omega": 0}, r"omega must be 1 \(good\) or -1 \(bad\)"),
    ],
)
def test_impossible_values_are_named(log, change, message):
    with pytest.raises(ValueError, match=message):
        audit_log(log.assign(**change))


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_a_log_from_a_file_is_audited_like_the_log(tmp_path, log, name):
    write_records(log, tmp_path / name)
    assert audit_log(read_records(tmp_path / name)) == audit_log(log)


def test_a_log_without_the_state_names_the_line(tmp_path, log):
    path = tmp_path / "log.jsonl"
    write_records(log.assign(omega=log["omega"].where(log.index != 4)), path)
    with pytest.raises(ValueError, match=r"omega must be 1 \(good\) or -1 \(bad\), line 5 has nan"):
        audit_log(read_records(path))
    with pytest.raises(ValueError, match="log lacks the columns q_used"):
        audit_log(log.drop(columns=["q_used"]))
