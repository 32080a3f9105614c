"""The verbs, on the command line."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gnomon.retrieval.veritrail import Node, Process
from gnomon.retrieval.veritrail.claimify import PROMPTS
from gnomon.retrieval.veritrail.cli import app
from gnomon.retrieval.veritrail.prompts import prompt
from gnomon.retrieval.veritrail.trail_file import read_trail

pytestmark = pytest.mark.e2e

KIEL = "Corvus Electronics opened a plant in Kiel on 3 May 2019."
BRISTOL = "Marlowe Chemicals shut its plant in Bristol in 2018."
HIRED = "Corvus Electronics hired 400 people."


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """A process with one claim that holds and one that a summary invented."""
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    process = Process(
        [
            Node("report-a", f"{KIEL} The mayor was glad."),
            Node("report-b", f"{BRISTOL} Nobody was hurt."),
            Node("summary", f"{KIEL} {HIRED} {BRISTOL}"),
            Node("answer", f"{KIEL} {HIRED} Firms should plan ahead."),
        ],
        [("report-a", "summary"), ("report-b", "summary"), ("summary", "answer")],
    )
    path = tmp_path / "trace.json"
    process.to_json(path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def chat(serve):
    """Starts a server whose model can also extract claims; advice is none."""

    def answer(body):
        question = body["messages"][-1]["content"]
        if "<sentence>" not in question:
            return serve.well(body)
        stage = next(name for name in PROMPTS if body["messages"][0]["content"].startswith(prompt(name).text))
        sentence = question.split("<sentence>")[1].split("</sentence>")[0]
        said = {
            "selection": {"reason": "so", "contains": "should" not in sentence, "rewritten": None},
            "disambiguation": {"reason": "so", "resolvable": True, "changes": [], "text": sentence},
            "decomposition": {"claims": [sentence]},
        }[stage]
        return 200, {}, serve.completion(json.dumps(said))

    return lambda change=None: serve(answer if change is None else lambda body: change(body) or answer(body))


def test_check_prints_a_table_and_writes_trail_and_page(trace, tmp_path):
    out = tmp_path / "out"
    result = run("check", trace, "--out", out)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["claim", "verdict", "p", "from"]
    assert "supported" in lines[1]
    assert lines[1].rstrip().endswith("report-a > summary > answer")
    assert lines[2].startswith(HIRED)
    assert lines[2].rstrip().endswith("entered at stage 2: summary")
    assert "2 claims: 1 supported, 1 unsupported" in result.stdout
    assert "1 sentences without a claim: 1 unverifiable" in result.stdout
    trail = read_trail(out / "trail.json")
    assert [claim.verdict for claim in trail.claims] == ["supported", "unsupported"]
    assert trail.check["valid"] is True
    assert Process.from_json(out / "process.json").digest() == trail.process
    assert "<title>" in (out / "trail.html").read_text()
    assert "4 texts in 3 stages" in result.stderr
    assert "2 of 2 claims done" in result.stderr
    assert "judge check: AUROC" in result.stderr


def test_output_for_programs(trace, tmp_path):
    result = run("check", trace, "--out", tmp_path / "out", "--json", "--quiet", "--no-judge-check")
    true, invented = json.loads(result.stdout)
    assert result.stderr == ""
    assert (true["verdict"], true["path"]) == ("supported", ["report-a", "summary", "answer"])
    assert (invented["entered_at_stages"], invented["entered_in"]) == ([2], ["summary"])
    failing = run("check", trace, "--out", tmp_path / "out", "-q", "--no-judge-check", "--fail-on", "unsupported")
    assert failing.exit_code == 1
    assert failing.stderr == "gnomon: there are claims that are unsupported\n"


def test_a_true_claim_that_a_step_left_out_shows_its_gap(tmp_path, monkeypatch):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    nodes = [Node("report", KIEL), Node("summary", BRISTOL), Node("answer", KIEL)]
    Process(nodes, [("report", "summary"), ("summary", "answer")]).to_json(tmp_path / "trace.json")
    result = run("check", tmp_path / "trace.json", "--out", tmp_path / "out", "--no-judge-check", "--json")
    (claim,) = json.loads(result.stdout)
    assert (claim["verdict"], claim["path"], claim["left_out_at_stages"]) == ("supported", [], [2])
    table = run("check", tmp_path / "trace.json", "--out", tmp_path / "out", "--no-judge-check").stdout
    assert table.splitlines()[1].rstrip().endswith("report, left out at stage 2")


def test_claims_can_be_given_and_walks_need_not_stop(trace, tmp_path):
    claims = tmp_path / "claims.txt"
    claims.write_text(f"{BRISTOL}\n\n")
    result = run("check", trace, "--out", tmp_path / "out", "--claims", claims, "--q", "0", "--no-judge-check")
    assert result.exit_code == 0, result.output
    trail = read_trail(tmp_path / "out" / "trail.json")
    assert [claim.claim.text for claim in trail.claims] == [BRISTOL]
    assert trail.settings["q"] is None


def test_a_text_without_claims_is_not_called_faithful(tmp_path, monkeypatch):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    Process([Node("a", KIEL), Node("b", "Firms should plan ahead.")], [("a", "b")]).to_json(tmp_path / "t.json")
    result = run("check", tmp_path / "t.json", "--out", tmp_path / "out", "--no-judge-check")
    assert result.exit_code == 0
    assert "no claim of the final text could be checked; this does not mean that it is faithful" in result.stdout


def test_a_chat_judge_says_what_it_may_cost_and_repeats_no_call(trace, tmp_path, chat):
    server = chat()
    command = ("check", trace, "--out", tmp_path / "out", "--judge", "chat", "--base-url", server.url, "--model", "m")
    first = run(*command, "--no-judge-check", "--prices", "1,10")
    assert first.exit_code == 0, first.output
    line = next(line for line in first.stderr.splitlines() if line.startswith("m: at most "))
    most = int(line.split("at most ")[1].split()[0])
    asked = len(server.requests)
    assert 0 < asked <= most
    assert "1 supported, 1 unsupported" in first.stdout
    assert "calls, 0 answers from the cache" in first.stdout
    page = (tmp_path / "out" / "trail.html").read_text()
    assert f"{asked * (100 + 10 * 10) / 1e6:,.4g}" in page
    again = run(*command, "--no-judge-check")
    assert again.exit_code == 0
    assert len(server.requests) == asked
    assert "evidence and verdicts: 0 calls" in again.stdout


def test_a_spent_budget_ends_in_one_line_and_a_higher_one_goes_on(trace, tmp_path, chat):
    server = chat()
    command = ("check", trace, "--out", tmp_path / "out", "--judge", "chat", "--base-url", server.url, "--model", "m")
    short = run(*command, "--max-calls", "18")
    assert short.exit_code == 1
    (line,) = [line for line in short.stderr.splitlines() if line.startswith("gnomon:")]
    assert "without an answer: budget of 18 calls is spent" in line
    assert line.endswith("raise the limit and run it again")
    assert len(server.requests) == 18
    assert (tmp_path / "out" / "trail.html").is_file()
    longer = run(*command, "--max-calls", "100", "--no-judge-check")
    assert longer.exit_code == 0, longer.output
    assert max(server.asked().values()) <= 3  # three votes on one sentence, and nothing twice
    assert "1 supported, 1 unsupported" in longer.stdout


def test_a_server_that_is_down_ends_in_one_line(trace, tmp_path):
    result = run(
        *("check", trace, "--out", tmp_path / "out"),
        *("--judge", "chat", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"),
    )
    assert result.exit_code == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("gnomon:")]
    assert line.startswith("gnomon: 3 sentences without an answer: ")
    assert line.endswith("What was answered is kept; run the same command again")
    assert "faithful" not in result.stdout


def test_a_server_that_recovers_is_asked_only_for_the_rest(trace, tmp_path, chat):
    down = []

    def failing(body):
        return (500, {}, {"error": {"message": "overloaded"}}) if down and "<claim>" in str(body["messages"]) else None

    server = chat(failing)
    down.append(True)
    command = ("check", trace, "--out", tmp_path / "out", "--judge", "chat", "--base-url", server.url, "--model", "m")
    assert run(*command).exit_code == 1
    extracted = sum("<sentence>" in str(request["messages"]) for request in server.requests)
    down.clear()
    again = run(*command, "--no-judge-check")
    assert again.exit_code == 0, again.output
    assert sum("<sentence>" in str(request["messages"]) for request in server.requests) == extracted


def test_convert_and_view(trace, tmp_path):
    out = tmp_path / "process.json"
    result = run("convert", trace, "--out", out)
    assert result.stdout == f"Process(4 nodes, 3 edges, 3 stages): {out}\n"
    assert Process.from_json(out).digest() == Process.from_json(trace).digest()
    run("check", trace, "--out", tmp_path / "out", "-q", "--no-judge-check")
    page = tmp_path / "out" / "trail.html"
    before = page.read_text()
    page.unlink()
    assert run("view", tmp_path / "out").stdout == f"page: {page}\n"
    assert page.read_text() == before


@pytest.mark.parametrize(
    ("content", "format"),
    [
        ({"nodes": []}, "json"),
        ([{"id": "a", "run_type": "llm"}], "langchain"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": []}]}]}]}, "otel"),
    ],
)
def test_formats_are_recognised(tmp_path, content, format):
    from gnomon.retrieval.veritrail.loaders.detection import detected

    (tmp_path / "trace").write_text(json.dumps(content))
    assert detected(tmp_path / "trace") == format
    assert detected(tmp_path) == "graphrag"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--judge", "chat", "--model", "m"], ValueError, "--judge chat needs --base-url"),
        (["--judge", "chat"], ValueError, "--judge chat needs --model"),
        (["--model", "m"], ValueError, "the offline judge uses none"),
        (["--judge", "local", "--model", "m", "--base-url", "http://x"], ValueError, "--base-url is for --judge chat"),
        (["--max-calls", "9"], ValueError, "--max-calls, --max-cost and --prices are for --judge chat"),
        (["--judge", "chat", "--max-cost", "1"], ValueError, "--max-cost needs --prices"),
        (["--claims", "absent.txt"], FileNotFoundError, "no file absent.txt"),
        (["--answer", "absent.txt"], FileNotFoundError, "no file absent.txt"),
        (["--trace", "t1"], ValueError, "trace cannot be given for the format json"),
        (["--format", "otel"], ValueError, "holds no spans"),
        (["--format", "langchain"], ValueError, "holds no runs"),
        (["--format", "graphrag"], ValueError, "give the answer to check"),
    ],
)
def test_errors_are_one_clear_line(trace, tmp_path, options, error, message):
    result = run("check", trace, "--out", tmp_path / "out", *options)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_files_of_no_known_format(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1}')
    assert "is in none of the known formats" in str(run("check", tmp_path / "x.json").exception)
    assert str(run("check", tmp_path / "absent.json").exception) == f"no file {tmp_path / 'absent.json'}"
    assert str(run("view", tmp_path / "absent").exception) == f"no folder {tmp_path / 'absent'}"


def test_the_exit_code_of_a_wrong_trace_is_two(tmp_path):
    (tmp_path / "cycle.json").write_text(
        json.dumps({"nodes": [{"id": n, "text": "x", "sources": [m]} for n, m in ("ab", "ba")]})
    )
    command = [sys.executable, "-m", "gnomon", "veritrail", "check", str(tmp_path / "cycle.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"gnomon: {tmp_path / 'cycle.json'}: the edges contain a cycle: ")
    assert done.stderr.count("\n") == 1
