"""From column names, bounds and training rows to a :class:`~gnomon.learners.tutor_pupil.tutor.Frame`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from gnomon.learners.tutor_pupil.domain import Domain
from gnomon.learners.tutor_pupil.tutor import Frame

Column = str | int
Bounds = Mapping[Column, tuple[float, float]] | Domain | None


def make_frame(
    x: Float[np.ndarray, "n columns"],
    names: Sequence[str] | None,
    *,
    context: Sequence[Column] | None = None,
    correctable: Sequence[Column] | None = None,
    scale: Any = "robust",
    bounds: Bounds = None,
    sample_weight: Float[np.ndarray, " n"] | None = None,
) -> Frame:
    """Resolve columns, measure their units on training rows, and check the bounds against them.

    Raises:
        ValueError: If a column does not exist, a correctable column is constant or context, nothing can move, or
            bounds exclude training rows.
    """
    n_columns = x.shape[1]
    weight = np.ones(len(x)) if sample_weight is None else sample_weight
    centre, units = _units(x, scale, weight)
    hidden = set(_positions(context or (), names, n_columns, "context"))
    pupil_columns = np.array([column for column in range(n_columns) if column not in hidden], dtype=np.int64)
    domain = _domain(bounds, names, n_columns)
    if excluded := domain.columns(pupil_columns).outside(x[:, pupil_columns]):
        raise ValueError(f"bounds exclude {excluded} of {len(x)} training rows")
    varies = units > 0
    if correctable is None:
        chosen = [c for c in pupil_columns.tolist() if varies[c] and c not in domain.discrete]
        if not chosen:
            raise ValueError(f"no correctable column varies over the {len(x)} sample(s)")
    else:
        chosen = sorted(_positions(correctable, names, n_columns, "correctable"))
        for column in chosen:
            if not varies[column]:
                raise ValueError(f"correctable column {_label(column, names)} is constant over the training rows")
            if column in hidden:
                raise ValueError(f"column {_label(column, names)} is context, which the pupil does not take")
    return Frame(
        centre,
        np.where(varies, units, 1.0),
        pupil_columns,
        np.array(chosen, dtype=np.int64),
        domain.columns(pupil_columns),
    )


def _units(x: np.ndarray, scale: Any, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Location and spread of each column; zero spread marks a constant column."""
    centre = np.average(x, axis=0, weights=weight)
    deviation = np.sqrt(np.average(np.square(x - centre), axis=0, weights=weight))
    deviation = np.where(np.ptp(x[weight > 0], axis=0) > 0, deviation, 0.0)
    if isinstance(scale, str):
        if scale == "std":
            return centre, deviation
        if scale == "robust":
            lower, upper = np.quantile(x, [0.25, 0.75], axis=0, weights=weight, method="inverted_cdf")
            spread = (upper - lower) / 1.349
            # Columns such as pixels hold one value on most rows: their quartiles coincide although they vary.
            return centre, np.where(spread > 0, spread, deviation)
        raise ValueError(f"scale must be 'robust', 'std', a number or one number a column, got {scale!r}")
    units = np.broadcast_to(np.asarray(scale, dtype=np.float64), (x.shape[1],)).copy()
    if (units <= 0).any():
        raise ValueError(f"scale must be > 0, got {units.min()} for column {int(units.argmin())}")
    return centre, np.where(deviation > 0, units, 0.0)


def _domain(bounds: Bounds, names: Sequence[str] | None, n_columns: int) -> Domain:
    if bounds is None:
        return Domain.unbounded(n_columns)
    if isinstance(bounds, Domain):
        if len(bounds.low) != n_columns:
            raise ValueError(f"bounds describe {len(bounds.low)} columns, the data has {n_columns}")
        return bounds
    domain = Domain.unbounded(n_columns)
    low, high = domain.low.copy(), domain.high.copy()
    for column, (least, most) in bounds.items():
        (position,) = _positions([column], names, n_columns, "bounds")
        if not least < most:
            raise ValueError(f"bounds of {column!r} must rise, got ({least}, {most})")
        low[position], high[position] = least, most
    return dataclasses.replace(domain, low=low, high=high)


def _positions(columns: Sequence[Column], names: Sequence[str] | None, n_columns: int, argument: str) -> list[int]:
    known = {} if names is None else {name: index for index, name in enumerate(names)}
    positions = []
    for column in columns:
        position = known.get(column) if isinstance(column, str) else int(column)
        if position is None or not 0 <= position < n_columns:
            raise ValueError(f"{argument} names column {column!r}, which is not among the {n_columns} of the data")
        positions.append(position)
    return positions


def _label(column: int, names: Sequence[str] | None) -> str:
    return repr(names[column]) if names is not None else str(column)
