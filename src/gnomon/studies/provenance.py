"""Where a run's numbers come from: versions, source revision, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = (
    "gnomon",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "statsmodels",
    "scikit-learn",
    "torch",
    "transformers",
    "transformer-lens",
)


@lru_cache
def versions() -> dict[str, str]:
    """Python and the packages whose version can change a number; none is imported."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@lru_cache
def machine() -> dict[str, Any]:
    """Processor, cores, memory and system."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
    }


@lru_cache
def git_commit(folder: Path) -> str:
    """The commit checked out in the folder, with ``+changes`` if files differ from it; empty outside a checkout."""
    try:
        described = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty=+changes", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
