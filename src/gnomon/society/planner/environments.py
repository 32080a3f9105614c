"""The planner's seat as a Gymnasium environment, and both seats as a PettingZoo one."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from numpy.typing import NDArray
from pettingzoo import AECEnv
from scipy.special import expit, logit

from gnomon.society.planner.agents import respond
from gnomon.society.planner.model import HerdModel, LinearCost, belief_logodds

ROUNDS = 50
"""Rounds of an episode when the model has no horizon."""

DEFAULT_MODEL = HerdModel(p=0.7, delta=0.9, cost=LinearCost(0.3))


class HerdEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """One episode is one crowd: each step sets a precision, one agent acts, the public belief moves.

    Observation: public belief and share of the episode passed, with ``history`` also the precision and action (1 good,
    0 bad) of every earlier round, and zeros for those to come. Action: a precision in [1/2, 1], or with ``levels`` an
    index into that many precisions evenly from 1/2 to 1. Reward: the planner's. ``info`` has signal, action and
    whether the crowd ignores signals; the state of the world only with ``reveal_state``, because a planner that sees
    it knows more than its users.

    Args:
        model: The problem; a finite horizon ends episodes.
        b1: Prior of the good state.
        levels: Number of precisions to choose from; ``None`` for any.
        history: Whether earlier rounds are part of the observation.
        reveal_state: Whether ``info`` tells the state.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        model: HerdModel = DEFAULT_MODEL,
        b1: float = 0.5,
        *,
        levels: int | None = None,
        history: bool = False,
        reveal_state: bool = False,
    ) -> None:
        belief_logodds(b1)
        if levels is not None and levels < 2:
            raise ValueError(f"levels must be >= 2, got {levels}")
        self.model = model
        self.b1 = b1
        self.rounds = model.horizon or ROUNDS
        self._levels = None if levels is None else np.linspace(0.5, 1.0, levels)
        self._reveal = reveal_state
        self._history = np.zeros(2 * self.rounds if history else 0, dtype=np.float32)
        self.observation_space = spaces.Box(0.0, 1.0, (2 + len(self._history),), np.float32)
        self.action_space = (
            spaces.Box(0.5, 1.0, (1,), np.float32) if levels is None else spaces.Discrete(levels)  # pyright: ignore
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw a new state of the world; beliefs start at the prior."""
        super().reset(seed=seed, options=options)
        self._good = bool(self.np_random.random() < self.b1)
        self._l = float(belief_logodds(self.b1))
        self._round = 0
        self._history[:] = 0
        return self._observation(), self._info({})

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Set the precision of the next agent's signal."""
        q = float(np.asarray(action).reshape(-1)[0]) if self._levels is None else float(self._levels[int(action)])
        q = float(np.clip(q, self.model.q_min, self.model.q_max))
        signal, acted, self._l = one_round(self.model, self._l, q, self._good, self.np_random)
        if len(self._history):
            self._history[2 * self._round : 2 * self._round + 2] = q, acted > 0
        self._round += 1
        wrong = acted < 0 if self.model.objective == "biased" else (acted > 0) != self._good
        reward = -float(self.model.spend(q)) - self.model.C * float(wrong)
        terminated = self.model.horizon is not None and self._round >= self.rounds
        truncated = self.model.horizon is None and self._round >= self.rounds
        ignores = not math.isfinite(self._l) or abs(self._l) > logit(self.model.p)
        seen = {"signal": signal, "action": acted, "precision": q, "cascade": bool(ignores)}
        return self._observation(), reward, terminated, truncated, self._info(seen)

    def _observation(self) -> NDArray[np.float32]:
        return np.array([expit(self._l), self._round / self.rounds, *self._history], dtype=np.float32)

    def _info(self, seen: dict[str, Any]) -> dict[str, Any]:
        return {**seen, "omega": 1 if self._good else -1} if self._reveal else seen


class HerdAECEnv(AECEnv[str, NDArray[np.float32], Any]):
    """Both seats: the planner sets a precision, then one of ``agents`` people acts, turn by turn.

    The planner sees belief and progress; a person sees belief, precision and its private signal (0 bad, 1 good) and
    answers 1 for the good action. Public beliefs move as if people were Bayesian. Rewards come at the person's turn.

    Args:
        model: The problem.
        people: Rounds of an episode, one person each.
        b1: Prior of the good state.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "herd_v0", "render_modes": [], "is_parallelizable": False}

    def __init__(self, model: HerdModel = DEFAULT_MODEL, people: int = 5, b1: float = 0.5) -> None:
        super().__init__()
        if people < 1:
            raise ValueError(f"people must be >= 1, got {people}")
        belief_logodds(b1)
        self.model = model
        self.b1 = b1
        self.render_mode = None
        self.possible_agents = ["planner", *(f"person_{index}" for index in range(people))]
        self._planner_spaces = spaces.Box(0.0, 1.0, (2,), np.float32), spaces.Box(0.5, 1.0, (1,), np.float32)
        self._person_spaces = spaces.Box(0.0, 1.0, (3,), np.float32), spaces.Discrete(2)
        self.observation_spaces = {a: self._spaces(a)[0] for a in self.possible_agents}
        self.action_spaces = {a: self._spaces(a)[1] for a in self.possible_agents}
        self._random, _ = seeding.np_random()

    def _spaces(self, agent: str) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        return self._planner_spaces if agent == "planner" else self._person_spaces

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Space of what an agent sees."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Space of what an agent does."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Draw a new state of the world; the planner begins."""
        if seed is not None:
            self._random, _ = seeding.np_random(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self._good = bool(self._random.random() < self.b1)
        self._l = float(belief_logodds(self.b1))
        self._q, self._signal, self._turn = self.model.p, 0, 0
        self.agent_selection = "planner"

    def observe(self, agent: str) -> NDArray[np.float32]:
        """What an agent sees now; a person's signal is there only on its own turn."""
        belief = float(expit(self._l))
        if agent == "planner":
            return np.array([belief, self._turn / (len(self.possible_agents) - 1)], dtype=np.float32)
        signal = float(self._signal > 0) if agent == self.agent_selection else 0.0
        return np.array([belief, self._q, signal], dtype=np.float32)

    def step(self, action: Any) -> None:
        """The planner's precision, or a person's choice."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        if agent == "planner":
            low, high = self.model.q_min, self.model.q_max
            self._q = float(np.clip(np.asarray(action).reshape(-1)[0], low, high))
            self._signal = 1 if (self._random.random() < self._q) == self._good else -1
            self.agent_selection = self.possible_agents[1 + self._turn]
        else:
            self._act(agent, 1 if int(action) else -1)
        self._accumulate_rewards()

    def _act(self, agent: str, acted: int) -> None:
        here = respond(self.model.agent, np.array([self._l]), np.array([logit(self._q)]))
        self._l = float((here.after_good if acted > 0 else here.after_bad)[0])
        wrong = (acted > 0) != self._good
        unwanted = acted < 0 if self.model.objective == "biased" else wrong
        self.rewards[agent] = -self.model.C * float(wrong)
        self.rewards["planner"] = -float(self.model.spend(self._q)) - self.model.C * float(unwanted)
        self._turn += 1
        if self._turn == len(self.possible_agents) - 1:
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = "planner"


def one_round(
    model: HerdModel,
    logodds: float,
    q: float,
    good: bool,
    random: np.random.Generator,
) -> tuple[int, int, float]:
    """Signal, action and next public log-odds of one round, agents as in the model."""
    signal = 1 if (random.random() < q) == good else -1
    belief, lam = np.array([logodds]), np.array([logit(q)])
    acts_good = random.random() < float(model.agent.probability_good(belief, lam, signal)[0])
    here = respond(model.agent, belief, lam)
    return signal, 1 if acts_good else -1, float((here.after_good if acts_good else here.after_bad)[0])


gymnasium.register(id="gnomon/Herd-v0", entry_point="gnomon.society.planner.environments:HerdEnv")
