"""The calibration of judges: an honest judge passes, a dishonest or powerless one is caught and named."""

import numpy as np
import pytest

from gnomon.evidence import Claim, Contrast, Estimate, Finding, Verdict
from gnomon.evidence.calibration import VerdictRates, assert_calibrated, verdict_rates
from gnomon.evidence.contrasts import against_draws, equivalent, independent, paired, paired_sums
from gnomon.evidence.intervals import mean
from gnomon.evidence.resampling import from_sums

CLAIM = Claim("lift", "It lifts", kind="contrast", statistic="score", controls=("control",))


def world(effect, units=8):
    def simulate(rng):
        return {"treatment": rng.normal(effect, 1, units), "control": rng.normal(0, 1, units)}

    return simulate


def judge_paired(tables):
    lift = paired("control", tables["treatment"], tables["control"])
    return Finding(CLAIM, effect=mean(tables["treatment"]), contrasts=(lift,), n=lift.n)


def judge_independent(tables):
    lift = independent("control", tables["treatment"], tables["control"])
    return Finding(CLAIM, effect=mean(tables["treatment"]), contrasts=(lift,), n=lift.n)


def judge_pseudoreplicated(tables):
    """Takes each of 6 noisy readings of a unit for a unit."""
    treatment, control = np.repeat(tables["treatment"], 6), np.repeat(tables["control"], 6)
    lift = paired("control", treatment, control)
    return Finding(CLAIM, effect=mean(treatment), contrasts=(lift,), n=lift.n)


@pytest.mark.parametrize("units", [8, 24])
@pytest.mark.parametrize("judge", [judge_paired, judge_independent])
def test_house_contrasts_are_calibrated(judge, units):
    effect = 1.2 + 5 / units**0.5
    assert_calibrated(judge, null=world(0.0, units), planted=world(effect, units), family=5)


def test_sums_and_draws_are_calibrated():
    def judge_sums(tables):
        lift = paired_sums("control", tables["treatment"], tables["control"])
        return Finding(CLAIM, effect=from_sums(tables["treatment"]), contrasts=(lift,), n=lift.n)

    def sums(effect, clusters):
        def simulate(rng):
            size = rng.integers(5, 30, clusters)
            shared = rng.normal(0, 0.1, clusters)
            arms = {"treatment": 0.5 + effect, "control": 0.5}
            return {
                arm: np.column_stack([rng.binomial(size, np.clip(share + shared, 0, 1)), size])
                for arm, share in arms.items()
            }

        return simulate

    for clusters in (10, 30):
        assert_calibrated(judge_sums, null=sums(0.0, clusters), planted=sums(0.25, clusters), family=4, draws=200)

    def judge_draws(tables):
        claim = Claim("special", "The set is special", kind="randomisation", statistic="drop", controls=("random",))
        lift = against_draws("random", float(tables["x"][0]), tables["x"][1:])
        return Finding(claim, effect=Estimate(0, 0, 0), contrasts=(lift,), n=lift.n)

    def draws(effect):
        return lambda rng: {"x": rng.normal(0, 1, 31) + effect * (np.arange(31) == 0)}

    assert_calibrated(judge_draws, null=draws(0.0), planted=draws(4.0))


def test_equivalence_is_calibrated_at_its_margin():
    claim = Claim("same", "Same", kind="equivalence", statistic="score", controls=("control",), margin=1.0)

    def judge(tables):
        same = equivalent("control", tables["treatment"], tables["control"], claim.margin)
        return Finding(claim, effect=mean(tables["treatment"]), contrasts=(same,), n=same.n)

    assert_calibrated(judge, null=world(1.0, 30), planted=world(0.0, 30))
    assert verdict_rates(judge, world(3.0, 30), draws=50)["same"].rate(Verdict.CONTRADICTED) == 1.0


def test_a_dishonest_judge_is_caught():
    with pytest.raises(
        AssertionError, match=r"^null world, at most 0\.083 supported allowed, got lift: supported 0\.[1-9]"
    ):
        assert_calibrated(judge_pseudoreplicated, null=world(0.0))


def test_a_powerless_judge_is_caught_and_the_reason_given():
    with pytest.raises(
        AssertionError, match=r"^planted world, at least 0\.8 supported needed, got lift: supported 0\.000"
    ):
        assert_calibrated(judge_paired, planted=world(3.0, units=4), draws=20)
    with pytest.raises(AssertionError, match="4 units of analysis"):
        assert_calibrated(judge_paired, planted=world(3.0, units=4), draws=20)


def test_holm_is_applied_over_what_the_judge_returns():
    def certain(name, p):
        claim = Claim(name, "s", kind="contrast", statistic="x", controls=("c",))
        contrast = Contrast("c", Estimate(0, 0, 0), Estimate(1, 0.5, 1.5), p, 9, "t")
        return Finding(claim, effect=Estimate(1, 0, 2), contrasts=(contrast,))

    def rates(findings, **options):
        return {
            n: r.supported
            for n, r in verdict_rates(lambda tables: findings, lambda rng: {}, draws=2, **options).items()
        }

    assert rates([certain("a", 0.02), certain("b", 0.04)]) == {"a": 1.0, "b": 1.0}
    assert rates([certain("a", 0.03), certain("b", 0.04)]) == {"a": 0.0, "b": 0.0}
    assert rates([certain("a", 0.02), Finding(certain("b", 1.0).claim, withheld="quick")]) == {"a": 1.0, "b": 0.0}
    assert rates([certain("a", 0.02)], family=2) == {"a": 1.0}
    assert rates([certain("a", 0.02)], family=3) == {"a": 0.0}
    assert rates([certain("a", 0.02), certain("b", 0.9)], family=2) == {"a": 1.0, "b": 0.0}


def test_draws_are_reproducible_and_distinct():
    seen = []
    verdict_rates(judge_paired, lambda rng: seen.append(rng.random()) or world(0.0)(rng), draws=5, seed=1)
    verdict_rates(judge_paired, lambda rng: seen.append(rng.random()) or world(0.0)(rng), draws=5, seed=1)
    assert seen[:5] == seen[5:]
    assert len(set(seen)) == 5


def test_rates_read_well():
    counts = {Verdict.SUPPORTED: 3, Verdict.INCONCLUSIVE: 1}
    rates = VerdictRates("lift", 4, counts)
    assert str(rates) == "lift: supported 0.750, contradicted 0.000, inconclusive 0.250 (4 draws)"
    assert rates.rate(Verdict.CONTRADICTED) == 0.0


def test_claims_to_check_must_be_judged():
    with pytest.raises(ValueError, match=r"^not judged: other; judged: lift$"):
        assert_calibrated(judge_paired, null=world(0.0), claims=["other"], draws=2)
    with pytest.raises(ValueError, match=r"^give a null world, a planted world, or both$"):
        assert_calibrated(judge_paired)


def test_only_the_named_claims_are_held_to_the_rule():
    def judge(tables):
        good = judge_paired(tables)
        bad = Finding(
            Claim("always", "s", kind="contrast", statistic="x", controls=("c",)), effect=good.effect, withheld=""
        )
        contrast = Contrast("c", Estimate(0, 0, 0), Estimate(1, 0.5, 1.5), 0.0, 9, "t")
        return [good, Finding(bad.claim, effect=good.effect, contrasts=(contrast,))]

    assert_calibrated(judge, null=world(0.0), claims=["lift"])
    with pytest.raises(AssertionError, match=r"got always: supported 1\.000"):
        assert_calibrated(judge, null=world(0.0))
