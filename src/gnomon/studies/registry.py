"""Studies by name, from package metadata; a study's module is imported only when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.studies.study import Study


GROUP = "gnomon.studies"


def study_names() -> list[str]:
    """Names of all installed studies, ours and other packages', sorted."""
    return sorted(_entry_points())


def load_study(name: str) -> Study:
    """Import and construct the study of that name.

    Raises:
        KeyError: If no installed package registers it; the message suggests the nearest name.
    """
    registered = _entry_points()
    if name not in registered:
        near = difflib.get_close_matches(name, registered, n=1, cutoff=0.0)
        hint = f"; nearest is {near[0]!r}" if near else ""
        raise KeyError(f"no study named {name!r}{hint}")
    module, _, attribute = registered[name].value.partition(":")
    return getattr(importlib.import_module(module), attribute)()


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
