"""The example on the docs page runs as it stands and shows what the page says."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "veritrail.py"


@pytest.mark.e2e
def test_the_example_names_the_path_of_the_true_claim_and_the_step_of_the_false_one(capsys):
    true, false = runpy.run_path(str(EXAMPLE))["trail"].claims
    assert capsys.readouterr().out.count("\n") == 2
    assert true.verdict == "supported"
    assert true.provenance.paths[0] == ("report-1", "summary-1", "answer")
    assert false.verdict == "unsupported"
    assert false.origin.nodes == ("summary-2",)
