"""The skeleton of a new instrument is a passing one, in every wing."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gnomon.scaffold import WINGS, write_skeleton

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def in_checkout(checkout, *command):
    environment = {"PYTHONPATH": str(checkout / "src"), "PATH": "/usr/bin:/bin", "HOME": str(checkout)}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.e2e
def test_its_tests_pass(checkout):
    write_skeleton("new-instrument", "training", checkout)
    in_checkout(checkout, "pytest", "-q", "tests/training/new_instrument")


@pytest.mark.parametrize("wing", WINGS)
def test_it_is_formatted_and_linted(checkout, wing):
    written = [str(path) for path in write_skeleton("new-instrument", wing, checkout) if path.suffix == ".py"]
    in_checkout(checkout, "ruff", "check", *written)
    in_checkout(checkout, "ruff", "format", "--check", *written)


def test_it_is_registered(checkout):
    write_skeleton("new-instrument", "society", checkout)
    declared = tomllib.loads((checkout / "pyproject.toml").read_text())
    studies = declared["project"]["entry-points"]["gnomon.studies"]
    assert studies["new-instrument"] == "gnomon.society.new_instrument.study:NewInstrument"


@pytest.mark.parametrize("name", ["", "Rope", "rope_heads", "rope--heads", "../x"])
def test_names_that_are_none_are_refused(checkout, name):
    with pytest.raises(ValueError, match="is not lower-case words joined by hyphens"):
        write_skeleton(name, "society", checkout)


def test_an_unknown_wing_is_refused(checkout):
    with pytest.raises(ValueError, match="no wing 'left'; choose one of mechanisms, training"):
        write_skeleton("new-instrument", "left", checkout)


def test_an_instrument_that_is_there_is_left_alone(checkout):
    write_skeleton("new-instrument", "society", checkout)
    with pytest.raises(FileExistsError, match="there is an instrument in"):
        write_skeleton("new-instrument", "society", checkout)


def test_elsewhere_it_says_where_to_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no checkout of gnomon"):
        write_skeleton("new-instrument", "society", tmp_path)
