r"""Influence as a hypothesis test: how well can one tell a model trained with the examples from one trained without?

With type I error α and type II error β, the trade-off curve of two laws P and Q gives the least β for every α.
Influence is *Gaussian* of size μ if the curve is that of N(0, 1) against N(μ, 1):

.. math:: G_\mu(\alpha) = \Phi\bigl(\Phi^{-1}(1 - \alpha) - \mu\bigr)

μ is real; its sign says in which direction the examples move the statistic. \|μ\| = 1 means that the best test has area
.76 under its ROC curve, \|μ\| = 2 area .92, \|μ\| = 4 area .998.

Source: Dong, Roth & Su (2022), "Gaussian differential privacy"; Panda et al. (2025), "f-INE", arXiv 2510.10510.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri


def gaussian_tradeoff(alpha: ArrayLike, mu: float) -> Float[np.ndarray, "*points"]:
    r"""Least type II error at type I error ``alpha`` under Gaussian influence: :math:`\Phi(\Phi^{-1}(1-\alpha) - \mu)`.

    Raises:
        ValueError: If an alpha is not in [0, 1].

    >>> gaussian_tradeoff([0.0, 0.5, 1.0], 0.0)
    array([1. , 0.5, 0. ])
    """
    return ndtr(-ndtri(_probabilities(alpha, "alpha")) - mu)


def mu_from_errors(alpha: ArrayLike, beta: ArrayLike) -> Float[np.ndarray, "*points"]:
    r"""Size of the Gaussian influence whose curve passes through (alpha, beta).

    .. math:: \mu = \Phi^{-1}(1-\alpha) - \Phi^{-1}(\beta)

    An error of 0 or 1 gives an infinite size; with k observations the smallest error that can be told from 0 is 1 / k.

    Raises:
        ValueError: If an error is not in [0, 1].
    """
    return -ndtri(_probabilities(alpha, "alpha")) - ndtri(_probabilities(beta, "beta"))


def mu_from_auc(auc: ArrayLike) -> Float[np.ndarray, "*points"]:
    r"""Size of the Gaussian influence with that area under the ROC curve: :math:`\sqrt 2\, \Phi^{-1}(\mathrm{AUC})`.

    >>> float(mu_from_auc(0.5))
    0.0
    """
    return np.sqrt(2) * ndtri(_probabilities(auc, "auc"))


def auc_from_mu(mu: ArrayLike) -> Float[np.ndarray, "*points"]:
    r"""Area under the ROC curve of the best test: :math:`\Phi(\mu / \sqrt 2)`.

    >>> round(float(auc_from_mu(1.0)), 3), round(float(auc_from_mu(2.0)), 3), round(float(auc_from_mu(4.0)), 3)
    (0.76, 0.921, 0.998)
    """
    return ndtr(np.asarray(mu, dtype=np.float64) / np.sqrt(2))


def total_variation(mu: ArrayLike) -> Float[np.ndarray, "*points"]:
    r"""Total variation distance of the two laws: :math:`2\Phi(|\mu| / 2) - 1`."""
    return 2 * ndtr(np.abs(np.asarray(mu, dtype=np.float64)) / 2) - 1


def compose(mus: ArrayLike) -> float:
    r"""Size of the influence of independent steps together: :math:`\sqrt{\sum_t \mu_t^2}`.

    >>> compose([3.0, 4.0])
    5.0
    """
    return float(np.linalg.norm(np.asarray(mus, dtype=np.float64)))


def empirical_tradeoff(
    null: ArrayLike, alternative: ArrayLike
) -> tuple[Float[np.ndarray, " threshold"], Float[np.ndarray, " threshold"]]:
    """Errors of the tests that reject when the statistic exceeds a threshold, at every observed threshold.

    Args:
        null: Draws of the statistic under the null hypothesis.
        alternative: Draws under the alternative.

    Returns:
        Type I errors, ascending from 0 to 1, and the type II errors that go with them.

    Raises:
        ValueError: If a sample is empty or not finite.

    >>> empirical_tradeoff([0.0, 1.0], [2.0, 3.0])[1]
    array([1. , 0.5, 0. , 0. , 0. ])
    """
    first, second = (np.sort(np.asarray(sample, dtype=np.float64).ravel()) for sample in (null, alternative))
    if not len(first) or not len(second) or not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("an empirical trade-off curve needs finite draws under both hypotheses")
    thresholds = np.unique(np.concatenate([first, second]))[::-1]
    alpha = 1 - np.searchsorted(first, thresholds, side="left") / len(first)
    beta = np.searchsorted(second, thresholds, side="left") / len(second)
    return np.concatenate([[0.0], alpha]), np.concatenate([[1.0], beta])


def _probabilities(values: ArrayLike, name: str) -> Float[np.ndarray, "*points"]:
    probabilities = np.asarray(values, dtype=np.float64)
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError(f"{name} must lie in [0, 1], got {probabilities.min():g} to {probabilities.max():g}")
    return probabilities
