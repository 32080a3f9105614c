"""The verbs, and the study with a model behind a server, on the command line."""

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from gnomon.society.planner.agents import GretherAgent
from gnomon.society.planner.cli import app
from gnomon.society.planner.scenarios import SCENARIOS
from gnomon.society.planner.scripted import scripted_agent
from gnomon.studies.store import find_runs

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


def planted(body):
    """A server's answer: letters as a known agent would score them, a fixed precision in the planner's seat."""
    text = body["messages"][-1]["content"]
    if "Which precision" in text:
        return "PRECISION: 0.85"
    scenario = next(scenario for scenario in SCENARIOS.values() if scenario.situation in text)
    chat = scripted_agent("planted", GretherAgent(0.8, 0.6, 1.4), scenario)
    ((_, scores),) = chat._choices([body["messages"]], ("A", "B"))
    return dict(scores.logprobs)


def test_a_models_biases_are_read_through_a_server(tmp_path, monkeypatch, chat_server):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    server, log = chat_server(planted), tmp_path / "answers.jsonl"
    asked = ("ask", f"m@{server.url}", "--out", str(log), "--scenario", "car", "--paraphrases", "2")
    result = run(*asked, "--max-calls", "100")
    assert "wrote 120 answers" in result.output
    assert "20 of them missing" in result.output
    assert "17% of 120 answers are missing" in str(run("estimate", str(log)).exception)
    assert "0 of them missing" in run(*asked).output
    assert len(server.requests) == 120
    result = run("estimate", str(log))
    assert result.exit_code == 0, result.output
    assert [line.split()[1] for line in result.output.splitlines()[:3]] == ["0.8", "0.6", "1.4"]
    assert "no scenario 'zoo'" in str(run("ask", "m", "--out", str(log), "--scenario", "zoo").exception)


def test_an_agent_that_answers_at_random_is_said_not_to_react(tmp_path, monkeypatch, chat_server):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    server, log = chat_server(lambda body: {"A": -0.1, "B": -2.4}), tmp_path / "answers.csv"
    run("ask", f"m@{server.url}", "--out", str(log), "--scenario", "car", "--paraphrases", "2")
    assert "nothing can be said of biases" in run("estimate", str(log)).output


def test_the_example_designs_a_rule_and_catches_who_breaks_it(capsys):
    runpy.run_path(str(Path(__file__).parents[3] / "examples" / "planner.py"), run_name="__main__")
    welfare, honest, covert, forged = capsys.readouterr().out.split("\n\n")
    bad = {line[:22].strip(): float(line[22:].split()[0]) for line in welfare.splitlines()[1:]}
    assert bad["seller, no rule"] < bad["rule: never below .60"] < bad["rule: never below .70"] < bad["left alone"]
    assert bad["rule: never above .70"] == pytest.approx(bad["seller, no rule"], abs=0.01)
    assert "FAIL" not in honest
    assert "FAIL  used is what is shown" in covert
    assert forged.count("FAIL") == 1
    assert "FAIL  declared precision holds" in forged


SMALL = {
    "ps": [0.7],
    "ks": [0.3],
    "deltas": [0.3, 0.9],
    "priors": [0.5],
    "welfare_ks": [0.3],
    "welfare_deltas": [0.9],
    "m": 8,
    "runs": 20,
    "powers": [1.0],
    "horizon": 0,
    "paraphrases": 1,
    "claims": [],
}


def test_the_study_runs_on_a_server_under_a_limit_and_goes_on_after_it(tmp_path, chat_server):
    server = chat_server(planted)
    environment = os.environ | {"GNOMON_CACHE": str(tmp_path / "cache"), "GNOMON_RUNS": str(tmp_path / "runs")}

    def gnomon(*arguments):
        command = [sys.executable, "-m", "gnomon", "run", *arguments, "--workers", "0", "--quiet", "--no-report"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    small = [part for field, value in SMALL.items() for part in ("--set", f"{field}={json.dumps(value)}")]
    first = gnomon("planner", "--preset", "full", "--model", f"m@{server.url}", *small, "--max-calls", "100")
    assert first.returncode == 1, first.stderr
    assert "missing" in first.stderr
    assert len(server.requests) == 100
    [interrupted] = find_runs(tmp_path / "runs")
    assert {s.reason.partition(": ")[2] for s in interrupted.shortfalls if s.kind == "missing"} == {
        "budget of 100 calls is spent"
    }
    assert interrupted.record["spent"] == {"calls": 100, "cost": 0.0}
    second = gnomon("--resume", str(interrupted.path), "--max-calls", "5000")
    assert second.returncode == 0, second.stderr
    [done] = find_runs(tmp_path / "runs")
    asked = Counter(json.dumps(body, sort_keys=True) for body in server.requests if body["max_tokens"] == 1)
    assert set(asked.values()) == {1}
    assert done.record["spent"]["calls"] == len(server.requests)
    slopes = done.tables["estimate.slopes"].query("arm == 'treatment'")
    assert slopes["gamma_contra"].tolist() == pytest.approx([1.4] * 3)
    # A server's weights cannot be re-initialised, so that control is not pretended.
    assert "random-init" not in set(done.tables["agent"]["arm"])
