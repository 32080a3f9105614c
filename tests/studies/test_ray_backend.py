"""Any study on a real two-node Ray cluster: same tables, and deaths cost only what was in flight."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from gnomon.studies.cache import UnitCache
from gnomon.studies.ray_backend import RayBackend, adopt_unit, pack_unit
from gnomon.studies.runner import run_study
from gnomon.studies.store import Run

PACKAGES = Path(__file__).parent / "packages"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("ray"),
    # Ray leaves sockets and subprocess handles to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(PACKAGES)
    patch.setenv("PYTHONPATH", str(PACKAGES))
    patch.setenv("GNOMON_CACHE", str(tmp_path_factory.mktemp("node-cache")))
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    head_and_node = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    head_and_node.add_node(num_cpus=1)
    yield head_and_node
    head_and_node.shutdown()
    patch.undo()


@pytest.fixture
def study(cluster):
    from tiny_study.study import TinyStudy

    return TinyStudy()


def run_on(backend, study, folder, **config):
    return run_study(
        study,
        study.Config.preset("quick", **config),
        runs_dir=folder / "runs",
        cache=UnitCache(folder / "cache"),
        backend=backend,
    )


def kill_once_measuring(kill):
    """Call ``kill`` with the first Ray worker that is seen measuring a unit."""

    def watch():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for process in psutil.process_iter(["cmdline"]):
                if "ray::_measure_remotely" in " ".join(process.info["cmdline"] or []):
                    killed.append(process.pid)
                    kill(process)
                    return
            time.sleep(0.02)

    killed = []
    thread = threading.Thread(target=watch)
    thread.start()
    return thread, killed


def test_tables_are_those_of_local_workers(cluster, study, tmp_path):
    local = run_study(
        study, study.Config.preset("quick"), runs_dir=tmp_path / "runs", cache=UnitCache(tmp_path / "local")
    )
    remote = run_on(RayBackend(cluster.address), study, tmp_path)
    assert remote.status == "done"
    assert list(remote.tables) == list(local.tables)
    for name, frame in local.tables.items():
        assert remote.tables[name].equals(frame)
    assert [finding.verdict for finding in remote.findings] == [finding.verdict for finding in local.findings]


def test_killed_worker_costs_only_its_unit_which_is_measured_again(cluster, study, tmp_path):
    thread, killed = kill_once_measuring(lambda process: process.kill())
    run = run_on(RayBackend(cluster.address), study, tmp_path, pause=0.3)
    thread.join()
    assert killed
    assert run.status == "done"
    assert {unit.status for unit in run.units} == {"done"}


def test_killed_node_costs_only_the_units_in_flight(cluster, study, tmp_path):
    doomed = cluster.add_node(num_cpus=1)
    thread, killed = kill_once_measuring(lambda _: cluster.remove_node(doomed, allow_graceful=False))
    run = run_on(RayBackend(cluster.address), study, tmp_path, pause=0.3)
    thread.join()
    assert killed
    assert run.status == "done"


def test_unit_that_kills_every_worker_fails_and_its_dependants_are_skipped(cluster, study, tmp_path):
    run = run_on(RayBackend(cluster.address), study, tmp_path, fault="die")
    failed = [unit for unit in run.units if unit.status == "failed"]
    assert [unit.stage for unit in failed] == ["walk"]
    assert "WorkerCrashedError" in failed[0].reason
    assert {unit.stage for unit in run.units if unit.status == "skipped"} == {"slope", "summary"}


def test_killed_driver_resumes_without_measuring_finished_units_again(cluster, study, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(
        textwrap.dedent(f"""
        from pathlib import Path
        from gnomon.studies.cache import UnitCache
        from gnomon.studies.ray_backend import RayBackend
        from gnomon.studies.runner import run_study
        from tiny_study.study import TinyStudy

        run_study(
            TinyStudy(), TinyStudy.Config.preset("quick", pause=0.4), runs_dir=Path({str(tmp_path / "runs")!r}),
            cache=UnitCache(Path({str(tmp_path / "cache")!r})), backend=RayBackend({cluster.address!r}),
        )
        """)
    )
    driver = subprocess.Popen([sys.executable, script], env=os.environ, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and len(list((tmp_path / "cache").glob("units/*/*/unit.json"))) < 4:
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    finished = {path.parent.name for path in (tmp_path / "cache").glob("units/*/*/unit.json")}
    assert len(finished) >= 4
    (folder,) = (tmp_path / "runs").iterdir()
    assert Run(folder).status == "interrupted"

    run = run_study(study, cache=UnitCache(tmp_path / "cache"), backend=RayBackend(cluster.address), resume=folder)
    assert run.status == "done"
    assert {unit.key for unit in run.units if unit.cached} >= finished


def test_packed_unit_is_adopted_whole_and_once(study, tmp_path):
    here, there = UnitCache(tmp_path / "here"), UnitCache(tmp_path / "there")
    run = run_study(study, study.Config.preset("quick"), runs_dir=tmp_path / "runs", cache=here)
    key = run.units[0].key
    adopt_unit(there, key, pack_unit(here, key))
    assert there.find(key).record == here.find(key).record
    adopt_unit(there, key, b"not looked at: the unit is there")


def test_packing_an_evicted_unit_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="unit abcdef has left the unit cache"):
        pack_unit(UnitCache(tmp_path), "abcdef")


def test_gpus_a_unit_must_not_be_negative():
    with pytest.raises(ValueError, match=r"gpus per unit must be >= 0, got -1"):
        RayBackend(gpus_per_unit=-1)


def test_without_ray_the_error_says_what_to_install():
    code = "import sys; sys.modules['ray'] = None\nfrom gnomon.studies.ray_backend import RayBackend\nRayBackend()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'gnomon[ray]'" in done.stderr
