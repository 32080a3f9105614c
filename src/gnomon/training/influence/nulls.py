"""What scores look like without influence: random groups of the same size, and the bulk of all examples."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

from gnomon.evidence.nulls import matched_random_sets


def random_group_sums(
    rates: Float[np.ndarray, " id"],
    members: Int[np.ndarray, " member"],
    *,
    draws: int,
    rng: np.random.Generator,
    strata: np.ndarray | None = None,
) -> Float[np.ndarray, " draw"]:
    """Summed rates of random groups of the same size that share no example with the tested one.

    Args:
        rates: Rate of each example; those without one (NaN) are never drawn.
        members: Positions of the tested group.
        draws: Random groups.
        rng: Source of randomness.
        strata: A label each example: groups are then drawn with the tested group's labels, so that a score of class
            frequency does not pass for influence.

    Raises:
        ValueError: If too few other examples are left to draw from.
    """
    excluded = np.isnan(rates)
    excluded[members] = True
    if strata is not None:
        sets = matched_random_sets(members, strata, draws, rng, exclude=np.flatnonzero(excluded))
        return rates[sets].sum(axis=1)
    pool = np.flatnonzero(~excluded)
    if len(pool) < len(members):
        raise ValueError(f"a random group of {len(members)} needs as many other examples, {len(pool)} are left")
    chosen = [rng.choice(len(pool), len(members), replace=False, shuffle=False) for _ in range(draws)]
    return rates[pool[np.array(chosen)]].sum(axis=1)


def group_p(observed: float, draws: Float[np.ndarray, " draw"]) -> float:
    """Two-sided p of a group against random ones: (1 + # at least as far from zero) / (1 + draws)."""
    return (1 + int((np.abs(draws) >= abs(observed)).sum())) / (1 + len(draws))


def bulk_z(rates: Float[np.ndarray, " id"]) -> Float[np.ndarray, " id"]:
    """Distance of each example from the bulk of all, in robust standard deviations (median and 1.4826 MAD)."""
    centre = np.nanmedian(rates)
    spread = 1.4826 * np.nanmedian(np.abs(rates - centre))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (rates - centre) / spread if spread > 0 else np.full(len(rates), np.nan)


def normal_p(z: Float[np.ndarray, " id"]) -> Float[np.ndarray, " id"]:
    """Two-sided p of a standard normal."""
    return 2 * ndtr(-np.abs(z))


def rank_p(rates: Float[np.ndarray, " id"]) -> Float[np.ndarray, " id"]:
    """Share of examples at least as far from the median: a p that assumes nothing of the bulk's shape."""
    distance = np.abs(rates - np.nanmedian(rates))
    known = np.sort(distance[~np.isnan(distance)])
    beyond = len(known) - np.searchsorted(known, distance, side="left")
    return np.where(np.isnan(distance), np.nan, beyond / max(len(known), 1))


def benjamini_hochberg(p: Float[np.ndarray, " id"]) -> Float[np.ndarray, " id"]:
    """False discovery rate at which each p would be rejected; NaN stays NaN."""
    from scipy.stats import false_discovery_control

    adjusted = np.full(len(p), np.nan)
    known = ~np.isnan(p)
    if known.any():
        adjusted[known] = false_discovery_control(p[known])
    return adjusted
