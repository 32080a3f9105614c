"""The example on the docs page runs as it stands, here on a small model and a user's text."""

import runpy
import sys
from pathlib import Path

import pytest

from gnomon.data.corpora import prose

EXAMPLE = Path(__file__).parents[3] / "examples" / "rope_heads.py"


@pytest.mark.e2e
def test_the_example_puts_a_control_beside_the_profile(tiny_folder, tmp_path, monkeypatch, capsys):
    text = tmp_path / "mine.txt"
    text.write_text("\n\n".join(prose().texts[:3]), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tiny_folder), str(text)])
    profiled = runpy.run_path(str(EXAMPLE))
    printed = capsys.readouterr().out
    assert "trained: balance of heads from" in printed
    assert "re-initialised: balance of heads from" in printed
    assert not profiled["trained"].scores["balance"].equals(profiled["control"].scores["balance"])
