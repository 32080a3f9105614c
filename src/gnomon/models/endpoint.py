"""Chat models behind OpenAI-compatible servers (vLLM, llama.cpp, Ollama, hosted), and chat models by name."""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

import openai
from pydantic import BaseModel, SecretStr

from gnomon.models.call_cache import CallBudget, CallCache, Ledger
from gnomon.models.chat import (
    ChatModel,
    ChoiceScores,
    Conversation,
    Missing,
    OutOfBudget,
    Reply,
    Request,
    ScriptedChat,
    Settings,
    TokenLogprob,
    Unreachable,
    normalised,
    parse_reply,
)

__all__ = [
    "CallBudget",
    "CallCache",
    "ChatModel",
    "ChoiceScores",
    "Conversation",
    "EndpointChat",
    "Missing",
    "OutOfBudget",
    "Prices",
    "Reply",
    "ScriptedChat",
    "Unreachable",
    "chat_model",
]

Result = TypeVar("Result")
JsonMode = Literal["json_schema", "json_object", "text"]

_DOWNGRADES: dict[JsonMode, JsonMode] = {"json_schema": "json_object", "json_object": "text"}


@dataclass(frozen=True)
class Prices:
    """What a server charges, a million tokens."""

    tokens_in: float = 0.0
    tokens_out: float = 0.0

    def cost(self, reply: Reply) -> float:
        """Cost of a reply."""
        return (self.tokens_in * reply.tokens_in + self.tokens_out * reply.tokens_out) / 1e6


class EndpointChat(ChatModel):
    """A model behind an OpenAI-compatible chat server.

    Transport errors, 429 (after the server's ``Retry-After``) and 5xx are retried by the client; a reply that does not
    parse is asked for again. The way to ask for JSON is negotiated once: a schema, else a JSON object, else words.

    Args:
        model: The server's name for the model.
        base_url: The server, up to and including ``/v1``.
        api_key_env: Environment variable with the key; a server without keys ignores it. The key stays in memory.
        cache: Where replies are kept.
        prompt_version: Part of the cache key.
        budget: What the run may spend; once spent, calls are missing.
        prices: For the budget's cost.
        concurrency: Calls in flight.
        calls_per_minute: Rate limit; ``None`` for none.
        timeout: Seconds a call may take.
        retries: Repetitions after a failed or unparsable reply.
        sampled: Replies to draw where the server offers no log-probabilities.
    """

    def __init__(
        self,
        model: str,
        base_url: str = "https://api.openai.com/v1",
        *,
        api_key_env: str = "OPENAI_API_KEY",
        cache: CallCache | None = None,
        prompt_version: str = "1",
        budget: CallBudget | None = None,
        prices: Prices | None = None,
        concurrency: int = 8,
        calls_per_minute: float | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        sampled: int = 10,
    ) -> None:
        super().__init__(cache=cache, prompt_version=prompt_version)
        self.model = model
        self.base_url = base_url
        self._key = SecretStr(os.environ.get(api_key_env) or "no-key")
        self._budget = budget
        self._prices = prices or Prices()
        self._concurrency = concurrency
        self._interval = 60 / calls_per_minute if calls_per_minute else 0.0
        self._timeout = timeout
        self._retries = retries
        self._sampled = sampled
        self._json_mode: JsonMode = "json_schema"

    @property
    def identity(self) -> dict[str, Any]:
        """Model and address."""
        return {"model": self.model, "base_url": self.base_url}

    def __repr__(self) -> str:
        return f"EndpointChat({self.model!r}, {self.base_url!r})"

    def _complete(self, requests: Sequence[Request], settings: Settings) -> Iterator[tuple[int, Reply | Missing]]:
        return self._together(lambda line: [self._one(line, request.conversation, settings) for request in requests])

    def _choices(
        self, conversations: Sequence[Conversation], choices: tuple[str, ...]
    ) -> Iterator[tuple[int, ChoiceScores | Missing]]:
        return self._together(
            lambda line: [self._one_choice(line, conversation, choices) for conversation in conversations]
        )

    def _sequences(
        self, conversations: Sequence[Conversation], continuations: tuple[str, ...]
    ) -> Iterator[tuple[int, tuple[float, ...] | Missing]]:
        reason = f"a chat server does not score given text ({len(continuations)} continuations); use a local model"
        yield from enumerate([Missing(reason)] * len(conversations))

    def _together(self, calls: Callable[[_Line], list[Coroutine[Any, Any, Result]]]) -> Iterator[tuple[int, Result]]:
        """Positions and results of the calls, in the order of arrival; whoever stops listening stops the calls."""
        arrived: SimpleQueue[tuple[int, Result] | None] = SimpleQueue()
        turn = _Turnstile(self._concurrency, self._interval)

        async def ask_all() -> None:
            server = openai.AsyncOpenAI(
                api_key=self._key.get_secret_value(),
                base_url=self.base_url,
                timeout=self._timeout,
                max_retries=self._retries,
            )
            with self._budget.opened() if self._budget is not None else nullcontext() as ledger:
                async with server as client:

                    async def ask(position: int, call: Coroutine[Any, Any, Result]) -> None:
                        try:
                            arrived.put((position, await turn.through(call)))
                        finally:
                            call.close()  # one that never had its turn

                    listed = calls(_Line(client, ledger))
                    await asyncio.gather(*(ask(position, call) for position, call in enumerate(listed)))

        # A thread of its own, because the caller may be inside an event loop (a notebook, the web app), and because
        # what has arrived is stored while other calls are in flight.
        with ThreadPoolExecutor(1) as thread:
            asking = thread.submit(asyncio.run, ask_all())
            asking.add_done_callback(lambda _: arrived.put(None))
            try:
                while (pair := arrived.get()) is not None:
                    yield pair
            except BaseException:  # an interrupt while others wait for their turn: they would still be paid for
                turn.closed.set()
                raise
            asking.result()

    async def _one(self, line: _Line, conversation: Conversation, settings: Settings) -> Reply | Missing:
        answer: Reply | Missing = Missing("not asked")
        for _ in range(self._retries + 1 if settings.schema else 1):
            answer = await self._ask(line, conversation, settings)
            if isinstance(answer, Missing):
                return answer
            answer = parse_reply(answer, settings.schema)
            if not isinstance(answer, Missing):
                return answer
        return answer

    async def _ask(self, line: _Line, conversation: Conversation, settings: Settings, **extra: Any) -> Reply | Missing:
        """One call; JSON modes the server refuses are stepped down and not tried again."""
        while True:
            if line.ledger is not None and (spent := line.ledger.reserve()):
                return OutOfBudget(spent)
            mode = self._json_mode
            try:
                completion: Any = await line.client.chat.completions.create(
                    model=self.model,
                    messages=_with_instruction(conversation, settings.schema, mode),
                    temperature=settings.temperature,
                    max_tokens=settings.max_tokens,
                    **({"logprobs": True, "top_logprobs": 20} if settings.logprobs else {}),
                    **_response_format(settings.schema, mode),
                    **extra,
                )
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if settings.schema is None or mode == "text":
                    return Missing(f"the server refused the request: {_message(error)}")
                self._json_mode = (
                    _DOWNGRADES.get(self._json_mode, "text") if self._json_mode == mode else self._json_mode
                )
                continue
            except openai.OpenAIError as error:
                return Unreachable(f"{type(error).__name__}: {_message(error)}")
            except ValueError as error:  # a body that is cut off or is no JSON
                return Missing(f"the server's answer cannot be read: {_message(error)}")
            reply = _reply(completion)
            if line.ledger is not None and isinstance(reply, Reply):
                line.ledger.charge(self._prices.cost(reply))
            return reply

    async def _one_choice(
        self, line: _Line, conversation: Conversation, choices: tuple[str, ...]
    ) -> ChoiceScores | Missing:
        answer = await self._ask(line, conversation, Settings(max_tokens=1, logprobs=True))
        if isinstance(answer, Missing):
            return answer
        if answer.logprobs:
            found = _mass(answer.logprobs[0].top, choices)
            if all(math.isfinite(value) for value in found.values()):
                return normalised(found)
        drawn = [
            await self._ask(line, conversation, Settings(temperature=0.7, max_tokens=16)) for _ in range(self._sampled)
        ]
        if unasked := [reply for reply in drawn if isinstance(reply, OutOfBudget | Unreachable)]:
            return unasked[0]
        return _sampled_scores([reply.text for reply in drawn if isinstance(reply, Reply)], choices)


@dataclass(frozen=True)
class _Line:
    """What the calls of one batch share: the connection to the server and the open ledger of the budget."""

    client: openai.AsyncOpenAI
    ledger: Ledger | None


class _Turnstile:
    """Lets a few calls through at a time, and no more than one an interval; none once it is closed."""

    def __init__(self, concurrency: int, interval: float) -> None:
        self.closed = threading.Event()
        self._open = asyncio.Semaphore(concurrency)
        self._interval = interval
        self._next = 0.0

    async def through(self, call: Awaitable[Result]) -> Result:
        async with self._open:
            now = asyncio.get_running_loop().time()
            start = max(now, self._next)
            self._next = start + self._interval
            if start > now:
                await asyncio.sleep(start - now)
            if self.closed.is_set():
                raise asyncio.CancelledError
            return await call


def chat_model(
    name: str,
    *,
    cache: CallCache | None = None,
    budget: CallBudget | None = None,
    prices: Prices | None = None,
    prompt_version: str = "1",
    api_key_env: str = "OPENAI_API_KEY",
) -> ChatModel:
    """A chat model by name: ``MODEL@URL`` is a server's, anything else is loaded into this process.

    >>> chat_model("qwen3@http://127.0.0.1:8000/v1")
    EndpointChat('qwen3', 'http://127.0.0.1:8000/v1')
    """
    model, at, url = name.partition("@")
    if at and url.startswith(("http://", "https://")):
        return EndpointChat(
            model,
            url,
            cache=cache,
            budget=budget,
            prices=prices,
            prompt_version=prompt_version,
            api_key_env=api_key_env,
        )
    from gnomon.models.local_chat import LocalChat

    return LocalChat.named(name, cache=cache, prompt_version=prompt_version)


def _reply(completion: Any) -> Reply | Missing:
    if not getattr(completion, "choices", None):
        return Missing("the server's answer has no choices")
    choice = completion.choices[0]
    text = choice.message.content or ""
    if not text.strip():
        reasoning = getattr(choice.message, "reasoning_content", None) or getattr(choice.message, "reasoning", None)
        if reasoning:
            return Missing(f"{len(reasoning)} characters of reasoning and no answer; raise max_tokens")
        return Missing(f"empty answer (finish reason {choice.finish_reason})")
    listed = getattr(choice.logprobs, "content", None) or []
    tokens = tuple(
        TokenLogprob(token.token, token.logprob, {top.token: top.logprob for top in token.top_logprobs})
        for token in listed
    )
    usage = completion.usage
    return Reply(
        text,
        logprobs=tokens,
        tokens_in=getattr(usage, "prompt_tokens", 0) or 0,
        tokens_out=getattr(usage, "completion_tokens", 0) or 0,
    )


def _with_instruction(conversation: Conversation, schema: type[BaseModel] | None, mode: JsonMode) -> Any:
    messages = [dict(message) for message in conversation]
    if schema is not None and mode != "json_schema":
        # Without a schema in the request the model must be told it in words.
        wanted = json.dumps(schema.model_json_schema())
        messages[-1]["content"] += f"\n\nAnswer with one JSON object of this schema and nothing else:\n{wanted}"
    return messages


def _response_format(schema: type[BaseModel] | None, mode: JsonMode) -> dict[str, Any]:
    if schema is None or mode == "text":
        return {}
    if mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": _described(schema)}}


@lru_cache
def _described(schema: type[BaseModel]) -> dict[str, Any]:
    return {"name": schema.__name__, "schema": schema.model_json_schema()}


def _mass(top: Any, choices: tuple[str, ...]) -> dict[str, float]:
    """Log of the probability on tokens that spell each choice, with or without a leading space."""
    mass = {choice: sum(math.exp(lp) for token, lp in top.items() if token.strip() == choice) for choice in choices}
    return {choice: math.log(value) if value > 0 else -math.inf for choice, value in mass.items()}


def _sampled_scores(texts: Sequence[str], choices: tuple[str, ...]) -> ChoiceScores | Missing:
    named = Counter(choice for text in texts for choice in choices if text.strip().startswith(choice))
    total = sum(named.values())
    if total == 0:
        return Missing(f"none of {len(texts)} replies begins with one of {', '.join(choices)}")
    # Half a count a choice keeps an answer that was never drawn from having probability zero.
    share = {choice: (named[choice] + 0.5) / (total + 0.5 * len(choices)) for choice in choices}
    return ChoiceScores({choice: math.log(value) for choice, value in share.items()}, "sampled", total)


def _message(error: Exception) -> str:
    return " ".join(str(getattr(error, "message", "") or error).split())[:200]
