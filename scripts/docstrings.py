"""Griffe extension: the few reStructuredText forms of our docstrings, rewritten as Markdown for mkdocstrings.

Roles (``:class:`~gnomon.evidence.Claim```) become cross-references, ``:math:`` and ``.. math::`` formulas, literal
blocks, doctests and simple tables code blocks.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|obj):`(?P<short>~?)(?P<target>[\w.]+)`")
_INLINE_MATH = re.compile(r":math:`([^`]+)`")
_TABLE_RULE = re.compile(r"=+( +=+)+")


class ReStructuredText(griffe.Extension):
    """Rewrites each docstring once it is loaded, before its sections are parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value, module=obj.module.path)


def markdown(docstring: str, *, module: str = "") -> str:
    r"""The docstring in Markdown; names without a dot are looked up in the module.

    >>> markdown(r"The mean :math:`\bar x`.")
    'The mean $\\bar x$.'
    """
    lines = docstring.split("\n")
    written: list[str] = []
    while lines:
        if lines[0].lstrip().startswith(".. math::"):
            written += _formula(lines)
        elif _TABLE_RULE.fullmatch(lines[0].strip()):
            written += _table(lines)
        elif lines[0].lstrip().startswith(">>>"):
            written += _session(lines)
        elif lines[0].strip() == "::":
            lines.pop(0)
        else:
            written.append(lines.pop(0))

    def reference(role: re.Match[str]) -> str:
        path = role["target"] if "." in role["target"] else f"{module}.{role['target']}"
        # Optional: a name without a page of its own (private, or another library's) is printed without a link.
        return f'<autoref identifier="{path}" optional><code>{_shown(role)}</code></autoref>'

    return _ROLE.sub(reference, _INLINE_MATH.sub(r"$\1$", "\n".join(written)))


def _shown(role: re.Match[str]) -> str:
    """A role's text: the whole name, or what follows the last dot after a tilde."""
    return role["target"].rpartition(".")[2] if role["short"] else role["target"]


def _session(lines: list[str]) -> list[str]:
    """Take a doctest, up to the next blank line, from the lines."""
    indent = _indent(lines[0])
    session: list[str] = []
    while lines and lines[0].strip():
        session.append(lines.pop(0))
    return [f"{indent}```pycon", *session, f"{indent}```"]


def _formula(lines: list[str]) -> list[str]:
    """Take a math directive with its indented continuation from the lines."""
    directive = lines.pop(0)
    indent = _indent(directive)
    tex = [directive.partition("::")[2].strip()]
    while lines and (not lines[0].strip() or _deeper(lines[0], indent)):
        if not lines[0].strip() and not (len(lines) > 1 and _deeper(lines[1], indent)):
            break
        tex.append(lines.pop(0).strip())
    return [f"{indent}$$", indent + " ".join(line for line in tex if line), f"{indent}$$"]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _deeper(line: str, indent: str) -> bool:
    return line.startswith(f"{indent} ") and bool(line.strip())


def _table(lines: list[str]) -> list[str]:
    """Take a simple table, between its first and its last rule, from the lines, as aligned text without roles."""
    rule = lines.pop(0)
    indent = _indent(rule)
    starts = [column.start() for column in re.finditer("=+", rule)]
    rows: list[list[str]] = []
    while lines and lines[0].strip():
        row = lines.pop(0)
        if not _TABLE_RULE.fullmatch(row.strip()):
            cells = [row[start:end] for start, end in itertools.pairwise([*starts, len(row)])]
            rows.append([_ROLE.sub(_shown, cell).replace("`", "").strip() for cell in cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [f"{indent}```text", *(indent + row for row in aligned), f"{indent}```"]
