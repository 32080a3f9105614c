"""The example on the docs page runs as it stands and shows what the page says."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "welfare_neighbors.py"


@pytest.mark.e2e
def test_the_example_spreads_the_answers(capsys):
    table = runpy.run_path(str(EXAMPLE))["table"]
    assert "authors of the first answer" in capsys.readouterr().out
    assert table.loc["nash", "entropy_bits"] > table.loc["top-k", "entropy_bits"]
    assert table.loc["nash", "relevance_ratio"] > 0.9
