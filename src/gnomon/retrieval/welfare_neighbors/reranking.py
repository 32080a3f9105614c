"""Pick k of a ranked list whose items carry labels: what the adapters to other libraries share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gnomon.retrieval.welfare_neighbors.attributes import Missing, encode_attributes
from gnomon.retrieval.welfare_neighbors.contrast import Contrast
from gnomon.retrieval.welfare_neighbors.selection import select


@dataclass(frozen=True)
class Picked:
    """One item of the answer.

    Args:
        position: Its place in the list that came in.
        similarity: As it came in.
        rank_before: Its rank by similarity, 0 for the best.
        gain: What it added to the objective.
    """

    position: int
    similarity: float
    rank_before: int
    gain: float

    @property
    def note(self) -> dict[str, float | int]:
        """For the item's metadata: gain, rank by similarity, similarity."""
        return {"gain": self.gain, "rank_before": self.rank_before, "similarity": self.similarity}


@dataclass(frozen=True)
class Reranked:
    """The answer, in the order of choice.

    Args:
        picked: At most k items.
        certified: Whether no item beyond the list could have changed the answer.
    """

    picked: tuple[Picked, ...]
    certified: bool


def rerank(
    similarity: Sequence[float],
    labels: pd.DataFrame,
    k: int,
    *,
    p: float = 0.0,
    gamma: float = 0.1,
    contrast: Contrast = "exp",
    missing: Missing = "group",
) -> Reranked:
    """The k items that serve the labels best.

    Args:
        similarity: Of each item; higher is better.
        labels: One row an item, one column a class of attributes.
        k: Items wanted; fewer come back if the list is shorter.
        p: See :func:`~gnomon.retrieval.welfare_neighbors.select`.
        gamma: Likewise.
        contrast: Likewise.
        missing: What becomes of items without a label.

    Raises:
        ValueError: If a parameter is out of range or a similarity is not finite.
    """
    if not len(labels):
        return Reranked((), True)
    encoded = encode_attributes(labels, missing=missing)
    scores = np.asarray(similarity, dtype=np.float64)
    chosen = select(scores, encoded.codes[None], k, p=p, gamma=gamma, contrast=contrast, n_attributes=encoded.count)
    rank = np.argsort(np.argsort(-scores, kind="stable"))
    picked = tuple(
        Picked(int(position), float(scores[position]), int(rank[position]), float(gain))
        for position, gain in zip(chosen.indices[0], chosen.gains[0], strict=True)
        if position >= 0
    )
    return Reranked(picked, bool(chosen.certified[0]))


def label_columns(metadata: Sequence[dict[str, Any]], keys: Sequence[str]) -> pd.DataFrame:
    """The labels of items as a table, from their metadata; an item without a key has no label there.

    Raises:
        ValueError: If no item has some key: most likely it is misspelt.
    """
    for key in keys:
        if metadata and not any(key in item for item in metadata):
            known = sorted({name for item in metadata for name in item})
            raise ValueError(f"no item has metadata {key!r}; there is {', '.join(known) or 'none'}")
    return pd.DataFrame({key: [item.get(key) for item in metadata] for key in keys}, dtype=object)
