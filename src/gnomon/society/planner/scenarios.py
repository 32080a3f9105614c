"""Prompts for a language model in the agent's and in the planner's seat: three scenarios, four paraphrases each.

Every prompt states what the formal model conditions on and nothing else: history, public belief, and (agent) the
private message with its reliability, or (planner) objective, cost, free precision and horizon. Which option is called
A is the caller's to counterbalance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gnomon.society.planner.model import HerdModel

Message = dict[str, str]
Variant = Literal["standard", "no-future", "no-cost"]

PARAPHRASES = 4
LABELS = ("A", "B")
ANSWER_START = "PRECISION:"


@dataclass(frozen=True)
class Scenario:
    """A choice that a crowd makes one after the other.

    Args:
        name: Slug.
        situation: What everyone faces, two sentences.
        good: The good state, as a clause.
        bad: The bad state, as a clause.
        test: What the private signal is, as a clause after "you".
        act_good: The action that is right in the good state.
        act_bad: The action that is right in the bad state.
        crowd: Who the others are, plural.
    """

    name: str
    situation: str
    good: str
    bad: str
    test: str
    act_good: str
    act_bad: str
    crowd: str


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "car",
            "A new model of car is on the market. People decide one after the other whether to buy it.",
            "the car is reliable",
            "the car is unreliable",
            "had a mechanic look at one",
            "buy the car",
            "do not buy the car",
            "buyers",
        ),
        Scenario(
            "restaurant",
            "A new restaurant has opened in town. Guests decide one after the other whether to book a table.",
            "the kitchen is good",
            "the kitchen is poor",
            "read a review by a food critic",
            "book a table",
            "do not book a table",
            "guests",
        ),
        Scenario(
            "clinic",
            "A company offers new scheduling software. Clinics decide one after the other whether to install it.",
            "the software works well",
            "the software works badly",
            "ran a trial of it for a week",
            "install the software",
            "do not install the software",
            "clinics",
        ),
    )
}

_PERSONAS = (
    "You are a careful person who weighs all the evidence before deciding.",
    "You are a busy professional who makes quick but sensible decisions.",
    "You are a retired teacher with long experience of such decisions.",
    "You are a student who wants to make the right choice.",
)

_AGENT_TEMPLATES = (
    "{situation} {history} Judging by those choices, the chance that {good} is {belief}%. You also {test}. Such a "
    "check is right {precision}% of the time, and it says that {signal}.\n\nWhat do you do?",
    "{situation} {history} From what others did, people put the probability that {good} at {belief}%. In private you "
    "{test}; this kind of information is correct in {precision}% of cases. It indicates that {signal}.\n\n"
    "Which do you choose?",
    "{situation} You have to decide now. {history} Taken together, the earlier choices mean a {belief}% chance that "
    "{good}. On your own you {test}. Its accuracy is {precision}%. Its conclusion: {signal}.\n\nWhat is your decision?",
    "{history} The setting: {situation} Given what has been seen so far, it is {belief}% likely that {good}. Only you "
    "know one more thing: you {test}, which is reliable {precision}% of the time, and it suggests that {signal}.\n\n"
    "Which option do you take?",
)

_PLANNER_TEMPLATES = (
    "You run the information service that people consult. {situation} {goal}",
    "{situation} You are in charge of the advice that each person receives. {goal}",
    "Imagine you operate a recommendation platform. {situation} {goal}",
    "{situation} Your task is to manage the quality of the private information that people get. {goal}",
)


def history_sentence(scenario: Scenario, belief: float, p: float) -> str:
    """Earlier choices that a public belief could come from: six people, split by how far the belief is from even."""
    lead = max(-6, min(6, 2 * round(math.log(belief / (1 - belief)) / math.log(p / (1 - p)))))
    chose = (6 + lead) // 2
    return f"So far {chose} of 6 {scenario.crowd} chose to {scenario.act_good} and {6 - chose} did not."


def agent_prompt(
    scenario: Scenario, paraphrase: int, *, belief: float, precision: float, signal: int, swapped: bool, p: float = 0.7
) -> list[Message]:
    """The agent's question, to be answered by a letter.

    Args:
        scenario: The scenario.
        paraphrase: Which wording and persona, 0 to 3.
        belief: Public belief in the good state, shown in whole percent.
        precision: Reliability of the private message, shown in whole percent.
        signal: What it says, +1 good or -1 bad.
        swapped: Whether the good action is called B.
        p: Precision behind the earlier choices in the history.
    """
    options = (scenario.act_good, scenario.act_bad)
    listed = zip(LABELS, reversed(options) if swapped else options, strict=True)
    question = _AGENT_TEMPLATES[paraphrase].format(
        situation=scenario.situation,
        history=history_sentence(scenario, belief, p),
        good=scenario.good,
        belief=round(100 * belief),
        test=scenario.test,
        precision=round(100 * precision),
        signal=scenario.good if signal > 0 else scenario.bad,
    )
    lines = "\n".join(f"{label}: {option}" for label, option in listed)
    return [
        {"role": "system", "content": _PERSONAS[paraphrase]},
        {"role": "user", "content": f"{question}\n{lines}\nAnswer with the letter only."},
    ]


def stated_prompt(
    scenario: Scenario, paraphrase: int, *, belief: float, precision: float, signal: int
) -> list[Message]:
    """The agent's question, to be answered by a percentage."""
    asked = agent_prompt(scenario, paraphrase, belief=belief, precision=precision, signal=signal, swapped=False)
    story = asked[1]["content"].rpartition("\n\n")[0]
    question = f"How likely is it now that {scenario.good}? Answer with a percentage only."
    return [asked[0], {"role": "user", "content": f"{story}\n\n{question}"}]


def planner_prompt(
    scenario: Scenario, paraphrase: int, model: HerdModel, *, belief: float, variant: Variant = "standard"
) -> list[Message]:
    """The planner's question, to be answered as ``PRECISION: 0.xx``; the answer is begun.

    Args:
        scenario: The scenario.
        paraphrase: Which wording, 0 to 3.
        model: Objective, free precision, cost and patience, told in words and numbers.
        belief: Public belief in the good state, shown in whole percent.
        variant: ``no-future`` leaves out that others follow and watch; ``no-cost`` leaves out the cost.
    """
    goal = (
        "Your only aim is that people make the choice that is right for them."
        if model.objective == "altruistic"
        else f"Your only aim is that as many people as possible {scenario.act_good}, whatever is right for them."
    )
    parts = [
        _PLANNER_TEMPLATES[paraphrase].format(situation=scenario.situation, goal=goal),
        f"Nobody knows whether {scenario.good} or {scenario.bad}. You cannot lie and you know no more than they do. "
        "You only set how precise the next person's private message is: at precision 0.60 it is right 60 times in 100, "
        "at precision 0.90 it is right 90 times in 100. At 0.50 it says nothing, at 1.00 it is always right. The "
        "person knows the precision, and decides by the message and by what others chose before.",
    ]
    if variant != "no-cost":
        examples = ", ".join(f"{float(model.spend(q)):.3f} at {q:.2f}" for q in (0.5, round((1 + model.p) / 2, 2), 1.0))
        wrong = "a wrong choice" if model.objective == "altruistic" else f"each person who does not {scenario.act_good}"
        parts.append(
            f"Precision {model.p:.2f} is free. Other precisions cost you: {examples}. By comparison, {wrong} costs you "
            f"{model.C:g}."
        )
    if variant != "no-future":
        parts.append(
            f"About {round(1 / (1 - model.delta))} more people will follow, and each of them sees what earlier people "
            "chose."
        )
    parts.append(history_sentence(scenario, belief, model.p))
    parts.append(f"Current belief that {scenario.good}: {round(100 * belief)}%.")
    parts.append("Which precision, from 0.50 to 1.00, do you set for the next person? Answer as PRECISION: 0.xx")
    return [
        {"role": "system", "content": "You answer with a single number in the format you are asked for."},
        {"role": "user", "content": "\n".join(parts)},
        {"role": "assistant", "content": ANSWER_START},
    ]
