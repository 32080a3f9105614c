"""Where errors entered, told in fewer and fewer stages: does localisation hold only where steps are counted finely?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gnomon.models.embeddings import Encoder
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.judges.offline import OfflineJudge
from gnomon.retrieval.veritrail.process import Process
from gnomon.retrieval.veritrail.provenance import localisation
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.trail import ClaimTrail
from gnomon.retrieval.veritrail.verify import verify


def merged_stages(shape: Mapping[str, Any], seed: int, encoder: Encoder, rng: np.random.Generator) -> pd.DataFrame:
    """Stages named for every error of a generated process and of its rewired null, under coarser and coarser stages.

    Args:
        shape: Arguments of :func:`~gnomon.retrieval.veritrail.generator.make_process`.
        seed: Of the process.
        encoder: Of the offline judge.
        rng: Of the rewired process, which is the same under all labels.

    Returns:
        A row an error, number of stages and arm: the true ``stage`` in those labels, and those ``named``.
    """
    process, truth = make_process(seed, **shape)
    errors = [(known.claim, known.stage) for known in truth.claims if known.stage is not None]
    claims = [claim for claim, _ in errors]
    judge = OfflineJudge(encoder)
    rows = []
    for arm, walked in {"treatment": process, "rewired": process.rewired(rng)}.items():
        index = SentenceIndex(walked)
        judge.prepare(index, truth.texts)
        # Labels do not change the walks, only how what they found is told.
        found = verify(walked, judge=judge, claims=claims, index=index).claims
        for groups in adjacent_groups(process.last_stage):
            coarse = walked.with_merged_stages(groups)
            number = {stage: place for place, group in enumerate(groups, start=1) for stage in group}
            rows += [
                {
                    "stages": len(groups),
                    "arm": arm,
                    "claim": claim.id,
                    "stage": number[entered],
                    "named": _told(coarse, trail),
                }
                for (claim, entered), trail in zip(errors, found, strict=True)
            ]
    return pd.DataFrame(rows)


def _told(process: Process, trail: ClaimTrail) -> str:
    """Stages at which the claim entered, in the labels of this process; empty for one that was not caught."""
    if trail.origin is None:
        return ""
    return ",".join(str(stage) for stage in sorted(localisation(process, trail.iterations).stages))


def adjacent_groups(last_stage: int) -> list[list[list[int]]]:
    """Partitions of stages 1 to ``last_stage``: the sources, and 1, 2, ... runs of generated stages, of like length.

    >>> adjacent_groups(4)
    [[[1], [2, 3, 4]], [[1], [2, 3], [4]], [[1], [2], [3], [4]]]
    """
    generated = np.arange(2, last_stage + 1)
    return [
        [[1], *(run.tolist() for run in np.array_split(generated, count))] for count in range(1, len(generated) + 1)
    ]
