"""A study's configuration as a form: fields from its pydantic schema, and back to what a user changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.studies.study import Study


@dataclass(frozen=True)
class FormField:
    """One input of the form.

    Args:
        name: Name of the config field.
        kind: ``number``, ``choice`` or ``text``.
        value: What the preset gives, as text.
        description: What the field means.
        choices: Values of a ``choice``.
        attributes: Bounds of a number, as HTML names them.
    """

    name: str
    kind: str
    value: str
    description: str = ""
    choices: tuple[str, ...] = ()
    attributes: Mapping[str, str] | None = None


def form_fields(study: Study, preset: str) -> list[FormField]:
    """The form of a study with the values of a preset.

    Raises:
        KeyError: If there is no such preset.
    """
    values = study.Config.preset(preset).model_dump(mode="json")
    schema = study.Config.model_json_schema()
    return [
        _field(name, property_, _as_text(values[name]), schema.get("$defs", {}))
        for name, property_ in schema["properties"].items()
    ]


def changed(study: Study, preset: str, entries: Mapping[str, str]) -> list[str]:
    """``field=value`` texts of the entries that differ from the preset.

    Raises:
        KeyError: If there is no such preset.
    """
    values = study.Config.preset(preset).model_dump(mode="json")
    return [f"{name}={text}" for name, text in entries.items() if name in values and text != _as_text(values[name])]


def _field(name: str, property_: Mapping[str, Any], value: str, definitions: Mapping[str, Any]) -> FormField:
    described = property_.get("description", "")
    if reference := property_.get("$ref"):
        property_ = definitions[reference.rpartition("/")[2]]
    kind = property_.get("type")
    if kind == "boolean":
        return FormField(name, "choice", value, described, ("true", "false"))
    if "enum" in property_:
        return FormField(name, "choice", value, described, tuple(map(_as_text, property_["enum"])))
    if kind in {"integer", "number"}:
        bounds = {"min": property_.get("minimum"), "max": property_.get("maximum")}
        attributes = {side: str(bound) for side, bound in bounds.items() if bound is not None}
        return FormField(
            name, "number", value, described, attributes={"step": "1" if kind == "integer" else "any", **attributes}
        )
    return FormField(name, "text", value, described)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
