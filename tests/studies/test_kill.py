"""``kill -9`` at any moment loses at most the units in flight."""

import multiprocessing
import random
import time
from pathlib import Path

import pytest
from killable import run as run_to_be_killed
from tiny_runs import unit_bytes
from tiny_study.study import TinyStudy

from gnomon.studies.backends import InlineBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.runner import run_study
from gnomon.studies.store import Run

EVENTS = 1 + 2 * 26  # the plan, and the start and end of every unit
PACKAGES = str(Path(__file__).parent / "packages")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    config = TinyStudy.Config.preset("quick", pause=0.002)
    return run_study(
        TinyStudy(),
        config,
        preset="quick",
        runs_dir=folder / "runs",
        backend=InlineBackend(),
        cache=UnitCache(folder / "cache"),
    )


@pytest.mark.parametrize(("workers", "kills"), [(0, 16), (2, 4)])
def test_a_killed_run_resumes_to_the_same_bytes(reference, tmp_path, monkeypatch, workers, kills):
    monkeypatch.setenv("PYTHONPATH", PACKAGES)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["killable"])
    moments = random.Random(workers)
    finished_before = []
    for kill in range(kills):
        folder = tmp_path / str(kill)
        (folder / "runs").mkdir(parents=True)
        process = context.Process(target=run_to_be_killed, args=(folder / "runs", folder / "cache", workers))
        process.start()
        _wait_for_events(folder / "runs", moments.randrange(EVENTS), process)
        time.sleep(moments.uniform(0, 0.005))
        process.kill()
        process.join()
        (path,) = (folder / "runs").iterdir()
        killed = Run(path)
        assert killed.status in {"interrupted", "done"}
        finished_before.append(sum(unit.status == "done" for unit in killed.units))

        resumed = run_study(TinyStudy(), resume=path, backend=InlineBackend(), cache=UnitCache(folder / "cache"))
        assert resumed.status == "done"
        assert sum(unit.cached for unit in resumed.units) >= finished_before[-1]
        assert unit_bytes(resumed) == unit_bytes(reference)
        assert (path / "findings.json").read_bytes() == (reference.path / "findings.json").read_bytes()
        assert resumed.verify(TinyStudy()) == []
    assert len(set(finished_before)) > 1  # the moments were spread over the run


def _wait_for_events(runs_dir, count, process):
    while process.is_alive():
        journals = list(runs_dir.glob("*/progress.jsonl"))
        if journals and journals[0].read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.0005)
