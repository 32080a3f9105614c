"""Estimators and nulls on simulated observations whose influence is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from gnomon.training.influence import InfluenceResult, Record, Setting
from gnomon.training.influence.estimators import max_threshold
from gnomon.training.influence.nulls import (
    benjamini_hochberg,
    bulk_z,
    group_p,
    random_group_sums,
    rank_p,
)
from gnomon.training.influence.record import Observation
from gnomon.training.influence.sums import block_variance

STEPS, EXAMPLES = 60, 200


def simulated(shifts, *, steps=STEPS, seed=0, lr=None, queries=("query",)):
    """Inner products N(shift, 1) around a mean and a scale that change from step to step."""
    rng = np.random.default_rng(seed)
    setting = Setting(target="query", queries=queries, method="jvp", parameters={"weight": 1}, batch_size=10)
    record = Record(setting)
    for step in range(steps):
        z = rng.normal(0, 1, (len(shifts), 1)) + np.asarray(shifts)[:, None]
        dots = (5 * np.sin(step) + (1 + step / steps) * z).astype(np.float32)
        wide = dots.astype(np.float64)
        record.append(
            Observation(
                step=step,
                lr=0.1 if lr is None else lr(step),
                batch_size=10,
                index=np.arange(len(shifts)),
                dots=dots,
                mean=wide.mean(0, keepdims=True),
                std=wide.std(0, keepdims=True, ddof=1),
                losses=rng.random(len(shifts)).astype(np.float32),
                squared_norms=rng.random(len(shifts)).astype(np.float32),
                query_losses=np.zeros(1),
                query_norms=np.ones(1),
            )
        )
    return record


def planted(size, shift=0.8):
    shifts = np.zeros(EXAMPLES)
    shifts[:size] = shift
    return shifts


def test_exact_recovers_a_planted_shift():
    rates = np.array([InfluenceResult(simulated(planted(1), seed=seed)).rates[0] for seed in range(20)])
    assert abs(rates.mean() - 0.8) < 3 / STEPS**0.5 / 20**0.5
    assert rates.std(ddof=1) == pytest.approx(STEPS**-0.5, rel=0.5)


@pytest.mark.parametrize("estimator", ["exact", "rank", "unequal"])
def test_estimators_agree_on_gaussian_products(estimator):
    shifts = np.linspace(-1, 1, EXAMPLES)
    spread = (1 + np.var(shifts)) ** 0.5  # the shifts themselves are part of the spread over examples
    result = InfluenceResult(simulated(shifts), estimator=estimator)
    assert np.corrcoef(result.rates, shifts)[0, 1] > 0.95
    assert np.polyfit(shifts / spread, result.rates, 1)[0] == pytest.approx(1, abs=0.12)


def test_composed_steps_are_free_of_the_noise_they_would_add_up():
    result = InfluenceResult(simulated(planted(20)), estimator="steps")
    assert np.median(result.rates[:20]) == pytest.approx(0.65, abs=0.15)
    assert (result.rates[20:] == 0).mean() == pytest.approx(0.5, abs=0.15)


def test_literal_maximum_is_mostly_infinite():
    result = InfluenceResult(simulated(planted(20)), estimator="max-threshold")
    assert result.summary().infinite > 0.5
    assert result.summary().distinct < 0.5
    exact = InfluenceResult(simulated(planted(20))).summary()
    assert exact.infinite == 0
    assert exact.distinct == 1


def test_literal_maximum_is_the_largest_over_thresholds():
    own, others = np.array([[0.0], [2.0], [4.0]]), np.array([[1.0], [3.0], [-1.0]])
    # Below 4 the first error pair is (0, 2/3): an infinite size, as for most examples.
    assert np.isinf(max_threshold(own, others)[0])
    assert max_threshold(np.array([[0.0], [2.0]]), np.array([[1.0], [3.0]]))[0] == pytest.approx(0.0)


def test_scores_do_not_depend_on_the_scale_of_the_learning_rate():
    first = InfluenceResult(simulated(planted(5), lr=lambda step: 0.1 / (1 + step)))
    last = InfluenceResult(simulated(planted(5), lr=lambda step: 7.0 / (1 + step)))
    np.testing.assert_allclose(first.rates, last.rates)


def test_standard_error_covers_the_spread_over_repetitions():
    results = [InfluenceResult(simulated(planted(1), seed=seed)) for seed in range(24)]
    scale = np.array([result.scores["se"][0] for result in results]).mean()
    spread = np.std([result.scores["mu_run"][0] for result in results], ddof=1)
    assert scale == pytest.approx(spread, rel=0.35)


def test_block_variance_is_that_of_the_block_bootstrap():
    rng = np.random.default_rng(0)
    values = np.convolve(rng.normal(0, 1, 66), [0.6, 0.3, 0.1], "valid")
    length = 4
    starts = rng.integers(0, len(values) - length + 1, (40_000, len(values) // length))
    sums = np.array([values[start : start + length].sum() for start in range(len(values) - length + 1)])
    assert block_variance(values) == pytest.approx(sums[starts].sum(1).var(), rel=0.03)


def test_group_is_the_sum_of_its_examples_against_the_rest():
    result = InfluenceResult(simulated(planted(10)), steps=STEPS)
    group = result.group(range(10))
    rest = EXAMPLES / (EXAMPLES - 10)
    assert group.mu_run == pytest.approx(result.scores["mu_run"][:10].sum() * rest)
    assert group.mu_step == pytest.approx(result.scores["mu_step"][:10].sum() * rest)
    assert group.p == pytest.approx(1 / 501)
    assert group.null[0] < 0 < group.null[2] < group.mu_run
    assert group.z > 5
    single = result.group([3])
    assert single.mu_run == pytest.approx(result.scores["mu_run"][3] * EXAMPLES / (EXAMPLES - 1))
    assert single.se == pytest.approx(result.scores["se"][3] * EXAMPLES / (EXAMPLES - 1), rel=1e-6)


def test_random_groups_have_uniform_p():
    result = InfluenceResult(simulated(np.random.default_rng(5).normal(0, 0.5, EXAMPLES)))
    rng = np.random.default_rng(6)
    p = [result.group(rng.choice(EXAMPLES, 8, replace=False), draws=100, seed=i).p for i in range(100)]
    assert kstest(p, "uniform").pvalue > 0.01


def test_stratified_null_takes_the_class_prior_out():
    """Every example of one class shifts alike: against random groups it looks influential, against its class not."""
    labels = np.arange(EXAMPLES) % 4
    result = InfluenceResult(simulated(np.where(labels == 0, 0.6, -0.2)))
    members = np.flatnonzero(labels == 0)[:10]
    assert result.group(members).p < 0.01
    assert result.group(members, strata=dict(enumerate(labels))).p > 0.05


def test_several_groups_share_a_false_discovery_rate():
    table = InfluenceResult(simulated(planted(10))).groups({"planted": range(10), "other": range(50, 60)})
    assert table["group"].tolist() == ["planted", "other"]
    assert table["q"][0] == pytest.approx(2 * table["p"][0])
    assert table["null_low"][1] < table["null_high"][1]


def test_single_examples_against_the_bulk():
    result = InfluenceResult(simulated(planted(5, shift=2.0)))
    table = result.scores
    assert (table["q"][:5] < 0.001).all()
    assert (table["q"][5:] < 0.05).mean() < 0.05
    assert table["p_rank"].min() == pytest.approx(1 / EXAMPLES)
    assert set(result.top(5)["index"]) == set(range(5))


def test_fixed_pool_ranks_as_tracin_does():
    """All examples at all steps: the score is an affine image of the weighted sum of products."""
    result = InfluenceResult(simulated(np.linspace(-1, 1, EXAMPLES), lr=lambda step: 1 / (1 + step)))
    table = result.scores
    slope, intercept = np.polyfit(table["tracin"], table["mu_run"], 1)
    np.testing.assert_allclose(slope * table["tracin"] + intercept, table["mu_run"], atol=1e-9)
    assert (table["tracin"].rank() == table["mu_run"].rank()).all()
    assert (table["mu_paper"].rank() != table["mu_run"].rank()).any()


def test_reliability_is_that_of_two_halves():
    shifts = np.random.default_rng(0).normal(0, 1, EXAMPLES)
    assert InfluenceResult(simulated(shifts)).summary().reliability > 0.9
    assert abs(InfluenceResult(simulated(np.zeros(EXAMPLES))).summary().reliability) < 0.25


def test_tradeoff_of_a_planted_group_is_nearly_gaussian():
    result = InfluenceResult(simulated(planted(20)))
    curve = result.tradeoff(range(20))
    assert (curve["beta"] - curve["gaussian"]).abs().max() < 0.06
    assert np.trapezoid(1 - curve["beta"], curve["alpha"]) > 0.65
    tracks = result.trajectory([0, 150])
    assert len(tracks) == 2 * STEPS
    assert tracks.groupby("index")["z"].mean()[0] > 0.5


def test_unknown_ids_are_named():
    result = InfluenceResult(simulated(planted(5)))
    with pytest.raises(ValueError, match=r"example 900 was never observed \(1 of 2 ids unknown\)"):
        result.group([0, 900])
    with pytest.raises(ValueError, match="names an example twice"):
        result.group([1, 1])
    with pytest.raises(ValueError, match="at least one example"):
        result.group([])
    with pytest.raises(ValueError, match="needs as many other examples, 50 are left"):
        result.group(range(150))
    with pytest.raises(ValueError, match="unknown estimator 'best'"):
        InfluenceResult(simulated(planted(5)), estimator="best")


def test_results_are_written(tmp_path):
    import json

    import pandas as pd

    result = InfluenceResult(simulated(planted(5)))
    result.to_parquet(tmp_path / "scores.parquet")
    result.to_json(tmp_path / "scores.json")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "scores.parquet"), result.scores)
    stored = json.loads((tmp_path / "scores.json").read_text())
    assert stored["summary"]["sign"].startswith("positive: the example lowers")
    assert len(stored["scores"]) == EXAMPLES


def test_nulls_leave_unscored_examples_out():
    rates = np.array([1.0, 2.0, np.nan, 3.0, 4.0])
    draws = random_group_sums(rates, np.array([0]), draws=50, rng=np.random.default_rng(0))
    assert set(draws) <= {2.0, 3.0, 4.0}
    assert np.isnan(benjamini_hochberg(np.array([0.01, np.nan]))[1])
    assert np.isnan(rank_p(rates)[2])
    assert np.isnan(bulk_z(np.ones(4))).all()
    assert group_p(10.0, np.array([1.0, -12.0, 3.0])) == 0.5
