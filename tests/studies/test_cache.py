"""The unit cache: whole units or none, within a limit, whoever else is using it."""

import contextlib
import os
import platform
import subprocess
import sys

import pytest

from gnomon.studies.cache import UnitCache


def publish(cache, key, size=1000, **record):
    with cache.draft() as draft:
        (draft / "table.parquet").write_bytes(bytes(size))
        (draft / "artifacts").mkdir()
        (draft / "artifacts" / "a.bin").write_bytes(b"a")
        return cache.publish(key, draft, {"tables": {"table": "table.parquet"}, **record})


@pytest.fixture
def cache(tmp_path):
    return UnitCache(tmp_path / "cache")


def test_a_published_unit_is_found_whole(cache):
    assert cache.find("ab1") is None
    publish(cache, "ab1", seconds=2.0)
    stored = cache.find_intact("ab1")
    assert stored.record["seconds"] == 2.0
    assert set(stored.record["files"]) == {"table.parquet", "artifacts/a.bin"}
    assert stored.tables["table"].stat().st_size == 1000
    assert list((cache.root / "drafts").iterdir()) == []


def test_the_first_of_two_publishers_wins(cache):
    publish(cache, "ab1", seconds=1.0)
    assert publish(cache, "ab1", seconds=2.0).record["seconds"] == 1.0


def test_an_abandoned_draft_leaves_nothing(cache):
    with contextlib.suppress(RuntimeError), cache.draft() as draft:
        (draft / "half").write_bytes(b"")
        raise RuntimeError
    assert list((cache.root / "drafts").iterdir()) == []


@pytest.mark.parametrize("file", ["table.parquet", "artifacts/a.bin", "unit.json"])
def test_a_damaged_unit_is_removed_when_it_is_looked_for(cache, file):
    stored = publish(cache, "ab1")
    (stored.path / file).write_bytes(b"{")
    assert cache.find_intact("ab1") is None
    assert not stored.path.exists()


def test_the_least_recently_used_go_first(tmp_path):
    cache = UnitCache(tmp_path, limit_gb=7e-6)
    for age, key in enumerate(("aa", "bb", "cc", "dd")):
        path = publish(cache, key, size=2000).path / "unit.json"
        os.utime(path, (age, age))
    cache.find_intact("aa")  # used again
    assert cache.trim() > 0
    assert cache.find("aa") is not None
    assert cache.find("bb") is None
    kept = [key for key in ("aa", "bb", "cc", "dd") if cache.find(key)]
    assert kept in (["aa", "dd"], ["aa", "cc", "dd"])
    assert cache.trim() == 0


def test_units_of_a_living_run_are_not_evicted(tmp_path):
    cache = UnitCache(tmp_path, limit_gb=0)
    publish(cache, "aa")
    publish(cache, "bb")
    with cache.pinned(["aa"]):
        assert cache.trim() == 1
        assert cache.find("aa") is not None
    assert cache.trim() == 1
    assert list((tmp_path / "pins").iterdir()) == []


PIN_AND_DIE = """
import os, signal, sys
from pathlib import Path
from gnomon.studies.cache import UnitCache
cache = UnitCache(Path(sys.argv[1]))
with cache.pinned(["aa"]), cache.draft():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_is_cleared_away(tmp_path):
    cache = UnitCache(tmp_path, limit_gb=0)
    publish(cache, "aa")
    subprocess.run([sys.executable, "-c", PIN_AND_DIE, str(tmp_path)], check=False)
    assert len(list((tmp_path / "drafts").iterdir())) == 1
    mine = tmp_path / "drafts" / f"{os.getpid()}@{platform.node()}@0"
    elsewhere = tmp_path / "drafts" / "999999999@elsewhere@0"
    mine.mkdir()
    elsewhere.mkdir()
    assert cache.trim() == 1
    assert sorted((tmp_path / "drafts").iterdir()) == sorted([mine, elsewhere])
    assert list((tmp_path / "pins").iterdir()) == []


@pytest.mark.parametrize("text", ["many", "-1", "nan"])
def test_the_limit_must_be_a_number(monkeypatch, text):
    monkeypatch.setenv("GNOMON_CACHE_GB", text)
    with pytest.raises(ValueError, match="GNOMON_CACHE_GB must be a number of gigabytes"):
        UnitCache()


def test_folder_and_limit_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path))
    monkeypatch.setenv("GNOMON_CACHE_GB", "1.5")
    cache = UnitCache()
    assert (cache.root, cache.limit) == (tmp_path, 1.5e9)
