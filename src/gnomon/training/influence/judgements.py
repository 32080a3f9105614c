"""What each claim says of the tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from gnomon.evidence import Claim, Finding, contrasts, intervals, tests
from gnomon.evidence.contrasts import paired, paired_arms, paired_weights
from gnomon.evidence.intervals import Estimate
from gnomon.evidence.resampling import StatisticOfWeights, bootstrap_weights, from_weights
from gnomon.evidence.verdict import Contrast
from gnomon.training.influence.calibration import separation, separation_auc
from gnomon.training.influence.digit_runs import COMPLETE, GROUP
from gnomon.training.influence.tradeoff import auc_from_mu


def mislabel_detection(claim: Claim, areas: pd.DataFrame, *, scope: str) -> Finding:
    """Areas under the ROC curve by seed: self-influence, and the same on a run whose labels carry nothing."""
    arms = paired_arms(areas.loc[areas["score"] == "exact"], "auc", unit="seed")
    return Finding(
        claim,
        effect=intervals.mean(arms["treatment"]),
        contrasts=(paired("shuffled-labels", arms["treatment"], arms["shuffled-labels"]),),
        n=len(arms["treatment"]),
        scope=scope,
        reading=_precision(areas),
    )


def mislabel_advantage(claim: Claim, areas: pd.DataFrame, *, scope: str) -> Finding:
    """The same areas against the plain scores of the same runs."""
    runs = areas.loc[areas["arm"] == "treatment"]
    arms = paired_arms(runs, "auc", unit="seed", arm="score")
    baselines = ("mean-loss", "tracin", "gradient-norm")
    return Finding(
        claim,
        effect=intervals.mean(arms["exact"]),
        contrasts=tuple(paired(name, arms["exact"], arms[name]) for name in baselines),
        n=len(arms["exact"]),
        scope=scope,
        reading=_precision(areas),
    )


def seed_stability(claim: Claim, scores: pd.DataFrame, *, k: int, scope: str) -> Finding:
    """Mean overlap of the k most harmful examples over pairs of runs; runs are resampled, not pairs."""
    overlaps = {name: pairwise_overlap(scores, name, k) for name in STABILITY_SCORES}
    runs = len(overlaps["exact"])
    exact = _mean_over_pairs(overlaps["exact"])
    others = [name for name in STABILITY_SCORES if name != "exact"]
    found = tuple(
        paired_weights(name.replace("_", "-"), exact, _mean_over_pairs(overlaps[name]), runs) for name in others
    )
    examples = scores["example"].nunique()
    batch, batch_tracin = (
        float(_mean_over_pairs(pairwise_overlap(scores, name, k))(np.ones((1, runs)))[0]) for name in BATCH_SCORES
    )
    return Finding(
        claim,
        effect=from_weights(exact, runs),
        contrasts=found,
        n=runs,
        scope=scope,
        reading=(
            f"random rankings overlap by {k / (2 * examples - k):.3f}; where every step observes all examples the "
            "exact score ranks as TracIn, by arithmetic; observed in the batches that train, at every step, the exact "
            f"score overlaps by {batch:.3f} and TracIn by {batch_tracin:.3f}"
        ),
    )


STABILITY_SCORES = ("exact", "stepwise", "tracin", "last_checkpoint", "trak", "mean_loss")
BATCH_SCORES = ("batch_exact", "batch_tracin")


def pairwise_overlap(scores: pd.DataFrame, score: str, k: int) -> Float[np.ndarray, "run run"]:
    """Jaccard overlap of the k lowest-scored examples for every two runs; all runs score the same examples."""
    seeds = scores["seed"].to_numpy()
    order = np.lexsort((scores["example"].to_numpy(), seeds))
    values = scores[score].to_numpy()[order].reshape(len(np.unique(seeds)), -1)
    lowest = np.zeros(values.shape)
    np.put_along_axis(lowest, np.argsort(values, axis=1, kind="stable")[:, :k], 1.0, axis=1)
    shared = lowest @ lowest.T
    return shared / (2 * k - shared)


def removal(claim: Claim, losses: pd.DataFrame, *, scope: str) -> Finding:
    """Query loss after retraining without a chosen set, averaged over retrainings, against without others as large."""
    arms = paired_arms(losses, "loss", unit="seed", arm="set")
    chosen = "most-helpful" if claim.expect == "greater" else "most-harmful"
    return Finding(
        claim,
        effect=intervals.mean(arms[chosen] - arms[COMPLETE]),
        contrasts=tuple(_less(paired(name, arms[chosen], arms[name]), arms[COMPLETE], arms) for name in claim.controls),
        n=len(arms[chosen]),
        scope=scope,
    )


def group_separations(losses: pd.DataFrame) -> pd.DataFrame:
    """Predicted and found separation of every graded group of every run: columns seed, set, mu_run, separation.

    The standard deviation is pooled over all sets of the run.
    """
    seeds, seed_of = np.unique(losses["seed"].to_numpy(), return_inverse=True)
    names, set_of = np.unique(losses["set"].to_numpy(dtype=str), return_inverse=True)
    shape = (len(seeds), len(names))
    cell = seed_of * len(names) + set_of

    def means(values: np.ndarray) -> Float[np.ndarray, "run set"]:
        return (np.bincount(cell, values, minlength=shape[0] * shape[1]) / np.bincount(cell)).reshape(shape)

    loss = losses["loss"].to_numpy()
    mean = means(loss)
    runs = len(losses) / (shape[0] * shape[1])
    spread = np.sqrt((means(loss**2) - mean**2).mean(1, keepdims=True) * runs / (runs - 1))
    found = (mean - mean[:, names == COMPLETE]) / spread
    graded = np.char.startswith(names, GROUP)
    return pd.DataFrame(
        {
            "seed": np.repeat(seeds, graded.sum()),
            "set": np.tile(names[graded], len(seeds)),
            "mu_run": means(losses["mu_run"].to_numpy())[:, graded].ravel(),
            "separation": found[:, graded].ravel(),
        }
    )


def calibrated_direction(claim: Claim, losses: pd.DataFrame, *, scope: str) -> Finding:
    """Slope through the origin of found on predicted separation, by run, against predictions dealt out at random."""
    groups = group_separations(losses)
    slopes, permuted = [], []
    for _, run in groups.groupby("seed"):
        predicted, found = run["mu_run"].to_numpy(), run["separation"].to_numpy()
        squares = float(predicted @ predicted)
        slopes.append(float(predicted @ found) / squares)
        # The mean over all ways to deal the predictions out, without drawing any.
        permuted.append(len(run) * predicted.mean() * found.mean() / squares)
    return Finding(
        claim,
        effect=intervals.mean(slopes),
        contrasts=(paired("permuted-groups", slopes, permuted),),
        n=len(slopes),
        scope=scope,
        reading=_slope_reading(groups),
    )


def calibrated_scale(claim: Claim, losses: pd.DataFrame, *, scope: str) -> Finding:
    """Common logarithm of the slope: within a factor of three of one?"""
    groups = group_separations(losses)
    x, y = groups["mu_run"].to_numpy(), groups["separation"].to_numpy()
    slopes = tests.slopes(x, y, groups["seed"].to_numpy(), through_origin=True)
    if (slopes <= 0).any():
        return Finding(claim, withheld=f"the slope of {int((slopes <= 0).sum())} of {len(slopes)} runs is not positive")
    logs = np.log10(slopes)
    return Finding(
        claim,
        effect=intervals.mean(logs),
        contrasts=(contrasts.equivalent("slope-one", logs, np.zeros(len(logs)), claim.margin),),
        n=len(logs),
        scope=scope,
        reading=_slope_reading(groups),
    )


def gaussian_curve(claim: Claim, losses: pd.DataFrame, *, scope: str) -> Finding:
    """Area under the observed trade-off curve of retraining, against that of the Gaussian curve of equal separation."""
    by_set = {str(name): part["loss"].to_numpy() for name, part in losses.groupby("set")}
    complete = by_set[COMPLETE]
    found, effect, gaps = [], None, []
    for name in ("without-helpful", "without-harmful"):
        observed = separation_auc(complete, by_set[name])
        predicted = float(auc_from_mu(separation(complete, by_set[name])))
        gap = _curve_gap(complete, by_set[name])
        arms = np.repeat([0, 1], [len(complete), len(by_set[name])])
        drawn = bootstrap_weights(gap, len(arms), strata=arms)
        estimate = Estimate(predicted, predicted, predicted)
        p = drawn.studentised.equivalence_p(claim.margin)
        found.append(Contrast(f"gaussian-{name}", estimate, drawn.interval(), p, len(arms), "TOST of bootstrapped AUC"))
        interval = bootstrap_weights(_observed_area(complete, by_set[name]), len(arms), strata=arms).interval()
        effect = effect or Estimate(observed, interval.low, interval.high)
        gaps.append(f"{name.replace('-', ' ')} {_largest_gap(complete, by_set[name])}")
    halves = separation_auc(complete[::2], complete[1::2])
    return Finding(
        claim,
        effect=effect,
        contrasts=tuple(found),
        n=len(complete),
        scope=scope,
        reading=(
            f"two halves of the runs with all examples: area {halves:.3f} (no influence: .5); largest distance between "
            f"observed and Gaussian curve: {'; '.join(gaps)}"
        ),
    )


def poison_detection(claim: Claim, distances: pd.DataFrame, *, scope: str) -> Finding:
    """Distance of the poison's mean score from the clean examples', in their standard deviations, by world."""
    # Rounded, because TracIn of a fixed pool is the same score: what differs is only the order of summation.
    arms = paired_arms(distances.round({"distance": 9}), "distance", unit="seed")
    shares = paired_arms(distances, "precision", unit="seed")
    others = [name for name in arms if name != "treatment"]
    ordered = [*claim.controls, *(name for name in others if name not in claim.controls)]
    areas = paired_arms(distances, "auc", unit="seed")
    told = ", ".join(f"{name} {shares[name].mean():.2f} ({areas[name].mean():.3f})" for name in ("treatment", *ordered))
    return Finding(
        claim,
        effect=intervals.mean(arms["treatment"]),
        contrasts=tuple(paired(name, arms["treatment"], arms[name]) for name in ordered),
        n=len(arms["treatment"]),
        scope=scope,
        reading=f"share of poison (clean-twins: of twins) among as many top examples, and AUROC: {told}",
    )


def poison_in_pretrained(claim: Claim, distances: pd.DataFrame, effect: pd.DataFrame, *, scope: str) -> Finding:
    """The same for a pretrained decoder, with what the poison itself did to the losses."""
    found = poison_detection(claim, distances, scope=scope)
    lowered = paired_arms(
        effect.assign(lowered=effect["clean"] - effect["poisoned"]), "lowered", unit="seed", arm="query"
    )
    told = f"the poison lowers its query's loss by {lowered['target'].mean():.2f} nats, the other subject's by "
    return replace(found, reading=f"{found.reading}; {told}{lowered['unrelated'].mean():.2f}")


def _precision(areas: pd.DataFrame) -> str:
    treated = areas.loc[areas["arm"] == "treatment"]
    shares = {str(name): rows["precision"].mean() for name, rows in treated.groupby("score")}
    told = ", ".join(f"{name} {shares[name]:.3f}" for name in ("exact", "tracin", "mean-loss", "gradient-norm"))
    return f"share of wrong labels among as many top examples: {told}"


def _mean_over_pairs(overlap: Float[np.ndarray, "run run"]) -> StatisticOfWeights:
    apart = overlap - np.diag(np.diag(overlap))

    def statistic(weights: Float[np.ndarray, "draw run"]) -> Float[np.ndarray, " draw"]:
        # A run drawn twice is no pair with itself: both its overlap and its weight are left out.
        pairs = weights.sum(1) ** 2 - (weights**2).sum(1)
        return np.einsum("di,ij,dj->d", weights, apart, weights) / pairs

    return statistic


def _less(contrast: Contrast, complete: np.ndarray, arms: dict[str, np.ndarray]) -> Contrast:
    """The control's estimate as a rise over the complete run, like the effect; the difference is the same."""
    estimate = intervals.mean(arms[contrast.control] - complete)
    return Contrast(contrast.control, estimate, contrast.difference, contrast.p, contrast.n, contrast.test)


def _slope_reading(groups: pd.DataFrame) -> str:
    def slope(weights: Float[np.ndarray, "draw group"]) -> Float[np.ndarray, " draw"]:
        x, y = groups["mu_run"].to_numpy(), groups["separation"].to_numpy()
        return (weights @ (x * y)) / (weights @ (x * x))

    by_group = bootstrap_weights(slope, len(groups), clusters=groups["set"].to_numpy()).interval()
    within = "" if by_group.low > 1 / 3 and by_group.high < 3 else "; use it for ranking only"
    return f"slope of all groups {by_group} (95 % over {groups['set'].nunique()} graded groups){within}"


def _observed_area(complete: np.ndarray, without: np.ndarray) -> StatisticOfWeights:
    wins = (without[:, None] > complete[None, :]) + 0.5 * (without[:, None] == complete[None, :])
    first = len(complete)

    def area(weights: Float[np.ndarray, "draw run"]) -> Float[np.ndarray, " draw"]:
        with_all, left_out = weights[:, :first], weights[:, first:]
        return ((left_out @ wins) * with_all).sum(1) / (left_out.sum(1) * with_all.sum(1))

    return area


def _largest_gap(complete: np.ndarray, without: np.ndarray, *, draws: int = 100) -> str:
    """Largest vertical distance of the observed curve from the Gaussian one, beside what Gaussian samples show."""
    rng = np.random.default_rng(len(complete))
    null = rng.normal(size=(draws, len(complete)))
    alternative = rng.normal(separation(complete, without), size=(draws, len(without)))
    expected = np.quantile(_distances_from_gaussian(null, alternative), 0.95)
    (found,) = _distances_from_gaussian(complete[None], without[None])
    return f"{found:.3f} (95 % of Gaussian samples: below {expected:.3f})"


def _distances_from_gaussian(
    null: Float[np.ndarray, "draw run"], alternative: Float[np.ndarray, "draw other"]
) -> Float[np.ndarray, " draw"]:
    """For each pair of samples the largest distance of their trade-off curve from the Gaussian one of their sizes."""
    null, alternative = np.sort(null, axis=1), np.sort(alternative, axis=1)
    spread = np.sqrt((null.var(1, ddof=1) + alternative.var(1, ddof=1)) / 2)
    sizes = (alternative.mean(1) - null.mean(1)) / spread
    below = np.stack([np.searchsorted(first, last) for first, last in zip(null, alternative, strict=True)])
    gaussian = ndtr(-ndtri(1 - below / null.shape[1]) - sizes[:, None])
    # At a threshold on one of the alternative's values the curve falls by one step: both its ends count.
    step = np.arange(alternative.shape[1] + 1) / alternative.shape[1]
    return np.maximum(np.abs(gaussian - step[:-1]), np.abs(gaussian - step[1:])).max(1)


def _curve_gap(complete: np.ndarray, without: np.ndarray) -> StatisticOfWeights:
    area, first = _observed_area(complete, without), len(complete)

    def moments(weights: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = weights.sum(1)
        mean = weights @ values / total
        return mean, (weights @ values**2 / total - mean**2) * total / (total - 1)

    def gap(weights: Float[np.ndarray, "draw run"]) -> Float[np.ndarray, " draw"]:
        mean, variance = moments(weights[:, :first], complete)
        other_mean, other_variance = moments(weights[:, first:], without)
        size = (other_mean - mean) / np.sqrt((variance + other_variance) / 2)
        return area(weights) - auc_from_mu(size)

    return gap
