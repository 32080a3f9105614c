"""Our docstrings' reStructuredText, as Markdown for the site."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def markdown(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    sys.modules.pop("docstrings", None)
    from docstrings import markdown

    return markdown


def test_text_without_reStructuredText_is_left_alone(markdown):
    text = "First line.\n\nArgs:\n    draws: Worlds, ``400`` by default.\n\n    A second paragraph: `code`."
    assert markdown(text) == text


@pytest.mark.parametrize(
    ("role", "path", "shown"),
    [
        (":class:`~gnomon.evidence.claim.Claim`", "gnomon.evidence.claim.Claim", "Claim"),
        (":mod:`gnomon.evidence`", "gnomon.evidence", "gnomon.evidence"),
        (":func:`paired`", "gnomon.evidence.contrasts.paired", "paired"),
    ],
)
def test_roles_become_references(markdown, role, path, shown):
    text = markdown(f"See {role}.", module="gnomon.evidence.contrasts")
    assert text == f'See <autoref identifier="{path}" optional><code>{shown}</code></autoref>.'


def test_a_formula_keeps_its_continuation_and_its_indent(markdown):
    directive = ["    .. math:: a = b, \\qquad", "        c = d", "", "    Text goes on."]
    assert markdown("\n".join(directive)).split("\n") == [
        "    $$",
        "    a = b, \\qquad c = d",
        "    $$",
        "",
        "    Text goes on.",
    ]


def test_a_formula_may_start_below_its_directive(markdown):
    assert markdown(".. math::\n\n    x^2\n\nText.") == "$$\nx^2\n$$\n\nText."


def test_a_doctest_is_fenced_up_to_the_blank_line(markdown):
    assert markdown(">>> [1, 2][0]\n1\n\nText.") == "```pycon\n>>> [1, 2][0]\n1\n```\n\nText."


def test_the_columns_of_a_table_stay_aligned_without_roles(markdown):
    rule = "===================  ===="
    table = f"{rule}\n:func:`~a.b.paired`  one\n:func:`other`, `x`   two\n{rule}\n\nText."
    assert markdown(table) == "```text\npaired    one\nother, x  two\n```\n\nText."
