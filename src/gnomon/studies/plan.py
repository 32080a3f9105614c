"""The plan of a run: every unit with its key, in the order of the study."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.studies.fingerprint import code_by_stage, unit_key
from gnomon.studies.study import Study
from gnomon.studies.unit import Unit

_STAGE = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class PlannedUnit:
    """A unit with its key and the keys of its needs, by identity."""

    unit: Unit
    key: str
    needs: dict[str, str]


def plan_units(study: Study, config: Any) -> dict[str, PlannedUnit]:
    """All units of a run by key, in the order the study lists them.

    A unit listed twice is planned once; a need that is not listed comes before the first unit that refers to it.

    Raises:
        ValueError: If the study lists no unit, or one with a bad stage name or with parameters that are not JSON.
    """
    listed = list(study.units(config))
    if not listed:
        raise ValueError(f"study {study.name} has no units for this configuration")
    order: dict[str, Unit] = {}
    identities = {unit.identity for unit in listed}
    for unit in listed:
        _add(unit, order, identities)
    code = code_by_stage(type(study), (unit.stage for unit in order.values()))
    keys: dict[str, str] = {}
    plan: dict[str, PlannedUnit] = {}
    for unit in order.values():
        key = _key(study, unit, config.seed, code, keys)
        plan[key] = PlannedUnit(unit, key, {need.identity: keys[need.identity] for need in unit.needs})
    return plan


def dependants(plan: dict[str, PlannedUnit]) -> dict[str, list[str]]:
    """For each unit the units that need it directly, by key."""
    found: dict[str, list[str]] = {key: [] for key in plan}
    for key, planned in plan.items():
        for need in planned.needs.values():
            found[need].append(key)
    return found


def critical_seconds(plan: dict[str, PlannedUnit]) -> dict[str, float]:
    """Declared seconds from the start of each unit to the end of the longest chain that hangs on it."""
    after = dependants(plan)
    seconds: dict[str, float] = {}
    for key in reversed(_needs_first(plan)):
        seconds[key] = plan[key].unit.seconds + max((seconds[later] for later in after[key]), default=0.0)
    return seconds


def _add(unit: Unit, order: dict[str, Unit], listed: set[str]) -> None:
    if not _STAGE.fullmatch(unit.stage):
        raise ValueError(f"stage {unit.stage!r} must be lower-case letters, digits, '-' and '_'")
    if unit.identity in order:
        return
    for need in unit.needs:
        if need.identity not in listed:
            _add(need, order, listed)
    order[unit.identity] = unit


def _key(study: Study, unit: Unit, seed: int, code: Mapping[str, str], keys: dict[str, str]) -> str:
    if unit.identity not in keys:
        needs = [_key(study, need, seed, code, keys) for need in unit.needs]
        keys[unit.identity] = unit_key(study.name, unit, seed=seed, code=code[unit.stage], needs=needs)
    return keys[unit.identity]


def _needs_first(plan: dict[str, PlannedUnit]) -> list[str]:
    order: dict[str, None] = {}

    def visit(keys: Iterable[str]) -> None:
        for key in keys:
            if key not in order:
                visit(plan[key].needs.values())
                order[key] = None

    visit(plan)
    return list(order)
