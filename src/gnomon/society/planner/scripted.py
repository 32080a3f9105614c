"""Scripted models that read the same prompts as a language model: what a known agent or planner would answer.

They are the positive controls. A script sees only the text, so they also prove that a prompt holds all it must.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import expit, logit

from gnomon.models.chat import Conversation, ScriptedChat
from gnomon.society.planner.agents import GretherAgent
from gnomon.society.planner.policies import Policy
from gnomon.society.planner.scenarios import LABELS, Scenario

LABEL_BIAS = 0.8
"""Nats by which a scripted agent prefers the letter A, as small models do: the readout must cancel it."""

_PERCENT = re.compile(r"(\d+)%")


def scripted_agent(name: str, agent: GretherAgent, scenario: Scenario) -> ScriptedChat:
    """A chat model that answers agent prompts with the log-odds of a quasi-Bayesian agent."""

    def score(conversation: Conversation, choices: Sequence[str]) -> Mapping[str, float]:
        text = conversation[-1]["content"]
        belief, precision = (int(percent) / 100 for percent in _PERCENT.findall(text)[:2])
        story = text.rpartition("\n\n")[0]
        signal = 1 if story.rstrip(".").endswith(scenario.good) else -1
        private = float(agent.private_logodds(logit(belief), logit(precision), signal))
        good_label = LABELS[0] if f"{LABELS[0]}: {scenario.act_good}" in text else LABELS[1]
        towards_first = LABEL_BIAS + (private if good_label == LABELS[0] else -private)
        return {choices[0]: float(np.log(expit(towards_first))), choices[1]: float(np.log(expit(-towards_first)))}

    return ScriptedChat(name, score=score)


def scripted_planner(name: str, policies: Mapping[str, Policy]) -> ScriptedChat:
    """A chat model that answers planner prompts by policies, told apart by the aim in the prompt.

    Args:
        name: Name in records.
        policies: By objective.
    """

    def score(conversation: Conversation, choices: Sequence[str]) -> Mapping[str, float]:
        text = conversation[1]["content"]
        belief = int(_PERCENT.findall(text)[-1]) / 100
        objective = "altruistic" if "right for them." in text and "as many people" not in text else "biased"
        wanted = float(policies[objective](belief))
        # A narrow bell around the wanted precision: a decided answer over the precisions on offer.
        return {choice: -0.5 * ((float(choice) - wanted) / 0.02) ** 2 for choice in choices}

    return ScriptedChat(name, score=score)
