"""The one word for what a tutor found, by rules fixed before any test row was seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from gnomon.evidence.intervals import Estimate
from gnomon.learners.tutor_pupil.path import one_standard_error

Reading = Literal["structured", "constant offset", "calibration only", "penalty too small to read", "none"]

SIGNIFICANT = 0.05
CLEAR_OF_FLOOR = 2.0
SEEDS_AGREE = 0.5
ONE_SHIFT = 0.8
OFF_SUPPORT = 1.5
SOFT_GAP = 0.02
ALONG_GRADIENT = 0.95


@dataclass(frozen=True)
class Signs:
    """What a reading is made from; NaN where a null was not refitted.

    Attributes:
        gain: Fall of the task loss on held-out rows.
        score: Score of the pupil, on corrected inputs, and of a black box of equal size.
        p_scattered: Monte-Carlo p of the gain against refits under scattered errors.
        size_ratio: Mean size of corrections over that of own-label refits.
        shift_share: Gain of tutors with shuffled input, as a share of the real gain.
        seed_cosine: Agreement of refits from different seeds.
        auroc: Of the size of corrections, for the pupil's failing rows.
        readable: Whether the penalty lies where the path still reads.
    """

    gain: Estimate
    pupil: float
    tutored: float
    black_box: float
    p_scattered: float
    size_ratio: float
    shift_share: float
    seed_cosine: float
    auroc: float
    readable: bool

    def reading(self) -> Reading:
        """``structured`` needs every control: a null that was not refitted cannot be passed."""
        if not self.gain.low > 0:
            return "none"
        if self.shift_share > ONE_SHIFT:
            return "constant offset"
        if not self.readable:
            return "penalty too small to read"
        if self.tutored <= self.pupil and self.auroc < 0.6:
            return "calibration only"
        passed = (
            self.p_scattered <= SIGNIFICANT
            and self.size_ratio >= CLEAR_OF_FLOOR
            and self.seed_cosine >= SEEDS_AGREE
            and not np.isnan(self.shift_share)
        )
        return "structured" if passed else "none"

    def reasons(self) -> list[str]:
        """Sentences behind the reading."""
        sentences = [
            f"the pupil scores {self.pupil:.3f}, on corrected inputs {self.tutored:.3f}",
            f"task loss falls by {self.gain}",
            f"p against scattered errors {self.p_scattered:.3g}",
            f"corrections are {self.size_ratio:.3g} times those of own-label refits",
            f"refits from other seeds agree with cosine {self.seed_cosine:.2f}",
        ]
        if self.black_box > self.tutored:
            sentences.append(f"performance from flexibility: a black box of equal size scores {self.black_box:.3f}")
        left_out = [
            name
            for name, value in (
                ("scattered-errors", self.p_scattered),
                ("own-labels", self.size_ratio),
                ("shuffled-input", self.shift_share),
            )
            if np.isnan(value)
        ]
        if left_out:
            sentences.append(f"nothing can be called structured without {' and '.join(left_out)}")
        return sentences


def monte_carlo_p(null: pd.DataFrame) -> float:
    """Share of scattered-error refits that gain as much as refits of the real targets, counting these among them."""
    draws = _of(null, "scattered-errors", "gain")
    observed = _of(null, "treatment", "gain").mean()
    return float((1 + (draws >= observed).sum()) / (1 + len(draws))) if len(draws) else float("nan")


def size_ratio(null: pd.DataFrame) -> float:
    """Mean size of the real refits' corrections over that of own-label refits.

    Not the median: where the pupil fails on fewer than half of the rows, a good tutor leaves the median row alone.
    """
    own = _of(null, "own-labels", "size")
    if not len(own):
        return float("nan")
    floor, real = float(own.mean()), float(_of(null, "treatment", "size").mean())
    if floor == 0:
        return float("inf") if real > 0 else 0.0
    return real / floor


def shift_share(null: pd.DataFrame) -> float:
    """Mean gain of tutors with shuffled input over that of the real refits; 0 if these gain nothing."""
    shuffled, real = _of(null, "shuffled-input", "gain"), float(_of(null, "treatment", "gain").mean())
    if not len(shuffled):
        return float("nan")
    return float(shuffled.mean()) / real if real > 0 else 0.0


def readable(path: pd.DataFrame, penalty: float) -> bool:
    """Whether a penalty lies where the path still reads: location kept, and moves not tripled for no score."""
    if path.empty or penalty not in set(path["lambda"]):
        return True
    by_penalty = {row["lambda"]: row for row in path.to_dict("records")}
    here, reference = by_penalty[penalty], by_penalty[one_standard_error(path)]
    lost = here["auroc"] < max(row["auroc"] for row in by_penalty.values()) - 0.1
    far = here["size"] > 3 * reference["size"] and here["score"] <= reference["score"]
    return not (lost or far)


def shift_sentence(share: float, shift: np.ndarray, names: list[str]) -> str:
    """The constant offset in the user's units."""
    largest = np.argsort(-np.abs(shift))[:3]
    moves = ", ".join(f"{names[index]} {shift[index]:+.3g}" for index in largest)
    return f"one shift for all rows gives {share:.0%} of the gain: {moves}"


def alignment_sentence(share: float, directions: int, correctable: int) -> str:
    """What a high alignment means for the feature profile.

    Args:
        share: Of the corrections' energy along the pupil's gradients.
        directions: How many gradients there are.
        correctable: How many features may move.
    """
    if directions >= correctable:
        return f"{directions} outputs span all {correctable} correctable features, so alignment says nothing"
    return (
        f"{share:.0%} of the corrections lies along the pupil's gradients: "
        f"the feature profile adds nothing beyond the pupil's weights"
    )


def _of(null: pd.DataFrame, arm: str, column: str) -> np.ndarray:
    return null.loc[null["arm"] == arm, column].to_numpy(dtype=np.float64)
