"""What a machine does to a run: one clear line each, and nothing finished is lost."""

import ctypes
import json
import os
import resource
import signal
import time

import pytest

from gnomon.studies.store import Run

pytestmark = pytest.mark.e2e

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def file_size_limit(limit):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def bound_by_permissions():
    """Let even root be refused what a folder's mode forbids."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_full_disk_stops_the_run_with_one_line(gnomon, workers):
    arguments = ("run", "tiny-walks", "--no-report", "--quiet", "--workers", workers, "--set", "fault=bulk")
    _, err = gnomon(*arguments, code=1, preexec_fn=file_size_limit(100_000))
    (path,) = gnomon.runs()
    (line,) = err.splitlines()
    assert line.startswith("gnomon: results cannot be stored: OSError: ")
    assert line.endswith(f"Go on with: gnomon run --resume {path}")
    run = Run(path)
    assert run.status == "failed"
    finished = {unit.key for unit in run.units if unit.status == "done"}
    assert finished
    gnomon("run", "--no-report", "--resume", path)
    resumed = Run(path)
    assert resumed.status == "done"
    assert finished <= {unit.key for unit in resumed.units if unit.cached}


def test_a_disk_too_full_for_the_plan_says_so(gnomon):
    _, err = gnomon("run", "tiny-walks", "--workers", "0", code=1, preexec_fn=file_size_limit(2000))
    assert err.startswith(f"gnomon: cannot write to {gnomon.runs_dir}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("which", ["runs", "cache"])
def test_a_read_only_folder_is_named(gnomon, which):
    folder = gnomon.folder / which
    folder.mkdir()
    folder.chmod(0o555)
    arguments = ("run", "tiny-walks", "--workers", "0", "--quiet")
    _, err = gnomon(*arguments, code=1, preexec_fn=bound_by_permissions)
    (line,) = err.splitlines()
    assert line.startswith("gnomon: cannot write to ")
    assert str(folder) in line
    assert "Permission denied" in line


def test_a_run_folder_that_became_read_only_cannot_be_resumed(gnomon):
    gnomon("run", "tiny-walks", "--workers", "0", "--no-report")
    (path,) = gnomon.runs()
    path.chmod(0o555)
    _, err = gnomon("run", "--resume", path, "--workers", "0", code=1, preexec_fn=bound_by_permissions)
    path.chmod(0o755)
    assert err.startswith(f"gnomon: cannot write to {path}: Permission denied")
    assert err.count("\n") == 1
    assert gnomon("verify", path)[0].startswith(path.name)


def test_two_runs_on_the_same_units_at_once(gnomon):
    arguments = ("run", "tiny-walks", "--no-report", "--workers", "1", "--set", "pause=0.02")
    both = [gnomon.start(*arguments) for _ in range(2)]
    outputs = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    one, two = gnomon.runs()
    findings = [json.loads((path / "findings.json").read_text()) for path in (one, two)]
    assert findings[0] == findings[1]
    for path in (one, two):
        gnomon("verify", path)
    files = [{path.name: path.read_bytes() for path in (run / "units").iterdir()} for run in (one, two)]
    assert files[0] == files[1]


@pytest.mark.parametrize(("workers", "number"), [("0", signal.SIGTERM), ("2", signal.SIGINT)])
def test_an_interrupt_keeps_what_is_finished_and_says_how_to_go_on(gnomon, workers, number):
    arguments = ("run", "tiny-walks", "--no-report", "--quiet", "--workers", workers, "--set", "pause=0.3")
    process = gnomon.start(*arguments, start_new_session=True)
    deadline = time.monotonic() + 60
    while not any('"unit"' in path.read_text() for path in gnomon.runs_dir.glob("*/progress.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, number)  # as a terminal does: to every process of the group
    out, err = process.communicate(timeout=60)
    (path,) = gnomon.runs()
    assert process.returncode == 130
    assert out == ""
    assert err == f"interrupted; what was finished is kept. Go on with: gnomon run --resume {path}\n"
    run = Run(path)
    assert run.status == "interrupted"
    finished = {unit.key for unit in run.units if unit.status == "done"}
    assert finished
    assert not (path / "worker.log").exists() or not (path / "worker.log").read_text()
    gnomon("run", "--no-report", "--resume", path, "--workers", "0")
    assert finished <= {unit.key for unit in Run(path).units if unit.cached}
    assert gnomon("verify", path)[0].startswith(path.name)


def test_a_killed_run_leaves_no_workers_behind(gnomon):
    arguments = ("run", "tiny-walks", "--no-report", "--workers", "1", "--set", "pause=30")
    process = gnomon.start(*arguments)
    deadline = time.monotonic() + 60
    while not any('"started"' in path.read_text() for path in gnomon.runs_dir.glob("*/progress.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (path,) = gnomon.runs()
    log = path / "worker.log"
    while not (log.exists() and list((gnomon.folder / "cache" / "drafts").glob("*"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (draft,) = (gnomon.folder / "cache" / "drafts").iterdir()
    worker = int(draft.name.partition("@")[0])
    process.kill()
    process.communicate()
    while _is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert Run(path).status == "interrupted"


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
