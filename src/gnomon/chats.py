"""Chat models for the units of a run: by name, every call cached, all processes of a machine under one budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gnomon.models.call_cache import CallBudget, CallCache
from gnomon.models.chat import (
    ChatModel,
    ChoiceScores,
    Conversation,
    Missing,
    OutOfBudget,
    Reply,
    Request,
    Settings,
    Unreachable,
)
from gnomon.studies.unit import Missing as MissingUnit

if TYPE_CHECKING:
    from gnomon.models.endpoint import Prices

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RunChats:
    """Makes the chat models of a run and knows what they have spent; crosses process boundaries.

    Args:
        max_calls: Calls to servers the run may make, over all its starts; ``None`` for no limit.
        max_cost: What it may pay for them; ``None`` for no limit.
        prices: What the servers charge.
        run: The run whose ledger is kept.
    """

    max_calls: int | None = None
    max_cost: float | None = None
    prices: Prices | None = None
    run: str = ""

    @classmethod
    def limited(cls, max_calls: int | None, max_cost: float | None, prices: str | None) -> RunChats:
        """Chat models under the limits of the command line.

        Args:
            max_calls: As above.
            max_cost: As above.
            prices: What a million tokens cost, read and written: ``0.15,0.60``.

        Raises:
            ValueError: If the prices are not two numbers >= 0, or there is a limit on cost without prices.
        """
        from gnomon.models.endpoint import Prices

        if prices is None:
            if max_cost is not None:
                raise ValueError("--max-cost needs --prices IN,OUT: a server does not say what it charges")
            return cls(max_calls)
        try:
            tokens_in, tokens_out = map(float, prices.split(","))
        except ValueError:
            tokens_in = tokens_out = -1.0
        if not (0 <= tokens_in < math.inf and 0 <= tokens_out < math.inf):
            raise ValueError(f"--prices takes two numbers such as 0.15,0.60, got {prices!r}")
        return cls(max_calls, max_cost, Prices(tokens_in, tokens_out))

    def for_run(self, folder: Path) -> RunChats:
        """The chat models of the run in that folder."""
        return dataclasses.replace(self, run=str(folder.resolve()))

    def __call__(self, name: str) -> ChatModel:
        """A chat model; see :func:`~gnomon.models.endpoint.chat_model`."""
        from gnomon.models.endpoint import chat_model

        return UnitChat(chat_model(name, cache=CallCache.default(), budget=self._budget, prices=self.prices))

    def spent(self) -> dict[str, float]:
        """Calls made to servers so far, and what they cost; empty if there were none."""
        calls, cost = self._budget.spent()
        return {"calls": calls, "cost": cost} if calls else {}

    @property
    def _budget(self) -> CallBudget:
        return CallBudget(CallCache.default().path, self.run, self.max_calls, self.max_cost)


class UnitChat(ChatModel):
    """A chat model for one unit: calls that were never answered, for want of budget or server, end the unit as missing.

    What was answered is in the cache by then, so a resumed run asks only for the rest. Replies that came but cannot be
    read stay missing answers: they are data.

    Args:
        inner: The model asked.
    """

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(cache=inner.cache, prompt_version=inner.prompt_version)
        self._inner = inner

    @property
    def identity(self) -> dict[str, Any]:
        """That of the model asked."""
        return self._inner.identity

    def _complete(self, requests: Sequence[Request], settings: Settings) -> Iterator[tuple[int, Reply | Missing]]:
        return _answered(self._inner._complete(requests, settings))

    def _choices(
        self, conversations: Sequence[Conversation], choices: tuple[str, ...]
    ) -> Iterator[tuple[int, ChoiceScores | Missing]]:
        return _answered(self._inner._choices(conversations, choices))

    def _sequences(
        self, conversations: Sequence[Conversation], continuations: tuple[str, ...]
    ) -> Iterator[tuple[int, tuple[float, ...] | Missing]]:
        return _answered(self._inner._sequences(conversations, continuations))


def _answered(answers: Iterator[tuple[int, Answer | Missing]]) -> Iterator[tuple[int, Answer | Missing]]:
    """All answers, so that the cache gets them; then an error if a call was never answered."""
    reasons: list[str] = []
    for position, answer in answers:
        if isinstance(answer, OutOfBudget | Unreachable):
            reasons.append(answer.reason)
        yield position, answer
    if reasons:
        raise MissingUnit(f"{len(reasons)} calls without an answer: {reasons[0]}")
