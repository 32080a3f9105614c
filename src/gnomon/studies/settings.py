"""A study's configuration from what a user typed: a preset, and ``field=value`` assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from gnomon.names import nearest
from gnomon.studies.study import Study, StudyConfig


def configure(
    study: Study, preset: str, assignments: Iterable[str] = (), fields: Mapping[str, Any] | None = None
) -> StudyConfig:
    """The preset, with fields overridden by ``field=value`` texts and by values.

    A text is read as the field's type wants it: as it stands, as JSON, or as a comma-separated list.

    Raises:
        ValueError: Naming the preset, field or value that is wrong, and the nearest that exists.
    """
    try:
        study.Config.preset(preset)
    except KeyError as error:
        raise ValueError(f"{study.name}: {error.args[0]}") from None
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"--set takes field=value, got {assignment!r}")
        _check_field(study, name)
        values[name] = _parse(study, name, text)
    for name, value in (fields or {}).items():
        _check_field(study, name)
        values[name] = value
    try:
        return study.Config.preset(preset, **values)
    except ValidationError as error:
        raise ValueError(f"{study.name}: {one_line(error)}") from None


def one_line(error: ValidationError) -> str:
    """What pydantic found wrong, on one line."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'value'}: {problem['msg']}, got {problem['input']!r}"
        for problem in error.errors()
    )


def _check_field(study: Study, name: str) -> None:
    if name not in study.Config.model_fields:
        raise ValueError(f"{study.name} has no config field {name!r}{nearest(name, study.Config.model_fields)}")


def _parse(study: Study, name: str, text: str) -> Any:
    field = study.Config.model_fields[name]
    annotation: Any = field.annotation
    for constraint in field.metadata:
        annotation = Annotated[annotation, constraint]
    adapter = TypeAdapter(annotation)
    readings = (
        lambda: adapter.validate_python(text),
        lambda: adapter.validate_json(text),
        lambda: adapter.validate_python([part.strip() for part in text.split(",") if part.strip()]),
    )
    first: ValidationError | None = None
    for reading in readings:
        try:
            return reading()
        except ValidationError as error:
            first = first or error
    assert first is not None
    raise ValueError(f"{study.name}: --set {name}: {first.errors()[0]['msg']}, got {text!r}")
