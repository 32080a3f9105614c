"""A chat model from Hugging Face weights in this process."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from gnomon.models.call_cache import CallCache
from gnomon.models.chat import (
    ChatModel,
    ChoiceScores,
    Conversation,
    Missing,
    Reply,
    Request,
    Settings,
    TokenLogprob,
    normalised,
    parse_reply,
)
from gnomon.models.load import Loaded, load


class LocalChat(ChatModel):
    """Answers with a loaded model through its chat template.

    A conversation that ends with an assistant message is continued, so that a prompt can begin the answer.

    Args:
        loaded: The model.
        variant: What distinguishes these weights from the files' (``"random-init 3"``); part of the cache key.
        cache: Where replies are kept.
        prompt_version: Part of the cache key.

    Raises:
        ValueError: If the tokenizer has no chat template.
    """

    def __init__(
        self, loaded: Loaded, *, variant: str = "", cache: CallCache | None = None, prompt_version: str = "1"
    ) -> None:
        super().__init__(cache=cache, prompt_version=prompt_version)
        if not loaded.tokenizer.chat_template:
            raise ValueError(f"{loaded.provenance.name} has no chat template; use an instruction-tuned model")
        self._loaded = loaded
        self._variant = variant
        self.tokens = 0
        """Tokens the model has read so far, for budgets in forward tokens."""

    @classmethod
    def named(cls, name: str, *, cache: CallCache | None = None, prompt_version: str = "1") -> LocalChat:
        """The model of that name, see :func:`gnomon.models.load.load`."""
        return cls(load(name, attn="sdpa"), cache=cache, prompt_version=prompt_version)

    @property
    def identity(self) -> dict[str, Any]:
        """Weights, their hash, and the variant."""
        facts = self._loaded.provenance
        return {
            "model": facts.name,
            "base_url": "local:",
            "weights": facts.weights_sha256,
            "dtype": facts.dtype,
            "variant": self._variant,
        }

    def _prefix(self, conversation: Conversation) -> list[int]:
        continues = conversation[-1]["role"] == "assistant"
        text: Any = self._loaded.tokenizer.apply_chat_template(
            [dict(message) for message in conversation],
            tokenize=False,
            add_generation_prompt=not continues,
            continue_final_message=continues,
        )
        return list(self._loaded.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _complete(self, requests: Sequence[Request], settings: Settings) -> Iterator[tuple[int, Reply | Missing]]:
        for position, request in enumerate(requests):
            yield position, self._generate(request, settings)

    def _generate(self, request: Request, settings: Settings) -> Reply | Missing:
        tokenizer = self._loaded.tokenizer
        generate: Any = self._loaded.model.generate
        prefix = self._prefix(request.conversation)
        ids = torch.tensor([prefix], device=self._loaded.model.device)
        sampling = {"do_sample": True, "temperature": settings.temperature} if settings.temperature > 0 else {}
        config = GenerationConfig(
            max_new_tokens=settings.max_tokens,
            pad_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            return_dict_in_generate=True,
            output_scores=settings.logprobs,
            **sampling,
        )
        # Sample i of a conversation is the same whatever is asked beside it and in whatever order.
        seed = int(hashlib.sha256(f"{request.sample}|{prefix}".encode()).hexdigest()[:15], 16)
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(seed)
            generated: Any = generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        new = generated.sequences[0, len(prefix) :].tolist()
        self.tokens += len(prefix) + len(new)
        text = str(tokenizer.decode(new, skip_special_tokens=True))
        if not text.strip():
            return Missing("empty answer")
        logprobs = self._logprobs(new, generated.scores) if settings.logprobs else ()
        return parse_reply(Reply(text, None, logprobs, len(prefix), len(new)), settings.schema)

    def _logprobs(self, new: list[int], scores: Sequence[torch.Tensor]) -> tuple[TokenLogprob, ...]:
        tokens = []
        for token, score in zip(new, scores, strict=False):
            row = score[0].float().log_softmax(-1)
            top = row.topk(20)
            names = self._loaded.tokenizer.batch_decode([[i] for i in top.indices.tolist()])
            alternatives = dict(zip(names, top.values.tolist(), strict=True))
            tokens.append(TokenLogprob(str(self._loaded.tokenizer.decode([token])), float(row[token]), alternatives))
        return tuple(tokens)

    def _choices(
        self, conversations: Sequence[Conversation], choices: tuple[str, ...]
    ) -> Iterator[tuple[int, ChoiceScores]]:
        for position, scores in self._sequences(conversations, choices):
            yield position, normalised(dict(zip(choices, scores, strict=True)))

    def _sequences(
        self, conversations: Sequence[Conversation], continuations: tuple[str, ...]
    ) -> Iterator[tuple[int, tuple[float, ...]]]:
        answers = [list(self._loaded.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in continuations]
        prefixes = [self._prefix(conversation) for conversation in conversations]
        for group in shared_prefixes(prefixes):
            yield from zip(group, self._score([prefixes[index] for index in group], answers), strict=True)

    def _score(self, prefixes: list[list[int]], answers: list[list[int]]) -> list[tuple[float, ...]]:
        """Log-probability of every answer after every prefix; what the prefixes share is read once."""
        model: Any = self._loaded.model
        shared = min(len(common_prefix(prefixes)), min(map(len, prefixes)) - 1)
        scored = []
        with torch.inference_mode():
            head = model(torch.tensor([prefixes[0][:shared]], device=model.device), use_cache=True) if shared else None
            self.tokens += shared
            for prefix in prefixes:
                cache = copy.deepcopy(head.cache) if head is not None else None
                rest = model(torch.tensor([prefix[shared:]], device=model.device), cache=cache, use_cache=True)
                self.tokens += len(prefix) - shared + sum(len(answer) - 1 for answer in answers)
                scored.append(_answer_scores(model, rest, answers))
        return scored


def common_prefix(sequences: Sequence[Sequence[int]]) -> list[int]:
    """The longest beginning that all sequences share.

    >>> common_prefix([[1, 2, 3], [1, 2, 4, 5]])
    [1, 2]
    """
    # In sorted order the first and the last sequence differ earliest.
    ordered = sorted(list(sequence) for sequence in sequences)
    first, last = ordered[0], ordered[-1]
    same = [a == b for a, b in zip(first, last, strict=False)]
    return list(first[: same.index(False) if False in same else len(same)])


def shared_prefixes(sequences: Sequence[Sequence[int]], share: float = 0.5) -> list[list[int]]:
    """Indices of sequences in groups that share at least ``share`` of their first member's length.

    >>> shared_prefixes([[1, 2, 3, 4], [7, 8], [1, 2, 3, 9]])
    [[0, 2], [1]]
    """
    order = sorted(range(len(sequences)), key=lambda index: list(sequences[index]))
    groups: list[list[int]] = []
    for index in order:
        if groups:
            head = sequences[groups[-1][0]]
            if len(common_prefix([head, sequences[index]])) >= share * len(head):
                groups[-1].append(index)
                continue
        groups.append([index])
    return groups


def _answer_scores(model: Any, rest: Any, answers: list[list[int]]) -> tuple[float, ...]:
    """Summed log-probabilities of the answers, given the output and cache of what stands before them."""
    first = rest.logits[0, -1].float().log_softmax(-1)
    totals = [float(first[answer[0]]) for answer in answers]
    longest = max(map(len, answers))
    if longest == 1:
        return tuple(totals)
    ids = torch.tensor([answer + [0] * (longest - len(answer)) for answer in answers], device=model.device)
    rest.cache.batch_repeat_interleave(len(answers))
    # Padding stands on the right, where no token of the answer can see it.
    logits = model(ids[:, :-1], cache=rest.cache, use_cache=True).logits.float().log_softmax(-1)
    for row, answer in enumerate(answers):
        steps = torch.arange(len(answer) - 1)
        totals[row] += float(logits[row, steps, torch.tensor(answer[1:], dtype=torch.long)].double().sum())
    return tuple(totals)
