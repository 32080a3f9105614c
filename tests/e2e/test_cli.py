"""The command line: what each command prints where, its exit code, and what it says when it is used wrongly."""

import contextlib
import csv
import io
import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.e2e

HEAVY = ("torch", "pandas", "numpy", "transformers", "altair", "sklearn")
LIST_MODULES = """
import sys
from gnomon.cli import main
sys.argv = ["gnomon", {arguments}]
try:
    main()
except SystemExit as ended:
    assert ended.code == 0, ended.code
print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", ['"--help"', '"list"', '"list", "--json"', '"run", "--help"', '"--version"'])
def test_what_needs_nothing_heavy_imports_nothing_heavy(gnomon, arguments):
    script = LIST_MODULES.format(arguments=arguments)
    ended = subprocess.run(
        [sys.executable, "-c", script], env=gnomon.environment, capture_output=True, text=True, check=True
    )
    modules = set(ended.stderr.split())
    assert "gnomon.studies.registry" in modules
    assert not modules & {*HEAVY, "tiny_study", "tiny_study.study", "tiny_study.verbs"}


def test_list_shows_every_study_by_wing(inside):
    out, _ = inside("list")
    lines = out.splitlines()
    study = lines[lines.index("tests") + 1]
    assert study.split(maxsplit=1) == ["tiny-walks", "Drift in random walks"]
    out, _ = inside("list", "--json")
    assert {"name": "tiny-walks", "wing": "tests", "title": "Drift in random walks", "trouble": ""} in json.loads(out)


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        ('title = "Drift in random walks"', 'title = "Drift" + "s"', "no literal title"),
        ("class TinyStudy", "class (TinyStudy", "cannot be read"),
    ],
)
def test_list_goes_on_past_a_study_it_cannot_read(gnomon, inside, old, new, trouble):
    study = gnomon.package / "study.py"
    study.write_text(study.read_text().replace(old, new))
    out, err = gnomon("list")
    assert "tiny-walks" not in out
    assert trouble in err


def test_info_tells_what_a_study_claims_and_takes(inside):
    out, _ = inside("info", "tiny-walks")
    for text in ("Does a drifting walk get further", "against driftless", "quick", "drift: float = 0.5", "On walks"):
        assert text in out
    facts = json.loads(inside("info", "tiny-walks", "--json")[0])
    assert [claim["name"] for claim in facts["claims"]] == ["drift", "spread"]
    assert facts["fields"]["seeds"]["default"] == 6


def test_a_run_prints_findings_beside_their_controls_and_the_report(gnomon):
    out, err = gnomon("run", "tiny-walks", "--preset", "full", "--workers", "2")
    (path,) = gnomon.runs()
    header, drift, spread, report = out.splitlines()
    assert header.split() == ["claim", "effect", "control", "difference", "p", "n", "verdict"]
    assert drift.startswith("drift")
    assert "driftless" in drift
    assert drift.rstrip().endswith("supported")
    assert spread.startswith("spread")
    assert report == f"report: {path / 'report.html'}"
    assert "38 units, 0 of them there already; 54 s of work declared for the others, 2 workers" in err
    assert "s of work done in" in err
    assert "Does a drifting walk get further" in (path / "report.html").read_text()
    assert {"slopes.json", "slopes.png", "slopes.svg"} <= {chart.name for chart in (path / "charts").iterdir()}


def run_tiny(inside, *arguments, **options):
    return inside("run", "tiny-walks", "--workers", "0", "--no-report", *arguments, **options)


def test_quiet_says_nothing_on_stderr(inside):
    assert run_tiny(inside, "--quiet")[1] == ""


def test_a_gate_is_a_result_and_a_missing_unit_is_not(gnomon, inside):
    out, _ = run_tiny(inside, "--set", "fault=gate")
    assert "inconclusive (1 of 12 units of stage slope skipped: walk(arm=treatment, seed=1" in out
    assert "accuracy .19, needs > .33" in out
    _, err = run_tiny(inside, "--quiet", "--set", "fault=missing", code=1)
    assert err.splitlines() == [
        "walk(arm=treatment, seed=1, steps=50, drift=0.5, fault=missing) missing: endpoint silent",
        "gnomon: the run is incomplete (1 unit missing, 2 units skipped). "
        f"Go on with: gnomon run --resume {gnomon.runs()[1]}",
    ]


def test_options_become_config_fields(gnomon, inside):
    run_tiny(inside, "--seed", "3", "--seeds", "2", "--set", "drift=0.25", "--set", "claims=drift,spread")
    config = json.loads((gnomon.runs()[0] / "run.json").read_text())["config"]
    assert config | {"seed": 3, "seeds": 2, "drift": 0.25, "claims": ["drift", "spread"]} == config


def test_findings_verify_and_compare_read_what_runs_left(gnomon, inside):
    run_tiny(inside)
    run_tiny(inside, "--preset", "full", "--set", "drift=0.4")
    first, second = (path.name for path in gnomon.runs())

    out, _ = inside("findings")
    assert second in out
    assert first not in out
    assert "supported" in out
    stored = json.loads(inside("findings", first, "--json")[0])
    assert stored[0]["study"] == "tiny-walks"
    assert [finding["verdict"] for finding in stored[0]["findings"]] == ["supported", "inconclusive"]
    rows = list(csv.DictReader(io.StringIO(inside("findings", first, second, "--csv")[0])))
    assert [(row["run"], row["claim"]) for row in rows[::2]] == [(first, "drift"), (second, "drift")]

    inside("findings", "--fail-on", "contradicted")
    _, err = inside("findings", first, "--fail-on", "inconclusive", "--fail-on", "contradicted", code=1)
    assert err == "gnomon: there are findings that are inconclusive\n"

    out, _ = inside("verify", gnomon.runs()[0])
    assert out == f"{first}: 40 files as written, 2 verdicts confirmed\n"
    next((gnomon.runs()[0] / "units").glob("slope-*")).write_bytes(b"PAR1")
    out, err = inside("verify", first, code=1)
    assert "is not the file that was written" in out
    assert err == f"gnomon: run {first} does not verify\n"

    out, _ = inside("compare", first, second)
    assert "config.drift: 0.5 | 0.4" in out
    compared = json.loads(inside("compare", first, second, "--json")[0])
    assert compared["differences"]["preset"] == ["quick", "full"]
    assert [row["claim"] for row in compared["claims"]] == ["drift", "spread"]
    assert compared["claims"][1]["first"]["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "tiny-wakls"], "no study named 'tiny-wakls'; nearest is 'tiny-walks'"),
        (["info", "tiny-wakls"], "no study named 'tiny-wakls'; nearest is 'tiny-walks'"),
        (["run"], "name a study, or a run with --resume; 'gnomon list' shows the studies"),
        (["run", "tiny-walks", "--preset", "quik"], "tiny-walks: no preset 'quik'; nearest is 'quick'"),
        (["run", "tiny-walks", "--set", "drfit=1"], "tiny-walks has no config field 'drfit'; nearest is 'drift'"),
        (["run", "tiny-walks", "--set", "drift"], "--set takes field=value, got 'drift'"),
        (
            ["run", "tiny-walks", "--set", "drift=far"],
            "tiny-walks: --set drift: Input should be a valid number, unable to parse string as a number, got 'far'",
        ),
        (["run", "tiny-walks", "--seed", "-1"], "tiny-walks: seed: Input should be greater than or equal to 0, got -1"),
        (["run", "tiny-walks", "--model", "x"], "tiny-walks has no config field 'model'; nearest is 'seed'"),
        (
            ["run", "tiny-walks", "--set", "claims=drfit"],
            "study tiny-walks makes no claim 'drfit'; nearest is 'drift'",
        ),
        (["run", "--resume", "nowhere"], "no run 'nowhere' in {runs}; there is none"),
        (["verify", "nowhere"], "no run 'nowhere' in {runs}; there is none"),
        (["findings"], "no run with findings in {runs}"),
        (["findings", "--json", "--csv"], "choose one of --json and --csv"),
        (["tiny-walks", "mean-step", "nan"], "positions must be finite, got [nan]"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(gnomon, inside, arguments, message):
    _, err = inside(*arguments, code=2)
    assert err == f"gnomon: {message.format(runs=gnomon.runs_dir)}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu", "x"], "no command 'rnu'; nearest is 'run'"),
        (["run", "tiny-walks", "--presett", "quick"], "No such option: --presett"),
        (["run", "tiny-walks", "--workers", "-1"], "Invalid value for '--workers'"),
    ],
)
def test_what_the_parser_refuses_is_exit_code_2_too(inside, arguments, message):
    _, err = inside(*arguments, code=2)
    assert message in err
    assert "Traceback" not in err


def test_debug_shows_where_it_went_wrong(inside):
    _, err = inside("run", "tiny-wakls", "--debug", code=2)
    assert err.startswith("Traceback")
    assert err.endswith("gnomon: no study named 'tiny-wakls'; nearest is 'tiny-walks'\n")


def test_verbs_of_an_instrument_are_reached_through_its_name(inside):
    assert "tiny-walks" in inside("--help")[0]
    assert "mean-step" in inside("tiny-walks", "--help")[0]
    assert inside("tiny-walks", "mean-step", "1", "3", "6")[0] == "2.0\n"


def test_a_unit_that_raises_is_exit_code_1_and_can_be_resumed_after_the_fix(gnomon):
    _, err = gnomon("run", "tiny-walks", "--no-report", "--set", "fault=raise", code=1)
    (path,) = gnomon.runs()
    assert "RuntimeError: broken on purpose in walk(arm=treatment, seed=1" in err
    assert err.splitlines()[-1] == (
        f"gnomon: the run is failed (1 unit failed, 2 units skipped; see {path / 'tracebacks'}). "
        f"Go on with: gnomon run --resume {path}"
    )
    assert "Traceback" not in err
    study = gnomon.package / "study.py"
    study.write_text(study.read_text().replace('raise RuntimeError(f"broken on purpose in {label}")', "return"))
    gnomon("run", "--no-report", "--resume", path, "--workers", "0")
    assert gnomon("verify", path)[0].startswith(path.name)


def test_editing_a_figure_measures_nothing_and_editing_the_method_what_depends_on_it(gnomon):
    run = ("run", "tiny-walks", "--no-report", "--workers", "0")
    gnomon(*run)
    figures = gnomon.package / "figures.py"
    figures.write_text(figures.read_text().replace("mark_point", "mark_bar"))
    assert "26 units, 26 of them there already" in gnomon(*run)[1]
    method = gnomon.package / "summaries.py"
    method.write_text(method.read_text().replace("len(positions)", "(len(positions) - 1)"))
    # The slopes of 12 walks and the 2 summaries of them.
    assert "26 units, 12 of them there already" in gnomon(*run)[1]


def test_a_resumed_run_keeps_study_and_configuration(gnomon, inside):
    run_tiny(inside)
    (path,) = gnomon.runs()
    _, err = inside("run", "--resume", path, "--seed", "1", code=2)
    assert "a resumed run keeps its configuration" in err
    _, err = inside("run", "--resume", path.name[:-1], code=2)
    assert f"nearest is '{path.name}'" in err
    (path / "run.json").write_text((path / "run.json").read_text().replace('"tiny-walks"', '"rope-heads"', 1))
    _, err = inside("run", "tiny-walks", "--resume", path, code=2)
    assert err == f"gnomon: run {path.name} is of study 'rope-heads', not 'tiny-walks'\n"
    (path / "run.json").write_text("{")
    _, err = inside("verify", path, code=2)
    assert err.startswith(f"gnomon: {path / 'run.json'} is not valid JSON")
    assert err.count("\n") == 1


@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_a_bar_and_colour_unless_it_wants_none(gnomon, colour):
    ours, theirs = os.openpty()
    gnomon.environment |= {"TERM": "xterm-256color"} | ({} if colour else {"NO_COLOR": "1"})
    process = subprocess.Popen(
        [sys.executable, "-m", "gnomon", "run", "tiny-walks", "--no-report", "--workers", "0", "--set", "pause=0.05"],
        cwd=gnomon.folder,
        env=gnomon.environment,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    assert b"/26" in shown
    assert b"[1/26]" not in shown
    assert b"supported" in shown
    assert (b"\x1b[32m" in shown) == colour
