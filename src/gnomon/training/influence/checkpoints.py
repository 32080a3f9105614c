"""Influence after the fact: from the checkpoints that a finished run left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from gnomon.training.influence.recorder import FInfluence

WEIGHTS = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Checkpoint:
    """Parameters at one step.

    Args:
        path: A Hugging Face folder, a ``.safetensors`` file or a ``.pt`` file with a state dict.
        step: Optimiser steps taken before it.
        lr: Learning rate at that step: its weight.
    """

    path: Path
    step: int
    lr: float


def observe_checkpoints(recorder: FInfluence, checkpoints: Iterable[Checkpoint]) -> FInfluence:
    """Observe the recorder's pool at each checkpoint; the model ends with the parameters it began with.

    What is lost against observing in the run is only the steps in between. Adam's metric is not in a checkpoint of the
    model alone.

    Args:
        recorder: Made with ``pool=``, on a model of the checkpoints' architecture.
        checkpoints: In any order.

    Raises:
        ValueError: If there is no checkpoint, or one does not fit the model.
        FileNotFoundError: If one has no weights.
    """
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.step)
    if not ordered:
        raise ValueError("no checkpoint to observe")
    model = recorder.model
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    try:
        for checkpoint in ordered:
            _load_into(model, checkpoint.path)
            recorder.observe(step=checkpoint.step, lr=checkpoint.lr)
        recorder.close_step()
    finally:
        model.load_state_dict(before)
    return recorder


def trainer_checkpoints(run: str | os.PathLike[str]) -> list[Checkpoint]:
    """The checkpoints of a ``Trainer``'s output folder, with the learning rates its log gives.

    Raises:
        FileNotFoundError: If the folder has no ``checkpoint-*``.
        ValueError: If a checkpoint does not say its learning rate.
    """
    folders = [folder for folder in Path(run).glob("checkpoint-*") if (folder / "trainer_state.json").is_file()]
    if not folders:
        raise FileNotFoundError(f"{run} has no checkpoint-* folder with a trainer_state.json")
    found = []
    for folder in folders:
        state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
        rates = [entry["learning_rate"] for entry in state["log_history"] if "learning_rate" in entry]
        if not rates:
            raise ValueError(
                f"{folder / 'trainer_state.json'} logs no learning_rate: train with a smaller logging_steps"
            )
        found.append(Checkpoint(folder, int(state["global_step"]), float(rates[-1])))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def trainer_batch_size(run: str | os.PathLike[str]) -> int:
    """Examples a step on one device, as a ``Trainer``'s newest checkpoint states it.

    Raises:
        FileNotFoundError: If the folder has no checkpoint.
    """
    newest = trainer_checkpoints(run)[-1].path
    return int(json.loads((newest / "trainer_state.json").read_text(encoding="utf-8"))["train_batch_size"])


def _load_into(model: nn.Module, path: Path) -> None:
    state = _read(Path(path))
    problems = model.load_state_dict(state, strict=False)
    tied = {name for name, _ in model.named_parameters(remove_duplicate=False)} - dict(model.named_parameters()).keys()
    missing = set(problems.missing_keys) & dict(model.named_parameters()).keys()
    if missing - tied or problems.unexpected_keys:
        wrong = sorted(missing - tied) or problems.unexpected_keys
        raise ValueError(f"{path} does not fit the model: {'lacks' if missing - tied else 'has'} {wrong[0]!r}")


def _read(path: Path) -> dict[str, Tensor]:
    if path.is_dir():
        present = [path / name for name in WEIGHTS if (path / name).is_file()]
        if not present:
            raise FileNotFoundError(f"{path} has no weights ({' or '.join(WEIGHTS)})")
        path = present[0]
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if path.suffix == ".safetensors":
        return load_file(path)
    stored: Any = torch.load(path, map_location="cpu", weights_only=True)
    return stored
