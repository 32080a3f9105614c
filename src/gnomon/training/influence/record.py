"""What a run leaves for the scores: the observed steps, in memory or streamed to parquet shards.

A record folder holds ``record.json`` (what was observed and how) and numbered pairs of shards, ``rows-*.parquet`` (one
row an observed example and step) and ``steps-*.parquet`` (one row a step). Every file is written whole and renamed, the
steps after their rows, so that a record cut short by a crash loses only what had not been flushed. The numbers kept
are the raw ones; every estimator can be recomputed from them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

ROWS_A_SHARD = 1_000_000
SIGN = "positive: the example lowers the query loss"


@dataclass(frozen=True)
class Setting:
    """How a record was made.

    Args:
        target: ``query`` (influence on queries) or ``self`` (of each example on itself).
        queries: Names of the columns of inner products.
        method: How inner products were computed.
        parameters: Entries of the parameters that entered, by name of the parameter.
        batch_size: Examples an optimiser step, if it is not the number observed.
        n_train: Examples in the training set, if it is not the number of ids observed.
        precondition: ``none``, or ``adam`` for the optimiser's diagonal metric.
        seed: Of reference sets, random directions and sketches.
        sign: What a positive score means.
        versions: Of the libraries.
    """

    target: str
    queries: tuple[str, ...]
    method: str
    parameters: dict[str, int]
    batch_size: int | None = None
    n_train: int | None = None
    precondition: str = "none"
    seed: int = 0
    sign: str = SIGN
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """One observed step.

    Args:
        step: Optimiser steps taken before it.
        lr: Learning rate of the step: its weight.
        batch_size: Examples in the optimiser step.
        index: Ids of the observed examples, each once.
        dots: Inner products with each query's gradient (or squared norms, in self mode).
        mean: Mean inner product over the reference: one row, or one a example in self mode.
        std: Its standard deviation over the reference, likewise.
        losses: Training losses of the observed examples.
        squared_norms: Squared gradient norms; NaN where the method does not give them.
        query_losses: Mean loss of each query.
        query_norms: Gradient norm of each query.
    """

    step: int
    lr: float
    batch_size: int
    index: Int[np.ndarray, " example"]
    dots: Float[np.ndarray, "example query"]
    mean: Float[np.ndarray, "row query"]
    std: Float[np.ndarray, "row query"]
    losses: Float[np.ndarray, " example"]
    squared_norms: Float[np.ndarray, " example"]
    query_losses: Float[np.ndarray, " query"]
    query_norms: Float[np.ndarray, " query"]


class Record:
    """Observed steps in order.

    Args:
        setting: How they are made.
        folder: Where shards go; ``None`` keeps everything in memory. A folder with a record of the same setting is
            continued.
        rows_a_shard: Rows held in memory before a shard is written.

    Raises:
        ValueError: If the folder holds a record made in another way.
    """

    def __init__(
        self, setting: Setting, folder: str | os.PathLike[str] | None = None, *, rows_a_shard: int = ROWS_A_SHARD
    ) -> None:
        self.setting = setting
        self.folder = None if folder is None else Path(folder)
        self._rows_a_shard = rows_a_shard
        self._pending: list[Observation] = []
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if (self.folder / "record.json").exists():
                _require_equal(self.folder, Record.open(self.folder).setting, setting)
            else:
                _write_text(self.folder / "record.json", json.dumps(asdict(setting), indent=1))

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Record:
        """The record in a folder.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If its description cannot be read.
        """
        path = Path(folder) / "record.json"
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no influence record (record.json)")
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            setting = Setting(**{**stored, "queries": tuple(stored["queries"])})
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not the description of an influence record: {error}") from None
        record = cls.__new__(cls)
        record.setting, record.folder, record._rows_a_shard, record._pending = setting, Path(folder), ROWS_A_SHARD, []
        return record

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        return f"Record({len(self.steps())} steps of target {self.setting.target!r}, {where})"

    def append(self, observation: Observation) -> None:
        """Add one observed step; steps must come in order.

        Raises:
            ValueError: If the step does not come after the last one.
        """
        last = self.last_step
        if last is not None and observation.step <= last:
            raise ValueError(f"step {observation.step} was observed after step {last}: steps must ascend")
        self._pending.append(observation)
        if self.folder is not None and sum(len(held.index) for held in self._pending) >= self._rows_a_shard:
            self.flush()

    def amend(self, **changes: Any) -> None:
        """Correct the setting: the method that was used in the end, say."""
        self.setting = replace(self.setting, **changes)
        if self.folder is not None:
            _write_text(self.folder / "record.json", json.dumps(asdict(self.setting), indent=1))

    @property
    def last_step(self) -> int | None:
        """The last observed step, if any."""
        if self._pending:
            return self._pending[-1].step
        numbers = self._shards()
        return int(self._read_steps(numbers[-1])["step"].iloc[-1]) if numbers else None

    def observations(self) -> Iterator[Observation]:
        """All observed steps in order; one shard is in memory at a time.

        Raises:
            ValueError: If a shard cannot be read.
        """
        for number in self._shards():
            yield from self._read(number)
        yield from list(self._pending)

    def steps(self) -> pd.DataFrame:
        """One row a step: ``step``, ``lr``, ``batch_size``, ``observed``, and loss, norm, mean and std by query."""
        stored = [self._read_steps(number) for number in self._shards()]
        pending = [_step_row(held, self.setting) for held in self._pending]
        frames = [*stored, pd.DataFrame(pending)] if pending else stored
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"step": [], "lr": [], "observed": []})

    def flush(self) -> None:
        """Write what is held to disk, if the record has a folder."""
        if self.folder is None or not self._pending:
            return
        numbers = self._shards()
        self._write(numbers[-1] + 1 if numbers else 0, self._pending)
        self._pending = []

    def truncate(self, last_step: int | None) -> None:
        """Forget steps after ``last_step`` (all, if ``None``): training goes on from an earlier checkpoint."""

        def kept(observations: list[Observation]) -> list[Observation]:
            return [held for held in observations if last_step is not None and held.step <= last_step]

        self._pending = kept(self._pending)
        for number in reversed(self._shards()):
            held = list(self._read(number))
            if len(kept(held)) == len(held):
                return
            self._steps_file(number).unlink()  # without its steps a shard does not count
            self._rows_file(number).unlink()
            if kept(held):
                self._write(number, kept(held))

    def state(self) -> dict[str, Any]:
        """What to keep in a training checkpoint: with a folder only the last step, else all numbers as tensors."""
        self.flush()
        state: dict[str, Any] = {"last_step": self.last_step}
        if self.folder is None:
            state["observations"] = [
                {
                    name: torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
                    for name, value in vars(held).items()
                }
                for held in self._pending
            ]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state; steps observed after it are forgotten.

        Raises:
            ValueError: If a record in a folder has lost steps that the state counts on.
        """
        if "observations" in state:
            self._pending = [_from_tensors(held) for held in state["observations"]]
            return
        self.truncate(state["last_step"])
        if self.last_step != state["last_step"]:
            raise ValueError(
                f"the record in {self.folder} ends at step {self.last_step}, the checkpoint at {state['last_step']}"
            )

    def _shards(self) -> list[int]:
        if self.folder is None:
            return []
        return sorted(int(path.stem.partition("-")[2]) for path in self.folder.glob("steps-*.parquet"))

    def _rows_file(self, number: int) -> Path:
        return (self.folder or Path()) / f"rows-{number:06d}.parquet"

    def _steps_file(self, number: int) -> Path:
        return (self.folder or Path()) / f"steps-{number:06d}.parquet"

    def _write(self, number: int, observations: list[Observation]) -> None:
        rows = pd.concat([_rows(held, self.setting) for held in observations], ignore_index=True)
        _write_parquet(self._rows_file(number), rows)
        _write_parquet(self._steps_file(number), pd.DataFrame([_step_row(held, self.setting) for held in observations]))

    def _read_steps(self, number: int) -> pd.DataFrame:
        return _read_parquet(self._steps_file(number))

    def _read(self, number: int) -> Iterator[Observation]:
        steps, rows = self._read_steps(number), _read_parquet(self._rows_file(number))
        ends = np.cumsum(steps["observed"].to_numpy())
        if len(rows) != (ends[-1] if len(ends) else 0):
            raise ValueError(f"{self._rows_file(number)} has {len(rows)} rows, its steps count {ends[-1]}")
        queries = range(len(self.setting.queries))
        for step, end in zip(steps.to_dict("records"), ends, strict=True):
            part = rows.iloc[end - step["observed"] : end]
            reference = part if self.setting.target == "self" else pd.DataFrame([step])
            yield Observation(
                step=int(step["step"]),
                lr=float(step["lr"]),
                batch_size=int(step["batch_size"]),
                index=part["index"].to_numpy(),
                dots=part[[f"dot_{q}" for q in queries]].to_numpy(),
                mean=reference[[f"mean_{q}" for q in queries]].to_numpy(dtype=np.float64),
                std=reference[[f"std_{q}" for q in queries]].to_numpy(dtype=np.float64),
                losses=part["loss"].to_numpy(),
                squared_norms=part["squared_norm"].to_numpy(),
                query_losses=np.array([step[f"query_loss_{q}"] for q in queries]),
                query_norms=np.array([step[f"query_norm_{q}"] for q in queries]),
            )


def _from_tensors(stored: dict[str, Any]) -> Observation:
    values: dict[str, Any] = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in stored.items()}
    return Observation(**values)


def _rows(held: Observation, setting: Setting) -> pd.DataFrame:
    columns: dict[str, Any] = {"step": np.full(len(held.index), held.step), "index": held.index}
    for query in range(len(setting.queries)):
        columns[f"dot_{query}"] = held.dots[:, query]
        if setting.target == "self":
            columns[f"mean_{query}"], columns[f"std_{query}"] = held.mean[:, query], held.std[:, query]
    return pd.DataFrame({**columns, "loss": held.losses, "squared_norm": held.squared_norms})


def _step_row(held: Observation, setting: Setting) -> dict[str, Any]:
    row = {"step": held.step, "lr": held.lr, "batch_size": held.batch_size, "observed": len(held.index)}
    for query in range(len(setting.queries)):
        row[f"query_loss_{query}"] = held.query_losses[query]
        row[f"query_norm_{query}"] = held.query_norms[query]
        row[f"mean_{query}"] = held.mean[:, query].mean()
        row[f"std_{query}"] = held.std[:, query].mean()
    return row


def _require_equal(folder: Path, stored: Setting, wanted: Setting) -> None:
    for one in fields(Setting):
        if one.name not in ("versions", "method") and getattr(stored, one.name) != getattr(wanted, one.name):
            raise ValueError(
                f"{folder} holds a record with another {one.name}: {getattr(stored, one.name)!r}, "
                f"now {getattr(wanted, one.name)!r}; give a new folder"
            )


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # pyarrow raises ArrowInvalid, a ValueError
        raise ValueError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _write_parquet(path: Path, table: pd.DataFrame) -> None:
    unfinished = path.with_suffix(".tmp")
    table.to_parquet(unfinished, index=False)
    unfinished.replace(path)


def _write_text(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
