"""A run: the same tables however it is measured, and what becomes of units that fall short."""

import json
import os
import shutil
import subprocess
import sys

import pandas as pd
import psutil
import pytest
from noisy_study import NoisyStudy
from tiny_runs import ShuffledBackend, unit_bytes
from tiny_study.study import TinyStudy

from gnomon.studies.backends import LocalBackend
from gnomon.studies.files import StorageError, read_tables, sha256, write_table
from gnomon.studies.runner import run_study
from gnomon.studies.store import Run
from gnomon.studies.unit import Unit


def test_one_worker_two_workers_and_any_order_give_the_same_bytes(tiny, tmp_path):
    reference = tiny("full")
    for backend in (LocalBackend(1), LocalBackend(2), ShuffledBackend(1)):
        fresh = type(tiny)(tmp_path / f"{backend!r}")
        run = fresh("full", backend=backend)
        assert unit_bytes(run) == unit_bytes(reference)
        assert (run.path / "findings.json").read_bytes() == (reference.path / "findings.json").read_bytes()
        assert {stage for stage, _ in fresh.journal.measured} == {"walk", "slope", "summary"}


def test_tables_are_in_the_order_of_the_units_with_parameters_as_columns(tiny):
    tables = tiny(backend=ShuffledBackend(3)).tables
    assert list(tables) == ["walk.path", "walk.end", "slope", "summary"]
    slopes = tables["slope"]
    assert list(slopes.columns) == ["arm", "seed", "slope"]
    assert slopes["arm"].tolist() == ["treatment"] * 6 + ["driftless"] * 6
    assert slopes["seed"].tolist() == [0, 1, 2, 3, 4, 5] * 2


def test_named_streams_pair_the_arms(tiny):
    paths = tiny(drift=0.25).tables["walk.path"]
    steps = paths.groupby(["arm", "seed"])["position"].diff().dropna()
    by_arm = {arm: steps[paths["arm"] == arm].to_numpy() for arm in ("treatment", "driftless")}
    assert by_arm["treatment"] - by_arm["driftless"] == pytest.approx(0.25)


def test_the_master_seed_changes_every_unit(tiny):
    one, two = tiny(seed=0), tiny(seed=1)
    assert not set(unit_bytes(one)) & set(unit_bytes(two))
    assert not one.tables["slope"].equals(two.tables["slope"])


def test_quick_then_full_measures_only_what_quick_has_not(tiny):
    tiny("quick")
    assert (tiny.journal.pending, tiny.journal.declared) == (26, 36)
    tiny("full")
    assert tiny.journal.measured.count(("walk", "done")) == 6
    assert tiny.journal.measured.count(("slope", "done")) == 6
    assert tiny.journal.measured.count(("summary", "done")) == 2
    assert tiny.journal.declared == 18
    tiny("full")
    assert (tiny.journal.measured, tiny.journal.declared, tiny.journal.seconds) == ([], 0, 0)


def test_declared_and_true_seconds_are_recorded(tiny):
    run = tiny(pause=0.01)
    assert sum(unit.declared for unit in run.units) == 36
    walked = [unit.seconds for unit in run.units if unit.stage == "walk"]
    assert min(walked) >= 0.01
    assert run.record["measured_seconds"] == pytest.approx(sum(unit.seconds for unit in run.units))
    assert tiny.journal.seconds == run.record["measured_seconds"]


def test_a_parameter_recomputes_what_depends_on_it_and_nothing_else(tiny):
    tiny(drift=0.5)
    tiny(drift=0.6)
    assert sorted(tiny.journal.measured) == [("slope", "done")] * 6 + [("summary", "done")] + [("walk", "done")] * 6


def test_a_unit_that_raises_leaves_the_others_and_a_traceback_and_can_be_resumed(tiny, another, tmp_path, monkeypatch):
    run = tiny(fault="raise")
    assert run.status == "failed"
    assert [(unit.stage, unit.status) for unit in run.units if unit.status != "done"] == [
        ("walk", "failed"),
        ("slope", "skipped"),
        ("summary", "skipped"),
    ]
    (trace,) = (run.path / "tracebacks").iterdir()
    assert "broken on purpose in walk(arm=treatment, seed=1" in trace.read_text()
    assert "_stumble" in trace.read_text()
    skipped = next(shortfall for shortfall in run.shortfalls if shortfall.stage == "summary")
    assert "walk(arm=treatment, seed=1" in skipped.reason
    assert "RuntimeError: broken on purpose" in skipped.reason
    # 1 of 12 is more than the 5 % that may be missing.
    assert [finding.verdict for finding in run.findings] == ["inconclusive", "inconclusive"]
    assert "1 of 12 units of stage slope skipped" in run.findings[0].reason

    (tmp_path / "fixed").touch()
    monkeypatch.setenv("TINY_FIXED", str(tmp_path / "fixed"))
    resumed = tiny(resume=run.path)
    assert tiny.journal.measured == [("walk", "done"), ("slope", "done"), ("summary", "done")]
    assert resumed.status == "done"
    assert not (run.path / "tracebacks").exists()
    assert unit_bytes(resumed) == unit_bytes(another(fault="raise"))
    assert resumed.verify(TinyStudy()) == []


def test_a_missing_unit_makes_the_run_incomplete_and_is_tried_again(tiny, tmp_path, monkeypatch):
    run = tiny(fault="missing")
    assert run.status == "incomplete"
    assert run.shortfalls[0].reason == "endpoint silent"
    (tmp_path / "fixed").touch()
    monkeypatch.setenv("TINY_FIXED", str(tmp_path / "fixed"))
    assert tiny(resume=run.path).status == "done"


def test_a_gate_ends_the_unit_for_good_and_skips_its_dependants(tiny):
    run = tiny(fault="gate")
    assert run.status == "done"
    assert [(unit.kind, unit.reason) for unit in run.shortfalls[:1]] == [("gated", "accuracy .19, needs > .33")]
    assert "accuracy .19, needs > .33" in run.findings[0].reason
    again = tiny(fault="gate")
    assert tiny.journal.pending == 0
    assert again.findings == run.findings
    assert again.shortfalls == run.shortfalls


@pytest.mark.parametrize(("fault", "reason"), [("die", "was killed by SIGKILL"), ("exit", "SystemExit: 3")])
def test_a_worker_that_dies_takes_only_its_unit_along(tiny, fault, reason):
    run = tiny(fault=fault, backend=LocalBackend(1))
    assert run.status == "failed"
    assert [unit.label.partition(",")[0] for unit in run.units if unit.status == "failed"] == ["walk(arm=treatment"]
    assert reason in next(unit.reason for unit in run.units if unit.status == "failed")
    assert sum(unit.status == "done" for unit in run.units) == 23


def test_an_error_on_a_full_disk_stops_the_run_whatever_it_says(tiny, monkeypatch):
    usage = shutil.disk_usage(tiny.runs_dir.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0))
    with pytest.raises(StorageError, match="No space left on device") as raised:
        tiny(fault="raise")
    run = Run(raised.value.path)
    assert run.status == "failed"
    assert sum(unit.status == "done" for unit in run.units) > 0
    monkeypatch.undo()
    resumed = tiny(resume=run.path)
    assert [unit.status for unit in resumed.units].count("failed") == 1  # it still raises, as it was asked to


def test_what_workers_print_goes_to_a_log(tmp_path, tiny):
    run = tiny(backend=LocalBackend(1))
    assert not (run.path / "worker.log").exists()  # it was empty
    study = NoisyStudy()
    noisy = run_study(study, runs_dir=tmp_path, backend=LocalBackend(1), cache=tiny.cache)
    assert "heard in the log" in (noisy.path / "worker.log").read_text()


@pytest.mark.parametrize("damage", ["truncate", "edit", "remove"])
@pytest.mark.parametrize("place", ["run", "cache"])
def test_damaged_files_are_reported_by_verify_and_made_anew(tiny, place, damage):
    run = tiny()
    before = unit_bytes(run)
    unit = next(unit for unit in run.units if unit.stage == "slope")
    stored = tiny.cache.find(unit.key)
    victim = run.path / unit.tables["slope"] if place == "run" else stored.tables["slope"]
    if damage == "truncate":
        victim.write_bytes(victim.read_bytes()[:100])
    elif damage == "edit":
        write_table(read_tables([victim]).assign(slope=9.0), victim)
    else:
        victim.unlink()
    if place == "run":
        assert f"{unit.tables['slope']} is not the file that was written" in Run(run.path).verify(TinyStudy())
    else:
        assert Run(run.path).verify(TinyStudy()) == []
        assert unit_bytes(tiny()) == before
        assert tiny.journal.measured == [("slope", "done")]
    resumed = tiny(resume=run.path)
    assert tiny.journal.measured == []
    assert unit_bytes(resumed) == before
    assert sha256(tiny.cache.find(unit.key).tables["slope"]) == next(iter(unit.files.values()))
    assert resumed.verify(TinyStudy()) == []


def test_a_run_is_whole_without_the_cache(tiny, another):
    run = tiny()
    tiny.cache = another.cache
    tiny(resume=run.path)
    assert tiny.journal.measured == []
    assert Run(run.path).verify(TinyStudy()) == []


def test_artifacts_that_left_the_cache_are_made_again_when_they_are_needed(tiny, another):
    run = tiny()
    slope = next(unit for unit in run.units if unit.stage == "slope")
    (run.path / slope.tables["slope"]).unlink()
    tiny.cache = another.cache
    tiny(resume=run.path)
    # The slope reads its walk's artifact, which only the cache had.
    assert tiny.journal.measured == [("walk", "done"), ("slope", "done")]


def test_kept_artifacts_are_in_the_run_folder(tiny):
    run = tiny()
    kept = sorted((run.path / "artifacts").rglob("*.npy"))
    assert [path.name for path in kept] == ["kept.npy", "kept.npy"]
    assert run.verify(TinyStudy()) == []
    kept[0].write_bytes(b"")
    assert any("kept.npy" in problem for problem in run.verify(TinyStudy()))


def test_verify_finds_verdicts_that_the_tables_do_not_give(tiny):
    run = tiny("full")
    path = run.path / "findings.json"
    stored = json.loads(path.read_text())
    contrast = stored["findings"][0]["contrasts"][0]
    contrast["difference"] = {"value": 0.0, "low": -1.0, "high": 1.0}
    stored["findings"][0]["verdict"] = "inconclusive"
    path.write_text(json.dumps(stored))
    (problem,) = Run(run.path).verify(TinyStudy())
    assert problem == "claim drift: stored verdict inconclusive, the tables give supported"
    stored["findings"][0]["verdict"] = "supported"
    path.write_text(json.dumps(stored))
    (problem,) = Run(run.path).verify(TinyStudy())
    assert "stores verdict 'supported', but its numbers give 'inconclusive'" in problem


def test_the_record_says_where_the_numbers_come_from(tiny):
    run = tiny()
    record = json.loads((run.path / "run.json").read_text())
    assert record["config"]["seeds"] == 6
    assert record["versions"]["pandas"] == pd.__version__
    assert record["machine"]["cores"] == os.cpu_count()
    assert run.provenance == {"generator": {"kind": "PCG64"}}
    assert {unit["status"] for unit in record["units"]} == {"done"}
    events = [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]
    assert events[0]["event"] == "planned"
    assert sum(event["event"] == "unit" for event in events) == 26


def test_resume_refuses_another_study_another_config_and_a_running_run(tiny, tmp_path):
    run = tiny()
    with pytest.raises(ValueError, match=r"is of study 'tiny-walks', not 'noisy'"):
        run_study(NoisyStudy(), resume=run.path, cache=tiny.cache)
    with pytest.raises(ValueError, match="has another configuration"):
        run_study(TinyStudy(), TinyStudy.Config(), resume=run.path, cache=tiny.cache)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, filelock\nwith filelock.FileLock(sys.argv[1]): print(1, flush=True); input()",
            str(run.path / ".lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        holder.stdout.readline()
        with pytest.raises(ValueError, match="is being worked on by another process"):
            tiny(resume=run.path)
        holder.communicate(b"\n")


def test_a_broken_record_is_named(tiny):
    run = tiny()
    record = run.path / "run.json"
    for text, message in (
        ("{", "is not valid JSON"),
        ("[]", "has schema None"),
        ('{"schema": 99}', "has schema 99"),
        ('{"schema": 1}', "lacks study, preset"),
    ):
        record.write_text(text)
        with pytest.raises(ValueError, match=message):
            Run(run.path)
    record.unlink()
    with pytest.raises(FileNotFoundError, match=r"is not a run: it has no run\.json"):
        Run(run.path)


def test_a_judge_or_report_that_raises_fails_the_run_and_keeps_its_units(tiny):
    def report(run, study):
        raise RuntimeError("no ink")

    run = tiny(report=report)
    assert run.status == "failed"
    assert run.errors[0].startswith("report: RuntimeError: no ink")
    assert len(run.findings) == 2

    broken = tiny(study=ForgetfulStudy())
    assert broken.status == "failed"
    assert "must give one finding for each claim; missing: ['spread'], extra: ['drift']" in broken.errors[0]
    assert not (broken.path / "findings.json").exists()
    assert (broken.path / "tracebacks" / "judge.txt").exists()
    assert all(unit.cached for unit in broken.units)


def test_unknown_claims_and_bad_units_are_refused_before_anything_is_written(tiny):
    with pytest.raises(ValueError, match=r"makes no claim 'drfit'; nearest is 'drift'"):
        tiny(claims=("drfit",))
    with pytest.raises(ValueError, match="parameters must be JSON values"):
        tiny(study=UnserialisableStudy())
    with pytest.raises(ValueError, match="has no units"):
        tiny(seeds=0, study=EmptyStudy())
    assert not tiny.runs_dir.exists()


def test_memory_of_a_run_stays_small(tiny):
    tiny()  # load what is loaded once
    process = psutil.Process()
    before = process.memory_info().rss
    tiny("full", seeds=40, seed=1)
    assert process.memory_info().rss - before < 50e6


class ForgetfulStudy(TinyStudy):
    def judge(self, tables, config):
        return [self.judge_drift(tables, config)] * 2


class UnserialisableStudy(TinyStudy):
    def units(self, config):
        return [Unit("walk", {"arm": {1, 2}})]


class EmptyStudy(TinyStudy):
    def units(self, config):
        return []
