"""Reading a language model's behaviour: agents by log-probability, choice or stated belief, planners by precision."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, softmax

from gnomon.models.chat import ChatModel, Missing, Reply
from gnomon.society.planner.model import HerdModel
from gnomon.society.planner.policies import Policy
from gnomon.society.planner.scenarios import (
    ANSWER_START,
    LABELS,
    Message,
    Scenario,
    Variant,
    agent_prompt,
    planner_prompt,
    stated_prompt,
)

Floats = NDArray[np.float64]

PRECISIONS = tuple(round(0.5 + 0.05 * step, 2) for step in range(11))
"""Answers a planner's reply is scored over."""

_NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(%?)")


def parse_precision(text: str) -> float:
    """A precision from a reply: ``0.7``, ``.7``, ``70`` and ``70%`` all mean 0.7.

    Raises:
        ValueError: If there is no number, or it is no precision in [0.5, 1]; "0.3" is wrong, not clipped.
    """
    after = text.rpartition(ANSWER_START)[2] if ANSWER_START in text else text
    found = _NUMBER.search(after)
    if found is None:
        raise ValueError(f"no number in {text[:80]!r}")
    value = float(found.group(1))
    value = value / 100 if found.group(2) or value > 1 else value
    if not 0.5 <= value <= 1:
        raise ValueError(f"precision must lie in [0.5, 1], got {value:g} in {text[:80]!r}")
    return value


def parse_percentage(text: str) -> float:
    """A probability from a reply: ``70%``, ``70`` and ``0.7`` all mean 0.7.

    Raises:
        ValueError: If there is no number, or it is no probability.
    """
    found = _NUMBER.search(text)
    if found is None:
        raise ValueError(f"no number in {text[:80]!r}")
    value = float(found.group(1))
    value = value / 100 if found.group(2) or value > 1 else value
    if not 0 <= value <= 1:
        raise ValueError(f"probability must lie in [0, 1], got {value:g} in {text[:80]!r}")
    return value


def ask_agents(
    chat: ChatModel,
    scenario: Scenario,
    paraphrase: int,
    *,
    beliefs: Sequence[float],
    precisions: Sequence[float],
    p: float = 0.7,
) -> pd.DataFrame:
    r"""A model in the agent's seat, read by the log-probability of the answer's letter in both label orders.

    A bias for a letter adds the same to the log-odds of one order as it takes from the other, so it cancels in the
    mean; half the difference is the bias itself.

    Returns:
        One row a (belief, precision, signal): ``l`` and ``lam`` as shown (rounded to whole percent), ``logodds`` of
        the good action, ``label_bias`` in nats for the letter A, log-probabilities of both orders, ``prompt_sha``;
        NaN where the model gave no answer.
    """
    cells = list(itertools.product(beliefs, precisions, (1, -1)))
    orders = (False, True)
    prompts = [
        agent_prompt(scenario, paraphrase, belief=b, precision=q, signal=s, swapped=swapped, p=p)
        for b, q, s in cells
        for swapped in orders
    ]
    scores = chat.choice_logprobs(prompts, list(LABELS))
    rows = []
    for index, (b, q, s) in enumerate(cells):
        pair = scores[2 * index : 2 * index + 2]
        first, second = (
            math.nan if isinstance(score, Missing) else score.logprobs[LABELS[0]] - score.logprobs[LABELS[1]]
            for score in pair
        )
        rows.append(
            {
                "b_public": b,
                "q_declared": q,
                "signal": s,
                "l": float(logit(round(b, 2))),
                "lam": float(logit(round(q, 2))),
                "logodds": (first - second) / 2,
                "label_bias": (first + second) / 2,
                "logodds_A_first": first,
                "logodds_A_swapped": second,
                "prompt_sha": _sha(prompts[2 * index]),
            }
        )
    return pd.DataFrame(rows)


def ask_agents_to_state(
    chat: ChatModel, scenario: Scenario, paraphrase: int, *, beliefs: Sequence[float], precisions: Sequence[float]
) -> pd.DataFrame:
    """A model in the agent's seat, read by the percentage it states; compare with :func:`ask_agents`."""
    cells = list(itertools.product(beliefs, precisions, (1, -1)))
    prompts = [stated_prompt(scenario, paraphrase, belief=b, precision=q, signal=s) for b, q, s in cells]
    rows = []
    for (b, q, s), answers in zip(cells, chat.complete(prompts, max_tokens=8), strict=True):
        stated = math.nan
        if isinstance(answers[0], Reply):
            try:
                # A stated certainty is read as the last whole percent before it.
                stated = float(logit(np.clip(parse_percentage(answers[0].text), 0.005, 0.995)))
            except ValueError:
                stated = math.nan
        rows.append({"b_public": b, "q_declared": q, "signal": s, "l": logit(b), "lam": logit(q), "logodds": stated})
    return pd.DataFrame(rows)


def ask_planner(
    chat: ChatModel,
    scenario: Scenario,
    paraphrase: int,
    model: HerdModel,
    *,
    beliefs: Sequence[float],
    variant: Variant = "standard",
) -> pd.DataFrame:
    """A model in the planner's seat: the precision it sets at each public belief.

    Where the model scores given text, ``precision`` is its mean over the answers 0.50, 0.55 ... 1.00 and ``mode`` the
    likeliest; elsewhere both come from ten replies at temperature 0.7, of which ``unparsed`` could not be read.
    """
    prompts = [planner_prompt(scenario, paraphrase, model, belief=b, variant=variant) for b in beliefs]
    scored = chat.sequence_logprobs(prompts, [f" {q:.2f}" for q in PRECISIONS])
    unscored = [index for index, scores in enumerate(scored) if isinstance(scores, Missing)]
    sampled = dict(zip(unscored, _sampled_precisions(chat, [prompts[index] for index in unscored]), strict=True))
    rows = []
    for index, (b, prompt, scores) in enumerate(zip(beliefs, prompts, scored, strict=True)):
        if isinstance(scores, Missing):
            precision, mode, unparsed = sampled[index]
        else:
            weights = softmax(np.array(scores))
            precision, mode, unparsed = float(weights @ PRECISIONS), PRECISIONS[int(np.argmax(weights))], 0.0
        rows.append(
            {"belief": b, "precision": precision, "mode": mode, "unparsed": unparsed, "prompt_sha": _sha(prompt)}
        )
    return pd.DataFrame(rows)


def _sampled_precisions(
    chat: ChatModel, prompts: Sequence[list[Message]], n: int = 10
) -> list[tuple[float, float, float]]:
    """Mean, mode and unreadable share of the sampled replies to each prompt."""
    # Servers differ in whether they continue a begun answer, so it is left out.
    return [
        _summary(answers)
        for answers in chat.complete([prompt[:-1] for prompt in prompts], n=n, temperature=0.7, max_tokens=16)
    ]


def _summary(answers: Sequence[Reply | Missing]) -> tuple[float, float, float]:
    values = []
    for answer in answers:
        if isinstance(answer, Reply):
            try:
                values.append(parse_precision(answer.text))
            except ValueError:
                continue
    if not values:
        return math.nan, math.nan, 1.0
    counts = pd.Series(np.round(values, 2)).value_counts()
    return float(np.mean(values)), float(counts.index[0]), 1 - len(values) / len(answers)


@dataclass(frozen=True, eq=False)
class LLMAgent:
    """A language model as an agent in simulations: acts G with the probability that its letters say.

    Beliefs and precisions are shown in whole percent, and each distinct question is asked once.

    Raises:
        ValueError: On use, if the model gives no answer.
    """

    chat: ChatModel
    scenario: Scenario
    paraphrase: int = 0
    p: float = 0.7
    _known: dict[tuple[float, float, int], float] = field(default_factory=dict, repr=False)

    def probability_good(self, l: ArrayLike, lam: ArrayLike, signal: int) -> Floats:  # noqa: E741
        """P(action G), asked of the model."""
        belief, precision = np.broadcast_arrays(expit(np.asarray(l, dtype=float)), expit(np.asarray(lam, dtype=float)))
        shown = list(zip(_percent(belief).ravel(), _percent(precision).ravel(), strict=True))
        for b, q in sorted(set(shown)):
            if (b, q, signal) not in self._known:
                asked = ask_agents(self.chat, self.scenario, self.paraphrase, beliefs=[b], precisions=[q], p=self.p)
                if not np.isfinite(asked["logodds"].to_numpy()).all():
                    raise ValueError(f"the model gave no answer at belief {b:.0%}, precision {q:.0%}")
                for s, logodds in zip(asked["signal"], asked["logodds"], strict=True):
                    self._known[(b, q, int(s))] = float(expit(logodds))
        return np.array([self._known[(b, q, signal)] for b, q in shown]).reshape(belief.shape)


@dataclass(frozen=True, eq=False)
class LLMPolicy(Policy):
    """A language model as a planner: the precision it sets at each public belief, in whole percent, asked once.

    Raises:
        ValueError: On use, if the model gives no answer that can be read.
    """

    chat: ChatModel
    scenario: Scenario
    model: HerdModel
    paraphrase: int = 0
    variant: Variant = "standard"
    _known: dict[float, float] = field(default_factory=dict, repr=False)

    def precision(self, l: Floats) -> Floats:  # noqa: E741
        """Precision log-odds at each public log-odds, asked of the model."""
        shown = np.atleast_1d(_percent(expit(np.asarray(l, dtype=float))))
        new = sorted(set(shown.tolist()) - set(self._known))
        if new:
            asked = ask_planner(
                self.chat, self.scenario, self.paraphrase, self.model, beliefs=new, variant=self.variant
            )
            silent = [b for b, q in zip(new, asked["precision"].tolist(), strict=True) if math.isnan(q)]
            if silent:
                raise ValueError(f"the model set no precision at belief {silent[0]:.0%}")
            self._known.update(zip(new, asked["precision"], strict=True))
        return logit(np.array([self._known[b] for b in shown.tolist()])).reshape(np.shape(l))


def _percent(probability: Floats) -> Floats:
    # Beyond 1 and 99 percent a prompt would state a certainty that the belief is not.
    return np.clip(np.round(probability, 2), 0.01, 0.99)


def _sha(prompt: Sequence[Message]) -> str:
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:16]
