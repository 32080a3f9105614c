"""The built wheel holds all that the package reads at run time, and runs without the checkout."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = out.glob("gnomon-*.whl")
    return built


@pytest.mark.e2e
def test_every_file_of_the_package_is_in_the_wheel(wheel):
    package = ROOT / "src"
    files = {
        path.relative_to(package).as_posix()
        for path in (package / "gnomon").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in files if not name.endswith(".py")}
    assert files <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.e2e
def test_the_unpacked_wheel_lists_its_instruments(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "gnomon", "list", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert "rope-heads" in {row["name"] for row in json.loads(done.stdout)}
    where = [sys.executable, "-c", "import gnomon; print(gnomon.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert found.startswith(str(tmp_path))
