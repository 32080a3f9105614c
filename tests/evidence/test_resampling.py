"""Bootstrap and jackknife against loops that resample by hand, closed forms and scipy."""

import numpy as np
import pytest
from scipy import stats

from gnomon.evidence.intervals import mean
from gnomon.evidence.resampling import (
    Bootstrap,
    bootstrap_crossed,
    bootstrap_sums,
    bootstrap_weights,
    from_sums,
    from_weights,
    multinomial_weights,
    ratio,
    unit_values,
    unit_values_of_weights,
)

RNG = np.random.default_rng(11)
SUMS = RNG.gamma(2.0, 1.0, (30, 2))


def total(sums):
    return sums[:, 0]


def test_weights_are_counts_of_draws_with_replacement():
    weights = multinomial_weights(12, 4000, 0)
    assert (weights.sum(axis=1) == 12).all()
    assert weights.mean(axis=0) == pytest.approx(np.ones(12), abs=0.08)  # 5 s.e. of a mean of 4,000 Poisson-like counts
    assert weights.var() == pytest.approx(11 / 12, abs=0.03)
    covariance = np.cov(weights.T)
    assert covariance[np.triu_indices(12, 1)].mean() == pytest.approx(-1 / 12, abs=0.01)


def test_weights_are_cached_read_only_and_the_same_in_every_process():
    weights = multinomial_weights(25, 99, 3)
    assert multinomial_weights(25, 99, 3) is weights
    with pytest.raises(ValueError, match="read-only"):
        weights[0, 0] = 5
    assert (multinomial_weights(25, 99, 4) != weights).any()
    assert multinomial_weights(5, 3, 7).tolist() == [
        [1, 0, 2, 2, 0],
        [1, 2, 2, 0, 0],
        [2, 0, 1, 1, 1],
    ]  # stored findings are judged again from these


def test_large_weight_matrices_are_not_kept():
    assert multinomial_weights(3000, 999, 0) is not multinomial_weights(3000, 999, 0)
    assert (multinomial_weights(3000, 999, 0) == multinomial_weights(3000, 999, 0)).all()


def test_each_draw_is_the_statistic_of_a_resample():
    drawn = bootstrap_sums(SUMS, resamples=50)
    for weights, value in zip(multinomial_weights(30, 50, 0), drawn.draws, strict=True):
        resample = np.repeat(SUMS, weights.astype(int), axis=0)
        assert value == pytest.approx(resample[:, 0].sum() / resample[:, 1].sum(), rel=1e-12)
    assert drawn.value == pytest.approx(SUMS[:, 0].sum() / SUMS[:, 1].sum())


def test_clusters_are_drawn_whole():
    clusters = np.repeat(np.arange(30), 3)
    split = np.repeat(SUMS / 3, 3, axis=0)
    whole = bootstrap_sums(SUMS)
    shuffled = RNG.permutation(90)
    parts = bootstrap_sums(split[shuffled], clusters=clusters[shuffled])
    assert parts.draws == pytest.approx(whole.draws)
    by_weight = bootstrap_weights(lambda w: ratio(w @ split), 90, clusters=clusters)
    assert by_weight.draws == pytest.approx(whole.draws)


def test_interval_is_scipys_percentile_interval_when_there_are_many_clusters():
    values = RNG.normal(size=400)
    sums = np.column_stack([values, np.ones(400)])
    ours = bootstrap_sums(sums, resamples=4000).interval()
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, rng=1).confidence_interval
    error = values.std() / 20
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.15 * error)


def test_interval_of_a_mean_is_as_wide_as_students():
    # Normal scores: the bootstrap distribution of the mean is then nearly normal, and expansion must turn z into t.
    for n in (20, 30, 60):
        values = stats.norm.ppf((np.arange(n) + 0.5) / n)
        ours = bootstrap_sums(np.column_stack([values, np.ones(n)]), resamples=20_000).interval()
        theirs = mean(values)
        assert ours.high - ours.low == pytest.approx(theirs.high - theirs.low, rel=0.04)


def test_standard_error_of_a_mean():
    values = RNG.normal(size=40)
    error = bootstrap_sums(np.column_stack([values, np.ones(40)]), resamples=20_000).studentised.standard_error
    assert error == pytest.approx(values.std(ddof=1) / 40**0.5, rel=0.02)


def test_strata_are_resampled_within():
    strata = np.array(["a", "b", "c"])[np.arange(30) % 3]
    shifted = np.column_stack([10.0 * (np.arange(30) % 3) + RNG.normal(size=30), np.ones(30)])
    drawn = bootstrap_sums(shifted, strata=strata, resamples=20_000)
    within = sum(shifted[strata == s, 0].var(ddof=1) / 10 / 9 for s in "abc")
    assert drawn.studentised.standard_error == pytest.approx(within**0.5, rel=0.03)
    counts = bootstrap_sums(np.column_stack([(strata == "a") * 1.0, np.ones(30)]), total, strata=strata).draws
    assert (counts == 10).all()
    assert (drawn.clusters, drawn.strata, drawn.degrees) == (30, 3, 27)


def test_nested_draws_contain_both_variances():
    clusters = np.repeat(np.arange(40), 5)
    values = RNG.normal(size=40)[clusters] + RNG.normal(size=200)

    def average(weights):
        return weights @ values / weights.sum(axis=1)

    drawn = bootstrap_weights(average, 200, clusters=clusters, nested=True, resamples=8000)
    means = values.reshape(40, 5).mean(axis=1)
    within = values.reshape(40, 5).var(axis=1).mean()
    assert drawn.draws.var() == pytest.approx(means.var() / 40 + within / 200, rel=0.06)


def test_crossed_draws_weigh_both_factors():
    cells = RNG.normal(size=(25, 8)) + RNG.normal(size=(25, 1)) + RNG.normal(size=(1, 8))
    sums = np.stack([cells, np.ones_like(cells)], axis=-1)
    drawn = bootstrap_crossed(sums, resamples=40)
    rows, columns = multinomial_weights(25, 40, 0, 0), multinomial_weights(8, 40, 0, 1)
    expected = [row @ cells @ column / 200 for row, column in zip(rows, columns, strict=True)]
    assert drawn.draws == pytest.approx(expected)
    assert (drawn.value, drawn.clusters) == (pytest.approx(cells.mean()), 8)


def test_unit_values_of_a_mean_are_the_values():
    values = RNG.normal(size=9)
    assert unit_values(np.column_stack([values, np.ones(9)])) == pytest.approx(values)


def test_unit_values_carry_the_jackknife():
    sums = SUMS[:12]
    values = unit_values(sums)
    without = np.array([ratio(np.delete(sums, i, axis=0).sum(axis=0)[None])[0] for i in range(12)])
    jackknife = (11 / 12 * ((without - without.mean()) ** 2).sum()) ** 0.5
    assert values.mean() == pytest.approx(ratio(sums.sum(axis=0)[None])[0])
    assert values.std(ddof=1) / 12**0.5 == pytest.approx(jackknife)
    # For a ratio the linearised variance (Cochran 1977, section 6.4) agrees up to terms of higher order.
    residual = sums[:, 0] - values.mean() * sums[:, 1]
    linear = residual.std(ddof=1) / 12**0.5 / sums[:, 1].mean()
    assert jackknife == pytest.approx(linear, rel=0.15)


def test_stratified_unit_values_carry_the_stratified_variance():
    strata = np.arange(12) % 3
    values = 10.0 * strata + RNG.normal(size=12)
    ours = unit_values(np.column_stack([values, np.ones(12)]), strata=strata)
    within = sum(values[strata == s].var(ddof=1) / 4 / 9 for s in range(3))
    assert ours.mean() == pytest.approx(values.mean())
    assert ours.std(ddof=1) / 12**0.5 == pytest.approx(within**0.5)


def test_house_rule_takes_t_below_twenty_clusters():
    few = np.column_stack([RNG.normal(size=19), np.ones(19)])
    assert from_sums(few) == mean(few[:, 0]) or from_sums(few).low == pytest.approx(mean(few[:, 0]).low)
    many = np.column_stack([RNG.normal(size=20), np.ones(20)])
    assert from_sums(many) == bootstrap_sums(many).interval()
    clusters = np.repeat(np.arange(19), 2)
    estimate = from_weights(lambda w: ratio(w @ np.repeat(few, 2, axis=0)), 38, clusters=clusters)
    assert (estimate.low, estimate.high) == pytest.approx((from_sums(few).low, from_sums(few).high))
    assert unit_values_of_weights(lambda w: ratio(w @ few), 19) == pytest.approx(few[:, 0])


def test_an_undefined_resample_leaves_no_interval():
    sums = np.column_stack([np.ones(25), np.r_[1.0, np.zeros(24)]])  # a resample without the first has 0 below
    drawn = bootstrap_sums(sums, lambda s: np.where(s[:, 1] > 0, s[:, 0] / s[:, 1], np.nan))
    assert drawn.value == 25.0
    assert np.isnan([drawn.interval().low, drawn.interval().high]).all()
    few = from_sums(sums[:10], lambda s: np.where(s[:, 1] > 0, s[:, 0] / s[:, 1], np.nan))
    assert np.isnan([few.low, few.high]).all()


def test_an_infinite_resample_leaves_no_interval():
    sums = np.column_stack([np.ones(25), np.r_[1.0, np.zeros(24)]])
    drawn = bootstrap_sums(sums)
    assert np.isnan([drawn.interval().low, drawn.interval().high]).all()
    assert np.isnan(drawn.studentised.standard_error)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bootstrap_sums(SUMS[:19]),
            "a bootstrap interval needs at least 20 clusters, got 19; use a t interval "
            r"\(from_sums, from_weights and the contrasts choose it\)",
        ),
        (lambda: from_sums(SUMS[:1]), "an interval needs at least 2 clusters, got 1"),
        (lambda: from_sums([[1.0, np.nan], [1.0, 1.0]]), r"sums is not finite: nan at index \(0, 1\)"),
        (
            lambda: from_sums(SUMS, strata=[0] * 29 + [1]),
            "stratum 1 has a single cluster, so its variance is unknown",
        ),
        (
            lambda: from_sums(SUMS, clusters=np.arange(30) // 2, strata=np.arange(30) % 2),
            "a cluster lies in more than one stratum",
        ),
        (
            lambda: from_sums(SUMS, clusters=[1, 2]),
            r"clusters must give one label for each of 30 observations, got shape \(2,\)",
        ),
        (lambda: bootstrap_weights(lambda w: w[:, 0], 30, nested=True), "a nested bootstrap needs clusters"),
        (
            lambda: bootstrap_crossed(np.ones((9, 4, 2))),
            "each crossed factor needs at least 5 levels, got 9 x 4",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


def test_a_bootstrap_knows_its_degrees():
    assert Bootstrap(0.0, np.zeros(3), clusters=30, strata=2).degrees == 28
