"""What following a claim step by step costs, beside checking every node, and beside final text against source only.

Calls and tokens are those of a chat judge: one conversation a selection or ruling, instructions included. The judge
that answers is the offline one, so that accuracy stands beside cost. A server on loopback that answers after half a
second shows what the engine adds to the waiting, beside the bare client of the ``openai`` library.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openai

from gnomon.models.call_cache import CallCache
from gnomon.models.endpoint import EndpointChat
from gnomon.retrieval.veritrail import ChatJudge, Claim, Node, OfflineJudge, Process, SentenceIndex, verify
from gnomon.retrieval.veritrail.baselines import direct, every_node, stagewise, terminal_only
from gnomon.retrieval.veritrail.generator import Truth, make_process
from gnomon.retrieval.veritrail.judges.chat import EvidenceAnswer, evidence_conversation, verdict_conversation
from gnomon.retrieval.veritrail.judges.judge import Judge, SelectionTask
from gnomon.retrieval.veritrail.reading import token_count
from gnomon.retrieval.veritrail.trail import ClaimTrail

SEEDS, CHUNKS, CLAIMS = (11, 12), 64, 24
LARGE_CHUNKS, LARGE_CLAIMS = (107, 214, 428, 856), 200  # the last has 2,000 nodes
LATENCY, CONCURRENCY, SERVED = 0.5, 32, 128
RERUN_CLAIMS = 1_000

Check = Callable[[SentenceIndex, Sequence[Claim], Judge], Sequence[ClaimTrail]]


def _walk(q: int | None) -> Check:
    return lambda index, claims, judge: verify(index.process, judge=judge, claims=claims, q=q, index=index).claims


CHECKS: dict[str, Check] = {
    "walk_q1": _walk(1),
    "walk_q3": _walk(3),
    "walk_full": _walk(None),
    "every_node": every_node,
    "stagewise": stagewise,
    "source_only": direct,
    "terminal_only": terminal_only,
}


def run() -> dict:
    """Calls a claim of the walk and of checking every node; cost and accuracy of all; throughput; engine overhead."""
    table = _compared()
    ours, peer = table["walk_q3"], table["every_node"]
    return {
        "name": "veritrail",
        "ours": ours["calls"],
        "peer": peer["calls"],
        "ratio": ours["calls"] / peer["calls"],
        "unit": f"calls a claim; peer: every sentence of every node against all sources; {CHUNKS} chunks, 4 stages, "
        f"{len(SEEDS)} processes of {CLAIMS} claims",
        "checks": table,
        "sentences_of_source_only": ours["sentences"] / table["source_only"]["sentences"],
        **_scaling(),
        **_engine(),
        "bars": "sentences <= .60 of source only at 64 chunks; slope in nodes <= 1; >= 1000 claims a second; "
        "<= 1.05 of the bare client, >= .90 of full concurrency; rerun of 1000 claims <= 5 s and 0 calls",
    }


class Metered(Judge):
    """Another judge, with what a chat judge's questions would be: their number, and the tokens of their prompts."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.calls = self.tokens = self.sentences = 0
        self.seconds = 0.0

    @property
    def identity(self):
        return self._judge.identity

    def prepare(self, index, claims):
        self._judge.prepare(index, claims)

    def extract(self, index):
        return self._judge.extract(index)

    def decompose(self, claims):
        return self._judge.decompose(claims)

    def select(self, tasks):
        self.sentences += sum(len(task.sentences) for task in tasks)
        self._count(map(evidence_conversation, tasks))
        return self._judge.select(tasks)

    def rule(self, tasks):
        self._count(map(verdict_conversation, tasks))
        return self._judge.rule(tasks)

    def _count(self, conversations) -> None:
        started = time.process_time()
        for conversation in conversations:
            self.calls += 1
            self.tokens += sum(token_count(message["content"]) for message in conversation)
        self.seconds += time.process_time() - started  # of the counting itself, which no check has to pay


def _compared() -> dict[str, dict[str, float]]:
    """Cost a claim and accuracy of every check, over all processes."""
    sums = {name: np.zeros(7) for name in CHECKS}
    claims = errors = 0
    for seed in SEEDS:
        process, truth = make_process(seed, chunks=CHUNKS, claims=CLAIMS, depth=4)
        index = SentenceIndex(process)
        judge = OfflineJudge()
        written = [s for s in index if not process.is_root(s.node)]
        judge.prepare(index, [*truth.texts, *(Claim(s.id, s.text) for s in written)])  # vectors first: they are shared
        verify(process, judge=judge, claims=truth.texts, index=index)  # every frame is read once, whoever asks first
        claims += len(truth.claims)
        errors += sum(each.stage is not None for each in truth.claims)
        for name, check in CHECKS.items():
            metered = Metered(judge)
            started = time.process_time()
            trails = check(index, truth.texts, metered)
            spent = time.process_time() - started - metered.seconds
            sums[name] += [metered.calls, metered.tokens, metered.sentences, 1e3 * spent, *_hits(trails, truth)]
    return {
        name: {
            "calls": calls / claims,
            "tokens": tokens / claims,
            "sentences": sentences / claims,
            "ms": spent / claims,
            "verdict_right": right / claims,
            "stage_right": located / errors,
            "errors_found": found / errors,
        }
        for name, (calls, tokens, sentences, spent, right, located, found) in sums.items()
    }


def _hits(trails: Sequence[ClaimTrail], truth: Truth) -> tuple[int, int, int]:
    """Right verdicts; errors with exactly the right stage, missed ones and those without a stage wrong; errors seen."""
    right = located = found = 0
    for trail, true in zip(trails, truth.claims, strict=True):
        right += (trail.verdict == "supported") == (true.label == "supported")
        if true.stage is not None and trail.verdict != "supported":
            found += 1
            located += trail.origin is not None and trail.origin.stages == {true.stage}
    return right, located, found


def _scaling() -> dict[str, object]:
    """Claims a second of the offline judge against the number of nodes.

    Sentences are read and embedded (TF-IDF here) before; ``reading_s`` is what that takes.
    """
    rates: dict[int, float] = {}
    reading: dict[int, float] = {}
    for chunks in LARGE_CHUNKS:
        process, truth = make_process(
            5, chunks=chunks, depth=6, claims=LARGE_CLAIMS, facts=2, near_duplicates=0, p_skip=0.0
        )
        index = SentenceIndex(process)
        judge = OfflineJudge("tf-idf")
        started = time.process_time()
        judge.prepare(index, truth.texts)
        verify(process, judge=judge, claims=truth.texts, index=index)
        both = time.process_time() - started
        spent = np.inf
        for _ in range(3):
            started = time.process_time()
            verify(process, judge=judge, claims=truth.texts, index=index)
            spent = min(spent, time.process_time() - started)
        rates[len(process.nodes)] = LARGE_CLAIMS / spent
        reading[len(process.nodes)] = both - spent
    slope = float(np.polyfit(np.log(list(rates)), -np.log(list(rates.values())), 1)[0])
    return {"claims_a_second_by_nodes": rates, "slope_in_nodes": slope, "reading_s_by_nodes": reading}


_SERVER = """
import asyncio, json, sys
async def answer(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            sizes = [line for line in head.split(b"\\r\\n") if line.lower().startswith(b"content-length")]
            length = int(sizes[0].split(b":")[1])
            question = json.loads(await reader.readexactly(length))["messages"][-1]["content"]
            await asyncio.sleep(float(sys.argv[1]))
            said = {"ids": ["S1"], "summary": "s"} if "<texts>" in question else {
                "reasoning": "r", "verdict": "supported", "subclaims": [], "ids": ["S1"]}
            body = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [{
                "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(said)}}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}}).encode()
            head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n"
            writer.write(head % len(body) + body)
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def _engine() -> dict[str, float]:
    """Time beside that of the bare client, share of the concurrency reached, and what a rerun from the cache takes."""
    server = subprocess.Popen([sys.executable, "-c", _SERVER, str(LATENCY)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        with tempfile.TemporaryDirectory() as folder:
            cache = CallCache(Path(folder) / "calls.sqlite3")

            def verified(claims: int, *, concurrency: int = CONCURRENCY) -> tuple[float, float, int]:
                chat = EndpointChat("m", url, cache=cache, concurrency=concurrency)
                listed = [Claim(f"c{n}", f"Claim number {n}.", subclaims=("Part.",)) for n in range(claims)]
                started, busy = time.perf_counter(), time.process_time()
                trail = verify(_chain(claims), judge=ChatJudge(chat), claims=listed)
                spent = time.perf_counter() - started, time.process_time() - busy
                return *spent, sum(claim.usage.calls for claim in trail.claims)

            verified(CONCURRENCY)  # imports
            busy = time.process_time()
            bare = asyncio.run(_bare(url, 4 * SERVED))
            bare_busy = time.process_time() - busy
            seconds, busy, calls = verified(SERVED)
            verified(RERUN_CLAIMS, concurrency=500)
            again, _, repeated = verified(RERUN_CLAIMS)
    finally:
        server.terminate()
        server.wait()
    return {
        "engine_of_bare_client": seconds / calls / (bare / (4 * SERVED)),
        "engine_cpu_ms_a_call": 1e3 * busy / calls,
        "bare_cpu_ms_a_call": 1e3 * bare_busy / (4 * SERVED),
        "engine_concurrency_share": LATENCY * calls / CONCURRENCY / seconds,
        "bare_concurrency_share": LATENCY * 4 * SERVED / CONCURRENCY / bare,
        "rerun_s_of_1000_claims": again,
        "rerun_calls": float(repeated),
    }


async def _bare(url: str, calls: int) -> float:
    """Seconds of the same calls through the library alone."""
    async with openai.AsyncOpenAI(api_key="none", base_url=url) as client:
        turn = asyncio.Semaphore(CONCURRENCY)
        index = SentenceIndex(_chain(0))
        conversation: Any = evidence_conversation(SelectionTask(Claim("c", "Claim."), index.of("source")))
        schema = {"name": "EvidenceAnswer", "schema": EvidenceAnswer.model_json_schema()}
        form: Any = {"type": "json_schema", "json_schema": schema}

        async def one() -> None:
            async with turn:
                await client.chat.completions.create(
                    model="m", messages=conversation, max_tokens=1_024, temperature=0.0, response_format=form
                )

        started = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(calls)))
        return time.perf_counter() - started


def _chain(claims: int) -> Process:
    """A source and one step; the number of claims makes each run's prompts its own."""
    texts = {"source": f"There were {claims} of them. All was quiet.", "step": f"There were {claims}.", "final": "So."}
    return Process([Node(name, text) for name, text in texts.items()], [("source", "step"), ("step", "final")])
