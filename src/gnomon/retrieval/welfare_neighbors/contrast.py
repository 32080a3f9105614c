r"""From raw similarities to the ones whose sums are compared: contrast, smoothing, and distances turned round.

The p-mean compares *sums* of similarity, so a constant added to all similarities changes its choice. Sentence
embeddings compress cosine into a narrow band (.60 for the best match, .47 for the fiftieth): then the first result of
a new attribute always beats the second of an old one, whatever the query asks. The exponential contrast

.. math:: \sigma' = \exp\frac{\min(\sigma - \sigma_{(2)}, 0)}{\tau}, \qquad
    \tau = \beta\,(\sigma_{(2)} - \sigma_{(r)}), \quad r = \max(k, 10)

measures every candidate by the query's own scale: how far the r-th best lies below the second best. The second rather
than the first, so that a self-match or an exact duplicate does not set the scale. The choice is then invariant to
increasing affine changes of the similarity, and depends on no candidate beyond rank r.

The contrast and its defaults are ours; the paper sets :math:`\eta` by hand for each data set.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Float

Contrast = Literal["exp", "minmax", "none"]

_EQUAL = 1e-9  # similarities this close, relative to the largest, count as tied


def contrasted(
    similarity: Any,
    present: Any,
    k: int,
    *,
    contrast: Contrast = "exp",
    tau: float | Literal["auto"] = "auto",
    beta: float = 1.0,
    xp: Any = np,
) -> tuple[Any, Any, Any]:
    r"""Similarities whose sums may be compared.

    Args:
        similarity: (queries, candidates), finite, descending among the present.
        present: Which candidates exist; they come first in each row.
        k: Results wanted: it sets the rank r of the automatic scale.
        contrast: ``exp``; ``minmax`` (to [0, 1] over the pool, so it depends on the pool); or ``none``, which clips
            negative similarities at 0.
        tau: Scale of ``exp`` in units of similarity, or ``auto``. If the best r are tied, the automatic scale reaches
            to the first candidate below them; if all are tied, all get 1.
        beta: Multiplies the automatic scale.
        xp: numpy or torch.

    Returns:
        (queries, candidates) in [0, inf), order kept and 0 where absent; the scale used (NaN without one); the number
        of negative similarities clipped, by query.
    """
    count = xp.sum(present, 1)
    zero, nothing = xp.zeros_like(similarity[:, 0]), xp.zeros_like(count)
    if contrast == "none":
        clipped = xp.sum(present & (similarity < 0), 1)
        return xp.where(present & (similarity > 0), similarity, 0.0), zero + np.nan, clipped
    largest = xp.where(present, abs(similarity), 0.0)
    largest = largest.max(1) if xp is np else largest.amax(1)
    row = xp.arange(len(similarity)) if xp is np else xp.arange(len(similarity), device=similarity.device)
    last = xp.where(count > 0, count - 1, 0)
    if contrast == "minmax":
        low, high = similarity[row, last], similarity[:, 0]
        width = high - low
        flat = width <= _EQUAL * largest
        scaled = (similarity - low[:, None]) / xp.where(flat, 1.0, width)[:, None]
        return xp.where(present, xp.where(flat[:, None], 1.0, scaled), 0.0), zero + np.nan, nothing
    second = similarity[row, xp.where(last < 1, last, 1)]
    below = xp.where(similarity < second[:, None], similarity - second[:, None], 0.0)
    if tau == "auto":
        rank = max(k, 10) - 1
        scale = beta * (second - similarity[row, xp.where(last < rank, last, rank)])
        tied = scale <= _EQUAL * largest
        if bool(tied.any()):
            scale = xp.where(tied, beta * _next_drop(-below, present, _EQUAL * largest, xp), scale)
    else:
        scale = zero + tau
    return xp.where(present, xp.exp(below / scale[:, None]), 0.0), scale, nothing


def smoothing(similarity: Any, k: int, gamma: float, *, xp: Any = np) -> Any:
    r"""Smoothing :math:`\eta(q) = \gamma \sum_{i \le k} \sigma_{(i)}(q)`, relative to the query's own top k.

    The paper's hand-set values correspond to gamma of .04 to .8. At p = 0 a first result of a new attribute with
    similarity s' beats the (j+1)-th of an attribute that already has j of about similarity s if and only if
    :math:`s'/s > \gamma k / (\gamma k + j)`.

    Args:
        similarity: (queries, candidates) after the contrast, descending.
        k: Results wanted.
        gamma: Positive; small favours new attributes, large approaches top-k.
        xp: numpy or torch.
    """
    eta = gamma * xp.sum(similarity[:, :k], 1)
    return xp.where(eta > 0, eta, 1.0)  # without any similarity nothing gains, whatever the smoothing


def inverse_distance(distance: Float[np.ndarray, "query candidate"]) -> Float[np.ndarray, "query candidate"]:
    r"""Similarity :math:`1 / (d + \delta)` of distances, :math:`\delta` being a thousandth of the row's median.

    Infinite distances (a candidate that is missing) become -inf, the mark of a missing candidate everywhere here.
    """
    found = np.isfinite(distance)
    middle = np.nanmedian(np.where(found, distance, np.nan), axis=1, keepdims=True) if found.any(1).all() else 1.0
    offset = np.maximum(1e-3 * middle, np.finfo(np.float64).tiny)
    return np.where(found, 1.0 / (np.where(found, distance, 0.0) + offset), -np.inf)


def _next_drop(depth: Any, present: Any, tolerance: Any, xp: Any) -> Any:
    """Smallest distance below the second best that is no tie; 1 if there is none."""
    lower = xp.where(present & (depth > tolerance[:, None]), depth, np.inf)
    nearest = lower.min(1) if xp is np else lower.amin(1)
    return xp.where(nearest < np.inf, nearest, 1.0)
