"""Two processes that train together, each observing its own share, against one process that observes everything."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gnomon.training.influence import FInfluence, Record

STEPS = 4
MODES = ("batch", "pool", "self")

# The loop of both: under data parallel training a rank has every other example of a batch, and gradients are averaged.
LOOP = """
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from gnomon.training.influence import FInfluence

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
x, y, start = torch.load(folder + "/task.pt", weights_only=True)


def losses(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


for mode in ("batch", "pool", "self"):
    net = nn.Linear(3, 2).double()
    net.load_state_dict(start)
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.5)
    recorder = FInfluence(
        parallel,
        losses,
        query=None if mode == "self" else (x[:5], y[:5]),
        target="self" if mode == "self" else "query",
        pool=None if mode == "batch" else ((x, y), range(len(x))),
        batch_size=8,
        optimizer=optimizer,
        reference=7,
        folder=f"{folder}/{mode}",
    )
    for step in range(4):
        index = torch.arange(step * 8, step * 8 + 8)[rank::2]
        batch = (x[index].clone(), y[index])
        if mode == "batch" and step == 2 and rank == 1:
            batch[0][0, 0] = float("nan")  # one rank meets a loss that is not a number
        if recorder.due(step):
            recorder.observe(*((batch, index) if mode == "batch" else ()))
        optimizer.zero_grad()
        losses(parallel, (x[index], y[index])).mean().backward()
        optimizer.step()
    recorder.close_step()
    if mode == "batch":
        recorder.due(9)
        recorder.observe((x[rank:2], y[rank:2]), range(rank, 2), step=9, lr=1.0)  # example 1 is dealt to both ranks
        recorder.close_step()
        assert recorder.n_skipped == 1
    recorder.record.flush()
    if rank == 1:
        try:
            recorder.finalize()
        except RuntimeError as error:
            assert "rank 0" in str(error)
        else:
            raise AssertionError("only rank 0 has the record")
dist.destroy_process_group()
"""


def losses(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


@pytest.fixture(scope="module")
def task():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 3, generator=generator, dtype=torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return x, (x[:, 0] > 0).long(), nn.Linear(3, 2).double()


@pytest.fixture(scope="module")
def together(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    x, y, net = task
    torch.save((x, y, net.state_dict()), folder / "task.pt")
    (folder / "loop.py").write_text(LOOP)
    ranks = [
        subprocess.Popen(
            [sys.executable, folder / "loop.py", str(rank), str(folder)], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=120)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], errors
    return folder


def alone(task, mode):
    x, y, start = task
    net = nn.Linear(3, 2).double()
    net.load_state_dict(start.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    recorder = FInfluence(
        net,
        losses,
        query=None if mode == "self" else (x[:5], y[:5]),
        target="self" if mode == "self" else "query",
        pool=None if mode == "batch" else ((x, y), range(len(x))),
        batch_size=8,
        optimizer=optimizer,
        reference=7,
    )
    for step in range(STEPS):
        index = torch.arange(step * 8, step * 8 + 8)
        batch = (x[index], y[index])
        if recorder.due(step):
            recorder.observe(*((batch, index) if mode == "batch" else ()))
        optimizer.zero_grad()
        losses(net, batch).mean().backward()
        optimizer.step()
    recorder.close_step()
    return list(recorder.record.observations())


@pytest.mark.parametrize("mode", MODES)
def test_ranks_observe_what_one_process_does(task, together, mode):
    found = [held for held in Record.open(together / mode).observations() if held.step < STEPS]
    expected = [held for held in alone(task, mode) if mode != "batch" or held.step != 2]
    assert [held.step for held in found] == [held.step for held in expected]
    for one, other in zip(found, expected, strict=True):
        order, other_order = np.argsort(one.index), np.argsort(other.index)
        assert (one.index[order] == other.index[other_order]).all()
        assert one.batch_size == other.batch_size == 8
        for name in ("dots", "losses", "squared_norms", *(("mean", "std") if mode == "self" else ())):
            # Kept in single precision.
            np.testing.assert_allclose(
                getattr(one, name)[order], getattr(other, name)[other_order], rtol=1e-5, atol=1e-8
            )
        if mode != "self":
            np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6)
            np.testing.assert_allclose(one.std, other.std, rtol=1e-6)


def test_an_example_on_two_ranks_counts_once(together):
    last = list(Record.open(together / "batch").observations())[-1]
    assert last.step == 9
    assert sorted(last.index.tolist()) == [0, 1]
    assert last.batch_size == 8
