"""Chat models behind one protocol: complete, score choices, score continuations; every call batched and cached.

Three kinds exist: :class:`~gnomon.models.endpoint.EndpointChat` (any OpenAI-compatible server),
:class:`~gnomon.models.local_chat.LocalChat` (Hugging Face weights in this process) and :class:`ScriptedChat` (a Python
function: positive controls and tests). A call that fails gives :class:`Missing` with the reason, never a value.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from gnomon.models.call_cache import CallCache, call_key

Conversation = Sequence[Mapping[str, str]]
"""Messages with ``role`` and ``content``, as in the OpenAI chat format."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Missing:
    """A call without an answer, and why. It counts in the denominator of whatever is computed from answers."""

    reason: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class OutOfBudget(Missing):
    """A call that was not made, because what the run may spend was spent."""


@dataclass(frozen=True)
class Unreachable(Missing):
    """A call that the server did not answer: it is down, too slow, or refuses the key."""


@dataclass(frozen=True)
class TokenLogprob:
    """One generated token with its log-probability and those of the likeliest alternatives."""

    token: str
    logprob: float
    top: Mapping[str, float]


@dataclass(frozen=True)
class Reply:
    """What a model said.

    Args:
        text: The text.
        parsed: The text as an instance of the schema, if one was asked for.
        logprobs: Log-probabilities of its tokens, if asked for and offered.
        tokens_in: Tokens of the conversation.
        tokens_out: Tokens generated.
        cached: Whether it came from the cache.
    """

    text: str
    parsed: Any = None
    logprobs: tuple[TokenLogprob, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    cached: bool = False


@dataclass(frozen=True)
class ChoiceScores:
    """Log-probabilities of the given answers, normalised over them.

    Args:
        logprobs: By choice; they sum to one when exponentiated.
        method: ``logprobs`` when read off the model, ``sampled`` when estimated from that many replies.
        samples: Replies behind a sampled estimate.
    """

    logprobs: Mapping[str, float]
    method: Literal["logprobs", "sampled"]
    samples: int = 0


@dataclass(frozen=True)
class Settings:
    """How to answer.

    Args:
        schema: Pydantic model the answer must be an instance of, in JSON.
        temperature: 0 for the likeliest answer.
        max_tokens: Longest answer.
        logprobs: Whether to report log-probabilities.
    """

    schema: type[BaseModel] | None = None
    temperature: float = 0.0
    max_tokens: int = 256
    logprobs: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON form, part of the cache key."""
        schema = self.schema.model_json_schema() if self.schema else None
        return {
            "schema": schema,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "logprobs": self.logprobs,
        }


@dataclass(frozen=True)
class Request:
    """One conversation to answer, and which of several independent samples this is."""

    conversation: Conversation
    sample: int = 0


class ChatModel(ABC):
    """A chat model. Subclasses answer batches; this class asks the cache first and stores what was answered.

    Args:
        cache: Where replies are kept; ``None`` keeps none.
        prompt_version: Version of the prompts and of how replies are read; part of the cache key.
    """

    def __init__(self, *, cache: CallCache | None = None, prompt_version: str = "1") -> None:
        self.cache = cache
        self.prompt_version = prompt_version

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What the answers depend on beside the request (model, address, weights); JSON values, no secrets."""

    def complete(
        self,
        conversations: Sequence[Conversation],
        *,
        schema: type[BaseModel] | None = None,
        n: int = 1,
        temperature: float = 0.0,
        max_tokens: int = 256,
        logprobs: bool = False,
    ) -> list[list[Reply | Missing]]:
        """Answers to each conversation, ``n`` independent samples each.

        Args:
            conversations: What to answer.
            schema: Pydantic model to parse the answer into; an answer that does not fit is missing.
            n: Samples a conversation.
            temperature: 0 for the likeliest answer.
            max_tokens: Longest answer.
            logprobs: Whether to report token log-probabilities where the model offers them.

        Raises:
            ValueError: If ``n < 1``, or several samples are asked for at temperature 0.
        """
        if n < 1 or (n > 1 and temperature == 0):
            raise ValueError(f"n must be >= 1, and 1 at temperature 0; got n={n}, temperature={temperature}")
        settings = Settings(schema, temperature, max_tokens, logprobs)
        parameters = settings.parameters
        requests = [Request(conversation, sample) for conversation in conversations for sample in range(n)]
        answers = self._through_cache(
            [("complete", request.conversation, request.sample, parameters) for request in requests],
            lambda wanted: self._complete([requests[index] for index in wanted], settings),
            asdict,
            lambda stored: _stored_reply(stored, schema),
        )
        return [answers[start : start + n] for start in range(0, len(answers), n)]

    def choice_logprobs(
        self, conversations: Sequence[Conversation], choices: Sequence[str]
    ) -> list[ChoiceScores | Missing]:
        """How likely each of the short answers is as the start of the reply, normalised over the choices.

        Raises:
            ValueError: If there are fewer than two choices, or two are equal.
        """
        if len(set(choices)) < 2 or len(set(choices)) != len(choices):
            raise ValueError(f"choices must be at least two different answers, got {list(choices)}")
        return self._through_cache(
            [("choices", conversation, 0, {"choices": list(choices)}) for conversation in conversations],
            lambda wanted: self._choices([conversations[index] for index in wanted], tuple(choices)),
            asdict,
            lambda stored: ChoiceScores(**stored),
        )

    def sequence_logprobs(
        self, conversations: Sequence[Conversation], continuations: Sequence[str]
    ) -> list[tuple[float, ...] | Missing]:
        """Total log-probability of each continuation as the reply's beginning, one tuple a conversation."""
        return self._through_cache(
            [("sequences", conversation, 0, {"continuations": list(continuations)}) for conversation in conversations],
            lambda wanted: self._sequences([conversations[index] for index in wanted], tuple(continuations)),
            lambda scores: {"logprobs": list(scores)},
            lambda stored: tuple(stored["logprobs"]),
        )

    @abstractmethod
    def _complete(self, requests: Sequence[Request], settings: Settings) -> Iterator[tuple[int, Reply | Missing]]:
        """Answer each request: its position and the answer, as soon as it is there and in whatever order."""

    @abstractmethod
    def _choices(
        self, conversations: Sequence[Conversation], choices: tuple[str, ...]
    ) -> Iterator[tuple[int, ChoiceScores | Missing]]:
        """Score the choices in each conversation, as :meth:`_complete` answers."""

    @abstractmethod
    def _sequences(
        self, conversations: Sequence[Conversation], continuations: tuple[str, ...]
    ) -> Iterator[tuple[int, tuple[float, ...] | Missing]]:
        """Score the continuations in each conversation, as :meth:`_complete` answers."""

    def _through_cache(
        self,
        calls: Sequence[tuple[str, Conversation, int, dict[str, Any]]],
        ask: Callable[[list[int]], Iterator[tuple[int, Value | Missing]]],
        encode: Callable[[Any], dict[str, Any]],
        decode: Callable[[dict[str, Any]], Value | Missing],
    ) -> list[Value | Missing]:
        keys = [
            call_key(
                {
                    **self.identity,
                    "version": self.prompt_version,
                    "kind": kind,
                    "messages": [dict(message) for message in conversation],
                    "sample": sample,
                    "parameters": parameters,
                }
            )
            for kind, conversation, sample, parameters in calls
        ]
        with self.cache.opened() if self.cache is not None else nullcontext() as replies:
            stored = replies.find(keys) if replies is not None else {}
            answers = {index: decode(stored[key]) for index, key in enumerate(keys) if key in stored}
            wanted = [index for index in range(len(calls)) if index not in answers]
            # Every answer is stored when it arrives: a run that is killed repeats no call that was answered.
            for position, answer in ask(wanted) if wanted else ():
                index = wanted[position]
                answers[index] = answer
                if replies is not None and not isinstance(answer, Missing):
                    plain = {"parsed": None} if isinstance(answer, Reply) else {}
                    replies.store(keys[index], encode(answer) | plain)
        return [answers[index] for index in range(len(calls))]


class ScriptedChat(ChatModel):
    """A chat model that is a Python function: what a known agent would answer, for positive controls and tests.

    Args:
        name: Name in records.
        reply: From a conversation to the text of the reply.
        score: From a conversation and choices to their log-probabilities, normalised or not; without it choices
            cannot be scored.
    """

    def __init__(
        self,
        name: str,
        *,
        reply: Callable[[Conversation], str] | None = None,
        score: Callable[[Conversation, Sequence[str]], Mapping[str, float]] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self._reply = reply
        self._score = score

    @property
    def identity(self) -> dict[str, Any]:
        """The script's name."""
        return {"model": self.name, "base_url": "script:"}

    def _complete(self, requests: Sequence[Request], settings: Settings) -> Iterator[tuple[int, Reply | Missing]]:
        for position, request in enumerate(requests):
            yield position, self._written(request.conversation, settings.schema)

    def _written(self, conversation: Conversation, schema: type[BaseModel] | None) -> Reply | Missing:
        if self._reply is None:
            return Missing(f"{self.name} is scripted to score, not to reply")
        return parse_reply(Reply(self._reply(conversation)), schema)

    def _choices(
        self, conversations: Sequence[Conversation], choices: tuple[str, ...]
    ) -> Iterator[tuple[int, ChoiceScores | Missing]]:
        for position, conversation in enumerate(conversations):
            scored = self._scored(conversation, choices)
            yield position, scored if isinstance(scored, Missing) else normalised(scored)

    def _sequences(
        self, conversations: Sequence[Conversation], continuations: tuple[str, ...]
    ) -> Iterator[tuple[int, tuple[float, ...] | Missing]]:
        for position, conversation in enumerate(conversations):
            scored = self._scored(conversation, continuations)
            yield position, scored if isinstance(scored, Missing) else tuple(scored[text] for text in continuations)

    def _scored(self, conversation: Conversation, texts: tuple[str, ...]) -> Mapping[str, float] | Missing:
        if self._score is None:
            return Missing(f"{self.name} is scripted to reply, not to score")
        return self._score(conversation, texts)


def normalised(logprobs: Mapping[str, float]) -> ChoiceScores:
    """Choice scores from log-probabilities, normalised over the choices."""
    top = max(logprobs.values())
    total = top + math.log(sum(math.exp(value - top) for value in logprobs.values()))
    return ChoiceScores({choice: value - total for choice, value in logprobs.items()}, "logprobs")


def parse_reply(reply: Reply, schema: type[BaseModel] | None) -> Reply | Missing:
    """The reply with its text parsed into the schema; missing if it does not fit.

    Text around the outermost braces is ignored: models wrap JSON in prose and code fences.
    """
    if schema is None:
        return reply
    start, end = reply.text.find("{"), reply.text.rfind("}")
    try:
        parsed = schema.model_validate(json.loads(reply.text[start : end + 1] if 0 <= start < end else reply.text))
    except (ValueError, ValidationError) as error:
        return Missing(f"reply is no valid {schema.__name__}: {_one_line(error)}")
    return Reply(**{**_shallow(reply), "parsed": parsed})


def _stored_reply(stored: dict[str, Any], schema: type[BaseModel] | None) -> Reply | Missing:
    tokens = tuple(TokenLogprob(**token) for token in stored["logprobs"])
    return parse_reply(Reply(**{**stored, "logprobs": tokens, "cached": True}), schema)


def _shallow(reply: Reply) -> dict[str, Any]:
    return {name: getattr(reply, name) for name in reply.__dataclass_fields__}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
