"""From tables to findings: pure functions, one a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from gnomon.evidence import Claim, ExactCheck, Finding
from gnomon.evidence.contrasts import against_draws, equivalent, independent, paired_weights
from gnomon.evidence.intervals import mean
from gnomon.evidence.nulls import permute_within
from gnomon.evidence.resampling import ENOUGH_CLUSTERS, StatisticOfWeights, from_weights
from gnomon.evidence.weighted import quantile_range, spearman
from gnomon.mechanisms.rope_heads.measure import ENERGIES

SHUFFLES = 5
INDUCTION_GAIN = 1.0
ROUNDING = 1e-9
ABLATIONS = {
    ("high", "second copy"): "matched-random",
    ("low", "second copy"): "matched-random, slow frequencies stopped",
    ("high", "prose"): "matched-random, on prose",
}
"""Frequencies stopped and text, by the name of the contrast; the first is the claim's."""


@dataclass(frozen=True)
class HeadArms:
    """Sums over prompts of every head, by arm and column: arrays (copies, heads), heads in order of layer and head."""

    layers: Int[np.ndarray, " head"]
    sums: Mapping[str, Mapping[str, Float[np.ndarray, "copy head"]]]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> HeadArms:
        """Pool the prompts of each arm and copy."""
        columns = ["positional", "symbolic", *(f"{name}_{band}" for name in ENERGIES for band in ("low", "high"))]
        totals = pd.DataFrame(rows.groupby(["arm", "copy", "layer", "head"], as_index=False, sort=True)[columns].sum())
        arms = totals["arm"].to_numpy()
        layers = totals["layer"].to_numpy()[(arms == "treatment") & (totals["copy"].to_numpy() == 0)]
        sums = {
            str(arm): {name: totals[name].to_numpy()[arms == arm].reshape(-1, len(layers)) for name in columns}
            for arm in np.unique(arms)
        }
        return cls(layers, sums)

    def balance(self, arm: str) -> Float[np.ndarray, "copy head"]:
        """D_sym / (D_pos + D_sym)."""
        sums = self.sums[arm]
        return sums["symbolic"] / (sums["positional"] + sums["symbolic"])

    def low_high(self, arm: str, energy: str) -> Float[np.ndarray, "copy head"]:
        """Log ratio of energy in low and in high frequencies."""
        return np.log(self.sums[arm][f"{energy}_low"] / self.sums[arm][f"{energy}_high"])


def exclusion(claim: Claim, rows: pd.DataFrame, *, scope: str) -> Finding:
    """The inequality, head by head and prompt by prompt, for all arms; and for the broken variant."""
    limit = np.sqrt(rows["zero"].to_numpy()) * (1 - ROUNDING)

    def violations(prefix: str) -> int:
        together = np.sqrt(rows[f"{prefix}positional"].to_numpy()) + np.sqrt(rows[f"{prefix}symbolic"].to_numpy())
        return int((together < limit).sum())

    check = ExactCheck(
        instances=len(rows),
        violations=violations(""),
        broken_instances=len(rows),
        broken_violations=violations("swapped_"),
        broken="distances averaged over single swaps instead of all permutations",
    )
    reading = (
        f"closest to the corner (1, 1): a trained head with min(positional, symbolic) = {_largest_minimum(rows):.2f}; "
        "the bound allows .75"
    )
    return Finding(claim, exact=check, n=check.instances, scope=scope, reading=reading)


def frequency_arithmetic(claim: Claim, curve: pd.DataFrame, *, scope: str) -> Finding:
    """Correlation of balance and frequency, prompt by prompt: trained against the mean of the copies."""
    trained = _rank_correlations(curve, "treatment").mean(0)
    copies = {arm: _rank_correlations(curve, arm).mean(0) for arm in ("random-init", "resampled")}
    contrasts = [equivalent(arm, trained, values, claim.margin) for arm, values in copies.items()]
    levels = ", ".join(f"{_fastest(curve, arm):.2f} {arm}" for arm in ("treatment", *copies))
    return Finding(
        claim,
        effect=mean(trained),
        contrasts=tuple(contrasts),
        n=len(trained),
        scope=scope,
        reading=(
            "a curve of balance by frequency is no evidence of learning where copies without training order the "
            f"frequencies alike; its level differs: the fastest frequency has balance {levels}"
        ),
    )


def learned_frequency_use(claim: Claim, rows: pd.DataFrame, *, scope: str) -> Finding:
    """Correlation over heads of balance and log low/high energy, as Fisher z, against three nulls."""
    heads = HeadArms.of(rows)
    energy = ENERGIES[0]
    trained = _fisher_z(heads.balance("treatment")[0], heads.low_high("treatment", energy)[0])
    rng = np.random.default_rng(0)
    shuffled = [heads.low_high("treatment", energy)[0][permute_within(heads.layers, rng)] for _ in range(SHUFFLES)]
    nulls = {arm: _copies_z(heads, arm, energy) for arm in ("random-init", "resampled")}
    nulls["shuffled-energies"] = _average([_fisher_z(heads.balance("treatment")[0], one) for one in shuffled])
    return _over_layers(claim, heads, trained, nulls, scope=scope, reading=_three_energies(heads))


def spread(claim: Claim, rows: pd.DataFrame, *, scope: str) -> Finding:
    """Inter-decile range of balance over heads, against randomised copies."""
    heads = HeadArms.of(rows)
    layers = len(np.unique(heads.layers))
    if layers < ENOUGH_CLUSTERS:  # quantiles are not smooth, so that the jackknife of few layers does not hold
        return Finding(claim, withheld=f"{layers} layers; an interval of quantiles needs at least {ENOUGH_CLUSTERS}")
    trained = quantile_range(heads.balance("treatment")[0])
    nulls = {
        arm: _average([quantile_range(copy) for copy in heads.balance(arm)]) for arm in ("random-init", "resampled")
    }
    medians = ", ".join(f"{np.median(heads.balance(arm)):.2f} {arm}" for arm in ("treatment", *nulls))
    reading = f"median balance (1 positional, 0 symbolic): {medians}"
    if "shuffled-words" in heads.sums:
        same = _rank_correlation(heads.balance("treatment")[0], heads.balance("shuffled-words")[0])
        reading += f"; heads keep their place when the words are shuffled (Spearman {same:.2f})"
    return _over_layers(claim, heads, trained, nulls, scope=scope, reading=reading)


def frequency_access(claim: Claim, toy: pd.DataFrame, *, slots: int) -> Finding:
    """Index with the fastest frequency of the sweep against none; retrieval the other way round."""
    turning = _fastest_set(toy)
    index, blind = _accuracy(toy, "index", turning), _accuracy(toy, "index", "0")
    retrieval, confused = _accuracy(toy, "retrieval", "0"), _accuracy(toy, "retrieval", turning)
    contrasts = (
        independent("index-without-turning", index, blind),
        independent("retrieval-without-still", retrieval, confused),
    )
    return Finding(
        claim,
        effect=mean((index + retrieval) / 2),
        contrasts=contrasts,
        n=len(index),
        scope=f"one-head toy models, {slots} slots, frequencies 0 and {turning}",
        reading=(
            f"index {index.mean():.2f} with a frequency that turns, {blind.mean():.2f} without; retrieval "
            f"{retrieval.mean():.2f} with one that does not, {confused.mean():.2f} without"
        ),
    )


def mixed_task(claim: Claim, toy: pd.DataFrame, *, slots: int) -> Finding:
    """A still and a turning frequency against nets of the same size that have one of them twice."""
    both = _accuracy(toy, "recent", "0, 0.1")
    still, turning = _accuracy(toy, "recent", "0, 0"), _accuracy(toy, "recent", "0.1, 0.1")
    return Finding(
        claim,
        effect=mean(both),
        contrasts=(independent("still-only", both, still), independent("turning-only", both, turning)),
        n=len(both),
        scope=f"one-head toy models of equal size, {slots} slots",
        reading=f"both {both.mean():.2f}, still only {still.mean():.2f}, turning only {turning.mean():.2f}",
    )


def frequency_ablation(claim: Claim, rows: pd.DataFrame, *, scope: str) -> Finding:
    """Increase of loss over the untouched model: positional heads against matched random sets."""
    loss: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for _, cell in rows.sort_values("prompt").groupby(["set", "band", "text"]):
        name, band, text = (str(cell[column].to_numpy()[0]) for column in ("set", "band", "text"))
        loss.setdefault((band, text), {})[name] = cell["loss"].to_numpy()
    untouched = {cell: float(by_set["none"].mean()) for cell, by_set in loss.items()}
    gain = untouched["high", "first copy"] - untouched["high", "second copy"]
    if gain < INDUCTION_GAIN:
        return Finding(claim, withheld=f"gate: the second copy is predicted {gain:.2f} nats better, needs >= 1")
    contrasts = []
    for cell, label in ABLATIONS.items():
        increase = {name: float(values.mean()) - untouched[cell] for name, values in loss[cell].items()}
        draws = [value for name, value in increase.items() if name not in ("none", "positional")]
        contrasts.append(against_draws(label, increase["positional"], draws))
    size = int(rows.loc[rows["set"] == "positional", "size"].to_numpy()[0])
    induction = loss["high", "second copy"]
    fast, slow, prose = (contrast.difference.value for contrast in contrasts)
    return Finding(
        claim,
        effect=mean(induction["positional"] - induction["none"]),
        contrasts=tuple(contrasts),
        n=contrasts[0].n,
        scope=f"{scope}, {size} positional heads",
        reading=(
            f"nats a token that stopping the fast frequencies costs more in the {size} positional heads than in random "
            f"ones: {fast:+.2f} on repeated tokens, {prose:+.2f} on prose; stopping the slow ones: {slow:+.2f}"
        ),
    )


def _over_layers(
    claim: Claim,
    heads: HeadArms,
    trained: StatisticOfWeights,
    nulls: dict[str, StatisticOfWeights],
    *,
    scope: str,
    reading: str,
) -> Finding:
    """The same layers are resampled in all arms; prompts are pooled, copies averaged."""
    count, layers = len(heads.layers), heads.layers
    contrasts = tuple(paired_weights(arm, trained, null, count, clusters=layers) for arm, null in nulls.items())
    effect = from_weights(trained, count, clusters=layers)
    return Finding(claim, effect=effect, contrasts=contrasts, n=len(np.unique(layers)), scope=scope, reading=reading)


def _fisher_z(first: np.ndarray, second: np.ndarray) -> StatisticOfWeights:
    correlation = spearman(first, second)
    return lambda weights: np.arctanh(correlation(weights))


def _copies_z(heads: HeadArms, arm: str, energy: str) -> StatisticOfWeights:
    pairs = zip(heads.balance(arm), heads.low_high(arm, energy), strict=True)
    return _average([_fisher_z(balance, ratio) for balance, ratio in pairs])


def _average(statistics: Sequence[StatisticOfWeights]) -> StatisticOfWeights:
    return lambda weights: np.mean([statistic(weights) for statistic in statistics], axis=0)


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(spearman(first, second)(np.ones((1, len(first))))[0])


def _three_energies(heads: HeadArms) -> str:
    """Spearman correlations with every kind of energy: the contrast depends on it, so all are said."""

    def correlation(arm: str, energy: str) -> float:
        pairs = zip(heads.balance(arm), heads.low_high(arm, energy), strict=True)
        return float(np.mean([_rank_correlation(balance, ratio) for balance, ratio in pairs]))

    parts = []
    for energy in ENERGIES:
        trained, fresh, drawn = (correlation(arm, energy) for arm in ("treatment", "random-init", "resampled"))
        name = energy.replace("_", " ")
        parts.append(f"{name} {trained:.2f} trained, {fresh:.2f} random-init, {drawn:.2f} resampled")
    return "Spearman over heads, by kind of energy: " + "; ".join(parts)


def _rank_correlations(curve: pd.DataFrame, arm: str) -> Float[np.ndarray, "copy prompt"]:
    """Spearman of balance and frequency for every copy and prompt."""
    chosen = curve.loc[curve["arm"] == arm].sort_values(["copy", "prompt", "theta"])
    frequencies = len(np.unique(chosen["theta"].to_numpy()))
    ranks = rankdata(chosen["balance"].to_numpy().reshape(-1, frequencies), axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    order = np.arange(frequencies) - (frequencies - 1) / 2
    correlations = (ranks @ order) / np.sqrt((ranks**2).sum(1) * (order**2).sum())
    return correlations.reshape(len(np.unique(chosen["copy"].to_numpy())), -1)


def _fastest(curve: pd.DataFrame, arm: str) -> float:
    """Mean balance of the fastest frequency alone."""
    chosen = (curve["arm"] == arm).to_numpy() & (curve["theta"] == curve["theta"].max()).to_numpy()
    return float(curve["balance"].to_numpy()[chosen].mean())


def _largest_minimum(rows: pd.DataFrame) -> float:
    trained = rows.loc[rows["arm"] == "treatment"]
    sums = pd.DataFrame(trained.groupby(["layer", "head"])[["positional", "symbolic", "zero"]].sum()).to_numpy()
    return float(np.nanmax((1 - sums[:, :2] / sums[:, 2:]).min(1)))


def _fastest_set(toy: pd.DataFrame) -> str:
    """The fastest single frequency of the sweep."""
    return max((name for name in toy["set"] if "," not in name), key=float)


def _accuracy(toy: pd.DataFrame, task: str, frequencies: str) -> Float[np.ndarray, " seed"]:
    chosen = (toy["task"] == task) & (toy["set"] == frequencies)
    return toy.loc[chosen].sort_values("seed")["accuracy"].to_numpy()
