r"""Exact worth of a policy: the distribution over public beliefs is carried forward, no simulation.

Welfare is what agents get, without the planner's cost, per round: :math:`W = E\sum_t \delta^t u_t / \sum_t \delta^t
\in [-C, 0]`. It is reported as such and given the state of the world; beliefs always use the prior, only the signal
law is conditional.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gnomon.society.planner.agents import TIE, Update, respond
from gnomon.society.planner.model import HerdModel, belief_logodds
from gnomon.society.planner.policies import Policy

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    r"""What a policy is worth from one prior.

    Args:
        V: Planner's discounted value, :math:`E\sum_t \delta^t r_t`.
        W: Agents' welfare a round, in [-C, 0].
        W_G: Welfare given the state is good.
        W_B: Welfare given it is bad.
        spend: Planner's cost a round.
        share_G: Share of G actions.
        cascade: Probability that agents end up ignoring their signals for good.
        wrong_cascade: Probability that they do so on the wrong action.
        cascade_time: Expected rounds until then, over the runs that do.
        off_path: Share of actions that the public held impossible.
        error: Bound on the error of ``V`` from the paths that were cut off.
    """

    V: float
    W: float
    W_G: float
    W_B: float
    spend: float
    share_G: float
    cascade: float
    wrong_cascade: float
    cascade_time: float
    off_path: float
    error: float


def evaluate(
    model: HerdModel,
    policy: Policy,
    b1: float,
    *,
    update: Update = "naive",
    tol: float = 1e-10,
    max_states: int = 200_000,
) -> Evaluation:
    r"""The exact worth of a policy on ``model.agent`` from the public prior ``b1``.

    Beliefs reachable in round :math:`t` are merged when equal, carried with their probability under each state of the
    world, and settled in closed form once nothing moves them any more. Paths whose remaining weight
    :math:`\delta^t P \max|r| / (1 - \delta)` is below ``tol`` are cut off; ``error`` sums what that could change.

    Args:
        model: The problem; its ``agent`` acts and its ``horizon`` ends the sum.
        policy: Any policy; randomised ones are averaged exactly.
        b1: Prior probability of the good state.
        update: Whether the public takes agents for Bayesian (``naive``) or knows them (``aware``).
        tol: Weight below which a path is cut off.
        max_states: Beliefs of one round before giving up.

    Raises:
        ValueError: If ``b1`` is not a probability, or a round reaches more than ``max_states`` beliefs.
    """
    l = np.array([float(belief_logodds(b1))])  # noqa: E741
    mass = np.ones((2, 1))  # P(belief | G), P(belief | B)
    prior = np.array([b1, 1 - b1])
    worst = model.C + float(np.max(model.spend(np.linspace(model.q_min, model.q_max, 101))))
    totals = np.zeros((2, 4))  # utility, spend, share of G, off-path, each given G and B
    herded, herded_wrong, herd_rounds, error = np.zeros(2), np.zeros(2), np.zeros(2), 0.0
    round_, weight_left = 0, model.rounds_weight
    while len(l) and weight_left > 0:
        weight = model.delta**round_
        weights, lam = policy.choices(l)
        here = respond(model.agent, np.broadcast_to(l, lam.shape), lam, update=update)
        good = np.stack([here.good_if_good, here.good_if_bad])  # [state, choice, belief]
        cost = model.spend(expit(lam))
        surprise = good * here.surprise_good + (1 - good) * here.surprise_bad
        right = np.stack([good[0], 1 - good[1]])
        stage = np.stack([-model.C * (1 - right), np.broadcast_to(cost, good.shape), good, surprise])
        per_belief = np.einsum("k,fwkn->fwn", weights, stage)  # feature, state, belief

        still = _unmoved(here.after_good, l) | (good <= 0).all(axis=0)
        still &= _unmoved(here.after_bad, l) | (good >= 1).all(axis=0)
        settled = still.all(axis=0)
        settled_weight = np.where(settled, weight_left, weight)
        totals += np.einsum("fwn,wn,n->wf", per_belief, mass, settled_weight)
        # A cascade: the action no longer depends on the signal, whatever the state of the world.
        ignores = settled & (np.abs(here.good_if_good - here.good_if_bad) <= TIE).all(axis=0)
        arrived = mass * ignores
        herded += arrived.sum(axis=1)
        herded_wrong += (arrived * (1 - np.einsum("k,wkn->wn", weights, right))).sum(axis=1)
        herd_rounds += round_ * arrived.sum(axis=1)

        flow = mass[:, None, :] * weights[None, :, None] * ~settled
        l, mass = _merge(  # noqa: E741
            np.concatenate([here.after_good.ravel(), here.after_bad.ravel()]),
            np.concatenate([(flow * good).reshape(2, -1), (flow * (1 - good)).reshape(2, -1)], axis=1),
        )
        round_ += 1
        weight_left = max(weight_left - weight, 0.0) if model.horizon else weight_left * model.delta
        if model.horizon and round_ >= model.horizon:
            break
        remaining = weight_left * worst * mass.max(axis=0)
        kept = remaining > tol
        error += float(remaining[~kept].sum())
        l, mass = l[kept], mass[:, kept]  # noqa: E741
        if len(l) > max_states:
            raise ValueError(f"round {round_} reaches {len(l)} beliefs, more than {max_states}; simulate instead")
    per_round = totals / model.rounds_weight
    welfare, spend, share, off_path = (prior @ per_round[:, f] for f in range(4))
    if model.objective == "altruistic":
        value = prior @ (totals[:, 0] - totals[:, 1])
    else:
        value = prior @ (-model.C * (model.rounds_weight - totals[:, 2]) - totals[:, 1])
    cascade = float(prior @ herded)
    return Evaluation(
        V=float(value),
        W=float(welfare),
        W_G=float(per_round[0, 0]),
        W_B=float(per_round[1, 0]),
        spend=float(spend),
        share_G=float(share),
        cascade=cascade,
        wrong_cascade=float(prior @ herded_wrong),
        cascade_time=float(prior @ herd_rounds) / cascade if cascade > 0 else np.inf,
        off_path=float(off_path),
        error=error,
    )


def _unmoved(after: Floats, before: Floats) -> NDArray[np.bool_]:
    # Infinite log-odds are equal to themselves but have no difference.
    with np.errstate(invalid="ignore"):
        return (after == before) | (np.abs(after - before) <= TIE)


def _merge(l: Floats, mass: Floats) -> tuple[Floats, Floats]:  # noqa: E741
    """Beliefs that are equal up to rounding, once each, with their mass added; those without mass are dropped."""
    alive = mass.max(axis=0) > 0
    l, mass = l[alive], mass[:, alive]  # noqa: E741
    _, first, group = np.unique(np.round(l, 10), return_index=True, return_inverse=True)
    merged = np.stack([np.bincount(group, weights=row, minlength=len(first)) for row in mass])
    return np.asarray(l[first], dtype=np.float64), np.asarray(merged, dtype=np.float64)
