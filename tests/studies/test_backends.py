"""Worker processes: one thread each, their own environment, replaced when they die."""

import os
import signal
import time

import pytest
from worker_study import WorkerStudy

from gnomon.studies.backends import ONE_THREAD, LocalBackend, cores
from gnomon.studies.cache import UnitCache
from gnomon.studies.files import read_tables
from gnomon.studies.measuring import UnitTask
from gnomon.studies.unit import Unit


@pytest.fixture
def backend(tmp_path):
    backend = LocalBackend(1)
    backend.start(tmp_path / "worker.log")
    yield backend
    backend.stop()


def test_workers_have_one_thread_and_serve_many_units(backend, tmp_path):
    cache = UnitCache(tmp_path)
    before = dict(os.environ)
    seen = []
    for index in range(3):
        backend.submit(UnitTask(WorkerStudy(), Unit("look", {"index": index}), f"{index:016x}", {}, 0, cache))
        assert backend.wait().kind == "done"
        seen.append(read_tables([cache.find(f"{index:016x}").tables["look"]]).iloc[0])
        if index == 1:
            os.kill(int(seen[1]["pid"]), signal.SIGKILL)  # while it is idle: no unit is lost
            _wait_for_the_end_of(int(seen[1]["pid"]))
    assert seen[0]["pid"] == seen[1]["pid"] != seen[2]["pid"]
    assert os.getpid() not in {row["pid"] for row in seen}
    assert seen[0]["threads"] == "1"
    assert dict(os.environ) == before


def test_a_study_that_cannot_be_loaded_is_a_failed_unit(backend, tmp_path):
    class Local(WorkerStudy):
        """Known to this process only."""

        def __reduce__(self):
            return __import__, ("module_that_is_nowhere",)

    backend.submit(UnitTask(Local(), Unit("look"), "0" * 16, {}, 0, UnitCache(tmp_path)))
    outcome = backend.wait()
    assert outcome.kind == "failed"
    assert "No module named 'module_that_is_nowhere'" in outcome.reason


def test_there_is_at_least_one_worker():
    assert LocalBackend().workers == cores() >= 1
    assert set(ONE_THREAD) >= {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        LocalBackend(0)


def _wait_for_the_end_of(pid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        # The first thread can be a zombie while others still die; only after the last one is the process over.
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
        if state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1:
            return
        time.sleep(0.01)
    raise AssertionError("it lives")
