"""How probable it is that a sentence supports a claim, with numbers fitted on one half of the fact world."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files

from gnomon.retrieval.veritrail.offline.comparison import MISMATCHES, Mismatches

VETOED = 0.2
"""Largest probability with any mismatch: rare kinds of mismatch get too small a weight from the fit."""


@dataclass(frozen=True)
class Fitted:
    """Numbers that belong to one sentence encoder.

    Args:
        intercept: Of the logistic regression.
        cosine: Its weight of the cosine.
        recall: Its weight of the recall of the claim's content.
        mismatches: Its weight of each kind of mismatch.
        threshold: Probability from which a sentence supports a claim.
        select: Cosine from which a sentence is evidence.
        deny: Cosine from which a sentence about the same names and time, with another number or the opposite, speaks
            against the claim.
        alike: Cosine from which two counted things may be the same.
    """

    intercept: float
    cosine: float
    recall: float
    mismatches: dict[str, float]
    threshold: float
    select: float
    deny: float
    alike: float

    def probability(self, cosine: float, recall: float, mismatches: Mismatches) -> float:
        r"""Probability of support, at most :data:`VETOED` with any mismatch.

        .. math:: p = \sigma\Bigl(b + w_c \cos + w_r \, \mathrm{recall} + \sum_k w_k \, m_k\Bigr)
        """
        total = self.intercept + self.cosine * cosine + self.recall * recall
        if mismatches.any:
            total += sum(self.mismatches[kind] * count for kind, count in zip(MISMATCHES, mismatches, strict=True))
        p = 1 / (1 + math.exp(-total))
        return min(p, VETOED) if mismatches.any else p


@lru_cache(maxsize=2)
def fitted(encoder: str) -> Fitted:
    """The shipped numbers for an encoder, ``all-MiniLM-L6-v2`` or ``TF-IDF + SVD``.

    Raises:
        KeyError: If there are none for it.
    """
    stored = json.loads((files("gnomon.retrieval.veritrail.offline") / "fitted.json").read_text(encoding="utf-8"))
    if encoder not in stored:
        raise KeyError(f"the offline judge is fitted for {', '.join(map(repr, stored))}, not for {encoder!r}")
    return Fitted(**stored[encoder])


def to_json(found: dict[str, Fitted]) -> str:
    """Fitted numbers of all encoders as the file that is shipped."""
    rounded = {name: _rounded(asdict(numbers)) for name, numbers in found.items()}
    return json.dumps(rounded, indent=2) + "\n"


def _rounded(values: dict[str, object]) -> dict[str, object]:
    return {
        name: _rounded(value) if isinstance(value, dict) else round(float(str(value)), 4)
        for name, value in values.items()
    }
