"""Keys of units: a hash of all that a unit's result depends on, its code included.

The code of a stage is the static closure of the method that measures it: ``measure`` and ``measure_STAGE`` of the
study class, what they name in the study's module (functions, classes, constants, ``self.other_method``), and every
module of the study's own package or of gnomon that these import, transitively. Judges, charts, docstrings, comments
and formatting are no part of it. What is chosen at run time (``getattr`` with a computed name, data files) is not
seen: put a version of it into the unit's parameters.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.studies.study import Study
    from gnomon.studies.unit import Unit

_OUTSIDE = ("gnomon.studies", "gnomon.report", "gnomon.cli")
_PRESENTATION = frozenset({"figures", "viewer", "cli"})


def canonical_json(value: Any) -> str:
    """JSON text that is equal for equal values: sorted keys, no spaces.

    Raises:
        ValueError: If the value is not made of JSON values, or holds NaN or infinity.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a JSON value: {error}") from None


def unit_key(study: str, unit: Unit, *, seed: int, code: str, needs: Iterable[str]) -> str:
    """Key of a unit: hash of study, stage, parameters, master seed, code of the stage and keys of the needs."""
    return digest(study, unit.stage, canonical_json(dict(unit.params)), str(seed), code, *needs)


def stage_code(study: type[Study], stage: str) -> str:
    """Hash of the code that measures a stage of the study.

    Raises:
        ValueError: If the study's source file cannot be found.
    """
    closure = _Closure(study)
    closure.add_methods(("measure", f"measure_{stage.replace('-', '_')}"))
    return digest(*sorted(closure.parts))


def digest(*parts: str) -> str:
    """Hash of several texts; where one ends and the next begins counts."""
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        whole.update(len(encoded).to_bytes(8, "big"))
        whole.update(encoded)
    return whole.hexdigest()


# A name bound by an import stands for a module (attribute None) or for an attribute of one.
_Target = tuple[str, str | None]


@dataclass
class _Source:
    """One parsed module: what its names are bound to."""

    module: str
    is_package: bool
    tree: ast.Module
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, _Target] = field(default_factory=dict)
    star_imports: list[str] = field(default_factory=list)

    @property
    def code(self) -> str:
        return ast.dump(self.tree, annotate_fields=False)

    def targets(self, statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, _Target]]:
        """Local name and target of each name an import statement binds."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0], (alias.name, None)
            return
        base = statement.module or ""
        if statement.level:
            parts = self.module.split(".")
            above = parts[: len(parts) - statement.level + (1 if self.is_package else 0)]
            base = ".".join([*above, *([base] if base else [])])
        for alias in statement.names:
            yield alias.asname or alias.name, (base, alias.name)


def _read(module: str, path: Path) -> _Source:
    status = path.stat()
    return _parse(module, path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4096)
def _parse(module: str, path: Path, _modified: int, _size: int) -> _Source:
    tree = _without_docstrings(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
    source = _Source(module, path.name == "__init__.py", tree)
    for statement in _run_time_statements(tree.body):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for name, target in source.targets(statement):
                if name == "*":
                    source.star_imports.append(target[0])
                else:
                    source.imports[name] = target
        else:
            for name in _bound_names(statement):
                source.bindings.setdefault(name, []).append(statement)
    return source


def _run_time_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body and of its ``if``, ``try`` and ``with``, without what only type checkers see."""
    for statement in body:
        if isinstance(statement, ast.If):
            if not _is_type_checking(statement.test):
                yield from _run_time_statements(statement.body)
            yield from _run_time_statements(statement.orelse)
        elif isinstance(statement, ast.Try):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            yield from _run_time_statements(
                [*statement.body, *handlers, *statement.orelse, *statement.finalbody],
            )
        elif isinstance(statement, ast.With):
            yield from _run_time_statements(statement.body)
        else:
            yield statement


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


class _Closure:
    """Collects the code that the methods of one study class reach."""

    def __init__(self, study: type[Study]) -> None:
        self.parts: set[str] = set()
        self._seen: set[tuple[str, str]] = set()
        self._modules: set[str] = set()
        self._classes = [
            (_study_source(parent), parent.__name__)
            for parent in study.__mro__
            if parent is not object and not _is_outside(parent.__module__)
        ]
        self._roots = {"gnomon", *(source.module.partition(".")[0] for source, _ in self._classes)}
        # A study in a loose file reaches the modules that lie beside it.
        self._beside = None if "." in self._classes[0][0].module else Path(_file_of(study)).parent

    def add_methods(self, names: Iterable[str]) -> None:
        """Add the definitions of these attributes in the study class and its parents, and what they reach."""
        for name in names:
            for source, class_name in self._classes:
                self._add_attribute(source, class_name, name)

    def _add_attribute(self, source: _Source, class_name: str, name: str) -> None:
        if (place := (source.module, f"{class_name}.{name}")) in self._seen:
            return
        self._seen.add(place)
        for definition in source.bindings.get(class_name, []):
            if isinstance(definition, ast.ClassDef):
                for statement in definition.body:
                    if name in _bound_names(statement):
                        self._add_code(source, statement)

    def _add_code(self, source: _Source, node: ast.stmt) -> None:
        self.parts.add(f"{source.module}: {ast.dump(node, annotate_fields=False)}")
        studies = {class_name for owner, class_name in self._classes if owner.module == source.module}
        walk = list(ast.walk(node))
        owners: set[int] = set()
        for inner in walk:
            if isinstance(inner, ast.Attribute):
                value = inner.value
                if isinstance(value, ast.Name) and value.id in {"self", "cls", *studies}:
                    owners.add(id(value))
                    self.add_methods((inner.attr,))
                elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super":
                    self.add_methods((inner.attr,))
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                for _, target in source.targets(inner):
                    self._add_target(target)
        for inner in walk:
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and id(inner) not in owners:
                self._add_name(source, inner.id)

    def _add_name(self, source: _Source, name: str) -> None:
        if (place := (source.module, name)) in self._seen:
            return
        self._seen.add(place)
        if name in source.imports:
            self._add_target(source.imports[name])
        elif name in source.bindings:
            for statement in source.bindings[name]:
                self._add_code(source, statement)
        elif not hasattr(builtins, name):
            for module in source.star_imports:
                self._add_target((module, None))

    def _add_target(self, target: _Target) -> None:
        """Add what an imported name stands for: a module, or the module that defines the name."""
        module, attribute = target
        if _is_outside(module) or not (self._is_own(module)):
            return
        if attribute is None or attribute == "*":
            self._add_module(module)
            return
        if self._find(f"{module}.{attribute}") is not None:
            self._add_module(f"{module}.{attribute}")
            return
        path = self._find(module)
        if path is None:
            return
        if path.name != "__init__.py":
            self._add_module(module)
            return
        # A package hands on names of its modules: follow the name, so that its neighbours do not count.
        package = _read(module, path)
        if attribute in package.imports:
            if ("", f"{module}:{attribute}") not in self._seen:
                self._seen.add(("", f"{module}:{attribute}"))
                self._add_target(package.imports[attribute])
        else:
            self._add_module(module)

    def _add_module(self, module: str) -> None:
        """Add a whole module and what it imports; for a package, all of its modules."""
        if module in self._modules or _is_outside(module) or module.rpartition(".")[2] in _PRESENTATION:
            return
        self._modules.add(module)
        path = self._find(module)
        if path is None:
            return
        source = _read(module, path)
        self.parts.add(f"{module}: {source.code}")
        for statement in _imports_inside(source.tree):
            for _, target in source.targets(statement):
                self._add_target(target)
        if source.is_package:
            for inner in sorted(path.parent.iterdir()):
                if inner.suffix == ".py" and inner.stem not in {"__init__", "study"}:
                    self._add_module(f"{module}.{inner.stem}")
                elif (inner / "__init__.py").is_file():
                    self._add_module(f"{module}.{inner.name}")

    def _is_own(self, module: str) -> bool:
        return module.partition(".")[0] in self._roots or (self._beside is not None and self._find(module) is not None)

    def _find(self, module: str) -> Path | None:
        """The module's file, found without importing it; a folder's is its ``__init__.py``."""
        top, *rest = module.split(".")
        if top in self._roots:
            folders = _package_folders(top)
        elif self._beside is not None:
            folders, rest = (self._beside,), [top, *rest]
        else:
            return None
        for folder in folders:
            place = folder.joinpath(*rest)
            for path in (place / "__init__.py", place.with_suffix(".py")):
                if path.is_file():
                    return path
        return None


def _imports_inside(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import that can run, in functions too."""
    for statement in _run_time_statements(tree.body):
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node


def _is_outside(module: str) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in _OUTSIDE)


def _package_folders(top: str) -> tuple[Path, ...]:
    loaded = sys.modules.get(top)
    folders = getattr(loaded, "__path__", None)
    if folders is None:
        spec = importlib.util.find_spec(top) if loaded is None else None
        folders = spec.submodule_search_locations if spec else None
    return tuple(map(Path, folders or ()))


def _file_of(study: type) -> str:
    path = getattr(sys.modules.get(study.__module__), "__file__", None)
    if path is None:
        raise ValueError(f"study {study.__name__} is not defined in a file; its units cannot be keyed by their code")
    return path


def _study_source(study: type) -> _Source:
    path = Path(_file_of(study))
    spec = sys.modules[study.__module__].__spec__
    # A script has no spec; its units are those of the module it would be imported as.
    return _read(spec.name if spec else path.stem, path)


def code_by_stage(study: type[Study], stages: Iterable[str]) -> Mapping[str, str]:
    """Hash of the code of each stage."""
    return {stage: stage_code(study, stage) for stage in dict.fromkeys(stages)}
