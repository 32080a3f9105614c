"""The verbs, on the command line."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from gnomon.society.planner.cli import app

pytestmark = pytest.mark.e2e


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_solve_prints_phases_thresholds_and_values_and_draws(tmp_path):
    result = run("solve", "--p", ".7", "--k", ".3", "--delta", ".9", "--objective", "biased", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "obf_block" in result.output
    assert "in the order of Theorem 5: yes" in result.output
    assert "just above 1/2: V = -0.6000" in result.output
    for picture in ("policy.png", "value.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "solution.json").exists()


def test_simulate_prints_the_planner_beside_the_crowd_left_alone(tmp_path):
    log = tmp_path / "log.csv"
    result = run("simulate", "--runs", "500", "--rounds", "30", "--out", str(log))
    assert result.exit_code == 0, result.output
    assert "biased" in result.output
    assert "baseline" in result.output
    checked = run("audit", str(log))
    assert checked.exit_code == 0, checked.output
    assert checked.output.count("pass") == 3


def test_audit_exits_1_on_a_covert_mediator(tmp_path):
    log = tmp_path / "log.csv"
    run("simulate", "--runs", "100", "--rounds", "5", "--out", str(log))
    pd.read_csv(log).assign(q_used=0.9).to_csv(log, index=False)
    result = run("audit", str(log))
    assert result.exit_code == 1
    assert "FAIL  used is what is shown" in result.output


def test_impossible_parameters_are_one_clear_error():
    result = run("solve", "--p", "0.4")
    assert isinstance(result.exception, ValueError)
    assert "p must be in (0.5, 1), got 0.4" in str(result.exception)
