"""Recorded people as agents: what they did at the belief, precision and signal nearest to the one at hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReplayedAgent:
    """Acts G as often as the recorded agents did in the nearest situation with the same signal.

    Nearness is the sum of the distances of public belief and precision, both in log-odds; of equally near situations
    the lower one counts.

    Args:
        situations: Public log-odds and precision log-odds, ``[situations, 2]``, by signal.
        shares: Share of G actions in each.
    """

    situations: dict[int, Floats]
    shares: dict[int, Floats]

    @classmethod
    def of(cls, records: pd.DataFrame) -> ReplayedAgent:
        """The agents of a table of records.

        Raises:
            ValueError: If one of the signals never occurs together with an action.
        """
        seen = records.loc[records["signal"].notna() & records["action"].notna()]
        if seen.empty:
            raise ValueError("no record has both a signal and an action")
        situations, shares = {}, {}
        for signal in (1, -1):
            rows = seen.loc[seen["signal"] == signal]
            if rows.empty:
                raise ValueError(f"no record with signal {signal} has an action")
            grouped = (rows["action"] > 0).groupby([rows["b_public"], rows["q_declared"]]).mean()
            situations[signal] = logit(np.array(grouped.index.tolist(), dtype=float))
            shares[signal] = grouped.to_numpy(dtype=float)
        return cls(situations, shares)

    def probability_good(self, l: ArrayLike, lam: ArrayLike, signal: int) -> Floats:  # noqa: E741
        """Share of G actions in the nearest recorded situation."""
        belief, precision = np.broadcast_arrays(np.asarray(l, dtype=float), np.asarray(lam, dtype=float))
        at = np.stack([belief.ravel(), precision.ravel()], axis=1)
        # Certainty has no distance; the most certain situation recorded is the nearest to it.
        at = np.clip(at, -_CERTAIN, _CERTAIN)
        known = np.clip(self.situations[signal], -_CERTAIN, _CERTAIN)
        distance = np.abs(at[:, None, :] - known[None, :, :]).sum(axis=2)
        return self.shares[signal][distance.argmin(axis=1)].reshape(belief.shape)


_CERTAIN = 50.0
"""Log-odds that stand for certainty when distances are measured."""
