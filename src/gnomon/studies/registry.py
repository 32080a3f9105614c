"""Studies by name, from package metadata; a study's module is imported only when it is asked for."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.names import nearest

if TYPE_CHECKING:
    from gnomon.studies.study import Study


GROUP = "gnomon.studies"


@dataclass(frozen=True)
class Description:
    """What a study says of itself, read without importing it. ``trouble`` says why it could not be read."""

    name: str
    wing: str
    title: str
    trouble: str = ""


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
        raise KeyError(f"no study named {name!r}{nearest(name, registered)}")
    module, _, attribute = registered[name].value.partition(":")
    return getattr(importlib.import_module(module), attribute)()


def describe() -> list[Description]:
    """All installed studies with wing and title, in the order of wing and name; none of them is imported."""
    found = [_describe(entry) for entry in _entry_points().values()]
    return sorted(found, key=lambda description: (description.wing, description.name))


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _describe(entry: EntryPoint) -> Description:
    module, _, attribute = entry.value.partition(":")
    path = _module_file(module)
    if path is None:
        return Description(entry.name, "", "", f"module {module} is not installed")
    try:
        literals = _class_literals(path, attribute)
    except (SyntaxError, OSError, UnicodeDecodeError) as error:
        return Description(entry.name, "", "", f"{path} cannot be read: {error}")
    lacking = [name for name in ("title", "wing") if name not in literals]
    if lacking:
        return Description(entry.name, "", "", f"{path} gives {attribute} no literal {' and '.join(lacking)}")
    return Description(entry.name, literals["wing"], literals["title"])


def _module_file(module: str) -> Path | None:
    """The module's file, found without importing its parents; only a top-level package's finder is asked."""
    top, *rest = module.split(".")
    if (loaded := sys.modules.get(top)) is not None:
        folders, origin = getattr(loaded, "__path__", None), getattr(loaded, "__file__", None)
    else:
        spec = importlib.util.find_spec(top)
        folders, origin = (spec.submodule_search_locations, spec.origin) if spec else (None, None)
    if not rest:
        return Path(origin) if origin else None
    for folder in folders or ():
        place = Path(folder).joinpath(*rest)
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return path
    return None


def _class_literals(path: Path, class_name: str) -> dict[str, str]:
    """Attributes of a class that are plain string literals."""
    literals: dict[str, str] = {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ClassDef) and statement.name == class_name:
            for inner in statement.body:
                targets = inner.targets if isinstance(inner, ast.Assign) else []
                value = inner.value if isinstance(inner, ast.Assign) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    literals.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return literals
