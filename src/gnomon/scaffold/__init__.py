"""``gnomon new``: the skeleton of an instrument, with a small real study that runs and passes its tests."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

WINGS = ("mechanisms", "training", "learners", "retrieval", "society")

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_STUDIES = '[project.entry-points."gnomon.studies"]\n'


def write_skeleton(name: str, wing: str, root: Path) -> list[Path]:
    """Write the files of a new instrument into a checkout of gnomon and register it.

    Args:
        name: The instrument's name, words joined by hyphens; its folder is the same with underscores.
        wing: The wing it belongs to.
        root: The checkout: the folder of ``pyproject.toml``.

    Returns:
        The files written, and ``pyproject.toml``.

    Raises:
        ValueError: If the name or the wing is not one.
        FileNotFoundError: If ``root`` is no checkout of gnomon.
        FileExistsError: If there is such an instrument already.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"instrument name {name!r} is not lower-case words joined by hyphens, such as 'rope-heads'")
    if wing not in WINGS:
        raise ValueError(f"no wing {wing!r}; choose one of {', '.join(WINGS)}")
    pyproject = root / "pyproject.toml"
    if not (root / "src" / "gnomon").is_dir() or not pyproject.is_file():
        raise FileNotFoundError(f"{root} is no checkout of gnomon; run this where its pyproject.toml is")
    module = name.replace("-", "_")
    folder = root / "src" / "gnomon" / wing / module
    if folder.exists():
        raise FileExistsError(f"there is an instrument in {folder} already")
    files = {
        folder / "__init__.py": "init.py.jinja",
        folder / "method.py": "method.py.jinja",
        folder / "study.py": "study.py.jinja",
        folder / "figures.py": "figures.py.jinja",
        root / "tests" / wing / module / "test_study.py": "test_study.py.jinja",
        root / "docs" / "instruments" / f"{name}.md": "page.md.jinja",
        root / "benchmarks" / f"{module}.py": "benchmark.py.jinja",
    }
    names = {
        "name": name,
        "wing": wing,
        "title": name.replace("-", " ").capitalize(),
        "package": f"gnomon.{wing}.{module}",
        "class_name": "".join(word.capitalize() for word in name.split("-")),
    }
    templates = Environment(
        loader=PackageLoader("gnomon.scaffold", "."), undefined=StrictUndefined, keep_trailing_newline=True
    )
    for path, template in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_with_sorted_imports(templates.get_template(template).render(names)), encoding="utf-8")
    wing_package = folder.parent / "__init__.py"
    if not wing_package.exists():
        wing_package.write_text(f'"""Instruments of the {wing} wing."""\n', encoding="utf-8")
    entry = f'{name} = "{names["package"]}.study:{names["class_name"]}"\n'
    pyproject.write_text(pyproject.read_text(encoding="utf-8").replace(_STUDIES, _STUDIES + entry), encoding="utf-8")
    return [*files, pyproject]


def _with_sorted_imports(text: str) -> str:
    """The text with each block of imports from gnomon in order: where the new package belongs depends on its wing."""
    lines = text.split("\n")
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and lines[end].startswith("from gnomon"):
            end += 1
        lines[start:end] = sorted(lines[start:end], key=lambda line: line.split()[1])
        start = end + 1
    return "\n".join(lines)
