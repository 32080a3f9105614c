"""What a unit may return and ask for while it is measured."""

import json

import numpy as np
import pandas as pd
import pytest
from tiny_study.study import TinyStudy

from gnomon.studies.cache import UnitCache
from gnomon.studies.files import read_tables, write_table
from gnomon.studies.measuring import UnitTask, measure_unit
from gnomon.studies.unit import Missing, Unit

UNIT = Unit("stage", {"arm": "treatment", "layers": [1, 2]})


class Measured(TinyStudy):
    """Measures what the test says."""

    def __init__(self, measure):
        self.measure = measure


@pytest.fixture
def measured(tmp_path):
    cache = UnitCache(tmp_path)

    def measured(measure, unit=UNIT, **fields):
        key = f"{len(list(tmp_path.rglob('unit.json'))):016x}"
        task = UnitTask(Measured(measure), unit, key, fields.pop("needs", {}), fields.pop("seed", 0), cache, **fields)
        return measure_unit(task), cache.find(key)

    return measured


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "TypeError: stage(arm=treatment, layers=[1, 2]) returned NoneType; expected a DataFrame or a dict"),
        ({"a.b": pd.DataFrame()}, "ValueError: stage(arm=treatment, layers=[1, 2]) names a table 'a.b'"),
        ({"a": [1]}, "TypeError: table stage.a is a list; expected a DataFrame"),
        (pd.DataFrame({"x": [1]}, index=pd.Index([3], name="layer")), "ValueError: table stage has a named index"),
        (pd.DataFrame([[1, 2]]), "ValueError: table stage must have distinct column names that are strings"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "ValueError: table stage must have distinct column names"),
    ],
)
def test_a_result_that_is_no_table_fails_the_unit(measured, result, message):
    outcome, stored = measured(lambda unit, run: result)
    assert outcome.kind == "failed"
    assert outcome.reason.startswith(message)
    assert stored is None


def test_scalar_parameters_become_columns_unless_they_are_there(measured):
    unit = Unit("stage", {"arm": "treatment", "seed": 1, "layers": [1, 2], "share": 0.5, "x": 9})
    _, stored = measured(lambda unit, run: pd.DataFrame({"x": [1, 2]}, index=[5, 7]), unit)
    table = read_tables([stored.tables["stage"]])
    assert table.to_dict("list") == {"arm": ["treatment"] * 2, "seed": [1, 1], "share": [0.5] * 2, "x": [1, 2]}


def test_streams_depend_on_seed_and_name_alone(measured):
    def draw(*stream):
        def measure(unit, run):
            return pd.DataFrame({"draw": run.rng(*stream).integers(0, 2**62, 4)})

        return measure

    def drawn(measure, **fields):
        return tuple(read_tables([measured(measure, **fields)[1].tables["stage"]])["draw"])

    first = drawn(draw("prompts", 1))
    assert first == drawn(draw("prompts", 1))
    others = [drawn(draw(*name)) for name in (("prompts", 2), ("prompts",), ("prompts", "1"))]
    others.append(drawn(draw("prompts", 1), seed=1))
    assert len({first, *others}) == 5


def test_global_generators_start_anew_for_each_unit(measured):
    def measure(unit, run):
        return pd.DataFrame({"draw": np.random.rand(3)})  # noqa: NPY002

    np.random.seed(1)  # noqa: NPY002
    one = measured(measure)[1]
    np.random.rand(5)  # noqa: NPY002
    again = UnitTask(Measured(measure), UNIT, one.path.name, {}, 0, UnitCache(one.path.parents[3] / "fresh"))
    measure_unit(again)
    two = again.cache.find(one.path.name)
    assert read_tables([one.tables["stage"]])["draw"].equals(read_tables([two.tables["stage"]])["draw"])


@pytest.mark.parametrize("name", ["../out", "/tmp/out", ""])
def test_artifacts_stay_inside_the_unit(measured, name):
    outcome, _ = measured(lambda unit, run: run.artifact(name))
    assert outcome.reason == f"ValueError: artifact name {name!r} leads out of the unit's folder"


def test_a_need_must_be_listed_and_there(measured):
    base = Unit("base", {"seed": 1})
    outcome, _ = measured(lambda unit, run: run.need(base))
    assert "does not list base(seed=1) in its needs" in outcome.reason
    outcome, _ = measured(lambda unit, run: run.need(base), needs={base.identity: "gone"})
    assert "base(seed=1) has left the unit cache" in outcome.reason


def test_without_a_chat_model_the_unit_is_missing(measured):
    outcome, _ = measured(lambda unit, run: run.chat("judge"))
    assert (outcome.kind, outcome.reason) == ("missing", "this run has no chat model 'judge'")

    def broke(name):
        raise Missing(f"{name}: budget spent")

    outcome, _ = measured(lambda unit, run: run.chat("judge"), chat=broke)
    assert (outcome.kind, outcome.reason) == ("missing", "judge: budget spent")


def test_notes_are_kept_and_must_be_json(measured):
    def measure(unit, run):
        run.note("model", {"hash": "abc"})
        return pd.DataFrame({"x": [1]})

    _, stored = measured(measure)
    assert json.loads((stored.path / "unit.json").read_text())["notes"] == {"model": {"hash": "abc"}}
    outcome, _ = measured(lambda unit, run: run.note("model", {"hash": {1}}))
    assert outcome.reason.startswith("ValueError: not a JSON value")


def test_tables_with_different_columns_are_joined_and_keep_their_types(tmp_path):
    frames = [
        pd.DataFrame({"x": [1, 2], "name": ["a", "b"]}),
        pd.DataFrame({"x": [0.5], "name": [None], "more": [True]}),
        pd.DataFrame({"x": pd.Series([], dtype=float)}),
    ]
    paths = [tmp_path / f"{index}.parquet" for index in range(3)]
    for frame, path in zip(frames, paths, strict=True):
        write_table(frame, path)
    joined = read_tables(paths)
    assert joined["x"].tolist() == [1.0, 2.0, 0.5]
    assert joined["name"].isna().tolist() == [False, False, True]
    assert joined["more"].tolist()[2] is True
    write_table(frames[0], paths[1])
    assert paths[0].read_bytes() == paths[1].read_bytes()
