"""Agents and the public's Bayes rule, against the textbook; traps T3 and T5."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from gnomon.society.planner.agents import BayesianAgent, GretherAgent, informative, respond

beliefs = st.floats(0.01, 0.99)
precisions = st.floats(0.5, 0.999)
agents = st.sampled_from(
    [BayesianAgent(), GretherAgent(0.7, 0.6, 1.4), GretherAgent(temperature=0.5), GretherAgent(bias=0.3)]
)


@given(beliefs, precisions)
def test_posteriors_are_bayes_rule(b, q):
    here = respond(BayesianAgent(), logit(b), logit(q))
    if informative(logit(b), logit(q)):
        assert expit(here.after_good) == pytest.approx(q * b / (q * b + (1 - q) * (1 - b)), abs=1e-12)
        assert expit(here.after_bad) == pytest.approx((1 - q) * b / ((1 - q) * b + q * (1 - b)), abs=1e-12)
    else:
        assert here.after_good == here.after_bad == logit(b)


@given(agents, beliefs, precisions)
def test_a_public_that_knows_its_agents_is_a_martingale(agent, b, q):
    here = respond(agent, logit(b), logit(q), update="aware")
    good = b * here.good_if_good + (1 - b) * here.good_if_bad
    expected = good * expit(here.after_good) + (1 - good) * expit(here.after_bad)
    assert float(expected) == pytest.approx(b, abs=1e-12)


def test_t3_ties_follow_the_signal():
    agent = BayesianAgent()
    lam = float(logit(0.7))
    for belief in (lam, -lam, lam + 1e-13):
        assert agent.probability_good(belief, lam, 1) == 1
        assert agent.probability_good(belief, lam, -1) == 0
    assert agent.probability_good(lam + 1e-9, lam, -1) == 1


def test_t3_repeated_updates_do_not_drift_off_the_tie():
    lam = float(logit(0.7))
    belief = 0.0
    for step in range(1000):
        here = respond(BayesianAgent(), belief, lam)
        belief = float(here.after_good if step % 2 == 0 else here.after_bad)
    assert belief == 0.0


def test_t5_certainty_is_an_ordinary_infinity():
    here = respond(BayesianAgent(), np.array([0.3, np.inf, -np.inf]), np.full(3, np.inf))
    assert here.after_good.tolist() == [np.inf, np.inf, -np.inf]
    assert here.after_bad.tolist() == [-np.inf, np.inf, -np.inf]
    assert np.isfinite(here.good_if_good).all()


def test_a_naive_public_counts_what_it_holds_impossible():
    contrarian = GretherAgent(gamma_contra=5.0)
    here = respond(contrarian, 1.0, 0.5, update="naive")
    assert here.after_good == here.after_bad == 1.0
    assert here.surprise_bad
    assert not here.surprise_good
    assert here.good_if_bad < 1


def test_grether_agents_herd_when_belief_outweighs_a_contrary_signal():
    agent = GretherAgent(alpha=0.5, gamma_contra=1.4)
    lam = 1.0
    edge = 1.4 * lam / 0.5
    assert agent.probability_good(edge - 1e-6, lam, -1) == 0
    assert agent.probability_good(edge + 1e-6, lam, -1) == 1


@pytest.mark.parametrize("change", [{"alpha": float("nan")}, {"temperature": -1.0}])
def test_agents_need_finite_parameters(change):
    with pytest.raises(ValueError, match="agent parameters must be finite"):
        GretherAgent(**change)
