r"""Signal generators that speak: free-text messages are used only after an independent reader has decoded them.

A message is meant to say :math:`s` with precision :math:`q`. If a reader recovers the intended signal with accuracy
:math:`a`, what the agent gets is a signal of precision :math:`q a + (1 - q)(1 - a)`: the achieved, not the requested,
precision. A generator whose mean absolute gap exceeds the tolerance is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.models.chat import ChatModel, Missing, Reply
from gnomon.society.planner.scenarios import LABELS, Message, Scenario

TOLERANCE = 0.1


@dataclass(frozen=True)
class Calibration:
    """What a reader made of known messages.

    Args:
        requested: Precisions asked for.
        achieved: Precision of what the reader understood.
        accuracy: Share of messages whose signal the reader recovered.
        missing: Share of messages that were not written or not read; they count as not recovered half of the time.
    """

    requested: tuple[float, ...]
    achieved: tuple[float, ...]
    accuracy: float
    missing: float

    @property
    def mean_gap(self) -> float:
        """Mean absolute difference of achieved and requested precision."""
        return float(np.mean(np.abs(np.subtract(self.achieved, self.requested))))


class TextOracle:
    """Writes the private message as free text.

    Args:
        writer: Chat model that writes.
        scenario: What the messages are about.
    """

    def __init__(self, writer: ChatModel, scenario: Scenario) -> None:
        self._writer = writer
        self._scenario = scenario

    def messages(self, signals: Sequence[int], precision: float) -> list[str]:
        """One message a signal (+1 good, -1 bad), empty where the writer gave none."""
        prompts = [self._prompt(signal, precision) for signal in signals]
        answers = self._writer.complete(prompts, max_tokens=80)
        return [answer.text.strip() if isinstance(answer, Reply) else "" for (answer,) in answers]

    def calibrate(
        self, reader: ChatModel, *, precisions: Sequence[float] = (0.6, 0.75, 0.9), copies: int = 4
    ) -> Calibration:
        """Have an independent model read messages of known signals.

        Raises:
            ValueError: If achieved and requested precision differ by more than 0.1 on average; the message says by
                how much, and the generator must not be used.
        """
        achieved, recovered, silent = [], [], 0
        for precision in precisions:
            signals = [1, -1] * copies
            read = self._read(reader, self.messages(signals, precision))
            silent += sum(value == 0 for value in read)
            hits = [0.5 if value == 0 else float(value == signal) for value, signal in zip(read, signals, strict=True)]
            accuracy = float(np.mean(hits))
            recovered.append(accuracy)
            achieved.append(precision * accuracy + (1 - precision) * (1 - accuracy))
        total = len(precisions) * 2 * copies
        found = Calibration(tuple(precisions), tuple(achieved), float(np.mean(recovered)), silent / total)
        if found.mean_gap > TOLERANCE:
            raise ValueError(
                f"messages do not carry the requested precision: off by {found.mean_gap:.2f} on average "
                f"(reader recovers {found.accuracy:.0%}), more than {TOLERANCE}"
            )
        return found

    def _read(self, reader: ChatModel, messages: Sequence[str]) -> list[int]:
        """Signals as read, 0 where there was no message or no answer; both label orders averaged."""
        prompts = [self._question(message, swapped) for message in messages for swapped in (False, True)]
        scores = reader.choice_logprobs(prompts, list(LABELS))
        read = []
        for index, message in enumerate(messages):
            first, second = scores[2 * index : 2 * index + 2]
            if not message or isinstance(first, Missing) or isinstance(second, Missing):
                read.append(0)
                continue
            lean = first.logprobs[LABELS[0]] - first.logprobs[LABELS[1]]
            lean -= second.logprobs[LABELS[0]] - second.logprobs[LABELS[1]]
            read.append(1 if lean > 0 else -1)
        return read

    def _prompt(self, signal: int, precision: float) -> list[Message]:
        says = self._scenario.good if signal > 0 else self._scenario.bad
        return [
            {
                "role": "user",
                "content": f"{self._scenario.situation} Write a short message to one person, two sentences, that "
                f"says that {says}, by a check that is right {round(100 * precision)}% of the time. Say nothing else.",
            }
        ]

    def _question(self, message: str, swapped: bool) -> list[Message]:
        states = [self._scenario.good, self._scenario.bad]
        first, second = reversed(states) if swapped else states
        return [
            {
                "role": "user",
                "content": f"Message: {message}\n\nWhat does the message say?\n{LABELS[0]}: {first}\n"
                f"{LABELS[1]}: {second}\nAnswer with the letter only.",
            }
        ]
