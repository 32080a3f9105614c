"""The recorder: three lines in a training loop that leave the influence of every example behind."""

from __future__ import annotations

import importlib.metadata
import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from gnomon.models.per_example import (
    LossFunction,
    batch_size,
    check_complete,
    example_losses,
    map_batch,
    materialised_gradients,
    per_example_gradients,
    trainable,
)
from gnomon.models.sketch import CountSketch
from gnomon.training.influence.arguments import check, checked_ids, named_queries
from gnomon.training.influence.directions import in_metric_of, norm, random_direction, with_norms_of
from gnomon.training.influence.estimators import Estimator
from gnomon.training.influence.losses import model_losses
from gnomon.training.influence.open_step import GradientRows, NotFinite, OpenStep, observation
from gnomon.training.influence.products import Direction, Method, flatten, mean_gradient, per_example_dots, pieces
from gnomon.training.influence.ranks import gathered, rank, share, unwrapped
from gnomon.training.influence.record import Record, Setting
from gnomon.training.influence.result import InfluenceResult

LIBRARIES = ("gnomon", "torch", "numpy", "transformers")


class FInfluence:
    """Records what every example does to a query, during one training run.

    >>> recorder = FInfluence(model, losses, query=(x_test, y_test), optimizer=optimizer, every=10)  # doctest: +SKIP
    >>> for step, (x, y, index) in enumerate(loader):                                                # doctest: +SKIP
    ...     if recorder.due(step):
    ...         recorder.observe((x, y), index)       # before the optimiser's step
    ...     loss = losses(model, (x, y)).mean(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    >>> recorder.finalize().top(10)                                                                  # doctest: +SKIP

    What is observed is the batch that trains, or a fixed pool (``pool=``), which compares all examples at the same
    parameters. Micro-batches of one optimiser step are observed one by one under the same step. Nothing that training
    uses is touched: not ``.grad``, not the random state, not the mode of the modules.

    Under distributed data parallel training every rank makes a recorder and observes the same steps, its own batch or
    its share of the pool; inner products are brought together on rank 0, which keeps the record
    (:mod:`gnomon.training.influence.ranks`).

    Args:
        model: The model that trains. Only parameters that require gradients enter.
        loss_fn: From model and batch to one loss an example; default, the model's own by ``labels``.
        query: What influence is on: a batch, or several by name. None for ``target="self"``.
        target: ``self`` scores each example by its influence on itself: for wrong labels and outliers.
        pool: A batch and its ids, observed whenever :meth:`observe` is called without a batch.
        optimizer: Learning rates, and the metric for ``precondition="adam"``, are read from it.
        every: Steps between observations.
        method: How inner products are computed (:mod:`gnomon.training.influence.products`). ``auto``: ``ghost`` in self
            mode, for several queries and in half precision, else ``jvp``, or ``double-vjp`` where the model has no
            forward-mode derivative.
        parameters: Names of those that enter, to leave some out.
        precondition: ``adam``: the query's gradient is divided by the root of Adam's second moments, which makes the
            products first-order effects of Adam's step. Momentum changes no direction, only the scale.
        n_train: Examples in the training set, by default as many ids as are observed.
        batch_size: Examples an optimiser step, by default as many as are observed; needed with a pool.
        random_directions: Controls: random directions with the query gradient's norm in every layer, the same at all
            steps, as queries named ``random-0``, ``random-1``, ...
        reference: In self mode, most examples that one is compared with.
        dimension: Of the sketch, for ``method="project"``.
        folder: Stream the record to parquet shards there, in bounded memory.
        chunk: Examples a pass.
        train_mode: Observe with dropout on; by default the model is in evaluation mode while it is observed.
        query_index: Ids of the query's examples, to warn if they are trained on.
        seed: Of references, random directions and sketches.

    Raises:
        ValueError: If arguments contradict each other, or all parameters are frozen.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None = None,
        *,
        query: Any = None,
        target: Literal["query", "self"] = "query",
        pool: tuple[Any, ArrayLike] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        every: int = 1,
        method: Method | Literal["auto"] = "auto",
        parameters: Collection[str] | None = None,
        precondition: Literal["none", "adam"] = "none",
        n_train: int | None = None,
        batch_size: int | None = None,
        random_directions: int = 0,
        reference: int = 256,
        dimension: int = 2048,
        folder: str | os.PathLike[str] | None = None,
        chunk: int = 256,
        train_mode: bool = False,
        query_index: ArrayLike | None = None,
        seed: int = 0,
    ) -> None:
        check(query, target, pool, every, precondition, batch_size, method)
        self.model = model = unwrapped(model)
        self.loss_fn = loss_fn or model_losses
        self.optimizer = optimizer
        self.every = every
        self.pool = None if pool is None else (pool[0], checked_ids(pool[1], pool[0]))
        self.train_mode = train_mode
        self.chunk = chunk
        self.n_skipped = 0
        self._target, self._precondition, self._reference, self._dimension = target, precondition, reference, dimension
        self._seed, self._batch_size = seed, batch_size
        self._parameters = trainable(model, parameters)
        self._queries = named_queries(query)
        self._query_ids = None if query_index is None else np.asarray(query_index).ravel()
        names = [*self._queries, *(f"random-{draw}" for draw in range(random_directions))]
        self.method: Method = self._choose(len(names)) if method == "auto" else method
        self.record = Record(
            Setting(
                target=target,
                queries=("self",) if target == "self" else tuple(names),
                method=self.method,
                parameters={name: value.numel() for name, value in self._parameters.items()},
                batch_size=batch_size,
                n_train=n_train,
                precondition=precondition,
                seed=seed,
                versions={name: importlib.metadata.version(name) for name in LIBRARIES},
            ),
            folder if rank() == 0 else None,
        )
        self._random = [random_direction(self._parameters, seed * 10_007 + draw) for draw in range(random_directions)]
        self._open: OpenStep | None = None
        self._last_due, self._finished, self._checked = -1, False, False

    def __enter__(self) -> FInfluence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_step()
        self.record.flush()

    def due(self, step: int) -> bool:
        """Whether this step is to be observed; remembers the step for :meth:`observe`."""
        self._last_due = int(step)
        return step % self.every == 0

    def observe(
        self, batch: Any = None, index: ArrayLike | None = None, *, step: int | None = None, lr: float | None = None
    ) -> None:
        """Observe examples at the present parameters.

        Args:
            batch: The examples; by default the pool.
            index: Their ids.
            step: Optimiser steps taken so far; by default as last given to :meth:`due`.
            lr: Learning rate of the step; by default the optimizer's.

        Raises:
            ValueError: If ids are missing, negative or repeated, or there is no learning rate.
            RuntimeError: If the recorder is finalised.
        """
        if self._finished:
            raise RuntimeError("the recorder is finalised; make a new one to observe more")
        examples, ids = self._examples(batch, index)
        now = self._last_due if step is None else int(step)
        if now < 0:
            raise ValueError("which step is this? call due(step) before, or give step=")
        if self._open is None or self._open.step != now:
            self.close_step()
            self._open = OpenStep(now, self._rate(lr))
        seen = np.concatenate([*self._open.index, ids])
        if len(np.unique(seen)) < len(seen):
            values, counts = np.unique(seen, return_counts=True)
            raise ValueError(f"example {values[counts > 1][0]} appears twice in step {now}")
        with self._observing():
            try:
                # All ranks compare with the same part of a pool, whichever share of it they observe.
                self._measure(self._open, examples, ids, self.pool if batch is None else None)
            except NotFinite as trouble:
                self._skip(f"step {now}: {trouble}; the step is left out")

    def close_step(self) -> None:
        """Add the open step to the record; called by itself when the next step begins. All ranks must call it."""
        held, self._open = self._open, None
        if held is None:
            return
        parts = gathered(held)
        if any(part.skipped for part in parts):
            self.n_skipped += not held.skipped
        elif parts:
            self.record.append(observation(parts, batch_size=self._batch_size))

    def finalize(
        self, *, steps: int | None = None, query: str | None = None, estimator: Estimator = "exact"
    ) -> InfluenceResult:
        """Close the record and score it; may be called again for another query or estimator.

        Args:
            steps: Optimiser steps of the run; by default up to the last one given to :meth:`due`.
            query: Name of the query, if there are several.
            estimator: See :mod:`gnomon.training.influence.estimators`.

        Raises:
            RuntimeError: On a rank that keeps no record.
        """
        self.close_step()
        self.record.flush()
        self._finished = True
        if rank() != 0:
            raise RuntimeError(f"the record of all ranks is on rank 0; rank {rank()} can only close_step()")
        taken = max(self._last_due, self.record.last_step or 0) + 1
        return InfluenceResult(self.record, steps=steps or taken, query=query, estimator=estimator)

    def state_dict(self) -> dict[str, Any]:
        """What a training checkpoint must keep; loads with ``torch.load(weights_only=True)``. Saved by rank 0."""
        self.close_step()
        return {"record": self.record.state(), "last_due": self._last_due, "n_skipped": self.n_skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint: what was observed after it is forgotten."""
        self._open = None
        if rank() == 0:
            self.record.restore(state["record"])
        self._last_due, self.n_skipped = state["last_due"], state["n_skipped"]

    def _examples(self, batch: Any, index: ArrayLike | None) -> tuple[Any, np.ndarray]:
        if batch is None:
            if self.pool is None:
                raise ValueError("give a batch and its ids, or make the recorder with pool=")
            return share(*self.pool)
        if index is None:
            raise ValueError("examples need stable ids: observe(batch, index)")
        return batch, checked_ids(index, batch)

    def _rate(self, lr: float | None) -> float:
        if lr is not None:
            return float(lr)
        if self.optimizer is None:
            raise ValueError("which learning rate? give lr=, or make the recorder with optimizer=")
        return float(self.optimizer.param_groups[0]["lr"])

    def _skip(self, reason: str) -> None:
        assert self._open is not None
        if not self._open.skipped:
            self.n_skipped += 1
            warnings.warn(reason, stacklevel=3)
        self._open.skipped = True

    def _measure(
        self, held: OpenStep, examples: Any, ids: np.ndarray, reference: tuple[Any, np.ndarray] | None
    ) -> None:
        if self._query_ids is not None and len(shared := np.intersect1d(self._query_ids, ids)):
            warnings.warn(f"example {shared[0]} is in the query and trained on: its score is inflated", stacklevel=4)
            self._query_ids = None
        if not self._checked and self.method in ("ghost", "project"):
            first = map_batch(lambda tensor: tensor[:2], examples)
            found = per_example_gradients(self.model, self.loss_fn, first, parameters=self._parameters)
            check_complete(self.model, self.loss_fn, first, found)
            self._checked = True
        if self._target == "self":
            self._measure_self(held, examples, ids, *(reference or (examples, ids)))
        else:
            self._measure_queries(held, examples, ids)

    def _measure_queries(self, held: OpenStep, examples: Any, ids: np.ndarray) -> None:
        if held.directions is None:
            found = [
                mean_gradient(self.model, self.loss_fn, query, self._parameters, chunk=self.chunk)
                for query in self._queries.values()
            ]
            held.query_losses = [loss for _, loss in found] + [float("nan")] * len(self._random)
            plain = [gradient for gradient, _ in found]
            plain += [with_norms_of(direction, plain[0]) for direction in self._random]
            held.query_norms = [norm(direction) for direction in plain]
            if not np.isfinite(held.query_norms).all():
                raise NotFinite("the query's gradient is not finite")
            held.directions = [self._effective(direction) for direction in plain]
        for part, where in self._pieces(examples, ids):
            dots, losses, norms = self._dots(part, held.directions)
            held.add(where, dots, losses, norms)

    def _dots(self, part: Any, directions: list[Direction]) -> tuple[Tensor, Tensor, Tensor | None]:
        options = {"dimension": self._dimension, "seed": self._seed}
        try:
            return per_example_dots(self.model, self.loss_fn, part, directions, self.method, **options)
        except RuntimeError:  # NotImplementedError of built-in operations is one; what is wrong otherwise raises again
            if self.method != "jvp":
                raise
            warnings.warn("an operation has no forward-mode derivative: going on with double-vjp", stacklevel=6)
            self.method = "double-vjp"
            self.record.amend(method=self.method)
            return per_example_dots(self.model, self.loss_fn, part, directions, self.method, **options)

    def _measure_self(self, held: OpenStep, examples: Any, ids: np.ndarray, others: Any, other_ids: np.ndarray) -> None:
        compared = np.random.default_rng(self._seed).permutation(len(other_ids))[: self._reference]
        rows = torch.as_tensor(compared)
        against = self._gradients(map_batch(lambda tensor: tensor[rows.to(tensor.device)], others))
        held.query_losses, held.query_norms = [float("nan")], [float("nan")]
        for part, where in self._pieces(examples, ids):
            own = self._gradients(part)
            products = own.gram(against).double().cpu().numpy()
            other = where[:, None] != other_ids[compared][None, :]
            count = np.maximum(other.sum(1), 1)
            mean = (products * other).sum(1) / count
            variance = ((products - mean[:, None]) ** 2 * other).sum(1) / np.maximum(count - 1, 1)
            norms = own.squared_norms()
            held.add(where, norms[:, None], own.losses, norms)
            held.mean.append(mean[:, None])
            held.std.append(np.sqrt(variance)[:, None])

    def _gradients(self, part: Any) -> Any:
        if self.method == "vmap":
            with torch.no_grad():
                losses = example_losses(self.model, self.loss_fn, part)
            return GradientRows(
                flatten(materialised_gradients(self.model, self.loss_fn, part, parameters=self._parameters)), losses
            )
        found = per_example_gradients(self.model, self.loss_fn, part, parameters=self._parameters)
        if self.method == "project":
            projection = CountSketch(found.shapes, dimension=self._dimension, seed=self._seed)
            return GradientRows(found.sketch(projection), found.losses)
        return found

    def _pieces(self, examples: Any, ids: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        parts = pieces(examples, self.chunk)
        ends = np.cumsum([batch_size(part) for part in parts])
        yield from ((part, ids[end - batch_size(part) : end]) for part, end in zip(parts, ends, strict=True))

    def _effective(self, direction: Direction) -> Direction:
        if self.optimizer is None:
            return direction
        return in_metric_of(self.optimizer, direction, self._parameters, adam=self._precondition == "adam")

    def _choose(self, queries: int) -> Method:
        half = any(value.dtype in (torch.bfloat16, torch.float16) for value in self._parameters.values())
        return "ghost" if self._target == "self" or queries > 1 or half else "jvp"

    @contextmanager
    def _observing(self) -> Iterator[None]:
        """Evaluation mode and an untouched random state, whatever the loss function does."""
        training = [module for module in self.model.modules() if module.training]
        if self.train_mode and any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in training):
            raise ValueError("batch norm in training mode mixes examples: observe with train_mode=False")
        if not self.train_mode:
            self.model.eval()
        with torch.random.fork_rng(devices=[]):
            try:
                yield
            finally:
                for module in training:
                    module.training = True
