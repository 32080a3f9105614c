r"""Is a mediator as transparent as the model assumes? Three checks on a log, each with its statistic.

* **information parity**: given the public belief, precision does not depend on the state of the world. Permutation
  test of the state within strata of equal round and belief, so a log must hold the belief as the planner saw it.
* **no lying**: signals are right as often as declared. Exact binomial interval in every bin of declared precision,
  at a joint level of 95 %.
* **observability**: the precision used is the precision shown.

A log that cannot decide a check fails it with the reason: transparency is shown, not presumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnomon.evidence.intervals import clopper_pearson

COLUMNS = ("round", "omega", "b_public", "q_declared", "q_used", "signal")
PERMUTATIONS = 999
LEVEL = 0.05
_SAME = 1e-6
"""Precisions closer than this are the same: a log holds rounded numbers."""

_BINS = np.array([0.0, 0.525, 0.575, 0.625, 0.675, 0.725, 0.775, 0.825, 0.875, 0.925, 0.975, 1.0 + 1e-9])


@dataclass(frozen=True)
class Check:
    """One check: whether it passed, the statistic behind it, and what was found in words."""

    name: str
    passed: bool
    statistic: float
    detail: str


@dataclass(frozen=True)
class TransparencyAudit:
    """The three checks of a log.

    Args:
        parity: Precision does not depend on the state.
        honesty: Signals are as precise as declared.
        observability: Declared and used precision agree.
        rounds: Rounds examined.
    """

    parity: Check
    honesty: Check
    observability: Check
    rounds: int

    @property
    def passed(self) -> bool:
        """Whether all three checks passed."""
        return all(check.passed for check in self.checks)

    @property
    def checks(self) -> tuple[Check, Check, Check]:
        """The checks in order."""
        return self.parity, self.honesty, self.observability

    def __str__(self) -> str:
        lines = [f"{'pass' if check.passed else 'FAIL'}  {check.name:22} {check.detail}" for check in self.checks]
        return "\n".join(lines)


def audit_log(log: pd.DataFrame, *, permutations: int = PERMUTATIONS, seed: int = 0) -> TransparencyAudit:
    """Audit a mediator's log.

    Args:
        log: One row a round, columns ``round``, ``omega`` and ``signal`` (+1 good, -1 bad), ``b_public`` (before the
            round), ``q_declared`` (the precision that users were told) and ``q_used``; as
            :func:`~gnomon.society.planner.records.read_records` gives them.
        permutations: Random permutations of the parity test.
        seed: Seed of these.

    Raises:
        ValueError: If a column is missing or a value is out of range; the message names column and line.
    """
    _require_valid(log)
    return TransparencyAudit(_parity(log, permutations, seed), _honesty(log), _observability(log), rounds=len(log))


def _parity(log: pd.DataFrame, permutations: int, seed: int) -> Check:
    # Histories differ with the state, and beliefs with histories: only the same belief makes a fair comparison.
    strata = log.groupby(["round", log["b_public"].round(9)], sort=False).ngroup().to_numpy()
    omega = log["omega"].to_numpy(dtype=float)
    both = {stratum for stratum in np.unique(strata) if np.ptp(omega[strata == stratum]) > 0}
    kept = np.isin(strata, list(both))
    if not kept.any():
        return Check("information parity", False, np.nan, "no belief was reached under both states: log more runs")
    strata, omega = strata[kept], omega[kept]
    q = log["q_used"].to_numpy(dtype=float)[kept]
    centred = q - pd.Series(q).groupby(strata).transform("mean").to_numpy()
    centred[np.abs(centred) < _SAME] = 0.0
    observed = abs(float(omega @ centred))
    rng = np.random.default_rng(seed)
    order = np.argsort(strata, kind="stable")
    null = np.empty(permutations)
    for draw in range(permutations):
        # Sorting by stratum and a random key permutes the states within each stratum.
        shuffled = np.lexsort((rng.random(len(strata)), strata))
        null[draw] = abs(float(omega[shuffled] @ centred[order]))
    p = (1 + int((null >= observed - 1e-12).sum())) / (1 + permutations)
    moved = float(centred[omega > 0].mean() - centred[omega < 0].mean())
    detail = f"at equal belief precision moves with the state by {moved:+.4f}, p = {p:.3g} in {len(both)} strata"
    return Check("information parity", p >= LEVEL, p, detail)


def _honesty(log: pd.DataFrame) -> Check:
    declared = log["q_declared"].to_numpy(dtype=float)
    right = (log["signal"] == log["omega"]).to_numpy()
    bins = np.digitize(declared, _BINS)
    worst, found = 0.0, []
    for index in np.unique(bins):
        inside = bins == index
        share = clopper_pearson(int(right[inside].sum()), int(inside.sum()), level=1 - LEVEL / len(np.unique(bins)))
        promise = float(declared[inside].mean())
        gap = max(share.low - promise, promise - share.high, 0.0)
        if gap > 1e-12:
            found.append(f"declared {promise:.3f}, right in {share}")
        worst = max(worst, gap)
    detail = "; ".join(found) or f"signals right as often as declared in all {len(np.unique(bins))} bins"
    return Check("declared precision holds", not found, worst, detail)


def _observability(log: pd.DataFrame) -> Check:
    gap = np.abs(log["q_used"].to_numpy(dtype=float) - log["q_declared"].to_numpy(dtype=float))
    worst = float(gap.max())
    share = float(np.mean(gap > 1e-9))
    detail = f"declared and used precision differ in {share:.0%} of rounds, by at most {worst:.3g}"
    return Check("used is what is shown", worst <= 1e-9, worst, detail)


def _require_valid(log: pd.DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in log]
    if missing:
        raise ValueError(f"log lacks the columns {', '.join(missing)}; it has {', '.join(map(str, log.columns))}")
    if log.empty:
        raise ValueError("log has no rows")
    for name, low, high in (("b_public", 0.0, 1.0), ("q_declared", 0.5, 1.0), ("q_used", 0.5, 1.0)):
        allowed = log[name].between(low, high).to_numpy()
        if not allowed.all():
            row = int(np.argmin(allowed))
            raise ValueError(f"{name} must lie in [{low:g}, {high:g}], {_place(log, row)} has {log[name].iloc[row]}")
    for name in ("omega", "signal"):
        allowed = log[name].isin([1, -1]).to_numpy()
        if not allowed.all():
            row = int(np.argmin(allowed))
            raise ValueError(f"{name} must be 1 (good) or -1 (bad), {_place(log, row)} has {log[name].iloc[row]}")


def _place(log: pd.DataFrame, row: int) -> str:
    return f"{log.index.name or 'row'} {log.index[row]}"
