"""A configuration from what a user typed."""

from typing import ClassVar, Literal

import pytest
from pydantic import Field
from tiny_study.study import TinyStudy

from gnomon.names import nearest
from gnomon.studies.settings import configure
from gnomon.studies.study import StudyConfig


class Typed(TinyStudy):
    name = "typed"

    class Config(StudyConfig):
        model: str = "smollm2"
        ranks: tuple[int, ...] = (1, 2)
        arms: tuple[str, ...] = ("treatment",)
        share: float = Field(default=0.5, gt=0, le=1)
        fast: bool = False
        limit: int | None = None
        size: Literal["small", "large"] = "small"
        weights: dict[str, float] = Field(default_factory=dict)

        presets: ClassVar = {"quick": {"ranks": (1,)}, "full": {"ranks": (1, 2, 4)}}


@pytest.mark.parametrize(
    ("assignment", "field", "value"),
    [
        ("model=org/name", "model", "org/name"),
        ("model=7", "model", "7"),
        ("model=a=b", "model", "a=b"),
        ("ranks=1,8,16", "ranks", (1, 8, 16)),
        ("ranks=[1, 8]", "ranks", (1, 8)),
        ("ranks=8", "ranks", (8,)),
        ("arms=treatment, resampled", "arms", ("treatment", "resampled")),
        ("arms=treatment", "arms", ("treatment",)),
        ("share=1e-2", "share", 0.01),
        ("fast=true", "fast", True),
        ("limit=3", "limit", 3),
        ("limit=null", "limit", None),
        ("size=large", "size", "large"),
        ('weights={"a": 1}', "weights", {"a": 1.0}),
    ],
)
def test_texts_are_read_as_the_field_wants_them(assignment, field, value):
    assert getattr(configure(Typed(), "quick", [assignment]), field) == value


def test_assignments_and_values_override_the_preset():
    config = configure(Typed(), "full", ["share=0.25"], {"model": "other", "seed": 4})
    assert (config.ranks, config.share, config.model, config.seed) == ((1, 2, 4), 0.25, "other", 4)


@pytest.mark.parametrize(
    ("preset", "assignments", "message"),
    [
        ("quik", [], "typed: no preset 'quik'; nearest is 'quick'"),
        ("quick", ["rank=1"], "typed has no config field 'rank'; nearest is 'ranks'"),
        ("quick", ["ranks"], "--set takes field=value, got 'ranks'"),
        ("quick", ["ranks=1,x"], "typed: --set ranks: Input should be a valid tuple, got '1,x'"),
        ("quick", ["share=2"], "typed: --set share: Input should be less than or equal to 1, got '2'"),
        ("quick", ["size=huge"], "typed: --set size: Input should be 'small' or 'large', got 'huge'"),
        ("quick", ["seed=-1"], "typed: --set seed: Input should be greater than or equal to 0, got '-1'"),
    ],
)
def test_what_is_wrong_is_named(preset, assignments, message):
    with pytest.raises(ValueError, match=r"typed|--set") as raised:
        configure(Typed(), preset, assignments)
    assert str(raised.value) == message


def test_values_are_checked_too():
    with pytest.raises(ValueError, match="typed: share: Input should be greater than 0, got 0"):
        configure(Typed(), "quick", (), {"share": 0})


def test_the_nearest_name_is_suggested():
    assert nearest("quik", ["full", "quick"]) == "; nearest is 'quick'"
    assert nearest("quik", []) == "; there is none"
