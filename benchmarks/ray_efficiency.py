"""What a second worker is worth on Ray: seconds of a CPU-bound study on a cluster of one CPU over those on two."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from benchmarks._busy import ROOT, Busy, site_environment


def run() -> dict:
    """Seconds on one and on two single-CPU nodes, after one unit has warmed each cluster up."""
    os.environ |= {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    with tempfile.TemporaryDirectory() as name:
        os.environ["GNOMON_CACHE"] = site_environment(Path(name))["GNOMON_CACHE"]
        one, two = (_seconds(Path(name) / str(nodes), nodes) for nodes in (1, 2))
    return {
        "name": "ray_efficiency",
        "ours": two,
        "peer": one,
        "ratio": one / two,
        "unit": "seconds of a CPU-bound study on two Ray workers; peer: on one",
    }


def _seconds(folder: Path, nodes: int) -> float:
    from ray.cluster_utils import Cluster

    from gnomon.studies.cache import UnitCache
    from gnomon.studies.ray_backend import RayBackend
    from gnomon.studies.runner import run_study

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=1)
    try:
        seconds = 0.0
        for attempt, units in (("warm", 2), ("timed", 12)):
            backend = RayBackend(cluster.address)
            started = time.perf_counter()
            run_study(
                Busy(),
                Busy.Config(units=units, seed=nodes),
                runs_dir=folder / attempt / "runs",
                cache=UnitCache(folder / attempt / "cache"),
                backend=backend,
            )
            seconds = time.perf_counter() - started
        return seconds
    finally:
        cluster.shutdown()
