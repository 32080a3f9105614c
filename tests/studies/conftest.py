"""The tiny study on the import path, and runs of it in a fresh cache."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "packages"))

from tiny_runs import TinyRuns


@pytest.fixture
def tiny(tmp_path):
    return TinyRuns(tmp_path)


@pytest.fixture
def another(tmp_path):
    """Runs with a cache of their own."""
    return TinyRuns(tmp_path / "another")
