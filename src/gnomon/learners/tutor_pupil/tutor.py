"""The tutor: a small net from what it sees of a row to a correction, and its training against a frozen pupil."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnomon.learners.tutor_pupil.domain import Domain
from gnomon.learners.tutor_pupil.losses import Penalty, TaskLoss
from gnomon.learners.tutor_pupil.pupils import DifferentiablePupil
from gnomon.models.ensemble import StackedNets, train_stacked

_CHUNK = 16_384


@dataclass(frozen=True)
class Frame:
    """How a table of inputs divides: what the tutor sees, what the pupil sees, what may move, and in which units.

    Args:
        centre: Location of each column.
        scale: Unit of each column; corrections are measured in it.
        pupil_columns: Columns the pupil takes; the others are context, seen by the tutor alone.
        correctable: Columns that may move, a subset of the pupil's.
        domain: Admissible values of the pupil's columns.
    """

    centre: np.ndarray
    scale: np.ndarray
    pupil_columns: np.ndarray
    correctable: np.ndarray
    domain: Domain

    def pupil_input(self, x: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, "n pupil"]:
        """The pupil's columns, contiguous: a pupil's sums must not depend on memory order."""
        return np.ascontiguousarray(x[:, self.pupil_columns])

    @property
    def moving(self) -> np.ndarray:
        """Positions of the correctable columns among the pupil's."""
        return np.searchsorted(self.pupil_columns, self.correctable)

    def standardize(self, x: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, "n columns"]:
        """What the tutor sees."""
        return (x - self.centre) / self.scale

    def move(
        self, x: Float[np.ndarray, "n columns"], correction: Float[np.ndarray, "n correctable"]
    ) -> Float[np.ndarray, "n columns"]:
        """Corrected inputs, projected onto the domain."""
        moved = np.array(x, dtype=np.float64)
        moved[:, self.correctable] += self.scale[self.correctable] * correction
        moved[:, self.pupil_columns] = self.domain.project(moved[:, self.pupil_columns])
        return moved


@dataclass(frozen=True)
class TutorWeights:
    """Trained tutors as plain arrays, one leading entry a seed: what is kept, saved and predicted with.

    Args:
        weights: Of each layer, ``(seed, out, in)``.
        biases: Of each layer, ``(seed, out)``.
    """

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, nets: StackedNets, replicates: Sequence[int] | None = None) -> TutorWeights:
        """Copy some replicates (all by default) of a trained stack."""
        chosen = list(range(len(nets))) if replicates is None else list(replicates)
        arrays = [parameter.detach().double().cpu().numpy()[chosen] for parameter in nets.stacked]
        return cls(tuple(arrays[0::2]), tuple(arrays[1::2]))

    def __len__(self) -> int:
        return len(self.weights[0])

    def each(self, seen: Float[np.ndarray, "n inputs"]) -> Float[np.ndarray, "seed n correctable"]:
        """Correction of each seed, in float64, in chunks of rows."""
        layers = [
            (torch.from_numpy(w).transpose(1, 2), torch.from_numpy(b).unsqueeze(1))
            for w, b in zip(self.weights, self.biases, strict=True)
        ]
        chunks = []
        for start in range(0, len(seen), _CHUNK):
            hidden = torch.from_numpy(np.ascontiguousarray(seen[start : start + _CHUNK], dtype=np.float64)).expand(
                len(self), -1, -1
            )
            for index, (weight, bias) in enumerate(layers):
                hidden = torch.baddbmm(bias, hidden, weight)
                if index < len(layers) - 1:
                    hidden = nn.functional.silu(hidden)
            chunks.append(hidden.numpy())
        return np.concatenate(chunks, axis=1)

    def __call__(self, seen: Float[np.ndarray, "n inputs"]) -> Float[np.ndarray, "n correctable"]:
        """Mean correction over seeds."""
        return self.each(seen).mean(0)


def build_tutor(n_inputs: int, n_correctable: int, hidden: Sequence[int]) -> nn.Module:
    """A multi-layer perceptron with SiLU units whose last layer is zero: before training it corrects nothing."""
    sizes = [n_inputs, *hidden]
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.SiLU()]
    last = nn.Linear(sizes[-1], n_correctable)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


@dataclass(frozen=True)
class Rows:
    """Training or validation rows as tensors.

    Args:
        x: The pupil's columns in the user's units.
        seen: The tutor's standardised input.
        targets: For each replicate, values ``(replicate, n, q)`` or class indices ``(replicate, n)``.
        weights: Sample weights, mean 1; one row a replicate if replicates train on different rows (weight 0: left out).
        order: For each replicate the row whose ``seen`` goes to the tutor (shuffled input); ``None`` for its own.
    """

    x: Float[Tensor, "n pupil"]
    seen: Float[Tensor, "n inputs"]
    targets: Tensor
    weights: Float[Tensor, "*replicate n"]
    order: Int[Tensor, "replicate n"] | None = None


@dataclass(frozen=True)
class Tutoring:
    r"""Everything that stays fixed while tutors train.

    .. math:: L(\phi) = \frac1n \sum_i \Bigl[ \ell\bigl(y_i, f(\Pi(x_i + M S\, t_\phi(x_i)))\bigr)
              + \lambda R(t_\phi(x_i)) + \mu \lVert J_t(x_i) \rVert_F^2 + o_i \Bigr]

    with the frozen pupil f, the mask M and units S of the frame, its projection :math:`\Pi` and overshoot o. The
    Jacobian norm is Hutchinson's, from one normal probe v a row: :math:`\mathbb E \lVert J v \rVert^2 =
    \lVert J \rVert_F^2`.
    """

    pupil: DifferentiablePupil
    frame: Frame
    loss: TaskLoss
    penalty: Penalty
    smoothness: float = 0.0

    def losses(
        self, corrections: Float[Tensor, "replicate n c"], x: Tensor, targets: Tensor
    ) -> tuple[Float[Tensor, "replicate n"], Float[Tensor, "replicate n"]]:
        """Task loss and overshoot of each row under each replicate's corrections."""
        frame = self.frame
        scale = torch.as_tensor(frame.scale, dtype=x.dtype, device=x.device)
        step = corrections * scale[frame.correctable]
        wide = x.expand(len(corrections), -1, -1)
        moved = wide.index_add(-1, torch.as_tensor(frame.moving, device=x.device), step)
        overshoot = frame.domain.overshoot(moved, scale[frame.pupil_columns])
        outputs = self.pupil(frame.domain.project_through(moved))
        return self.loss(outputs, targets), overshoot

    def objective(
        self, nets: StackedNets, rows: Rows, batch: Tensor, lambdas: Float[Tensor, " replicate"], probe: torch.Generator
    ) -> Float[Tensor, " replicate"]:
        """Weighted mean objective of each replicate on a batch of rows."""
        seen = rows.seen[batch] if rows.order is None else rows.seen[rows.order[:, batch]]
        corrections = nets.shared(seen) if rows.order is None else nets(seen)
        task, overshoot = self.losses(corrections, rows.x[batch], rows.targets[:, batch])
        total = task + lambdas.unsqueeze(1) * self.penalty(corrections) + overshoot
        if self.smoothness:
            total = total + self.smoothness * self._jacobian(nets, seen, probe)
        return (total * rows.weights[..., batch]).mean(1)

    def _jacobian(self, nets: StackedNets, seen: Tensor, probe: torch.Generator) -> Float[Tensor, "replicate n"]:
        forward = nets.shared if seen.dim() == 2 else nets.forward
        direction = torch.randn(seen.shape, generator=probe, dtype=seen.dtype).to(seen.device)
        return torch.func.jvp(forward, (seen,), (direction,))[1].square().sum(-1)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast tutors train."""

    steps: int = 1500
    batch_size: int = 256
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4


def train_tutors(
    tutoring: Tutoring,
    nets: StackedNets,
    rows: Rows,
    lambdas: Sequence[float],
    schedule: Schedule,
    *,
    seed: int = 0,
) -> None:
    """Train a stack of tutors in place, always to the end of the schedule.

    Stopping on a validation loss would end it where the learning rate is still high: with few failing rows to validate
    on, the first steps away from the pupil look like a loss.

    Raises:
        RuntimeError: If a loss is not finite, naming step, replicate and penalty.
    """
    weight = torch.as_tensor(list(lambdas), dtype=rows.x.dtype, device=rows.x.device)
    probe = torch.Generator().manual_seed(seed)
    step = 0

    def objective(batch: Tensor) -> Tensor:
        nonlocal step
        tutoring.pupil.anneal(step / max(schedule.steps - 1, 1))
        step += 1
        return tutoring.objective(nets, rows, batch, weight, probe)

    try:
        train_stacked(
            nets,
            objective,
            len(rows.x),
            steps=schedule.steps,
            batch_size=schedule.batch_size,
            learning_rate=schedule.learning_rate,
            weight_decay=schedule.weight_decay,
            seed=seed,
        )
    except RuntimeError as error:
        if "diverged" not in str(error):
            raise
        raise RuntimeError(f"{error} (lambda {', '.join(f'{value:g}' for value in lambdas)})") from error
