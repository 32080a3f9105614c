r"""Agents: from public belief and private signal to an action, and what the public then learns.

Signals and actions are ``+1`` for G and ``-1`` for B. An agent's private log-odds decide its action; on a tie it
follows its signal, so a Bayesian agent's action reveals its signal exactly when :math:`|\ell| \le \lambda`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

TIE = 1e-12
"""Log-odds closer to zero than this are a tie: repeated addition of precisions leaves errors of about 1e-15."""

Update = Literal["naive", "aware"]
"""Who the public believes it watches: Bayesian agents (``naive``) or the agents as they are (``aware``)."""


@runtime_checkable
class AgentModel(Protocol):
    """A rule from (public log-odds, precision log-odds, signal) to the probability of action G."""

    def probability_good(self, l: ArrayLike, lam: ArrayLike, signal: int) -> NDArray[np.float64]:  # noqa: E741
        """P(action G) at public log-odds ``l`` after ``signal`` (+1 or -1) of precision log-odds ``lam``."""
        ...


@dataclass(frozen=True)
class BayesianAgent:
    r"""Acts on :math:`\tilde\ell = \ell + s\lambda`; ties follow the signal."""

    def probability_good(self, l: ArrayLike, lam: ArrayLike, signal: int) -> NDArray[np.float64]:  # noqa: E741
        """1 where the private log-odds favour G, else 0."""
        belief, precision = np.broadcast_arrays(np.asarray(l, dtype=float), np.asarray(lam, dtype=float))
        follows = informative(belief, precision)
        return np.where(follows, float(signal > 0), (belief > 0).astype(float))


@dataclass(frozen=True)
class GretherAgent:
    r"""A quasi-Bayesian agent, :math:`\tilde\ell = \alpha\ell + \gamma s\lambda + \text{bias}`.

    :math:`\gamma` is ``gamma_agree`` for signals that agree with the public belief (or when it is even), else
    ``gamma_contra``. :math:`\alpha < 1` is base-rate neglect, :math:`\gamma < 1` conservatism. With
    ``temperature`` > 0 the action is G with probability :math:`\sigma(\tilde\ell / \text{temperature})`.

    Source: Grether (1980), "Bayes Rule as a Descriptive Model: The Representativeness Heuristic".

    >>> bool(GretherAgent(gamma_contra=1.4).probability_good(1.0, 0.8, -1))
    False
    """

    alpha: float = 1.0
    gamma_agree: float = 1.0
    gamma_contra: float = 1.0
    bias: float = 0.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        values = (self.alpha, self.gamma_agree, self.gamma_contra, self.bias, self.temperature)
        if not np.all(np.isfinite(values)) or self.temperature < 0:
            raise ValueError(f"agent parameters must be finite and temperature >= 0, got {self!r}")

    def private_logodds(self, l: ArrayLike, lam: ArrayLike, signal: int) -> NDArray[np.float64]:  # noqa: E741
        """Log-odds the agent acts on."""
        belief, precision = np.broadcast_arrays(np.asarray(l, dtype=float), np.asarray(lam, dtype=float))
        agrees = (np.sign(belief) == signal) | (np.abs(belief) <= TIE)
        gamma = np.where(agrees, self.gamma_agree, self.gamma_contra)
        with np.errstate(invalid="ignore"):
            prior = np.where(self.alpha == 0, 0.0, self.alpha * belief)
            private = prior + np.where(gamma == 0, 0.0, gamma * signal * precision) + self.bias
        # Certainty against certainty has probability zero; the public belief then stands.
        return np.where(np.isnan(private), belief, private)

    def probability_good(self, l: ArrayLike, lam: ArrayLike, signal: int) -> NDArray[np.float64]:  # noqa: E741
        """1 or 0 by the sign of the private log-odds, or its logistic when the agent is noisy."""
        private = self.private_logodds(l, lam, signal)
        if self.temperature > 0:
            return expit(private / self.temperature)
        return np.where(np.abs(private) <= TIE, float(signal > 0), (private > 0).astype(float))


@dataclass(frozen=True)
class Response:
    r"""What agents do at each (belief, precision), and where the public belief goes. All arrays share one shape.

    Args:
        good_if_good: :math:`P(a = G \mid \omega = G)`.
        good_if_bad: :math:`P(a = G \mid \omega = B)`.
        after_good: Public log-odds after action G.
        after_bad: Public log-odds after action B.
        surprise_good: Whether action G is impossible in the public's model of the agents.
        surprise_bad: Whether action B is.
    """

    good_if_good: NDArray[np.float64]
    good_if_bad: NDArray[np.float64]
    after_good: NDArray[np.float64]
    after_bad: NDArray[np.float64]
    surprise_good: NDArray[np.bool_]
    surprise_bad: NDArray[np.bool_]


def informative(l: ArrayLike, lam: ArrayLike) -> NDArray[np.bool_]:  # noqa: E741
    r"""Whether a Bayesian agent's action reveals its signal: :math:`|\ell| \le \lambda`, the closed interval."""
    belief = np.abs(np.asarray(l, dtype=float))
    # Infinite belief is certainty: nothing can be learned, even from a perfect signal.
    return np.isfinite(belief) & (belief <= np.asarray(lam, dtype=float) + TIE)


def respond(agent: AgentModel, l: ArrayLike, lam: ArrayLike, *, update: Update = "naive") -> Response:  # noqa: E741
    r"""Action probabilities in each state of the world, and the public's posterior after each action.

    .. math::
        x = P(G \mid \omega = G) = q g_+ + (1 - q) g_-, \qquad y = P(G \mid \omega = B) = (1 - q) g_+ + q g_-

    where :math:`g_\pm` is the probability of action G after each signal. ``aware`` moves the public log-odds by
    :math:`\log(x/y)` after G and :math:`\log((1-x)/(1-y))` after B. ``naive`` moves them as if agents were Bayesian;
    an action that is then impossible leaves the belief where it was and counts as a surprise.
    """
    belief, precision = np.broadcast_arrays(np.asarray(l, dtype=float), np.asarray(lam, dtype=float))
    q = expit(precision)
    after_plus, after_minus = (agent.probability_good(belief, precision, signal) for signal in (1, -1))
    x = q * after_plus + (1 - q) * after_minus
    y = (1 - q) * after_plus + q * after_minus
    if update == "naive":
        follows = informative(belief, precision)
        step = np.where(follows, precision, 0.0)
        up, down = belief + step, belief - step
        surprise_good, surprise_bad = ~follows & (belief < 0), ~follows & (belief > 0)
    else:
        finite = np.isfinite(belief)
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.where(finite & (x != y), belief + np.log(x) - np.log(y), belief)
            down = np.where(finite & (x != y), belief + np.log1p(-x) - np.log1p(-y), belief)
        surprise_good = surprise_bad = np.zeros(belief.shape, dtype=bool)
    up, down = (np.where(np.abs(after) <= TIE, 0.0, after) for after in (up, down))
    return Response(x, y, up, down, surprise_good, surprise_bad)
