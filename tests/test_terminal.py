"""What the command line shows of a finding."""

import math

import pytest
from rich.console import Console

from gnomon.evidence import Claim, Contrast, Estimate, ExactCheck, Finding, holm
from gnomon.terminal import finding_rows, findings_table

CONTRAST = Claim("far", "It goes far", "contrast", "distance", controls=("still", "shuffled"))
EXACT = Claim("equal", "Both are equal", "exact", "difference")


def finding():
    estimate = Estimate(1.0, 0.9, 1.1)
    contrasts = tuple(
        Contrast(control, Estimate(0.0, -0.1, 0.1), estimate, p, 20, "t")
        for control, p in (("still", 0.001), ("shuffled", math.nan))
    )
    return Finding(CONTRAST, effect=estimate, contrasts=contrasts, n=20)


def test_an_effect_stands_beside_each_of_its_controls():
    still, shuffled = finding_rows(finding())
    assert still["effect"] == shuffled["effect"] == "1 [0.9, 1.1]"
    assert still["control"] == "still 0 [-0.1, 0.1]"
    assert (still["p"], shuffled["p"]) == ("0.001", "")


def test_an_exact_claim_stands_beside_its_broken_variant():
    (row,) = finding_rows(Finding(EXACT, exact=ExactCheck(50, 0, 12, 11, "swapped sign")))
    assert row["effect"] == "0 of 50 violate it"
    assert row["control"] == "swapped sign: 11 of 12 caught"
    assert row["n"] == "50"


@pytest.mark.parametrize("name", ["[red]", "[/]"])
def test_text_of_studies_is_not_markup(name):
    console = Console(width=200, file=None, record=True, quiet=False)
    withheld = Finding(CONTRAST, withheld=f"gate {name} failed")
    with console.capture() as captured:
        console.print(findings_table(holm([withheld, finding()])))
    assert f"inconclusive (gate {name} failed)" in captured.get()
