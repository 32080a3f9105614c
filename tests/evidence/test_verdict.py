"""The verdict rule, claim by claim, and Holm's correction over decided claims."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from gnomon.evidence import Claim, Contrast, Estimate, ExactCheck, Finding, Verdict, holm
from gnomon.evidence.verdict import rule

LIFT = Claim("lift", "Training lifts accuracy", kind="contrast", statistic="accuracy", controls=("random-init",))


def contrast(low, high, *, control="random-init", p=0.001, n=8):
    return Contrast(control, Estimate(0.0, -1.0, 1.0), Estimate((low + high) / 2, low, high), p, n, "paired t")


def claim(**changes):
    fields = {
        "name": "lift",
        "statement": "Training lifts accuracy",
        "kind": "contrast",
        "statistic": "accuracy",
        "controls": ("random-init",),
    }
    return Claim(**{**fields, **changes})


def finding(name, p, **changes):
    return Finding(claim(name=name), effect=Estimate(1, 0, 2), contrasts=(contrast(0.1, 0.3, p=p),), **changes)


@pytest.mark.parametrize(
    ("changes", "low", "high", "p", "verdict", "reason"),
    [
        ({}, 0.1, 0.3, 0.01, "supported", "beyond random-init, adjusted p = 0.01"),
        ({}, 0.1, 0.3, 0.05, "inconclusive", "adjusted p = 0.05"),
        ({}, 0.0, 0.3, 0.01, "inconclusive", "the interval of the difference from random-init includes 0"),
        ({}, -0.3, -0.1, 0.01, "contradicted", "the difference from random-init lies wholly below 0"),
        ({"expect": "less"}, -0.3, -0.1, 0.01, "supported", "beyond random-init, adjusted p = 0.01"),
        ({"expect": "less"}, 0.1, 0.3, 0.01, "contradicted", "the difference from random-init lies wholly above 0"),
        (
            {"margin": 0.2},
            0.1,
            0.3,
            0.01,
            "inconclusive",
            "the interval of the difference from random-init includes 0.2",
        ),
        (
            {"margin": 0.2, "expect": "less"},
            -0.3,
            -0.1,
            0.01,
            "inconclusive",
            "the interval of the difference from random-init includes -0.2",
        ),
        ({"margin": 0.2}, 0.25, 0.3, 0.01, "supported", "beyond random-init, adjusted p = 0.01"),
        ({"smallest": 0.5}, -0.1, 0.3, 0.6, "contradicted", "the difference from random-init lies wholly below 0.5"),
        (
            {"smallest": 0.5},
            -0.1,
            0.6,
            0.6,
            "inconclusive",
            "the interval of the difference from random-init includes 0",
        ),
        (
            {"smallest": 0.5, "expect": "less"},
            -0.3,
            0.1,
            0.6,
            "contradicted",
            "the difference from random-init lies wholly above -0.5",
        ),
        # Well measured, beyond zero, and still too small to matter.
        ({"smallest": 0.5}, 0.1, 0.3, 0.001, "contradicted", "the difference from random-init lies wholly below 0.5"),
        (
            {"kind": "equivalence", "margin": 0.2},
            -0.1,
            0.15,
            0.01,
            "supported",
            "within ±0.2 of random-init, adjusted p = 0.01",
        ),
        ({"kind": "equivalence", "margin": 0.2}, -0.1, 0.3, 0.3, "inconclusive", "adjusted p = 0.3"),
        (
            {"kind": "equivalence", "margin": 0.2},
            0.25,
            0.3,
            1.0,
            "contradicted",
            "the difference from random-init lies wholly outside ±0.2",
        ),
        ({"kind": "randomisation"}, 0.1, 0.3, 0.01, "supported", "beyond random-init, adjusted p = 0.01"),
    ],
)
def test_rule_of_one_control(changes, low, high, p, verdict, reason):
    ruling = rule(claim(**changes), [contrast(low, high)], p_adjusted=p)
    assert ruling.verdict == verdict
    assert ruling.reason == reason


def test_every_required_control_must_be_beaten():
    two = claim(controls=("random-init", "resampled"))
    good, weak, bad = (
        contrast(0.1, 0.3),
        contrast(-0.1, 0.3, control="resampled"),
        contrast(-3, -2, control="resampled"),
    )
    assert rule(two, [good], p_adjusted=0.01).reason == "required control not measured: resampled"
    ruling = rule(two, [good, weak], p_adjusted=0.01)
    assert ruling.verdict == Verdict.INCONCLUSIVE
    assert ruling.reason == "the interval of the difference from resampled includes 0"
    assert rule(two, [good, bad], p_adjusted=0.01).verdict == Verdict.CONTRADICTED
    assert rule(two, [weak, good, contrast(0.1, 0.2, control="extra")], p_adjusted=0.01).verdict == Verdict.INCONCLUSIVE


def test_controls_shown_for_information_do_not_decide():
    extra = contrast(-0.5, -0.2, control="shuffled")
    assert rule(LIFT, [contrast(0.1, 0.3), extra], p_adjusted=0.01).verdict == Verdict.SUPPORTED


def test_too_few_units_undefined_or_unadjusted_stay_undecided():
    assert rule(LIFT, [contrast(0.1, 0.3, n=4)], p_adjusted=0.001).reason == (
        "4 units of analysis (seed) against random-init, at least 5 needed"
    )
    assert rule(LIFT, [contrast(math.nan, math.nan)], p_adjusted=0.001).reason == (
        "contrast with random-init is undefined"
    )
    assert rule(LIFT, [contrast(0.1, 0.3)]).reason == "p was not adjusted over the study's claims"
    assert rule(LIFT, [contrast(0.1, 0.3)], p_adjusted=0.001, withheld="gate: accuracy .19").reason == (
        "gate: accuracy .19"
    )


@pytest.mark.parametrize(
    ("counts", "verdict", "reason"),
    [
        (None, "inconclusive", "no instance was examined"),
        ((0, 0, 5, 5), "inconclusive", "no instance was examined"),
        ((100, 0, 5, 3), "supported", "0 of 100 instances violate it; the broken variant (sign flipped) was caught"),
        ((100, 2, 5, 3), "contradicted", "2 of 100 instances violate it"),
        ((100, 0, 5, 0), "inconclusive", "the check does not catch the broken variant (sign flipped)"),
    ],
)
def test_exact_claims_need_no_violation_and_a_caught_broken_variant(counts, verdict, reason):
    exact = None if counts is None else ExactCheck(*counts, broken="sign flipped")
    ruling = rule(claim(kind="exact", controls=()), [], exact=exact)
    assert (ruling.verdict, ruling.reason) == (verdict, reason)


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match=r"p of the contrast with 'random-init' must lie in \[0, 1\], got 1.2"):
        contrast(0, 1, p=1.2)
    with pytest.raises(ValueError, match="violations must lie between 0 and the 3 instances, got 4"):
        ExactCheck(3, 4, 1, 1, "x")
    with pytest.raises(ValueError, match="interval of 0 is reversed: low 1 > high -1"):
        Estimate(0.0, 1.0, -1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_is_the_closed_bonferroni_test(ps):
    subsets = [subset for size in range(1, len(ps) + 1) for subset in itertools.combinations(range(len(ps)), size)]
    closed = [
        max(min(1.0, len(subset) * min(ps[j] for j in subset)) for subset in subsets if i in subset)
        for i in range(len(ps))
    ]
    adjusted = [one.p_adjusted for one in holm([finding(f"claim-{i}", p) for i, p in enumerate(ps)])]
    assert adjusted == pytest.approx(closed, rel=1e-12, abs=0)


def test_holm_agrees_with_statsmodels():
    ps = [0.01, 0.04, 0.03, 0.005, 0.03, 0.8]
    adjusted = [one.p_adjusted for one in holm([finding(f"claim-{i}", p) for i, p in enumerate(ps)])]
    assert adjusted == pytest.approx(multipletests(ps, method="holm")[1].tolist(), rel=1e-12)


def test_holm_counts_decided_claims_only():
    withheld = Finding(claim(name="later"), withheld="not decided by this preset")
    exact = Finding(claim(name="identity", kind="exact", controls=()), exact=ExactCheck(5, 0, 1, 1, "x"))
    unmeasured = Finding(
        claim(name="half", controls=("a", "b")), effect=Estimate(1, 0, 2), contrasts=(contrast(0, 1, control="a"),)
    )
    adjusted = holm([finding("one", 0.02), withheld, exact, unmeasured, finding("two", 0.03)])
    assert [one.p_adjusted for one in adjusted] == [0.04, None, None, None, 0.04]
    assert [str(one.verdict) for one in adjusted] == [
        "supported",
        "inconclusive",
        "supported",
        "inconclusive",
        "supported",
    ]


def test_p_of_a_finding_is_the_largest_over_required_controls():
    two = claim(controls=("a", "b"))
    parts = contrast(0.1, 0.3, control="a", p=0.01), contrast(0.1, 0.3, control="b", p=0.04)
    extra = contrast(0.1, 0.3, control="shuffled", p=0.9)
    assert Finding(two, effect=Estimate(1, 0, 2), contrasts=(*parts, extra)).p == 0.04
    assert math.isnan(Finding(two, effect=Estimate(1, 0, 2), contrasts=parts[:1]).p)
    assert math.isnan(Finding(two, effect=Estimate(1, 0, 2), contrasts=parts[1:]).p)


@given(low=st.floats(-1, 1), width=st.floats(0, 1), p=st.floats(0, 1), margin=st.floats(0, 0.5))
def test_turning_the_direction_round_turns_nothing_else(low, width, p, margin):
    up = rule(claim(margin=margin), [contrast(low, low + width)], p_adjusted=p)
    down = rule(claim(margin=margin, expect="less"), [contrast(-low - width, -low)], p_adjusted=p)
    assert up.verdict == down.verdict


@given(low=st.floats(0.001, 1), width=st.floats(0, 1), first=st.floats(0, 1), second=st.floats(0, 1))
def test_a_smaller_p_never_loses_support(low, width, first, second):
    verdicts = [rule(LIFT, [contrast(low, low + width)], p_adjusted=p).verdict for p in sorted((first, second))]
    assert verdicts[0] == Verdict.SUPPORTED or verdicts[1] != Verdict.SUPPORTED
