"""From tables to findings: every claim once, p-values adjusted over the claims that are decided."""

from __future__ import annotations

from typing import Any

from gnomon.evidence import Finding, holm
from gnomon.studies.study import Study
from gnomon.studies.unit import Tables


def judge(study: Study, tables: Tables, config: Any) -> list[Finding]:
    """Findings of a study in the order of its claims, with Holm-adjusted p-values.

    Raises:
        ValueError: If the study does not give exactly one finding for each of its claims.
    """
    findings = study.judge(tables, config)
    found = [finding.claim.name for finding in findings]
    expected = [claim.name for claim in study.claims]
    if sorted(found) != sorted(expected):
        missing = [name for name in expected if name not in found]
        extra = [name for name in found if name not in expected or found.count(name) > 1]
        raise ValueError(
            f"study {study.name} must give one finding for each claim; missing: {missing}, extra: {sorted(set(extra))}"
        )
    by_name = {finding.claim.name: finding for finding in findings}
    return holm([by_name[name] for name in expected])
