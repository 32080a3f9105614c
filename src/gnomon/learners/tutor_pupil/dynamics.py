"""Dynamical pupils: a right-hand side whose argument, or whose parameters, a tutor corrects along the trajectory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.interpolate import make_smoothing_spline
from torch import Tensor, nn

from gnomon.learners.tutor_pupil.tutor import build_tutor

Mode = Literal["state", "parameters"]
RightHandSide = Callable[..., Tensor]


def rk4(
    derivative: Callable[[Tensor, Tensor], Tensor],
    start: Float[Tensor, "*batch state"],
    dt: float,
    steps: int,
    *,
    start_time: Float[Tensor, "*batch"] | None = None,
) -> Float[Tensor, "time *batch state"]:
    """Classical fourth-order Runge-Kutta with a fixed step, differentiable; global error of order dt^4.

    Args:
        derivative: From state and time (one a batch entry) to the state's rate.
        start: Initial states.
        dt: Step.
        steps: How many; the result has ``steps + 1`` states.
        start_time: Time at the start, 0 by default.
    """
    time = start.new_zeros(start.shape[:-1]) if start_time is None else start_time
    states = [start]
    for _ in range(steps):
        state = states[-1]
        k1 = derivative(state, time)
        k2 = derivative(state + 0.5 * dt * k1, time + 0.5 * dt)
        k3 = derivative(state + 0.5 * dt * k2, time + 0.5 * dt)
        k4 = derivative(state + dt * k3, time + dt)
        states.append(state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
        time = time + dt
    return torch.stack(states)


@dataclass(frozen=True)
class TrajectoryErrors:
    """Root mean squared errors in units of each state's spread: one step ahead, a window ahead, and free-running."""

    one_step: float
    window: float
    free_run: float


class TutoredODE(nn.Module):
    r"""A known right-hand side with a tutor on its arguments.

    .. math:: \dot s = f(s + M S\, \epsilon(s), t) \quad\text{(state)} \qquad
              \dot s = f(s, t;\; p \odot (1 + M \epsilon(s))) \quad\text{(parameters)}

    Parameters are corrected in relative terms, so that :math:`\epsilon = -.2` reads "a fifth smaller here".

    Args:
        rhs: ``rhs(state, time)`` in state mode, ``rhs(state, time, parameters)`` in parameter mode; batched over
            leading axes, with ``parameters`` of shape ``(*batch, p)``.
        mask: Which states or parameters may be corrected, 0/1.
        mode: What is corrected.
        parameters: The pupil's values, parameter mode only.
        scale: Unit of each state (a standard deviation), measured in ``fit`` if not given.
        lam: Weight of the mean squared correction.
        hidden: Widths of the tutor's layers.
        seed: Of its initial weights and of windows.

    Raises:
        ValueError: If parameter mode has no parameters, or the mask has another length than what it masks.
    """

    def __init__(
        self,
        rhs: RightHandSide,
        mask: Sequence[float],
        *,
        mode: Mode = "state",
        parameters: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        lam: float = 1e-3,
        hidden: Sequence[int] = (32, 32),
        seed: int = 0,
    ) -> None:
        super().__init__()
        if mode == "parameters" and parameters is None:
            raise ValueError("mode='parameters' needs the pupil's parameters")
        if mode == "parameters" and len(mask) != len(parameters or ()):
            raise ValueError(f"the mask has {len(mask)} entries for {len(parameters or ())} parameters")
        self.rhs = rhs
        self.mode: Mode = mode
        self.lam = lam
        self.hidden = tuple(hidden)
        self.seed = seed
        self._given_scale = scale is not None
        self.register_buffer("mask", torch.tensor(list(mask), dtype=torch.float64))
        self.register_buffer("parameters_", torch.tensor(list(parameters or ()), dtype=torch.float64))
        self.register_buffer("centre", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(list(scale or ()), dtype=torch.float64))
        self.tutor: nn.Module | None = None

    mask: Tensor
    parameters_: Tensor
    centre: Tensor
    scale: Tensor

    def correction(self, state: Float[Tensor, "*batch state"]) -> Float[Tensor, "*batch corrected"]:
        """The masked correction at some states, standardised (state mode) or relative (parameter mode)."""
        if self.tutor is None:
            return state.new_zeros(*state.shape[:-1], len(self.mask))
        return self.mask * self.tutor((state - self.centre) / self.scale)

    def derivative(self, state: Float[Tensor, "*batch state"], time: Float[Tensor, "*batch"]) -> Tensor:
        """The corrected right-hand side."""
        correction = self.correction(state)
        if self.mode == "state":
            return self.rhs(state + self.scale * correction, time) if self.tutor is not None else self.rhs(state, time)
        return self.rhs(state, time, self.parameters_ * (1 + correction))

    def pupil(self, state: Float[Tensor, "*batch state"], time: Float[Tensor, "*batch"]) -> Tensor:
        """The right-hand side as it was."""
        if self.mode == "state":
            return self.rhs(state, time)
        return self.rhs(state, time, self.parameters_.expand(*state.shape[:-1], -1))

    def simulate(
        self, start: Float[Tensor, "*batch state"], times: Float[np.ndarray, " time"], *, tutored: bool = True
    ) -> Float[Tensor, "time *batch state"]:
        """Free run from a state over equally spaced times.

        Raises:
            ValueError: If the times are not equally spaced.
        """
        steps = np.diff(times)
        if len(steps) == 0 or not np.allclose(steps, steps[0], rtol=1e-6):
            raise ValueError("times must be at least two and equally spaced")
        begin = start.new_full(start.shape[:-1], float(times[0]))
        with torch.no_grad():
            return rk4(self.derivative if tutored else self.pupil, start, float(steps[0]), len(steps), start_time=begin)

    def fit(
        self,
        trajectories: Float[Tensor, "trajectory time state"],
        dt: float,
        *,
        windows: int = 10,
        matching_steps: int = 400,
        shooting_steps: int = 200,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
    ) -> TutoredODE:
        """Fit the tutor: gradient matching first, then multiple shooting over windows.

        Gradient matching compares the corrected right-hand side with slopes of smoothing splines: cheap, but biased by
        the smoothing. Shooting integrates from every observed state for ``windows`` steps and compares with what
        followed; its starts are noisy observations, so windows should be longer than the noise is slow.

        Raises:
            ValueError: If trajectories are shorter than a window or not finite.
            RuntimeError: If training diverges.
        """
        data = trajectories.to(torch.float64)
        if not bool(torch.isfinite(data).all()):
            raise ValueError("trajectories hold values that are not finite")
        if data.shape[1] <= windows:
            raise ValueError(f"trajectories of {data.shape[1]} points are too short for windows of {windows} steps")
        flat = data.flatten(0, 1)
        self.centre = flat.mean(0)
        if not self._given_scale:
            self.scale = flat.std(0)
        if self.mode == "state" and len(self.mask) != data.shape[2]:
            raise ValueError(f"the mask has {len(self.mask)} entries for {data.shape[2]} states")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.tutor = build_tutor(data.shape[2], len(self.mask), self.hidden).to(torch.float64)
        time = torch.arange(data.shape[1], dtype=torch.float64) * dt
        slopes = torch.from_numpy(_spline_slopes(data.numpy(), time.numpy()))
        slope_unit = slopes.flatten(0, 1).std(0)
        generator = torch.Generator().manual_seed(self.seed)

        def matching() -> Tensor:
            trajectory, position = self._draw(data, batch_size, 0, generator)
            state = data[trajectory, position]
            misfit = (self.derivative(state, time[position]) - slopes[trajectory, position]) / slope_unit
            return misfit.square().mean() + self.lam * self.correction(state).square().sum(-1).mean()

        def shooting() -> Tensor:
            trajectory, position = self._draw(data, max(batch_size // 4, 1), windows, generator)
            path = rk4(self.derivative, data[trajectory, position], dt, windows, start_time=time[position])
            truth = torch.stack([data[trajectory, position + step] for step in range(windows + 1)])
            misfit = ((path - truth) / self.scale).square().mean()
            return misfit + self.lam * self.correction(path).square().sum(-1).mean()

        self._descend(matching, matching_steps, learning_rate)
        self._descend(shooting, shooting_steps, learning_rate / 3)
        return self

    def errors(
        self,
        trajectories: Float[Tensor, "trajectory time state"],
        dt: float,
        *,
        windows: int = 10,
        tutored: bool = True,
    ) -> TrajectoryErrors:
        """One-step, window and free-run error on trajectories that were not fitted."""
        data = trajectories.to(torch.float64)
        derivative = self.derivative if tutored else self.pupil
        scale = self.scale if len(self.scale) else data.flatten(0, 1).std(0)
        last = data.shape[1] - 1

        def misfit(starts: Tensor, steps: int) -> float:
            begin = data[:, starts]
            time = (starts * dt).to(data.dtype).expand(len(data), -1)
            with torch.no_grad():
                path = rk4(derivative, begin, dt, steps, start_time=time)
            truth = torch.stack([data[:, starts + step] for step in range(steps + 1)])
            compared = path[1:] - truth[1:] if steps == last else path[-1] - truth[-1]
            return float((compared / scale).square().mean().sqrt())

        return TrajectoryErrors(
            misfit(torch.arange(last), 1),
            misfit(torch.arange(last + 1 - windows), windows),
            misfit(torch.tensor([0]), last),
        )

    def _draw(self, data: Tensor, size: int, ahead: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        trajectory = torch.randint(len(data), (size,), generator=generator)
        return trajectory, torch.randint(data.shape[1] - ahead, (size,), generator=generator)

    def _descend(self, objective: Callable[[], Tensor], steps: int, learning_rate: float) -> None:
        assert self.tutor is not None
        optimizer = torch.optim.AdamW(self.tutor.parameters(), lr=learning_rate, weight_decay=1e-4, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(steps, 1))
        for step in range(steps):
            loss = objective()
            if not bool(torch.isfinite(loss)):
                raise RuntimeError(f"training diverged at step {step}: loss {float(loss)} (lambda {self.lam:g})")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.tutor.parameters(), 1.0)
            optimizer.step()
            schedule.step()


def _spline_slopes(data: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Slopes of smoothing splines through each trajectory (smoothness by generalised cross-validation)."""
    slopes = np.empty_like(data)
    for index, trajectory in enumerate(data):
        for state in range(data.shape[2]):
            slopes[index, :, state] = make_smoothing_spline(time, trajectory[:, state]).derivative()(time)
    return slopes
