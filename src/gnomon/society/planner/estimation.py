r"""What an agent does with belief and signal, estimated from its answers.

.. math:: \tilde\ell = a + \alpha\,\ell + \gamma_{\text{agree}}\, s\lambda\,[s \ell \ge 0]
    + \gamma_{\text{contra}}\, s\lambda\,[s \ell < 0]

A Bayesian has :math:`\alpha = \gamma_{\text{agree}} = \gamma_{\text{contra}} = 1`. Each cluster (scenario and
paraphrase, or person) gets an intercept and slopes of its own; inference is over clusters.

Source: Grether (1980), "Bayes Rule as a Descriptive Model: The Representativeness Heuristic".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnomon.evidence import Estimate, intervals
from gnomon.society.planner.agents import TIE, GretherAgent

COEFFICIENTS = ("alpha", "gamma_agree", "gamma_contra", "intercept")


@dataclass(frozen=True)
class GretherFit:
    """Estimated weights of an agent.

    Args:
        alpha: Weight on the public belief.
        gamma_agree: Weight on signals that agree with it.
        gamma_contra: Weight on signals that contradict it.
        by_cluster: Coefficients of each cluster, one row each.
        r2: Share of the variance that the weights explain, within clusters.
        sign_agreement: Share of answers on the Bayesian side of even odds.
        n: Answers.
    """

    alpha: Estimate
    gamma_agree: Estimate
    gamma_contra: Estimate
    by_cluster: pd.DataFrame
    r2: float
    sign_agreement: float
    n: int

    @property
    def agent(self) -> GretherAgent:
        """An agent with these weights that acts by the logistic of its log-odds."""
        alpha, agree, contra, intercept = self.by_cluster[list(COEFFICIENTS)].to_numpy(dtype=float).mean(axis=0)
        return GretherAgent(float(alpha), float(agree), float(contra), float(intercept), temperature=1.0)

    @property
    def reacts(self) -> bool:
        """Whether some weight's interval excludes zero: without that, nothing can be said of biases."""
        return any(not e.low <= 0 <= e.high for e in (self.alpha, self.gamma_agree, self.gamma_contra))


def cluster_slopes(records: pd.DataFrame) -> dict[str, float]:
    """Least-squares weights of one cluster's answers.

    Args:
        records: Columns ``l``, ``lam``, ``signal`` (+1 or -1) and ``logodds``.

    Raises:
        ValueError: If the design does not identify the four coefficients.
    """
    design = _design(records)
    answers = records["logodds"].to_numpy(dtype=float)
    if np.linalg.matrix_rank(design) < len(COEFFICIENTS):
        raise ValueError(
            f"{len(records)} answers do not identify {', '.join(COEFFICIENTS)}: vary belief, precision and signal"
        )
    solved, *_ = np.linalg.lstsq(design, answers, rcond=None)
    return dict(zip(COEFFICIENTS, map(float, solved), strict=True))


def estimate_agent(records: pd.DataFrame, *, cluster: str = "cluster") -> GretherFit:
    """Weights of an agent with 95 % intervals over clusters.

    Args:
        records: Columns ``l``, ``lam``, ``signal``, ``logodds`` and the cluster's.
        cluster: Column of the unit of analysis.

    Raises:
        ValueError: If there are fewer than two clusters, a value is not finite, or a cluster does not identify the
            weights.
    """
    numbers = records[["l", "lam", "signal", "logodds"]].to_numpy(dtype=float)
    if not np.isfinite(numbers).all():
        raise ValueError(f"record {int(np.argmin(np.isfinite(numbers).all(axis=1)))} has a value that is not finite")
    fits = pd.DataFrame([{cluster: name, **cluster_slopes(rows)} for name, rows in records.groupby(cluster, sort=True)])
    bayesian = records["l"] + records["signal"] * records["lam"]
    decided = bayesian.abs() > TIE
    read = {name: intervals.mean(fits[name].to_numpy()) for name in COEFFICIENTS[:3]}
    return GretherFit(
        **read,
        by_cluster=fits,
        r2=_within_r2(records, fits, cluster),
        sign_agreement=float((np.sign(records["logodds"]) == np.sign(bayesian))[decided].mean()),
        n=len(records),
    )


def _design(records: pd.DataFrame) -> np.ndarray:
    belief, pull = records["l"].to_numpy(dtype=float), (records["signal"] * records["lam"]).to_numpy(dtype=float)
    agrees = (np.sign(belief) == np.sign(pull)) | (np.abs(belief) <= TIE)
    return np.column_stack([belief, np.where(agrees, pull, 0.0), np.where(agrees, 0.0, pull), np.ones(len(belief))])


def _within_r2(records: pd.DataFrame, fits: pd.DataFrame, cluster: str) -> float:
    left, total = 0.0, 0.0
    weights = fits[list(COEFFICIENTS)].to_numpy(dtype=float)
    for (_, rows), fit in zip(records.groupby(cluster, sort=True), weights, strict=True):
        answers = rows["logodds"].to_numpy(dtype=float)
        predicted = _design(rows) @ fit
        left += float(((answers - predicted) ** 2).sum())
        total += float(((answers - answers.mean()) ** 2).sum())
    return 1 - left / total if total > 0 else 0.0
