r"""From sums to influence: five estimators of one quantity, the standardised shift an example causes in a slot.

All return a *rate*: the mean distance, in standard deviations over examples, between the example and a random one in
its place. :class:`~gnomon.training.influence.result.InfluenceResult` scales rates to a step and to a run.

=================  ================================================================================================
``exact``          :math:`\text{shift} / \sqrt{K\, \text{noise}}`: the test of two Gaussians of equal variance has the
                   same size at every threshold, so that nothing is maximised
``rank``           :math:`\sqrt2\, \Phi^{-1}(\mathrm{AUC})` with a continuity correction: finite, robust to heavy tails
``unequal``        :math:`d_a = \sqrt2\,\bar z / \sqrt{s_z^2 + 1}`: the example's own spread over steps enters; it
                   measures the drift of training more than its noise, and is kept for groups
``steps``          :math:`\operatorname{sign}\sqrt{\max(0, \sum_t (\mu_t^2 - b))}`: composition of steps, with the null
                   mean b of :math:`\mu_t^2` subtracted (from the sum: cut off step by step it would add noise up)
``max-threshold``  the paper's literal step, the largest :math:`\Phi^{-1}(1-\hat\alpha) - \Phi^{-1}(\hat\beta)` over
                   thresholds: infinite as soon as one empirical error is 0, hence for most examples
=================  ================================================================================================
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from gnomon.training.influence.sums import Sums

Estimator = Literal["exact", "rank", "unequal", "steps", "max-threshold"]
ESTIMATORS: tuple[Estimator, ...] = ("exact", "rank", "unequal", "steps", "max-threshold")

#: Observations an example needs for its own variance.
FEW = 8


def rates(sums: Sums, estimator: Estimator) -> Float[np.ndarray, " id"]:
    """Rate of each example by an estimator that needs only sums; NaN where no step counts.

    Raises:
        ValueError: If there is no such estimator, or it needs the observations themselves.
    """
    steps = np.where(sums.steps > 0, sums.steps, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        if estimator == "exact":
            return sums.shift / np.sqrt(sums.noise * steps)
        if estimator == "rank":
            pairs = steps * max(sums.compared - 1, 1)
            return np.sqrt(2) * ndtri((sums.rank / steps * pairs + 0.5) / (pairs + 1))
        if estimator == "unequal":
            return unequal_variance_distance(sums.z, sums.z_squared, steps)
        if estimator == "steps":
            return np.sign(sums.shift) * np.sqrt(np.maximum(sums.excess, 0.0) / steps)
    if estimator == "max-threshold":
        raise ValueError("max-threshold needs the observations: use max_threshold() on standardised()")
    raise ValueError(f"unknown estimator {estimator!r}; known: {', '.join(ESTIMATORS)}")


def unequal_variance_distance(
    z: Float[np.ndarray, " id"], z_squared: Float[np.ndarray, " id"], count: Float[np.ndarray, " id"]
) -> Float[np.ndarray, " id"]:
    r""":math:`d_a` of samples given by their sums, against the reference's N(0, 1); NaN below eight observations.

    Source: Simpson & Fitter (1973), "What is the best index of detectability?".
    """
    variance = np.maximum(z_squared - z**2 / count, 0.0) / (count - 1)
    return np.where(count >= FEW, np.sqrt(2) * z / count / np.sqrt(variance + 1), np.nan)


def max_threshold(own: Float[np.ndarray, "step id"], others: Float[np.ndarray, "step id"]) -> Float[np.ndarray, " id"]:
    r"""Largest size over thresholds, from empirical errors.

    .. math:: \max_\tau\;  \Phi^{-1}(1-\hat\alpha_\tau) - \Phi^{-1}(\hat\beta_\tau)

    Args:
        own: Standardised values of each example; NaN where not observed.
        others: As many values of random other examples, the null.

    Returns:
        One size an example; infinite where some threshold separates perfectly on one side.
    """
    pooled = np.concatenate([own, others])
    order = np.argsort(-pooled, axis=0)  # descending; NaN last
    is_own = np.concatenate([np.isfinite(own), np.zeros_like(own, dtype=bool)])
    is_other = np.concatenate([np.zeros_like(others, dtype=bool), np.isfinite(others)])
    above_own = np.cumsum(np.take_along_axis(is_own, order, 0), 0)
    above_other = np.cumsum(np.take_along_axis(is_other, order, 0), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        alpha, beta = above_other / above_other[-1], 1 - above_own / above_own[-1]
        size = -ndtri(alpha) - ndtri(beta)
    return np.where(np.isnan(size), -np.inf, size).max(0)
