"""How good verdicts, stages and paths are, against a known truth."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from gnomon.evidence import Estimate
from gnomon.evidence.intervals import wilson
from gnomon.evidence.resampling import from_weights
from gnomon.evidence.weighted import auroc


@dataclass(frozen=True)
class VerdictQuality:
    """Of verdicts against labels, the claims without a verdict included.

    Args:
        macro_f1: Mean of the F1 of supported and of unsupported claims.
        balanced_accuracy: Mean of the recalls of both.
        precision: Share of claims called unsupported that are.
        recall: Share of unsupported claims that are called so.
    """

    macro_f1: float
    balanced_accuracy: float
    precision: float
    recall: float


def verdict_quality(supported: Sequence[bool] | np.ndarray, labels: Sequence[bool] | np.ndarray) -> VerdictQuality:
    r"""Quality of hard verdicts.

    .. math:: F_1 = \frac{2\,TP}{2\,TP + FP + FN}, \qquad
        \text{macro } F_1 = \tfrac12 \bigl(F_1^{\text{supported}} + F_1^{\text{unsupported}}\bigr)

    A class that neither occurs nor is predicted has F1 = 1, a precision without predictions is NaN.

    Args:
        supported: Whether each claim was judged supported (an inconclusive verdict counts as not).
        labels: Whether it is.

    Raises:
        ValueError: If the lengths differ or there are no claims.
    """
    return quality_of_counts(confusion(supported, labels))


def confusion(
    supported: Sequence[bool] | np.ndarray, labels: Sequence[bool] | np.ndarray
) -> Float[np.ndarray, " count"]:
    """Counts: supported and called so, supported but not called so, unsupported but called supported, and neither."""
    called, true = np.asarray(supported, dtype=bool), np.asarray(labels, dtype=bool)
    if called.shape != true.shape or not called.size:
        raise ValueError(f"one label a verdict, at least one: {called.size} verdicts, {true.size} labels")
    return np.array(
        [(called & true).sum(), (~called & true).sum(), (called & ~true).sum(), (~called & ~true).sum()], dtype=float
    )


def quality_of_counts(counts: Float[np.ndarray, " count"]) -> VerdictQuality:
    """The same from the counts of :func:`confusion`."""
    kept, lost, missed, caught = counts
    return VerdictQuality(
        float(macro_f1_of_sums(counts[None])[0]),
        float(np.nanmean([_share(kept, kept + lost), _share(caught, missed + caught)])),
        _share(caught, lost + caught),
        _share(caught, missed + caught),
    )


def macro_f1_of_sums(sums: Float[np.ndarray, "draw 4"]) -> Float[np.ndarray, " draw"]:
    """Macro F1 from (weighted sums of) the counts of :func:`confusion`: the form the bootstrap takes."""
    kept, lost, missed, caught = sums.T
    return (_f1(kept, missed, lost) + _f1(caught, lost, missed)) / 2


def verdict_auroc(
    scores: Sequence[float], labels: Sequence[bool], *, clusters: Sequence[int] | None = None
) -> Estimate:
    """Area under the ROC curve of the probability of support, with an interval over clusters (processes)."""
    return from_weights(auroc(scores, np.asarray(labels, dtype=float)), len(scores), clusters=clusters)


def localisation_accuracy(found: Sequence[Collection[int]], true: Sequence[int], *, within: int = 0) -> Estimate:
    """Share of errors whose stage was named, and no other, with Wilson's interval.

    Args:
        found: Stages named for each error; empty for one that was missed.
        true: The stage at which it entered.
        within: Largest distance, in stages, that still counts.

    Raises:
        ValueError: If the lengths differ or there are no errors.
    """
    return wilson(int(located(found, true, within=within).sum()), len(true))


def located(found: Sequence[Collection[int]], true: Sequence[int], *, within: int = 0) -> Bool[np.ndarray, " error"]:
    """Whether each error's stage was named: all named stages lie within the distance, and there is one."""
    if len(found) != len(true):
        raise ValueError(f"one true stage an error: {len(found)} found, {len(true)} true")
    return np.array(
        [
            bool(named) and all(abs(stage - at) <= within for stage in named)
            for named, at in zip(found, true, strict=True)
        ]
    )


def edge_f1(found: Collection[tuple[str, str]], true: Collection[tuple[str, str]]) -> float:
    """F1 of the edges of a path; 1 if both are empty.

    >>> edge_f1({("chunk", "summary")}, {("chunk", "summary"), ("summary", "final")})
    0.6666666666666666
    """
    both = len(set(found) & set(true))
    return 2 * both / (len(set(found)) + len(set(true))) if found or true else 1.0


def _f1(hits: np.ndarray, false: np.ndarray, missed: np.ndarray) -> np.ndarray:
    whole = 2 * hits + false + missed
    return np.where(whole > 0, 2 * hits / np.where(whole > 0, whole, 1), 1.0)


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
