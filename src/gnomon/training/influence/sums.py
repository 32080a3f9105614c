r"""Sums over observed steps from which every score of an example follows, gathered in one pass over a record.

With inner product x of example i at step t, mean m and standard deviation s over the step's reference, and the step's
learning rate w:

.. math:: z_{it} = \frac{x_{it} - m_t}{s_t}, \qquad
    \text{shift}_i = \sum_t w_t (x_{it} - m_t), \qquad \text{noise}_i = \sum_t w_t^2 s_t^2 .

The sums run over the steps at which i was observed. Memory is a few numbers an example, whatever the number of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from gnomon.training.influence.record import Observation, Record

#: Below this many observed steps of an example its standard error is unreliable.
FEW_STEPS = 8


@dataclass(frozen=True)
class Sums:
    """Sums by example, for one query; arrays have one entry an id unless said otherwise.

    Args:
        index: The ids, ascending.
        steps: Observed steps that count: positive learning rate and spread.
        shift: Weighted sum of distances from the reference mean.
        noise: Weighted sum of reference variances.
        shift_variance: Moving-block bootstrap variance of ``shift``.
        z: Sum of standardised distances.
        z_squared: Sum of their squares.
        rank: Sum of the share of the step's other examples that lie below.
        excess: Sum of the squares of z less 1, their mean under the null.
        raw: Weighted sum of inner products (TracIn).
        last: Inner product at the last observed step.
        loss: Mean training loss.
        squared_norm: Mean squared gradient norm; NaN if not measured.
        half_shift: ``shift`` of the odd and of the even steps.
        half_noise: ``noise`` of the odd and of the even steps.
        batch_size: Mean examples an optimiser step.
        compared: Mean number of examples observed together.
        observed_steps: Steps in the record.
        degenerate: Of these, steps without spread, left out.
    """

    index: Int[np.ndarray, " id"]
    steps: Int[np.ndarray, " id"]
    shift: Float[np.ndarray, " id"]
    noise: Float[np.ndarray, " id"]
    shift_variance: Float[np.ndarray, " id"]
    z: Float[np.ndarray, " id"]
    z_squared: Float[np.ndarray, " id"]
    rank: Float[np.ndarray, " id"]
    excess: Float[np.ndarray, " id"]
    raw: Float[np.ndarray, " id"]
    last: Float[np.ndarray, " id"]
    loss: Float[np.ndarray, " id"]
    squared_norm: Float[np.ndarray, " id"]
    half_shift: Float[np.ndarray, "2 id"]
    half_noise: Float[np.ndarray, "2 id"]
    batch_size: float
    compared: float
    observed_steps: int
    degenerate: int


def gather(record: Record, query: int = 0) -> Sums:
    """Sums of a record, for one of its queries; two passes, the first for the ids.

    Raises:
        ValueError: If the record is empty.
    """
    index, appearances = _ids(record)
    count = len(index)
    longest = _block_length(int(np.median(appearances)))
    blocks = _MovingBlocks(longest, count)
    names = ("steps", "shift", "noise", "z", "z_squared", "rank", "excess", "raw", "loss", "squared_norm")
    total = {name: np.zeros(count) for name in names}
    last = np.full(count, np.nan)
    half_shift, half_noise = np.zeros((2, count)), np.zeros((2, count))
    batch_sizes, compared, degenerate = [], [], 0
    for number, held in enumerate(record.observations()):
        place = np.searchsorted(index, held.index)
        values = held.dots[:, query].astype(np.float64)
        mean, std = (np.broadcast_to(column[:, query], len(values)) for column in (held.mean, held.std))
        total["loss"][place] += held.losses
        total["squared_norm"][place] += held.squared_norms
        total["raw"][place] += held.lr * values
        last[place] = values
        batch_sizes.append(held.batch_size)
        compared.append(len(values))
        spread = std > _rounding(values, mean)
        degenerate += int(not spread.any())
        kept = spread & (held.lr > 0)
        if not kept.any():
            continue
        place, distance, std = place[kept], (values - mean)[kept], std[kept]
        z, shift, noise = distance / std, held.lr * distance, (held.lr * std) ** 2
        total["steps"][place] += 1
        total["shift"][place] += shift
        total["noise"][place] += noise
        total["z"][place] += z
        total["z_squared"][place] += z**2
        total["rank"][place] += _share_below(z)
        total["excess"][place] += z**2 - 1.0
        half_shift[number % 2, place] += shift
        half_noise[number % 2, place] += noise
        blocks.add(place, shift)
    total["loss"] /= appearances
    total["squared_norm"] /= appearances
    return Sums(
        index=index,
        steps=total.pop("steps").astype(np.int64),
        shift_variance=blocks.variance(),
        last=last,
        half_shift=half_shift,
        half_noise=half_noise,
        batch_size=float(np.mean(batch_sizes)),
        compared=float(np.mean(compared)),
        observed_steps=len(batch_sizes),
        degenerate=degenerate,
        **total,
    )


def standardised(record: Record, ids: Int[np.ndarray, " id"], query: int = 0) -> Float[np.ndarray, "step id"]:
    """Standardised distances z of some ids at every observed step; NaN where an id was not observed.

    Raises:
        ValueError: If they would not fit into half a gigabyte.
    """
    wanted = np.asarray(ids)
    order = np.argsort(wanted)
    rows = []
    for held in record.observations():
        row = np.full(len(wanted), np.nan)
        place = np.searchsorted(wanted[order], held.index).clip(max=len(wanted) - 1)
        found = wanted[order][place] == held.index
        row[order[place[found]]] = _standardise(held, query)[found]
        rows.append(row)
        if len(rows) * len(wanted) > 1 << 26:
            raise ValueError(f"{len(wanted)} examples at this many steps do not fit in memory: ask for fewer")
    return np.array(rows).reshape(-1, len(wanted))


def shifts(record: Record, ids: Int[np.ndarray, " id"], query: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """For each step at which some of the ids were observed: their mean weighted distance, and the step's noise."""
    distances, noises = [], []
    for held in record.observations():
        member = np.isin(held.index, ids)
        if member.any() and held.lr > 0:
            mean, std = (np.broadcast_to(column[:, query], len(member))[member] for column in (held.mean, held.std))
            distances.append(held.lr * float((held.dots[member, query] - mean).mean()))
            noises.append(held.lr**2 * float((std**2).mean()))
    return np.array(distances), np.array(noises)


def block_variance(values: Float[np.ndarray, " step"]) -> float:
    r"""Variance of a sum of dependent values: that of the moving-block bootstrap, in closed form.

    Drawing :math:`K / L` blocks of length L from all K - L + 1 of them gives a sum with variance
    :math:`\tfrac KL \operatorname{Var}(S_b)`, S the block sums; no draws are needed.

    Source: Künsch (1989), "The jackknife and the bootstrap for general stationary observations".
    """
    blocks = _MovingBlocks(_block_length(len(values)), 1)
    for value in values:
        blocks.add(np.zeros(1, dtype=np.int64), np.array([value]))
    return float(blocks.variance()[0])


class _MovingBlocks:
    """Sums over the last L values of every id, and their variance, as the values come in."""

    def __init__(self, length: int, count: int) -> None:
        self._length = length
        self._ring = np.zeros((length, count))
        self._window, self._seen = np.zeros(count), np.zeros(count, dtype=np.int64)
        self._sum, self._squares = np.zeros(count), np.zeros(count)

    def add(self, place: np.ndarray, values: np.ndarray) -> None:
        slot = self._seen[place] % self._length
        self._window[place] += values - self._ring[slot, place]
        self._ring[slot, place] = values
        self._seen[place] += 1
        full = place[self._seen[place] >= self._length]
        self._sum[full] += self._window[full]
        self._squares[full] += self._window[full] ** 2

    def variance(self) -> Float[np.ndarray, " id"]:
        blocks = np.maximum(self._seen - self._length + 1, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = self._squares / blocks - (self._sum / blocks) ** 2
            return np.where(blocks >= 2, self._seen / self._length * np.maximum(spread, 0), np.nan)


def _ids(record: Record) -> tuple[np.ndarray, np.ndarray]:
    known, counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for held in record.observations():
        if len(known) == len(held.index) and (known == held.index).all():
            counts = counts + 1
            continue
        merged, where = np.unique(np.concatenate([known, held.index]), return_inverse=True)
        counts = np.bincount(where, weights=np.concatenate([counts, np.ones(len(held.index))])).astype(np.int64)
        known = merged
    if not len(known):
        raise ValueError("the record is empty: no step was observed (or all were skipped)")
    return known, counts


def _block_length(steps: int) -> int:
    return max(1, int(np.ceil(steps ** (1 / 3) - 1e-9)))


def _standardise(held: Observation, query: int) -> np.ndarray:
    values = held.dots[:, query].astype(np.float64)
    mean, std = (np.broadcast_to(column[:, query], len(values)) for column in (held.mean, held.std))
    kept = (std > _rounding(values, mean)) & (held.lr > 0)
    return np.divide(values - mean, std, out=np.full(len(values), np.nan), where=kept)


def _rounding(values: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Spread that equal numbers show by rounding alone."""
    return 1e-7 * np.maximum(np.abs(mean), np.abs(values).max() if len(values) else 0.0)


def _share_below(values: np.ndarray) -> np.ndarray:
    """For each value the share of the others below it, ties counted half."""
    from scipy.stats import rankdata

    if len(values) < 2:
        return np.full(len(values), 0.5)
    return (rankdata(values) - 1) / (len(values) - 1)
