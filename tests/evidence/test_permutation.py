"""Permutation tests against complete enumeration, scipy, and their level."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gnomon.evidence.permutation import permutation_test, welch_permutation

RNG = np.random.default_rng(8)
GROUPS = st.lists(st.floats(-5, 5).map(lambda x: round(x, 1)), min_size=2, max_size=4)


def difference(values):
    """Mean of the observations labelled 1 minus that of the others."""

    def statistic(labels):
        return labels @ values / labels.sum(axis=1) - (1 - labels) @ values / (1 - labels).sum(axis=1)

    return statistic


@settings(deadline=None)
@given(GROUPS, GROUPS)
def test_welch_permutation_enumerates(first, second):
    pooled = np.array(first + second)

    def welch_t(chosen):
        a, b = pooled[list(chosen)], np.delete(pooled, list(chosen))
        gap = round(a.mean() - b.mean(), 9)
        error = round(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b), 9) ** 0.5
        return abs(gap) / error if error else (math.inf if gap else 0.0)

    every = np.array([welch_t(chosen) for chosen in itertools.combinations(range(len(pooled)), len(first))])
    expected = (every >= every[0] * (1 - 1e-6) if math.isfinite(every[0]) else every >= every[0]).mean()
    assert welch_permutation(first, second) == pytest.approx(expected)


@pytest.mark.parametrize("alternative", ["greater", "less"])  # scipy's two-sided p doubles the smaller tail
def test_welch_permutation_agrees_with_scipy(alternative):
    first, second = RNG.normal(1, 1, 5), RNG.normal(0, 3, 6)
    method = stats.PermutationMethod(n_resamples=np.inf)
    theirs = stats.ttest_ind(first - 0.2, second, equal_var=False, alternative=alternative, method=method)
    assert welch_permutation(first, second, null=0.2, alternative=alternative) == pytest.approx(theirs.pvalue)


def test_equal_seeds_in_both_arms_still_have_a_p():
    assert welch_permutation([1.0] * 5, [0.1] * 5) == pytest.approx(2 / 252)
    assert welch_permutation([0.3] * 5, [0.3] * 5) == 1.0


def test_drawn_arrangements_approach_the_t_test():
    first, second = RNG.normal(0.4, 1, 40), RNG.normal(0, 1, 50)
    expected = stats.ttest_ind(first, second, equal_var=False).pvalue
    assert welch_permutation(first, second, resamples=9999) == pytest.approx(expected, abs=0.02)


def test_two_groups_are_enumerated():
    values, labels = RNG.normal(size=9), np.array([1.0, 1, 1, 1, 0, 0, 0, 0, 0])
    result = permutation_test(labels, difference(values))
    theirs = stats.permutation_test((values[:4], values[4:]), lambda a, b: a.mean() - b.mean(), n_resamples=np.inf)
    gaps = np.abs(theirs.null_distribution)
    assert result.p == pytest.approx((gaps >= abs(theirs.statistic) - 1e-12).mean())
    assert result.statistic == pytest.approx(theirs.statistic)
    assert (result.arrangements, result.exact, result.p_each) == (math.comb(9, 4), True, (result.p,))


def test_order_of_observations_does_not_matter():
    values, labels = RNG.normal(size=8), np.array([1.0, 0, 1, 0, 1, 0, 0, 0])
    order = RNG.permutation(8)
    assert permutation_test(labels, difference(values)).p == pytest.approx(
        permutation_test(labels[order], difference(values[order])).p
    )


def test_more_than_two_kinds_of_labels_are_enumerated():
    x, y = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), RNG.normal(size=6)

    def covariance(labels):
        return (labels - labels.mean(axis=1, keepdims=True)) @ (y - y.mean())

    result = permutation_test(x, covariance)
    theirs = stats.pearsonr(x, y, method=stats.PermutationMethod(n_resamples=np.inf, rng=np.random.default_rng(0)))
    assert (result.arrangements, result.exact) == (720, True)
    assert result.p == pytest.approx(
        theirs.pvalue, abs=1 / 720
    )  # the null is not symmetric, so tails may differ by one


def test_strata_keep_labels_inside():
    strata = np.array([0, 1, 0, 1, 0, 1, 0])
    labels = np.array([1.0, 1, 0, 0, 0, 1, 1])
    values = 10.0 * strata + RNG.normal(size=7)
    seen = []

    def statistic(permuted):
        seen.append(permuted)
        return difference(values)(permuted)

    result = permutation_test(labels, statistic, strata=strata)
    assert result.arrangements == math.comb(4, 2) * math.comb(3, 2)
    assert len(np.unique(seen[0], axis=0)) == result.arrangements
    for stratum in (0, 1):
        assert (seen[0][:, strata == stratum].sum(axis=1) == 2).all()
    assert (seen[0][0] == labels).all()


def test_clusters_move_whole():
    clusters = np.array(["b", "a", "c", "b", "a", "d", "d", "c"])
    labels = np.isin(clusters, ["a", "c"]).astype(float)
    values = RNG.normal(size=8)
    totals = np.array([values[clusters == c].mean() for c in "abcd"])
    by_cluster = permutation_test(labels, difference(values), clusters=clusters)
    by_mean = permutation_test(np.array([1.0, 0, 1, 0]), difference(totals))
    assert (by_cluster.p, by_cluster.arrangements) == (by_mean.p, 6)


def test_drawn_permutations_hold_strata_and_clusters():
    clusters = np.repeat(np.arange(30), 2)
    strata = np.repeat(np.arange(3), 20)
    labels = np.repeat(np.tile([1.0, 0.0], 15), 2)

    def statistic(permuted):
        assert (permuted[:, ::2] == permuted[:, 1::2]).all()
        assert (permuted[:, strata == 0].sum(axis=1) == 10).all()
        return difference(RNG.normal(size=60))(permuted)

    result = permutation_test(labels, statistic, strata=strata, clusters=clusters, resamples=200)
    assert (result.arrangements, result.exact) == (201, False)


def test_maximum_over_layers_pays_for_the_search():
    layers = RNG.normal(size=(10, 12))
    labels = np.array([1.0] * 5 + [0.0] * 5)

    def by_layer(permuted):
        return np.stack([difference(layer)(permuted) for layer in layers.T], axis=1)

    searched = permutation_test(labels, by_layer)
    each = [permutation_test(labels, difference(layer)) for layer in layers.T]
    assert searched.p == min(searched.p_each)
    assert all(family >= alone.p for family, alone in zip(searched.p_each, each, strict=True))
    assert abs(searched.statistic) == pytest.approx(max(abs(one.statistic) for one in each))


def test_maximum_over_layers_holds_its_level():
    labels = np.array([1.0] * 5 + [0.0] * 5)
    rejected = 0
    for draw in range(600):
        layers = np.random.default_rng(draw).normal(size=(10, 8))
        rejected += (
            permutation_test(labels, lambda permuted, x=layers: permuted @ x / 5 - (1 - permuted) @ x / 5).p <= 0.05
        )
    assert rejected / 600 <= 0.05 + 3 * (0.05 * 0.95 / 600) ** 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: welch_permutation([1.0], [1.0, 2.0]), "a permutation test needs 2 units a group, got 1 and 2"),
        (
            lambda: permutation_test([1, 0, 1], difference(np.zeros(3)), clusters=["a", "a", "b"]),
            "labels differ within a cluster, so clusters cannot be permuted",
        ),
        (
            lambda: permutation_test([1, 1, 0], difference(np.zeros(3)), clusters=["a", "a", "b"], strata=[0, 1, 1]),
            "a cluster lies in more than one stratum",
        ),
        (
            lambda: permutation_test(np.arange(40), difference(np.zeros(40)), claims=6, resamples=200),
            r"200 null draws cannot resolve p for 6 claims: at least 239 needed "
            r"\(or prediction_test, which takes 10\)",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
