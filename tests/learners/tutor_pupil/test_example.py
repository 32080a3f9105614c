"""The example runs as it is printed in the documentation."""

import runpy
from pathlib import Path


def test_the_example_finds_a_pattern(capsys):
    runpy.run_path(str(Path(__file__).parents[3] / "examples" / "tutor_pupil.py"))
    printed = capsys.readouterr().out
    assert printed.startswith("structured")
    assert "errors scattered at random" in printed
