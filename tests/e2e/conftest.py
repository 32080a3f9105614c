"""The tiny study installed as another author's package, and the command line to run it with."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.studies.store import find_runs

TINY_STUDY = Path(__file__).parents[1] / "studies" / "packages" / "tiny_study"
ENTRY_POINTS = """
[gnomon.studies]
tiny-walks = tiny_study.study:TinyStudy

[gnomon.verbs]
tiny-walks = tiny_study.verbs:app
"""


class Gnomon:
    """The ``gnomon`` command with folders of its own, where the tiny study is installed."""

    def __init__(self, folder):
        self.folder = folder
        self.site = folder / "site"
        self.runs_dir = folder / "runs"
        self.package = shutil.copytree(TINY_STUDY, self.site / "tiny_study", ignore=lambda *_: ["__pycache__"])
        information = self.site / "tiny_study-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-study\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(ENTRY_POINTS)
        self.environment = os.environ | {
            "PYTHONPATH": str(self.site),
            "GNOMON_RUNS": str(self.runs_dir),
            "GNOMON_CACHE": str(folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
        }

    def start(self, *arguments, **options):
        """Start it as a process."""
        return subprocess.Popen(
            [sys.executable, "-m", "gnomon", *map(str, arguments)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A test run in the background of a script hands on an ignored SIGINT; a terminal's user has it.
            **{"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options},
        )

    def __call__(self, *arguments, code=0, **options):
        """Run it to the end; its stdout and stderr."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        return out, err

    def runs(self):
        return [run.path for run in reversed(find_runs(self.runs_dir))]


@pytest.fixture
def gnomon(tmp_path):
    return Gnomon(tmp_path)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """The folder of a finished run of the tiny study, to be copied."""
    gnomon = Gnomon(tmp_path_factory.mktemp("finished"))
    gnomon("run", "tiny-walks", "--workers", "0", "--quiet")
    [path] = gnomon.runs()
    return path


@pytest.fixture
def inside(gnomon, monkeypatch, capsys):
    """The same command inside the test process, for what needs no process of its own."""
    from gnomon import cli

    monkeypatch.syspath_prepend(str(gnomon.site))
    monkeypatch.chdir(gnomon.folder)
    for name in ("GNOMON_RUNS", "GNOMON_CACHE", "COLUMNS"):
        monkeypatch.setenv(name, gnomon.environment[name])

    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["gnomon", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert ended.value.code == code, f"exit code {ended.value.code}\n{out}\n{err}"
        return out, err

    return run
