"""The evidence layer: claims, findings, verdicts, and the statistics under them.

A :class:`Claim` is fixed before a run. A :class:`Finding` is a claim with what was measured: the effect, the same
statistic on each control, the contrast with its interval and p-value. Its verdict is computed, never set.
"""

from gnomon.evidence.claim import Claim
from gnomon.evidence.finding import Finding
from gnomon.evidence.intervals import Estimate
from gnomon.evidence.verdict import Contrast, ExactCheck, Verdict, holm

__all__ = ["Claim", "Contrast", "Estimate", "ExactCheck", "Finding", "Verdict", "holm"]
