"""Numbers that summarise a distribution, a spectrum or a set of forecasts.

Distributions and spectra lie along the last axis; leading axes are batches. All are computed in float64.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import entr

from gnomon.evidence._arrays import finite

Base = Literal["nats", "bits"]


def entropy(weights: ArrayLike, *, base: Base = "nats") -> Float[np.ndarray, "*batch"]:
    r"""Shannon entropy of weights normalised to sum to one.

    .. math:: H(p) = -\sum_i p_i \log p_i

    Args:
        weights: (..., outcomes), non-negative; zeros are allowed.
        base: ``nats`` or ``bits``.

    Raises:
        ValueError: If a weight is negative or not finite, or all weights of a distribution are zero.

    >>> entropy([1, 1, 1, 1], base="bits")
    array(2.)
    """
    nats = entr(_shares(weights)).sum(axis=-1)
    return np.asarray(nats / np.log(2) if base == "bits" else nats)


def gini(values: ArrayLike) -> Float[np.ndarray, "*batch"]:
    r"""Gini coefficient of non-negative values: 0 if all are equal, :math:`1 - 1/n` if one has everything.

    .. math:: G = \frac{\sum_i \sum_j |x_i - x_j|}{2 n \sum_i x_i}
        = \frac{\sum_i (2i - n - 1)\, x_{(i)}}{n \sum_i x_i}

    Raises:
        ValueError: If a value is negative or not finite, or all are zero.

    Source: Gini (1912), "Variabilità e mutabilità".

    >>> gini([0, 0, 0, 1])
    array(0.75)
    """
    ascending = np.sort(_shares(values), axis=-1)
    n = ascending.shape[-1]
    return np.asarray((ascending * (2 * np.arange(1, n + 1) - n - 1)).sum(axis=-1) / n)


def herfindahl(shares: ArrayLike) -> Float[np.ndarray, "*batch"]:
    r"""Herfindahl-Hirschman index :math:`\sum_i p_i^2` of shares (normalised to sum to one); 1 for a monopoly.

    Raises:
        ValueError: If a share is negative or not finite, or all are zero.
    """
    return np.asarray((_shares(shares) ** 2).sum(axis=-1))


def inverse_simpson(weights: ArrayLike) -> Float[np.ndarray, "*batch"]:
    r"""Effective number of kinds, :math:`1 / \sum_i p_i^2`: n for n equal shares.

    Raises:
        ValueError: If a weight is negative or not finite, or all are zero.

    Source: Simpson (1949), "Measurement of diversity".
    """
    return np.asarray(1 / herfindahl(weights))


def effective_rank(singular_values: ArrayLike) -> Float[np.ndarray, "*batch"]:
    r"""Entropy effective rank of a spectrum of singular values.

    .. math:: \operatorname{erank}(\sigma) = \exp H(p), \qquad p_i = \sigma_i / \textstyle\sum_j \sigma_j

    Args:
        singular_values: (..., rank), non-negative, in any order.

    Returns:
        In ``[1, rank]``.

    Raises:
        ValueError: If a value is negative or not finite, or all are zero.

    Source: Roy & Vetterli (2007), "The effective rank: a measure of effective dimensionality".
    """
    return np.asarray(np.exp(entropy(singular_values)))


def participation_ratio(eigenvalues: ArrayLike) -> Float[np.ndarray, "*batch"]:
    r"""Participation ratio :math:`(\sum_i \lambda_i)^2 / \sum_i \lambda_i^2` of non-negative eigenvalues.

    The inverse Simpson number of the spectrum; for a covariance, the number of directions that carry its variance.

    Raises:
        ValueError: If an eigenvalue is negative or not finite, or all are zero.
    """
    return inverse_simpson(eigenvalues)


def brier_score(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    r"""Mean squared error of forecast probabilities, :math:`\frac1n \sum_i (p_i - y_i)^2`.

    Args:
        probabilities: Forecast of each event, in [0, 1].
        outcomes: 1 if it happened, else 0.

    Raises:
        ValueError: If lengths differ, a probability lies outside [0, 1], or an outcome is neither 0 nor 1.

    Source: Brier (1950), "Verification of forecasts expressed in terms of probability".
    """
    forecast, happened = _forecasts(probabilities, outcomes)
    return float(((forecast - happened) ** 2).mean())


def log_loss(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    r"""Mean negative log-likelihood, in nats, of forecast probabilities of events.

    .. math:: -\frac1n \sum_i \bigl[y_i \log p_i + (1 - y_i) \log(1 - p_i)\bigr]

    Infinite if something happened that was forecast with probability 0.

    Args:
        probabilities: Forecast of each event, in [0, 1].
        outcomes: 1 if it happened, else 0.

    Raises:
        ValueError: As :func:`brier_score`.
    """
    forecast, happened = _forecasts(probabilities, outcomes)
    with np.errstate(divide="ignore"):
        return float(-np.log(np.where(happened == 1, forecast, 1 - forecast)).mean())


def expected_calibration_error(probabilities: ArrayLike, outcomes: ArrayLike, *, bins: int = 10) -> float:
    r"""Mean distance between forecast and frequency over equal-width bins of the forecast.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \bigl|\bar y_b - \bar p_b\bigr|

    Biased upwards with few forecasts a bin: compare it with the same number on outcomes drawn from the forecasts.

    Args:
        probabilities: Forecast of each event, in [0, 1].
        outcomes: 1 if it happened, else 0.
        bins: Bins of equal width; a forecast on a border belongs to the lower bin.

    Raises:
        ValueError: As :func:`brier_score`, or if ``bins`` is below 1.

    Source: Naeini, Cooper & Hauskrecht (2015), "Obtaining well calibrated probabilities using Bayesian binning".
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    forecast, happened = _forecasts(probabilities, outcomes)
    bin_of = np.clip(np.ceil(forecast * bins).astype(np.int64) - 1, 0, bins - 1)
    excess = np.bincount(bin_of, happened - forecast, minlength=bins)
    return float(np.abs(excess).sum() / len(forecast))


def _shares(weights: ArrayLike) -> Float[np.ndarray, "*batch outcome"]:
    array = np.asarray(weights, dtype=np.float64)
    array = finite(array, "weights", dimensions=max(1, array.ndim))
    if (array < 0).any():
        raise ValueError(f"weights must be >= 0, got {array.min():g}")
    largest = array.max(axis=-1, keepdims=True)
    if (largest == 0).any():
        raise ValueError("weights are all zero, so they have no shares")
    scaled = array / largest  # first, so that the sum of huge or tiny weights neither overflows nor vanishes
    return scaled / scaled.sum(axis=-1, keepdims=True)


def _forecasts(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    forecast, happened = finite(probabilities, "probabilities"), finite(outcomes, "outcomes")
    if len(forecast) != len(happened):
        raise ValueError(f"one outcome a forecast: {len(forecast)} probabilities, {len(happened)} outcomes")
    if forecast.min() < 0 or forecast.max() > 1:
        raise ValueError(f"probabilities must lie in [0, 1], got {forecast.min():g} to {forecast.max():g}")
    if not np.isin(happened, (0.0, 1.0)).all():
        raise ValueError("outcomes must be 0 or 1")
    return forecast, happened
