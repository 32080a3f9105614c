"""Claims and findings as data: what they refuse, and what survives JSON."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.evidence import Claim, Contrast, Estimate, ExactCheck, Finding, Verdict, holm

FIELDS = {
    "name": "lift",
    "statement": "Training lifts accuracy",
    "kind": "contrast",
    "statistic": "accuracy",
    "controls": ("random-init",),
}


def supported():
    lift = Contrast("random-init", Estimate(0.5, 0.4, 0.6), Estimate(0.3, 0.2, 0.4), 0.004, 8, "paired t")
    claim = Claim(**FIELDS, smallest=0.1)
    return holm([Finding(claim, effect=Estimate(0.8, 0.7, 0.9), contrasts=(lift,), n=8, scope="a toy")])[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Lift_1"}, "claim name 'Lift_1' is not a slug such as 'learned-spread'"),
        ({"controls": ()}, "claim 'lift' names no control: no finding without its control"),
        (
            {"kind": "exact"},
            "exact claim 'lift' is checked against a broken variant and names no controls",
        ),
        ({"margin": -1.0}, "claim 'lift': margin must be >= 0, got -1.0"),
        ({"margin": math.nan}, "claim 'lift': margin must be >= 0, got nan"),
        ({"kind": "equivalence"}, "equivalence claim 'lift' needs a margin > 0"),
        ({"margin": 0.2, "smallest": 0.1}, r"claim 'lift': smallest \(0.1\) must be at least the margin \(0.2\)"),
    ],
)
def test_a_claim_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Claim(**{**FIELDS, **changes})


def test_a_finding_must_fit_its_claim():
    claim, lift = Claim(**FIELDS), supported().contrasts[0]
    with pytest.raises(ValueError, match="finding of 'lift' has neither an effect nor a reason to withhold it"):
        Finding(claim)
    with pytest.raises(ValueError, match="finding of 'lift' names a control twice: random-init, random-init"):
        Finding(claim, effect=Estimate(1, 0, 2), contrasts=(lift, lift))
    with pytest.raises(ValueError, match=r"finding of 'lift' has adjusted p 0\.001, below its p 0\.004"):
        Finding(claim, effect=Estimate(1, 0, 2), contrasts=(lift,), p_adjusted=0.001)
    exact = Claim(**{**FIELDS, "kind": "exact", "controls": ()})
    with pytest.raises(ValueError, match="finding of exact claim 'lift' takes counts, not contrasts"):
        Finding(exact, contrasts=(lift,))


def test_verdict_cannot_be_set():
    finding = supported()
    assert finding.verdict == Verdict.SUPPORTED
    for name in ("verdict", "reason", "p", "p_adjusted", "effect"):
        with pytest.raises(AttributeError):
            setattr(finding, name, "contradicted")
    assert "verdict" not in {field.name for field in dataclasses.fields(Finding)}


def test_json_round_trip():
    exact = Claim(**{**FIELDS, "name": "identity", "kind": "exact", "controls": ()})
    findings = [
        supported(),
        Finding(Claim(**FIELDS), withheld="not decided by this preset"),
        Finding(exact, exact=ExactCheck(10, 0, 4, 4, "sign flipped"), n=10, reading="holds"),
    ]
    for finding in findings:
        text = json.dumps(finding.to_dict(), allow_nan=False)
        assert Finding.from_dict(json.loads(text)) == finding


@given(
    numbers=st.lists(st.floats(allow_nan=False, allow_infinity=True), min_size=3, max_size=3).map(sorted),
    p=st.floats(0, 1),
    n=st.integers(0, 10**6),
    text=st.text(max_size=20),
)
def test_json_round_trip_of_any_numbers(numbers, p, n, text):
    low, value, high = numbers
    contrast = Contrast("random-init", Estimate(value, low, high), Estimate(value, low, high), p, n, text)
    finding = Finding(Claim(**FIELDS), effect=Estimate(value, low, high), contrasts=(contrast,), n=n, scope=text)
    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict(), allow_nan=False))) == finding


def test_undefined_numbers_survive_json():
    contrast = Contrast("random-init", Estimate(0, 0, 0), Estimate(math.nan, math.nan, math.nan), math.nan, 9, "t")
    finding = Finding(Claim(**FIELDS), effect=Estimate(0, 0, 0), contrasts=(contrast,))
    again = Finding.from_dict(json.loads(json.dumps(finding.to_dict(), allow_nan=False)))
    assert math.isnan(again.contrasts[0].difference.low)
    assert again.reason == "contrast with random-init is undefined"


def test_an_edited_verdict_is_detected():
    stored = supported().to_dict()
    with pytest.raises(
        ValueError, match="finding of 'lift' stores verdict 'contradicted', but its numbers give 'supported'"
    ):
        Finding.from_dict({**stored, "verdict": "contradicted"})
    weaker = json.loads(json.dumps(stored))
    weaker["contrasts"][0]["difference"]["low"] = -0.2
    with pytest.raises(ValueError, match="stores verdict 'supported', but its numbers give 'inconclusive'"):
        Finding.from_dict(weaker)
    del stored["verdict"]
    with pytest.raises(ValueError, match="stores verdict None"):
        Finding.from_dict(stored)


def test_unknown_schema_and_fields_are_refused():
    stored = supported().to_dict()
    with pytest.raises(ValueError, match="finding has schema 99, this gnomon reads 1"):
        Finding.from_dict({**stored, "schema": 99})
    with pytest.raises(ValueError, match="colour"):
        Finding.from_dict({**stored, "colour": "red"})
