"""What a diagnosis returns: one word, the numbers behind it, and tables of where, how far and along what."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from gnomon.evidence.intervals import Estimate
from gnomon.learners.tutor_pupil.reading import SEEDS_AGREE, Reading


@dataclass(frozen=True)
class TutorReport:
    """What a tutor found about a pupil, on rows it was not fitted on.

    Attributes:
        reading: ``structured``: the pupil fails in a pattern of its inputs that scattered errors do not show;
            ``constant offset``: one shift for all rows does most of it; ``calibration only``: the loss falls, the score
            does not rise; ``penalty too small to read``: inputs move far for no gain; ``none``.
        reasons: Sentences behind the reading.
        gain: Mean fall of the task loss on held-out rows, with a bootstrap interval.
        p_scattered: Share of scattered-error refits that gain as much, as a Monte-Carlo p; NaN without that null.
        size_ratio: Mean size of corrections over that of own-label refits.
        alignment: Share of the corrections' energy in the span of the pupil's gradients.
        gradient_cosine: Cosine between corrections and the smallest ones of equal effect.
        seed_cosine: Mean cosine between refits from different seeds.
        off_support: Of the rows moved farthest (upper twentieth), the median ratio of distances to the data.
        at_bound: Share of corrected rows at a bound.
        soft_gap: Score of the relaxed, distilled or black-box pupil on corrected rows minus that of the pupil itself.
        scores: Pupil, tutored pupil, residual, stack and black box: ``loss`` and ``score``.
        null: The refits, a row each (see ``null_fits``).
        path: The penalty path, empty if the penalty was given.
        regions: Honest tree of correction size (see ``region_tree``).
        features: Profile over features (see ``feature_profile``).
        symbolic: Short formulas for the corrections that matter, in the user's units.
        detection: AUROC for "the pupil fails here" of correction size, pupil margin and residual size.
        pushes: Random pushes of equal size (see ``random_pushes``).
        rows: The held-out rows that move farthest: ``row``, ``size``, and the correction of each feature in its units.
    """

    reading: Reading
    reasons: tuple[str, ...]
    gain: Estimate
    p_scattered: float
    size_ratio: float
    alignment: float
    gradient_cosine: float
    seed_cosine: float
    off_support: float
    at_bound: float
    soft_gap: float
    scores: pd.DataFrame
    null: pd.DataFrame
    path: pd.DataFrame
    regions: pd.DataFrame
    features: pd.DataFrame
    symbolic: pd.DataFrame
    detection: pd.DataFrame
    pushes: pd.DataFrame
    rows: pd.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready values; tables become lists of rows."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, pd.DataFrame):
                plain[name] = value.to_dict("records")
            elif isinstance(value, Estimate):
                plain[name] = asdict(value)
            else:
                plain[name] = list(value) if isinstance(value, tuple) else value
        return plain

    def __str__(self) -> str:
        lines = [f"{self.reading}: {'; '.join(self.reasons)}"]
        if len(self.regions):
            top = self.regions.iloc[0]
            lines.append(f"where: {top['region']} (n={top['n']}, mean size {top['size']:.2f})")
        if len(self.features) and self.seed_cosine >= SEEDS_AGREE:
            leading = self.features.head(3)
            named = ", ".join(
                f"{name} {move:+.3g}" for name, move in zip(leading["feature"], leading["mean_units"], strict=True)
            )
            lines.append(f"which: {named}")
        return "\n".join(lines)
