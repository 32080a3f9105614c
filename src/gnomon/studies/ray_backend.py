"""Units on a Ray cluster. Needs ``pip install gnomon[ray]``.

Nodes need gnomon, the study's package and the models installed; they share no file system with the run. What a unit
needs travels to its node as an object, the finished unit travels back, and the run stores it as if it had been
measured here. A unit whose worker or node dies is measured again by Ray, elsewhere.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import tarfile
from pathlib import Path
from typing import Any

from gnomon.studies.backends import ONE_THREAD
from gnomon.studies.cache import UnitCache
from gnomon.studies.measuring import Outcome, UnitTask, failure, measure_unit
from gnomon.user_cache import cache_root

RETRIES = 3


class RayBackend:
    """Measures units on a Ray cluster, one CPU each.

    Args:
        address: Address of a running cluster; by default Ray's own rule (``RAY_ADDRESS``, else a local cluster).
        gpus_per_unit: GPUs, or the share of one, that each unit occupies.

    Raises:
        ModuleNotFoundError: If Ray is not installed.
        ValueError: If ``gpus_per_unit`` is negative.
    """

    def __init__(self, address: str | None = None, *, gpus_per_unit: float = 0.0) -> None:
        if not gpus_per_unit >= 0:
            raise ValueError(f"gpus per unit must be >= 0, got {gpus_per_unit}")
        try:
            import ray
        except ModuleNotFoundError:
            raise ModuleNotFoundError("the Ray backend needs Ray: pip install 'gnomon[ray]'") from None
        self._ray = ray
        self._address = address
        self._gpus = gpus_per_unit
        self._joined = False
        self._tasks: dict[Any, UnitTask] = {}
        self._packed: dict[str, Any] = {}

    @property
    def workers(self) -> int:
        """How many units the cluster can measure at once."""
        self._join()
        resources = self._ray.cluster_resources()
        fitting = int(resources.get("CPU", 1))
        if self._gpus:
            fitting = min(fitting, int(resources.get("GPU", 0) / self._gpus))
        return max(1, fitting)

    def start(self, log: Path) -> None:  # noqa: ARG002
        """Join the cluster; what workers print is in Ray's own logs.

        Raises:
            ConnectionError: If no cluster answers at the address.
            ValueError: If the cluster has no GPU for units that ask for one.
        """
        self._join()
        self._measure = self._ray.remote(_measure_remotely).options(
            num_cpus=1, num_gpus=self._gpus, max_retries=RETRIES
        )

    def submit(self, task: UnitTask) -> None:
        """Send the unit to the cluster, with the finished units it needs."""
        needs = {key: self._pack(task.cache, key) for key in task.needs.values()}
        self._tasks[self._measure.remote(task, list(needs), *needs.values())] = task

    def wait(self) -> Outcome:
        """Block until a unit has ended, and take it into the unit cache."""
        from ray.exceptions import RayError

        (reference,), _ = self._ray.wait(list(self._tasks), num_returns=1)
        task = self._tasks.pop(reference)
        try:
            outcome, packed = self._ray.get(reference)
            if packed is not None:
                adopt_unit(task.cache, task.key, packed)
        except (RayError, OSError) as error:
            return failure(task.key, error)
        return outcome

    def stop(self) -> None:
        """Abandon what is in flight and leave the cluster."""
        for reference in self._tasks:
            self._ray.cancel(reference, force=True)
        self._tasks.clear()
        self._packed.clear()
        if self._joined:
            self._ray.shutdown()
            self._joined = False

    def _join(self) -> None:
        if self._ray.is_initialized():
            return
        self._ray.init(
            address=self._address,
            log_to_driver=False,
            include_dashboard=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": ONE_THREAD},
        )
        self._joined = True
        if self._gpus and self._ray.cluster_resources().get("GPU", 0) < self._gpus:
            raise ValueError(f"each unit asks for {self._gpus:g} GPUs, but the cluster has fewer")

    def _pack(self, cache: UnitCache, key: str) -> Any:
        """A finished unit in the object store, put there once."""
        if key not in self._packed:
            self._packed[key] = self._ray.put(pack_unit(cache, key))
        return self._packed[key]


def pack_unit(cache: UnitCache, key: str) -> bytes:
    """A finished unit's folder as an uncompressed tar.

    Raises:
        FileNotFoundError: If the unit has left the cache.
    """
    stored = cache.find(key)
    if stored is None:
        raise FileNotFoundError(f"unit {key[:12]} has left the unit cache {cache.root}")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(stored.path, arcname=".")
    return buffer.getvalue()


def adopt_unit(cache: UnitCache, key: str, packed: bytes) -> None:
    """Publish a packed unit in a cache that does not have it yet."""
    if cache.find_intact(key) is not None:
        return
    with cache.draft() as draft:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(draft, filter="data")
        record_path = draft / "unit.json"
        record = json.loads(record_path.read_bytes())
        record_path.unlink()
        cache.publish(key, draft, {name: record[name] for name in record if name not in {"schema", "key", "files"}})


def _measure_remotely(task: UnitTask, need_keys: list[str], *needs: bytes) -> tuple[Outcome, bytes | None]:
    """Runs on a node: measure the unit in the node's own cache and send it back."""
    cache = UnitCache(cache_root() / "ray", limit_gb=task.cache.limit / 1e9)
    keys = [*need_keys, task.key]
    with cache.pinned(keys):
        for key, packed in zip(need_keys, needs, strict=True):
            adopt_unit(cache, key, packed)
        cache.trim()
        outcome = measure_unit(dataclasses.replace(task, cache=cache))
        return outcome, pack_unit(cache, task.key) if outcome.kind in {"done", "gated"} else None
