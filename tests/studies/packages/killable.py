"""A run of the tiny study as a process of its own, to be killed."""

from pathlib import Path

from tiny_study.study import TinyStudy

from gnomon.studies.backends import InlineBackend, LocalBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.runner import run_study


def run(runs_dir: Path, cache: Path, workers: int) -> None:
    """Run it, here or in workers."""
    backend = LocalBackend(workers) if workers else InlineBackend()
    config = TinyStudy.Config.preset("quick", pause=0.002)
    run_study(TinyStudy(), config, preset="quick", runs_dir=runs_dir, backend=backend, cache=UnitCache(cache))
