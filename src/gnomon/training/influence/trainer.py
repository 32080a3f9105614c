"""Influence inside a Hugging Face ``Trainer``: of a fixed pool by a callback, of the training batches by attaching."""
# ruff: noqa: ARG002 - the trainer fixes the signatures of its callbacks

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from gnomon.models.per_example import map_batch
from gnomon.training.influence.recorder import FInfluence

STATE_FILE = "influence.pt"


class _Companion(TrainerCallback):
    """Gives a recorder the trainer's optimiser, and keeps its state in the trainer's checkpoints."""

    def __init__(self, recorder: FInfluence) -> None:
        self.recorder = recorder

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> None:
        """Take the optimiser, and the recorder's state if training resumes."""
        if self.recorder.optimizer is None:
            optimizer = objects.get("optimizer")
            self.recorder.optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        saved = _checkpoint(args, state) / STATE_FILE
        if state.global_step > 0 and saved.is_file():
            self.recorder.load_state_dict(torch.load(saved, weights_only=True))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        """Keep what was observed so far beside the checkpoint."""
        folder = _checkpoint(args, state)
        self.recorder.close_step()  # on every rank: their observations meet here
        if state.is_world_process_zero and folder.is_dir():
            unfinished = folder / (STATE_FILE + ".tmp")
            torch.save(self.recorder.state_dict(), unfinished)
            unfinished.replace(folder / STATE_FILE)


class FInfluenceCallback(_Companion):
    """Observes the recorder's pool before optimiser steps; nothing else of the trainer is changed.

    The recorder's state is saved into every checkpoint, and read back when the trainer resumes from one.

    Args:
        recorder: Made with ``pool=`` on the model that the trainer trains.

    Raises:
        ValueError: If the recorder has no pool: a callback does not see the batch, :func:`attached` does.
    """

    def __init__(self, recorder: FInfluence) -> None:
        if recorder.pool is None:
            raise ValueError("a callback never sees the training batch: give the recorder a pool=, or use attached()")
        super().__init__(recorder)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> None:
        """Observe the pool at the parameters that the step is about to change."""
        if self.recorder.due(state.global_step):
            self.recorder.observe()


@contextmanager
def attached(trainer: Trainer, recorder: FInfluence) -> Iterator[FInfluence]:
    """Inside, the recorder observes every batch the trainer trains on, micro-batches of a step together.

    The data set must give each example its ``index`` (:class:`WithIndex`), and the trainer must not drop that column
    (``remove_unused_columns=False``). The batch is taken where it is used and not from the data loader, whose workers
    run ahead.

    Args:
        trainer: Not yet training.
        recorder: Made without a pool, on the trainer's model.

    Raises:
        ValueError: If the trainer removes unused columns, or a batch brings no ``index``.
    """
    if trainer.args.remove_unused_columns:
        raise ValueError("set remove_unused_columns=False: the trainer would drop the column 'index'")
    follower = _Companion(recorder)
    trainer.add_callback(follower)
    original = trainer.training_step

    def training_step(model: Any, inputs: Any, *rest: Any, **options: Any) -> torch.Tensor:
        if "index" not in inputs:
            raise ValueError("the batch has no 'index': wrap the data set in WithIndex")
        ids = inputs.pop("index")
        if recorder.due(trainer.state.global_step):
            device = next(recorder.model.parameters()).device
            recorder.observe(map_batch(lambda tensor: tensor.to(device), dict(inputs)), ids)
        return original(model, inputs, *rest, **options)

    trainer.training_step = training_step  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield recorder
    finally:
        trainer.training_step = original  # pyright: ignore[reportAttributeAccessIssue]
        trainer.remove_callback(follower)
        recorder.close_step()


class WithIndex(Dataset):
    """A data set of dictionaries whose items carry their position as ``index``.

    Args:
        dataset: Anything with a length and items by position.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, position: int) -> dict[str, Any]:
        return {**self._dataset[position], "index": position}


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
