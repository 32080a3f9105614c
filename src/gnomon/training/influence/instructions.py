"""Instructions with answers: read from JSON lines, turned into batches whose labels are the answers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from gnomon.training.influence.losses import IGNORED


@dataclass(frozen=True)
class Instruction:
    """One example.

    Args:
        index: Its stable id.
        prompt: What is given; empty for plain text.
        answer: What is learned.
    """

    index: int
    prompt: str
    answer: str

    @property
    def text(self) -> str:
        """Both in a row."""
        return f"{self.prompt} {self.answer}".strip()


def read_instructions(path: str | os.PathLike[str]) -> list[Instruction]:
    """Examples from a JSON lines file: ``{"prompt": ..., "answer": ...}`` or ``{"text": ...}`` a line.

    The id is the field ``index``, by default the number of the line, from 0.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is not such an object, ids repeat, or the file is empty.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not a file")
    found: list[Instruction] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
        if line.strip():
            found.append(_instruction(line, number, f"{file}:{number + 1}"))
    if not found:
        raise ValueError(f"{file} has no examples")
    if len({one.index for one in found}) < len(found):
        raise ValueError(f"{file} gives an index twice")
    return found


def encode_answers(
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[tuple[str, str]],
    *,
    start: int | None = None,
    max_tokens: int | None = None,
) -> dict[str, Int[Tensor, "example position"]]:
    """Token ids of prompts with answers, padded on the right; only the answers are labelled.

    Args:
        tokenizer: Of the model.
        rows: Prompt and answer; with an empty prompt the whole text is the answer.
        start: Token in front of every example, if the model's texts start with one.
        max_tokens: Longest example; prompts lose their beginning first.

    Raises:
        ValueError: If an example has no token to learn.
    """
    front = [] if start is None else [start]
    encoded: list[tuple[list[int], list[int]]] = []
    for number, (prompt, answer) in enumerate(rows):
        given = _ids(tokenizer, prompt) if prompt else []
        whole = _ids(tokenizer, f"{prompt} {answer}".strip())
        cut = 0 if max_tokens is None else max(0, len(front) + len(whole) - max_tokens)
        ids = front + whole[cut:]
        labels = [IGNORED] * (len(front) + max(len(given) - cut, 0))
        labels += ids[len(labels) :]
        if all(label == IGNORED for label in labels[1:]):
            raise ValueError(f"example {number} has no token to learn: {prompt!r} {answer!r}")
        encoded.append((ids, labels))
    longest = max(len(ids) for ids, _ in encoded)

    def padded(values: list[int], filler: int) -> list[int]:
        return values + [filler] * (longest - len(values))

    return {
        "input_ids": torch.tensor([padded(ids, 0) for ids, _ in encoded]),
        "attention_mask": torch.tensor([padded([1] * len(ids), 0) for ids, _ in encoded]),
        "labels": torch.tensor([padded(labels, IGNORED) for _, labels in encoded]),
    }


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    found: Any = tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


def _instruction(line: str, number: int, where: str) -> Instruction:
    try:
        stored = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error.msg}") from None
    if not isinstance(stored, dict) or not ("text" in stored or {"prompt", "answer"} <= stored.keys()):
        raise ValueError(f"{where} needs 'prompt' and 'answer', or 'text'")
    prompt, answer = ("", stored["text"]) if "text" in stored else (stored["prompt"], stored["answer"])
    return Instruction(int(stored.get("index", number)), str(prompt), str(answer))
