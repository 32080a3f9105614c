"""Runs of the tiny study, for tests."""

import random

from tiny_study.study import TinyStudy

from gnomon.studies.backends import InlineBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.runner import run_study


class ShuffledBackend(InlineBackend):
    """Takes eight units at once and measures them in a random order."""

    workers = 8

    def __init__(self, seed):
        super().__init__()
        self._random = random.Random(seed)

    def wait(self):
        self._random.shuffle(self._tasks)
        return super().wait()


class Journal:
    """An observer that writes down what it is told."""

    def __init__(self):
        self.declared = None
        self.pending = None
        self.measured = []
        self.seconds = None

    def planned(self, units, *, seconds, workers):
        self.declared = seconds
        self.pending = sum(unit.status == "planned" for unit in units)

    def unit_started(self, unit):
        pass

    def unit_ended(self, unit):
        self.measured.append((unit.stage, unit.status))

    def finished(self, run, *, seconds):
        self.seconds = seconds


class TinyRuns:
    """Runs of the tiny study that share a cache and a runs folder."""

    def __init__(self, folder):
        self.cache = UnitCache(folder / "cache")
        self.runs_dir = folder / "runs"

    def __call__(self, preset="quick", *, backend=None, resume=None, study=None, report=None, **settings):
        self.journal = Journal()
        study = study or TinyStudy()
        return run_study(
            study,
            None if resume else study.Config.preset(preset, **settings),
            preset=preset,
            runs_dir=self.runs_dir,
            backend=backend or InlineBackend(),
            resume=resume,
            observer=self.journal,
            report=report,
            cache=self.cache,
        )


def unit_bytes(run):
    return {path.name: path.read_bytes() for path in (run.path / "units").iterdir()}
