"""Records on disk: the same numbers as in memory, whole after a crash, resumable with the training checkpoint."""

from __future__ import annotations

import io
import json
import shutil
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch

from gnomon.training.influence import FInfluence, InfluenceResult, Record, Setting
from gnomon.training.influence.record import Observation

SETTING = Setting(target="query", queries=("query",), method="jvp", parameters={"weight": 3})


def observation(step, ids=(0, 1, 2, 3), seed=None):
    rng = np.random.default_rng(step if seed is None else seed)
    dots = rng.normal(0, 1, (len(ids), 1)).astype(np.float32)
    return Observation(
        step=step,
        lr=0.1,
        batch_size=4,
        index=np.array(ids),
        dots=dots,
        mean=dots.astype(np.float64).mean(0, keepdims=True),
        std=dots.astype(np.float64).std(0, keepdims=True, ddof=1),
        losses=rng.random(len(ids)).astype(np.float32),
        squared_norms=rng.random(len(ids)).astype(np.float32),
        query_losses=np.array([1.0]),
        query_norms=np.array([2.0]),
    )


def same(first: Record, last: Record) -> bool:
    pairs = list(zip(first.observations(), last.observations(), strict=True))
    numbers = ((np.asarray(vars(a)[key]), np.asarray(vars(b)[key])) for a, b in pairs for key in vars(a))
    return all(x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in numbers)


@pytest.fixture
def written(tmp_path):
    record = Record(SETTING, tmp_path / "record", rows_a_shard=10)
    for step in range(8):
        record.append(observation(step))
    record.flush()
    return record


def in_memory(steps):
    record = Record(SETTING)
    for step in steps:
        record.append(observation(step))
    return record


@pytest.mark.filterwarnings("ignore:examples were observed")
@pytest.mark.parametrize("target", ["query", "self"])
def test_disk_and_memory_hold_the_same(task, losses, tmp_path, target):
    query = task.query if target == "query" else None

    def recorder_of(folder):
        return lambda net, optimizer: FInfluence(
            net, losses, query=query, target=target, optimizer=optimizer, folder=folder
        )

    memory = task.train(recorder_of(None)).finalize()
    disk = task.train(recorder_of(tmp_path / "record")).finalize()
    pd.testing.assert_frame_equal(memory.scores, disk.scores)
    assert same(memory.record, disk.record)
    again = InfluenceResult(Record.open(tmp_path / "record"), steps=12)
    pd.testing.assert_frame_equal(again.scores, disk.scores)


def test_memory_is_bounded_by_the_shard(written):
    assert len(list(written.folder.glob("rows-*.parquet"))) == 3  # 3, 3 and 2 steps of 4 rows
    assert same(written, in_memory(range(8)))
    table = written.steps()
    assert table["step"].tolist() == list(range(8))
    assert (table["observed"] == 4).all()


def test_memory_does_not_grow_with_the_steps(tmp_path):
    def peak(steps):
        record = Record(SETTING, tmp_path / str(steps), rows_a_shard=8_000)
        tracemalloc.start()
        for step in range(steps):
            record.append(observation(step, ids=range(4_000)))
        record.flush()
        result = InfluenceResult(Record.open(tmp_path / str(steps)), steps=steps)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(result.rates) == 4_000
        return highest

    peak(16)  # what pandas and pyarrow load on first use
    few, many = peak(8), peak(40)
    assert many < 1.2 * few  # one shard and the sums; all rows together are five times as many


def test_a_crash_loses_only_what_was_not_flushed(written):
    written.append(observation(8))  # held, not written
    number = 2
    (written.folder / f"steps-{number:06d}.parquet").unlink()  # the crash came between rows and steps
    (written.folder / "rows-000003.tmp").write_bytes(b"half a file")
    after = Record.open(written.folder)
    assert same(after, in_memory(range(6)))
    after.append(observation(6))
    after.flush()
    assert same(Record.open(written.folder), in_memory(range(7)))


def test_a_torn_shard_is_named(written):
    shard = written.folder / "rows-000001.parquet"
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"rows-000001\.parquet cannot be read"):
        list(Record.open(written.folder).observations())
    with pytest.raises(FileNotFoundError, match="holds no influence record"):
        Record.open(written.folder / "nowhere")
    (written.folder / "record.json").write_text("{")
    with pytest.raises(ValueError, match="not the description of an influence record"):
        Record.open(written.folder)


@pytest.mark.parametrize("last", [None, 0, 3, 5, 7])
def test_truncation_forgets_later_steps(written, last):
    written.append(observation(8))
    written.truncate(last)
    kept = range(0 if last is None else last + 1)
    assert same(written, in_memory(kept))
    assert written.last_step == last


def test_steps_must_ascend(written):
    with pytest.raises(ValueError, match="step 7 was observed after step 7"):
        written.append(observation(7))


def test_a_folder_of_another_setting_is_not_continued(written):
    other = Setting(target="self", queries=("self",), method="ghost", parameters={"weight": 3})
    with pytest.raises(ValueError, match="record with another target: 'query', now 'self'"):
        Record(other, written.folder)
    assert json.loads((written.folder / "record.json").read_text())["target"] == "query"


@pytest.mark.filterwarnings("ignore:examples were observed")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_resumed_run_scores_as_an_uninterrupted_one(task, losses, tmp_path, streamed):
    """Stop after 7 of 12 steps, go on from the checkpoint of step 5: the two steps after it are observed anew."""
    folder = tmp_path / "record" if streamed else None

    def made(net, optimizer, folder):
        return FInfluence(net, losses, query=task.query, optimizer=optimizer, folder=folder)

    whole = task.train(lambda net, optimizer: made(net, optimizer, None)).finalize()
    batches = task.batches(12)

    def steps(net, optimizer, recorder, first, last):
        for step in range(first, last):
            index = batches[step]
            batch = (task.inputs[index], task.labels[index])
            if recorder.due(step):
                recorder.observe(batch, index)
            optimizer.zero_grad()
            losses(net, batch).mean().backward()
            optimizer.step()

    net = task.net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    recorder = made(net, optimizer, folder)
    steps(net, optimizer, recorder, 0, 5)
    saved = io.BytesIO()
    torch.save({"net": net.state_dict(), "recorder": recorder.state_dict()}, saved)
    steps(net, optimizer, recorder, 5, 7)
    recorder.close_step()
    recorder.record.flush()

    saved.seek(0)
    checkpoint = torch.load(saved, weights_only=True)
    net = task.net(seed=1)
    net.load_state_dict(checkpoint["net"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    recorder = made(net, optimizer, folder)
    recorder.load_state_dict(checkpoint["recorder"])
    steps(net, optimizer, recorder, 5, 12)
    pd.testing.assert_frame_equal(recorder.finalize().scores, whole.scores)


def test_a_record_that_lost_its_steps_does_not_resume(task, losses, tmp_path):
    folder = tmp_path / "record"
    with FInfluence(task.net(), losses, query=task.query, folder=folder) as recorder:
        recorder.observe((task.inputs, task.labels), range(60), step=3, lr=0.1)
        state = recorder.state_dict()
    shutil.rmtree(folder)
    fresh = FInfluence(task.net(), losses, query=task.query, folder=folder)
    with pytest.raises(ValueError, match="ends at step None, the checkpoint at 3"):
        fresh.load_state_dict(state)
