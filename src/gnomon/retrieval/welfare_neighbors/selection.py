"""Choose k results from a pool so that the welfare of the attributes is largest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from gnomon.retrieval.welfare_neighbors.attributes import candidate_codes
from gnomon.retrieval.welfare_neighbors.contrast import Contrast, contrasted, smoothing
from gnomon.retrieval.welfare_neighbors.greedy import EGALITARIAN, greedy_dense, greedy_heap
from gnomon.retrieval.welfare_neighbors.welfare import require_concave

Backend = Literal["auto", "dense", "heap", "torch"]


@dataclass(frozen=True)
class Selection:
    """What was chosen for each query, in the order in which it was chosen. Arrays, or tensors if tensors came in.

    Args:
        indices: (queries, k) positions in the pool; -1 where candidates ran out.
        similarity: (queries, k) the similarity that was given; -inf where candidates ran out.
        score: (queries, k) the similarity after the contrast; 0 there.
        gains: (queries, k) what each added to the objective, with eta as the unit of utility; never rising.
        attributes: (queries, k, m) attributes of the chosen; -1 for none.
        eta: (queries,) smoothing used.
        tau: (queries,) scale of the contrast; NaN without one.
        clipped: (queries,) negative similarities set to 0.
        outside: (queries,) gain that a candidate of a new attribute would have if it were as similar as the last one
            of the pool: at most this much was missed by not looking further.
        p: Exponent.
        n_attributes: Attributes of the collection.
    """

    indices: Any
    similarity: Any
    score: Any
    gains: Any
    attributes: Any
    eta: Any
    tau: Any
    clipped: Any
    outside: Any
    p: float
    n_attributes: int

    @property
    def n_returned(self) -> Any:
        """Results of each query."""
        return (self.indices >= 0).sum(1)

    @property
    def certified(self) -> Any:
        """Queries whose answer no candidate beyond the pool could change.

        Gains never rise, so it is enough that the last one is at least ``outside``. Holds for an exact index; for one
        that returns alpha-approximate lists, up to alpha.
        """
        return self.gains[:, -1] >= self.outside

    @cached_property
    def utilities(self) -> sparse.csr_array:
        """(queries, attributes) summed score of the results that carry an attribute, sparse."""
        codes, score = _on_host(self.attributes), _on_host(self.score)
        query = np.broadcast_to(np.arange(len(codes))[:, None, None], codes.shape)
        held = codes >= 0
        added = np.broadcast_to(score[:, :, None], codes.shape)[held]
        cells = sparse.coo_array((added, (query[held], codes[held])), shape=(len(codes), self.n_attributes))
        return cells.tocsr()  # sums what falls on one cell

    @cached_property
    def welfare(self) -> np.ndarray:
        r"""(queries,) p-mean :math:`M_p` over all attributes of the collection, as :func:`welfare`."""
        served, eta = self.utilities, _on_host(self.eta)
        # As mean_of_levels, in units of eta: the many attributes that no result carries are at level 0.
        sizes = np.diff(served.indptr)
        query = np.repeat(np.arange(len(eta)), sizes)
        level = np.log1p(served.data / eta[query])
        lowest = np.where(sizes < self.n_attributes, 0.0, np.inf)
        np.minimum.at(lowest, query, level)
        p = self.p
        if abs(p) < 1e-12:
            return eta * np.exp(np.bincount(query, level, minlength=len(eta)) / self.n_attributes)
        if p < EGALITARIAN:
            return eta * np.exp(lowest)
        excess = np.bincount(query, np.expm1(p * (level - lowest[query])), minlength=len(eta))
        excess += (self.n_attributes - sizes) * np.expm1(-p * lowest)
        return eta * np.exp(lowest + np.log1p(excess / self.n_attributes) / p)


def select(
    similarity: Any,
    attributes: Any,
    k: int,
    *,
    p: float = 0.0,
    eta: ArrayLike | None = None,
    gamma: float = 0.1,
    contrast: Contrast = "exp",
    tau: float | Literal["auto"] = "auto",
    beta: float = 1.0,
    weights: ArrayLike | None = None,
    n_attributes: int | None = None,
    backend: Backend = "auto",
) -> Selection:
    r"""The k candidates that greedily maximise the p-mean welfare of their attributes.

    With one attribute a candidate this is the optimum; with several, each step's gain is optimal and the gain of the
    transformed objective (:math:`\sum_\ell \log(u_\ell+\eta)`, or :math:`\pm\sum_\ell (u_\ell+\eta)^p`) is at least
    :math:`1 - 1/e` of the largest possible.

    Args:
        similarity: (queries, candidates) or (candidates,), in any order; higher is better. Arrays or torch tensors.
        attributes: Numbers of the attributes: integers of the same shape, with a further axis if a candidate has
            several (-1 for none); for one query also a sequence of sets or a sparse matrix. A candidate without any
            attribute is padding and never chosen.
        k: Results wanted.
        p: At most 1. 1 is top-k, 0 Nash welfare, very negative serves the worst-off first.
        eta: Smoothing, in units of the contrasted similarity; ``None``: ``gamma`` sets it from the query's top k.
        gamma: See :func:`~gnomon.retrieval.welfare_neighbors.contrast.smoothing`.
        contrast: See :func:`~gnomon.retrieval.welfare_neighbors.contrast.contrasted`; ``none`` with an explicit ``eta``
            is the paper's method.
        tau: Scale of the contrast.
        beta: Multiplies the automatic scale.
        weights: Weight of each attribute in the objective; ``None``: all 1.
        n_attributes: Attributes of the collection; ``None``: as many as the largest number implies. Changes the
            reported welfare only, never the choice.
        backend: ``dense`` works on all queries at once, ``heap`` on one after the other with fewer operations for
            large pools, ``torch`` is ``dense`` on tensors; ``auto`` is ``torch`` for tensors, ``heap`` for a single
            query at p = 0, else ``dense``.

    Raises:
        ValueError: If k < 1, p > 1, a parameter is not positive, a similarity is not finite, or shapes differ.
        TypeError: If attributes are not whole numbers.

    >>> chosen = select([0.9, 0.8, 0.7, 0.1], [0, 0, 1, 1], k=2, contrast="none", eta=0.1)
    >>> chosen.indices
    array([[0, 2]])
    """
    _check(k, p, gamma, tau, beta, contrast, backend)
    xp, given, codes = _arrays(similarity, attributes, backend)
    present = (codes >= 0).any(2)
    _require_finite(given, present, xp)
    given = xp.where(present, given, 0.0)  # whatever marks a missing candidate there
    order = _descending(given, present, xp)
    if order is not None:
        row = _rows(given, xp)[:, None]
        given, codes, present = given[row, order], codes[row, order], present[row, order]
    score, scale, clipped = contrasted(given, present, k, contrast=contrast, tau=tau, beta=beta, xp=xp)
    unit = smoothing(score, k, gamma, xp=xp) if eta is None else _given_eta(eta, score, xp)
    count = _count(codes, n_attributes)
    omega = _weights(weights, count, score, xp)
    scaled = score / unit[:, None]
    lone = xp is np and len(scaled) == 1 and codes.shape[2] == 1 and p == 0 and omega is None
    if backend == "heap" or (backend == "auto" and lone):
        rows = [greedy_heap(scaled[i], codes[i], k, p, omega) for i in range(len(scaled))]
        positions, gains = np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
    else:
        positions, gains = greedy_dense(scaled, codes, k, p, omega, xp=xp)
    found, row = positions >= 0, _rows(given, xp)[:, None]
    at = xp.where(found, positions, 0)
    return Selection(
        indices=xp.where(found, at if order is None else order[row, at], -1),
        similarity=xp.where(found, given[row, at], -np.inf),
        score=xp.where(found, score[row, at], 0.0),
        gains=gains,
        attributes=xp.where(found[:, :, None], codes[row, at], -1),
        eta=unit,
        tau=scale,
        clipped=clipped,
        outside=_outside(scaled, present, codes.shape[2], p, omega, contrast, xp),
        p=float(p),
        n_attributes=count,
    )


def _check(k: int, p: float, gamma: float, tau: Any, beta: float, contrast: str, backend: str) -> None:
    if k < 1:
        raise ValueError(f"k must be >= 1, got {k}")
    require_concave(p)
    for name, value in (("gamma", gamma), ("beta", beta), *((("tau", tau),) if tau != "auto" else ())):
        if not (isinstance(value, int | float | np.number) and value > 0 and np.isfinite(value)):
            raise ValueError(f"{name} must be a number > 0, got {value!r}")
    if contrast not in ("exp", "minmax", "none"):
        raise ValueError(f"contrast must be 'exp', 'minmax' or 'none', got {contrast!r}")
    if backend not in ("auto", "dense", "heap", "torch"):
        raise ValueError(f"backend must be 'auto', 'dense', 'heap' or 'torch', got {backend!r}")


def _arrays(similarity: Any, attributes: Any, backend: str) -> tuple[Any, Any, Any]:
    """The namespace, similarities (queries, candidates) in float64, and attribute numbers, all of one kind."""
    if backend == "torch" or (backend == "auto" and type(similarity).__module__.startswith("torch")):
        import torch

        given = torch.as_tensor(similarity).to(torch.float64)  # float32 sums would split ties
        given = given[None] if given.ndim == 1 else given
        if isinstance(attributes, torch.Tensor) and attributes.dtype == torch.int64 and attributes.ndim >= given.ndim:
            codes = attributes[:, :, None] if attributes.ndim == 2 else attributes
            if codes.shape[:2] != given.shape:
                raise ValueError(f"attributes need an entry for each of {tuple(given.shape)}, got {tuple(codes.shape)}")
            return torch, given, codes.to(given.device)
        if isinstance(attributes, torch.Tensor):
            attributes = attributes.cpu().numpy()
        return (
            torch,
            given,
            torch.as_tensor(candidate_codes(attributes, (given.shape[0], given.shape[1])), device=given.device),
        )
    given = np.asarray(similarity, dtype=np.float64)
    given = given[None] if given.ndim == 1 else given
    if given.ndim != 2 or given.shape[1] == 0:
        raise ValueError(f"similarity must be (queries, candidates) or (candidates,), got shape {given.shape}")
    return np, given, candidate_codes(attributes, given.shape)


def _require_finite(similarity: Any, present: Any, xp: Any) -> None:
    bad = present & ~xp.isfinite(similarity)
    if bool(bad.any()):
        query, candidate = (int(index) for index in np.argwhere(np.asarray(bad.cpu() if xp is not np else bad))[0])
        raise ValueError(
            f"similarity is not finite: {float(similarity[query, candidate])} at query {query}, candidate {candidate}"
        )


def _descending(similarity: Any, present: Any, xp: Any) -> Any | None:
    """Order by falling similarity, absent candidates last; ``None`` if that is how they came."""
    known = xp.where(present, similarity, -np.inf)
    if bool((known[:, 1:] <= known[:, :-1]).all()) and bool((present[:, 1:] <= present[:, :-1]).all()):
        return None
    if xp is np:
        return np.argsort(-known, axis=1, kind="stable")
    return xp.argsort(-known, dim=1, stable=True)


def _rows(array: Any, xp: Any) -> Any:
    return xp.arange(len(array)) if xp is np else xp.arange(len(array), device=array.device)


def _given_eta(eta: ArrayLike, score: Any, xp: Any) -> Any:
    numbers = np.broadcast_to(np.asarray(eta, dtype=np.float64), (len(score),))
    if not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise ValueError(f"eta must be > 0, got {eta}")
    return numbers.copy() if xp is np else xp.as_tensor(numbers.copy(), device=score.device)


def _count(codes: Any, n_attributes: int | None) -> int:
    implied = int(codes.max()) + 1 if len(codes) else 0
    if n_attributes is not None and n_attributes < implied:
        raise ValueError(f"n_attributes is {n_attributes}, but attribute {implied - 1} occurs")
    return max(implied, 1) if n_attributes is None else n_attributes


def _weights(weights: ArrayLike | None, count: int, score: Any, xp: Any) -> Any:
    if weights is None:
        return None
    omega = np.asarray(weights, dtype=np.float64)
    if omega.shape != (count,) or not np.isfinite(omega).all() or (omega < 0).any():
        raise ValueError(f"weights must be {count} finite numbers >= 0, one an attribute, got shape {omega.shape}")
    return omega if xp is np else xp.as_tensor(omega, device=score.device)


def _outside(scaled: Any, present: Any, each: int, p: float, omega: Any, contrast: str, xp: Any) -> Any:
    """Largest gain of a candidate beyond the pool: all its attributes new, its similarity that of the pool's last."""
    if contrast == "minmax":  # a larger pool would change the scale itself
        return xp.full_like(scaled[:, 0], np.inf)
    exhausted, last = ~present.all(1), scaled[:, -1]  # fewer candidates than asked for: nothing lies beyond
    most = each * (1.0 if omega is None else float(omega.max()))
    if p < EGALITARIAN:  # a new attribute is poorer than any that has been served
        return xp.where(exhausted, -np.inf, xp.full_like(last, np.inf))
    gain = xp.log1p(last) if p == 0 else xp.expm1(p * xp.log1p(last)) / p
    return xp.where(exhausted, -np.inf, most * gain)


def _on_host(array: Any) -> np.ndarray:
    """The array, or a tensor of any device, as a numpy array."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()
