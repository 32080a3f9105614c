"""Which code a unit's key covers: the method it uses, all of it, and nothing else."""

import importlib
import math
import pathlib
import subprocess
import sys
import textwrap
import uuid

import pytest
from tiny_study.study import TinyStudy

from gnomon.studies.fingerprint import canonical_json, code_by_stage, stage_code, unit_key
from gnomon.studies.plan import critical_seconds, dependants, plan_units
from gnomon.studies.unit import Unit

STAGES = ("walk", "slope", "summary")


class Package:
    """A package on disk, imported under a name of its own, whose files can be edited."""

    def __init__(self, folder, files, monkeypatch):
        self.name = f"package_{uuid.uuid4().hex[:8]}"
        self.folder = folder / self.name
        monkeypatch.syspath_prepend(str(folder))
        for path, text in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(textwrap.dedent(text).replace("PACKAGE", self.name))

    def study(self, module="study", name="TinyStudy"):
        importlib.invalidate_caches()
        return getattr(importlib.import_module(f"{self.name}.{module}"), name)

    def edit(self, path, old, new):
        text = (self.folder / path).read_text()
        assert old in text
        (self.folder / path).write_text(text.replace(old, new, 1))


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the tiny study."""
    source = sys.modules["tiny_study"].__path__[0]
    files = {path.name: path.read_text().replace("tiny_study", "PACKAGE") for path in pathlib.Path(source).glob("*.py")}
    return Package(tmp_path, files, monkeypatch)


@pytest.mark.parametrize(
    ("path", "old", "new", "changed"),
    [
        ("figures.py", "mark_point", "mark_bar", set()),
        ("study.py", "width = 2 *", "width = 3 *", set()),
        ("study.py", "def _around(value, half_width)", "def _around(value, half_width, extra=0)", set()),
        ("study.py", '"""Mean step of the walk it needs."""', '"""The mean step."""', set()),
        ("study.py", "    def measure_slope(", "    # A remark.\n\n    def measure_slope(", set()),
        ("study.py", 'title = "Drift', 'title = "The drift', set()),
        ("study.py", "seconds=2", "seconds=3", set()),
        ("walks.py", '"""The method: random walks."""', "# The method.\n", set()),
        ("walks.py", "np.cumsum(rng.normal(drift", "np.cumsum(rng.normal(-drift", {"walk"}),
        ("study.py", 'fault == "raise"', 'fault == "throw"', {"walk"}),
        ("study.py", "positions[-1:]", "positions[-2:]", {"walk"}),
        ("summaries.py", "positions[-1]", "positions[-2]", {"slope"}),
        ("study.py", 'slopes.std()', 'slopes.var()', {"summary"}),
    ],
)  # fmt: skip
def test_an_edit_changes_the_stages_that_use_it_and_no_other(copied, path, old, new, changed):
    study = copied.study()
    before = code_by_stage(study, STAGES)
    copied.edit(path, old, new)
    after = code_by_stage(study, STAGES)
    assert {stage for stage in STAGES if before[stage] != after[stage]} == changed


FILES = {
    "__init__.py": "from PACKAGE.inner import handed_on\n",
    "inner/__init__.py": """
        from .deep import handed_on
        from .neighbour import unused
        DEFINED = 1
    """,
    "inner/deep.py": "from ..base import LIMIT\n\ndef handed_on():\n    return LIMIT\n",
    "inner/neighbour.py": "def unused():\n    return 0\n",
    "inner/viewer.py": "PICTURE = 1\n",
    "base.py": "LIMIT = 1\nOTHER = 2\n",
    "lazy.py": "VALUE = 1\n",
    "typed.py": "class Kind:\n    pass\n",
    "whole/__init__.py": "",
    "whole/part.py": "VALUE = 1\n",
    "scales.py": "import math\nSCALE = math.tau\n",
    "parent.py": """
        from gnomon.studies.study import Study
        from PACKAGE.base import OTHER

        class Parent(Study):
            scale = OTHER

            def measure_inherited(self, unit, run):
                return self.shared()

            def shared(self):
                return 1
    """,
    "study.py": """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        import PACKAGE.scales
        from PACKAGE import handed_on, whole
        from PACKAGE.parent import Parent
        if TYPE_CHECKING:
            from PACKAGE.typed import Kind

        FACTORS = {"a": 1}
        try:
            import nowhere_to_be_found
        except ImportError:
            nowhere_to_be_found = None

        class TinyStudy(Parent):
            LEVELS = (1, 2)

            def measure_handed(self, unit: Kind, run):
                return handed_on()

            def measure_constant(self, unit, run):
                return FACTORS, self.LEVELS

            def measure_late(self, unit, run):
                from PACKAGE.lazy import VALUE
                return VALUE

            def measure_package(self, unit, run):
                return whole.part.VALUE

            def measure_dotted(self, unit, run):
                return PACKAGE.scales.SCALE

            def measure_own(self, unit, run):
                return TinyStudy.helper()

            @staticmethod
            def helper():
                return _recursive(3)

            def shared(self):
                return super().shared() + 1

        def _recursive(n):
            return n and _recursive(n - 1)
    """,
}


@pytest.mark.parametrize(
    ("path", "old", "new", "stages"),
    [
        ("inner/deep.py", "return LIMIT", "return -LIMIT", {"handed"}),
        ("base.py", "LIMIT = 1", "LIMIT = 3", {"handed"}),
        ("inner/neighbour.py", "return 0", "return 1", set()),
        ("inner/__init__.py", "DEFINED = 1", "DEFINED = 2", set()),
        ("inner/viewer.py", "PICTURE = 1", "PICTURE = 2", set()),
        ("typed.py", "pass", "x = 1", set()),
        ("study.py", '{"a": 1}', '{"a": 2}', {"constant"}),
        ("study.py", "LEVELS = (1, 2)", "LEVELS = (1, 3)", {"constant"}),
        ("lazy.py", "VALUE = 1", "VALUE = 2", {"late"}),
        ("whole/part.py", "VALUE = 1", "VALUE = 2", {"package"}),
        ("scales.py", "math.tau", "math.pi", {"dotted"}),
        ("study.py", "n and", "n or", {"own"}),
        ("study.py", "super().shared() + 1", "super().shared() + 2", {"inherited"}),
        ("parent.py", "        return 1", "        return 2", {"inherited"}),
    ],
)
def test_names_are_followed_through_every_kind_of_import(tmp_path, monkeypatch, path, old, new, stages):
    package = Package(tmp_path, FILES, monkeypatch)
    study = package.study()
    names = ("handed", "constant", "late", "package", "dotted", "own", "inherited")
    before = code_by_stage(study, names)
    package.edit(path, old, new)
    after = code_by_stage(study, names)
    assert {name for name in names if before[name] != after[name]} == stages


def test_a_measure_for_all_stages_counts_for_each(tmp_path, monkeypatch):
    package = Package(
        tmp_path,
        {
            "__init__.py": "",
            "study.py": """
                from gnomon.studies.study import Study

                class TinyStudy(Study):
                    def measure(self, unit, run):
                        return 1
            """,
        },
        monkeypatch,
    )
    study = package.study()
    before = code_by_stage(study, STAGES)
    package.edit("study.py", "return 1", "return 2")
    after = code_by_stage(study, STAGES)
    assert all(before[stage] != after[stage] for stage in STAGES)


def test_a_study_in_a_loose_file_reaches_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"loose_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(
        f"from gnomon.studies.study import Study\nimport {name}_method\n\n"
        f"class Loose(Study):\n    def measure_walk(self, unit, run):\n        return {name}_method.value()\n"
    )
    method = tmp_path / f"{name}_method.py"
    method.write_text("def value():\n    return 1\n")
    study = importlib.import_module(name).Loose
    before = stage_code(study, "walk")
    method.write_text("def value():\n    return 10\n")
    assert stage_code(study, "walk") != before


def test_a_script_has_the_units_of_the_module_it_can_be_imported_as(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"script_{uuid.uuid4().hex[:8]}"
    path = tmp_path / f"{name}.py"
    path.write_text(
        "from gnomon.studies.fingerprint import stage_code\nfrom gnomon.studies.study import Study\n\n"
        "class Script(Study):\n    def measure_walk(self, unit, run):\n        return _value()\n\n"
        "def _value():\n    return 1\n\n"
        "if __name__ == '__main__':\n    print(stage_code(Script, 'walk'))\n"
    )
    printed = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == stage_code(importlib.import_module(name).Script, "walk")


def test_a_study_without_a_file_cannot_be_keyed():
    study = type("Nowhere", (TinyStudy,), {"__module__": "builtins"})
    with pytest.raises(ValueError, match="is not defined in a file"):
        stage_code(study, "walk")


def test_keys_depend_on_all_that_a_unit_depends_on():
    unit = Unit("walk", {"arm": "treatment", "steps": 5})
    facts = {"seed": 0, "code": "c", "needs": ("n",)}
    key = unit_key("study", unit, **facts)
    assert key == unit_key("study", Unit("walk", {"steps": 5, "arm": "treatment"}, seconds=9), **facts)
    others = [
        unit_key("another", unit, **facts),
        unit_key("study", Unit("walk", {"arm": "treatment", "steps": 6}), **facts),
        unit_key("study", Unit("run", {"arm": "treatment", "steps": 5}), **facts),
        unit_key("study", unit, **{**facts, "seed": 1}),
        unit_key("study", unit, **{**facts, "code": "d"}),
        unit_key("study", unit, **{**facts, "needs": ("m",)}),
    ]
    assert len({key, *others}) == 7


@pytest.mark.parametrize("value", [{1, 2}, math.nan, object()])
def test_only_json_values_have_a_canonical_form(value):
    with pytest.raises(ValueError, match="not a JSON value"):
        canonical_json({"value": value})


class ReferringStudy(TinyStudy):
    """Lists its last stage only, once more at the end, and gives a unit to each of two that need it."""

    def units(self, config):
        base = Unit("walk", {"seed": 0}, seconds=2)
        middle = [Unit("slope", {"part": part}, needs=(base,), seconds=part) for part in (1, 5)]
        last = Unit("summary", {}, needs=tuple(middle))
        return [last, middle[0], last]


def test_a_plan_has_every_unit_once_with_its_needs():
    study = ReferringStudy()
    plan = plan_units(study, study.Config())
    labels = [planned.unit.label for planned in plan.values()]
    assert labels == ["walk(seed=0)", "slope(part=5)", "summary()", "slope(part=1)"]
    after = dependants(plan)
    assert [len(after[key]) for key in plan] == [2, 1, 0, 1]
    seconds = {plan[key].unit.label: value for key, value in critical_seconds(plan).items()}
    assert seconds == {"walk(seed=0)": 7, "slope(part=5)": 5, "slope(part=1)": 1, "summary()": 0}


def test_a_stage_must_have_a_plain_name():
    class Odd(TinyStudy):
        def units(self, config):
            return [Unit("../walk")]

    with pytest.raises(ValueError, match=r"stage '\.\./walk' must be"):
        plan_units(Odd(), Odd.Config())
