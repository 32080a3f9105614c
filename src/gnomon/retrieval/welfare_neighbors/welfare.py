r"""The p-mean welfare of a set of results, where the attributes of the results are the ones it serves.

Each attribute :math:`\ell` (a seller, a city, an author) draws utility :math:`u_\ell(S) = \sum_{v \in S \cap D_\ell}
\sigma(q, v)` from the results that carry it. The p-mean turns the utilities into one number: at p = 1 their mean,
which ordinary top-k maximises; at p = 0 the geometric mean (Nash welfare); towards :math:`-\infty` the worst-off
attribute's utility.

Source: Barman, Das, Gupta & Shiragur (2026), "Welfarist Formulations for Diverse Similarity Search", section 2.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def welfare(utilities: ArrayLike, p: float = 0.0, *, eta: ArrayLike = 1.0) -> Float[np.ndarray, "*batch"]:
    r"""The p-mean of smoothed utilities.

    .. math:: M_p(u) = \Bigl(\frac1c \sum_\ell (u_\ell + \eta)^p\Bigr)^{1/p}, \qquad
        M_0(u) = \Bigl(\prod_\ell (u_\ell + \eta)\Bigr)^{1/c}, \qquad M_{-\infty}(u) = \min_\ell (u_\ell + \eta)

    Args:
        utilities: (..., attributes), non-negative, one for every attribute of the collection: also those that no
            result carries.
        p: At most 1.
        eta: Smoothing, positive; one number or one for each batch entry.

    Raises:
        ValueError: If p > 1, eta is not positive, or a utility is negative or not finite.

    >>> welfare([3.0, 0.0], eta=1.0)
    array(2.)
    >>> welfare([3.0, 0.0], p=1, eta=1.0)
    array(2.5)
    """
    require_concave(p)
    served = np.asarray(utilities, dtype=np.float64)
    smoothing = np.asarray(eta, dtype=np.float64)
    if served.ndim == 0 or served.shape[-1] == 0:
        raise ValueError(f"utilities need an axis of attributes, got shape {served.shape}")
    if not np.isfinite(served).all() or (served < 0).any():
        raise ValueError("utilities must be finite and >= 0")
    if not (np.isfinite(smoothing).all() and (smoothing > 0).all()):
        raise ValueError(f"eta must be > 0, got {smoothing}")
    return mean_of_levels(np.log(served + smoothing[..., None]), p)


def mean_of_levels(levels: Float[np.ndarray, "*batch attribute"], p: float) -> Float[np.ndarray, "*batch"]:
    r"""The p-mean of :math:`e^{x}` for logarithms x along the last axis.

    .. math:: \log M_p = x_{\min}
        + \frac1p \log\Bigl(1 + \frac1c \sum_\ell \bigl(e^{p (x_\ell - x_{\min})} - 1\bigr)\Bigr)

    No power overflows, and nothing cancels as p approaches 0.
    """
    if abs(p) < 1e-12:  # nearer to the limit than rounding
        return np.exp(levels.mean(axis=-1))
    lowest = levels.min(axis=-1)
    if np.isneginf(p):
        return np.exp(lowest)
    return np.exp(lowest + np.log1p(np.expm1(p * (levels - lowest[..., None])).mean(axis=-1)) / p)


def require_concave(p: float) -> None:
    """Check the exponent.

    Raises:
        ValueError: If p > 1 (a p-mean is concave only up to 1, so greedy would have no guarantee) or NaN.
    """
    if not p <= 1:
        raise ValueError(f"p must be <= 1, got {p}: above 1 the p-mean is not concave and rewards inequality")
