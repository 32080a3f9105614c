"""How much 50 readers of ``gnomon serve`` slow a study down: its seconds with them over its seconds without.

The readers follow one run's progress (half of them) or read pages, each a page a second, while a CPU-bound study of one
worker runs beside the server. Any answer but 200 is an error.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks._busy import site_environment

READERS = 50


def run() -> dict:
    """Ratio of the study's seconds under load to its seconds alone, and errors that readers met."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = site_environment(folder)
        port = _free_port()
        server = subprocess.Popen(
            [sys.executable, "-m", "gnomon", "serve", "--port", str(port)],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            server.stdout.readline()
            alone = _study(folder, environment, seed=1)
            answers, loaded = asyncio.run(_under_load(folder, environment, f"http://127.0.0.1:{port}"))
        finally:
            server.terminate()
            server.wait()
    errors = sum(status != 200 for status in answers)
    return {
        "name": "serve_load",
        "ours": loaded,
        "peer": alone,
        "ratio": loaded / alone,
        "unit": f"seconds of a study with {READERS} readers; peer: the same study without",
        "answers": len(answers),
        "errors": errors,
    }


def _study(folder: Path, environment: dict[str, str], *, seed: int) -> float:
    """Seconds the study's units took, by their own clocks."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "gnomon", "run", "busy", "--workers", "1", "--seed", str(seed), "--quiet"]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


async def _under_load(folder: Path, environment: dict[str, str], address: str) -> tuple[list[int], float]:
    stop = asyncio.Event()
    answers: list[int] = []
    limits = httpx.Limits(max_connections=READERS + 10)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        work = asyncio.create_task(asyncio.to_thread(_study, folder, environment, seed=2))
        newest = await _newest_run(folder)
        followers = [_follow(client, newest, answers) for _ in range(READERS // 2)]
        readers = [_read(client, newest, answers, stop) for _ in range(READERS - READERS // 2)]
        tasks = [asyncio.create_task(reader) for reader in [*followers, *readers]]
        seconds = await work
        stop.set()
        await asyncio.gather(*tasks)
    return answers, seconds


async def _newest_run(folder: Path) -> str:
    known = {path.parent.name for path in (folder / "runs").glob("*/run.json")}
    while True:
        await asyncio.sleep(0.1)
        fresh = {path.parent.name for path in (folder / "runs").glob("*/run.json")} - known
        if fresh:
            return fresh.pop()


async def _follow(client: httpx.AsyncClient, run: str, answers: list[int]) -> None:
    async with client.stream("GET", f"/runs/{run}/events") as stream:
        answers.append(stream.status_code)
        async for _ in stream.aiter_lines():
            pass


async def _read(client: httpx.AsyncClient, run: str, answers: list[int], stop: asyncio.Event) -> None:
    pages = ["/", f"/runs/{run}", "/runs", "/instruments/busy"]
    while not stop.is_set():
        for page in pages:
            answers.append((await client.get(page)).status_code)
            await asyncio.sleep(1)
            if stop.is_set():
                return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
