"""A verification that was killed: the next run repeats no call that was answered, and finds the same."""

import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gnomon.models.call_cache import CallCache, connection
from gnomon.models.endpoint import EndpointChat
from gnomon.retrieval.veritrail import ChatJudge, Claim, Node, Process, verify
from gnomon.retrieval.veritrail.judges.judge import Usage

FACTS = [f"Site number {number} was closed." for number in range(40)]
CLAIMS = [Claim(f"c{number}", fact, subclaims=("There was a site.",)) for number, fact in enumerate(FACTS)]


def process():
    """A chain in which every step adds ten facts: thirty are inventions, of three stages."""
    texts = {"source": FACTS[:10], "notes": FACTS[:20], "summary": FACTS[:30], "answer": FACTS}
    nodes = [Node(name, " ".join(facts)) for name, facts in texts.items()]
    return Process(nodes, [("source", "notes"), ("notes", "summary"), ("summary", "answer")])


def run(url, path):
    chat = EndpointChat("m", url, cache=CallCache(path), concurrency=8)
    return verify(process(), judge=ChatJudge(chat), claims=CLAIMS)


def found_out(trail):
    """The trail without what it cost: whether a reply was bought or found in the cache is all that may differ."""
    claims = tuple(
        replace(
            each,
            iterations=tuple(replace(step, usage=replace(step.usage, calls=0, cached=0)) for step in each.iterations),
        )
        for each in trail.claims
    )
    return pickle.dumps(replace(trail, claims=claims, judge={}))


def cached(trail):
    return sum(each.usage.cached for each in trail.claims)


def stored(path):
    with connection(path) as database:
        return database.execute("select count(*) from replies").fetchone()[0]


# Within the first batch of evidence, and deep in the walk.
@pytest.mark.parametrize("killed_after", [15, 110])
def test_a_killed_run_is_resumed_without_repeating_an_answered_call(serve, tmp_path, killed_after):
    cold = serve()
    whole = run(cold.url, tmp_path / "cold.sqlite3")
    assert {each.origin.nodes for each in whole.claims if each.origin} == {("answer",), ("summary",), ("notes",)}

    path = tmp_path / "calls.sqlite3"
    server = serve(latency=0.02)
    child = subprocess.Popen([sys.executable, __file__, server.url, path])
    try:
        until = time.monotonic() + 60
        while len(server.requests) < killed_after and child.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
    finally:
        child.kill()
    assert child.wait() == -9, "the run was over before it could be killed"
    kept = stored(path)
    assert killed_after - 16 <= kept < len(cold.requests)  # all but those in flight, and what arrived in that moment

    seen = len(server.requests)
    resumed = run(server.url, path)
    assert len(server.requests) - seen == len(cold.requests) - kept
    assert found_out(resumed) == found_out(whole)
    # A step whose evidence reads like that of the step before asks the same question: the cold run's own repetitions.
    assert cached(resumed) == kept + cached(whole)

    rerun = run(server.url, path)
    assert len(server.requests) - seen == len(cold.requests) - kept
    assert found_out(rerun) == found_out(whole)
    assert sum((each.usage for each in rerun.claims), Usage()).calls == 0


if __name__ == "__main__":  # the run that is killed
    run(sys.argv[1], Path(sys.argv[2]))
