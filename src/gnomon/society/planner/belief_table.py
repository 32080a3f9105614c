"""Public beliefs that a crowd has reached, and what can happen there: policy and agents are asked once a belief.

Crowds visit few beliefs however many runs there are, so a round of all runs is a handful of table lookups. A *cell* is
a belief with one of the precisions that the policy may draw there; an *event* is a cell with a signal and a *turn* a
cell with an action, both numbered ``2 * cell`` for bad and ``2 * cell + 1`` for good.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gnomon.society.planner.agents import AgentModel, Update, respond
from gnomon.society.planner.model import HerdModel
from gnomon.society.planner.policies import Policy

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_UNKNOWN = -1
_DIGITS = 10
"""Log-odds that agree to this many decimals are one belief, as in exact evaluation."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells in the order in which they were reached, the choices at one belief side by side.

    Args:
        logodds: Public log-odds, ``[cells]``.
        belief: The same as a probability.
        q: Precision.
        cost: What it costs the planner.
        ignored: Whether the action does not depend on the signal.
        chance: P(action G), ``[events]``.
        after: Public log-odds after each turn, ``[turns]``.
        surprise: Whether the public held that action impossible.
        successor: First cell of the belief after each turn; -1 where no run has come.
    """

    logodds: Floats
    belief: Floats
    q: Floats
    cost: Floats
    ignored: NDArray[np.bool_]
    chance: Floats
    after: Floats
    surprise: NDArray[np.bool_]
    successor: Ints

    def followed_by(self, others: Cells) -> Cells:
        """These cells with others behind them."""
        names = [field.name for field in dataclasses.fields(self)]
        return Cells(*(np.concatenate([getattr(self, name), getattr(others, name)]) for name in names))


class BeliefTable:
    """What happens at each belief reached so far.

    Args:
        model: Whose cost is paid.
        policy: Who sets precision.
        agents: Who acts.
        update: Whom the public takes them for.
        logodds: Public log-odds to begin with, all different; their first cells are ``0, choices, 2 * choices ...``.

    Attributes:
        cells: The cells so far.
        weights: Probability of each of the policy's choices.
    """

    def __init__(self, model: HerdModel, policy: Policy, agents: AgentModel, update: Update, logodds: Floats) -> None:
        self._model, self._policy, self._agents = model, policy, agents
        self._update: Update = update
        self.weights = policy.choices(logodds)[0]
        self.cells = self._decided(logodds)
        order = np.argsort(logodds)
        self._names, self._first_cells = _names(logodds)[order], len(self.weights) * order

    def __len__(self) -> int:
        return len(self.cells.q)

    @property
    def noisy(self) -> bool:
        """Whether some action is left to chance."""
        return bool(np.any((self.cells.chance > 0) & (self.cells.chance < 1)))

    def reach(self, turns: Ints) -> None:
        """Enter what follows these turns, deciding the beliefs that are new."""
        after = self.cells.after[turns]
        names = _names(after)
        unknown = ~np.isin(names, self._names)
        new, index = np.unique(names[unknown], return_index=True)
        if len(new):
            decided = self._decided(after[unknown][index])
            first_cells = len(self) + len(self.weights) * np.arange(len(new))
            self.cells = self.cells.followed_by(decided)
            place = np.searchsorted(self._names, new)
            self._names = np.insert(self._names, place, new)
            self._first_cells = np.insert(self._first_cells, place, first_cells)
        self.cells.successor[turns] = self._first_cells[np.searchsorted(self._names, names)]

    def restarted(self, first_cells: Ints) -> tuple[BeliefTable, Ints]:
        """A table of the beliefs of these cells only, and the cells' numbers there."""
        occupied, place = np.unique(first_cells, return_inverse=True)
        logodds = self.cells.logodds[occupied]
        table = BeliefTable(self._model, self._policy, self._agents, self._update, logodds)
        return table, place * len(self.weights)

    def _decided(self, logodds: Floats) -> Cells:
        lam = np.asarray(self._policy.choices(logodds)[1]).T.ravel()
        at = np.repeat(logodds, len(self.weights))
        here = respond(self._agents, at, lam, update=self._update)
        after_bad_news, after_good_news = (self._agents.probability_good(at, lam, signal) for signal in (-1, 1))
        q = expit(lam)
        return Cells(
            logodds=at,
            belief=expit(at),
            q=q,
            cost=np.asarray(self._model.spend(q), dtype=np.float64),
            ignored=after_bad_news == after_good_news,
            chance=_by_event(after_bad_news, after_good_news),
            after=_by_event(here.after_bad, here.after_good),
            surprise=_by_event(here.surprise_bad, here.surprise_good),
            successor=np.full(2 * len(at), _UNKNOWN, dtype=np.intp),
        )


def _by_event(bad: NDArray, good: NDArray) -> NDArray:
    return np.stack([bad, good], axis=1).ravel()


def _names(logodds: Floats) -> Floats:
    return np.round(logodds, _DIGITS)
