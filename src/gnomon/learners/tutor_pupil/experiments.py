"""The study's two longer experiments: tutors in a latent space, and tutors of differential equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pandas as pd
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from gnomon.data.digits import digits
from gnomon.learners.tutor_pupil.dynamics import TutoredODE, rk4
from gnomon.learners.tutor_pupil.latent import LatentTutor, PrincipalCoder, VariationalAutoencoder
from gnomon.learners.tutor_pupil.path import detection

System = Literal["predators", "pendulum"]

ATTACK = 0.6
SATURATION = 0.25
DRAG = 0.3
GRAVITY = 9.81
_DT = {"predators": 0.1, "pendulum": 0.05}


def measure_latent(steps: int, random: np.random.Generator) -> dict[str, pd.DataFrame]:
    """A weak logistic pupil on digits, corrected in the code of an autoencoder, with everything the code alone gives.

    Returns:
        ``scores``: accuracy of the pupil, of the tutored pupil under both losses and both autoencoders, of the pupil
        on reconstructions, of models on the code, and of the pupil after random moves of equal size in pixels; and
        ``markers``: AUROC of the correction's size for the pupil's failing rows.
    """
    train, test = digits().split((1078, 719), random)
    seed = int(random.integers(2**31 - 1))
    pupil = LogisticRegression(C=0.01, max_iter=1000).fit(train.flat, train.labels)
    failing = pupil.predict(test.flat) != test.labels
    autoencoder = VariationalAutoencoder(64, seed=seed).fit(train.flat, steps=4 * steps)
    components = PrincipalCoder(PCA(12, random_state=0).fit(train.flat))
    scores = {"pupil": pupil.score(test.flat, test.labels)}
    markers = {}
    for name, coder, loss in (
        ("treatment", autoencoder, "log_loss"),
        ("satisficing", autoencoder, "satisficing"),
        ("principal-scores", components, "log_loss"),
    ):
        tutor = LatentTutor(pupil, coder, loss=loss, max_steps=2 * steps, random_state=seed).fit(
            train.flat, train.labels
        )
        moved = tutor.correct(test.flat)
        scores[name] = float((pupil.predict(moved) == test.labels).mean())
        size = np.linalg.norm(moved - test.flat, axis=1, keepdims=True)
        markers[name] = detection(size[:, 0], failing)
        if name == "treatment":
            blob = random.normal(size=moved.shape)
            blob *= size / np.linalg.norm(blob, axis=1, keepdims=True)
            scores["random-direction"] = pupil.score(test.flat + blob, test.labels)
    with torch.no_grad():
        codes = [autoencoder.posterior(torch.from_numpy(part.flat).float())[0] for part in (train, test)]
        scores["reconstruction"] = pupil.score(autoencoder.decode(codes[1]).double().numpy(), test.labels)
    fit_code, test_code = (code.numpy() for code in codes)
    linear = LogisticRegression(max_iter=2000).fit(fit_code, train.labels)
    network = MLPClassifier(
        hidden_layer_sizes=(64, 64), max_iter=300, early_stopping=True, n_iter_no_change=30, random_state=seed
    )
    scores["logistic-on-code"] = linear.score(test_code, test.labels)
    scores["network-on-code"] = network.fit(fit_code, train.labels).score(test_code, test.labels)
    return {
        "scores": pd.DataFrame([{"model": name, "score": float(value)} for name, value in scores.items()]),
        "markers": pd.DataFrame([{"marker": name, "auroc": value} for name, value in markers.items()]),
    }


def predators(state: Tensor, _time: Tensor, parameters: Tensor) -> Tensor:
    """Prey that grow logistically and predators that attack at a constant rate: the pupil, one parameter."""
    prey, hunters = state[..., 0], state[..., 1]
    eaten = parameters[..., 0] * prey * hunters
    return torch.stack([prey * (1 - prey / 8) - eaten, 0.35 * eaten - 0.5 * hunters], dim=-1)


def pendulum(state: Tensor, _time: Tensor) -> Tensor:
    """A frictionless pendulum of one metre: the pupil; state is angle and angular velocity."""
    return torch.stack([state[..., 1], -GRAVITY * state[..., 0].sin()], dim=-1)


def saturated_predators(state: Tensor, time: Tensor) -> Tensor:
    """Predators that take time to handle their prey (Holling's second type): the truth."""
    return predators(state, time, ATTACK / (1 + SATURATION * state[..., :1]))


def dragged_pendulum(state: Tensor, time: Tensor) -> Tensor:
    """A pendulum with quadratic drag: the truth."""
    drag = DRAG * state[..., 1] * state[..., 1].abs()
    return pendulum(state, time) - torch.stack([torch.zeros_like(drag), drag], dim=-1)


def measure_dynamics(
    system: System, seed: int, steps: int, random: np.random.Generator, *, nothing_to_find: bool = False
) -> dict[str, pd.DataFrame]:
    """A dynamical pupil tutored on 16 noisy trajectories (1 %) and judged on 8 others.

    Args:
        system: Predators correct the attack rate, the pendulum its angle.
        seed: Of the tutor.
        steps: Of gradient matching; shooting takes a quarter.
        random: Of initial states and noise.
        nothing_to_find: Trajectories come from the pupil itself.

    Returns:
        ``errors``: one-step, window and free-run error of pupil and tutored pupil; ``recovery``: slope and correlation
        of the correction on the true one, and for predators the saturation read from it; ``runs``: one unseen
        trajectory under truth, pupil and tutored pupil, with the correction along it.
    """
    dt = _DT[system]
    start, model, truth = _system(system, seed, random)
    derivative = (lambda state, time: model.pupil(state, time)) if nothing_to_find else truth
    clean = rk4(derivative, start, dt, 100).transpose(0, 1)
    spread = clean.flatten(0, 1).std(0)
    noisy = clean + 0.01 * spread * torch.from_numpy(random.normal(size=tuple(clean.shape)))
    model.fit(noisy[:16], dt, matching_steps=steps, shooting_steps=steps // 4)
    unseen = clean[16:]
    records = []
    for name, tutored in (("pupil", False), ("tutored", True)):
        found = model.errors(unseen, dt, tutored=tutored)
        records.append({"model": name, **vars(found)})
    states = unseen.reshape(-1, 2)
    with torch.no_grad():
        correction = model.correction(states)[:, 0] * (1.0 if system == "predators" else model.scale[0])
    wanted = _true_correction(system, states)
    return {
        "errors": pd.DataFrame(records),
        "recovery": _agreement(system, states, correction, wanted),
        "runs": _runs(model, unseen[0], dt),
    }


def _system(
    system: System, seed: int, random: np.random.Generator
) -> tuple[Tensor, TutoredODE, Callable[[Tensor, Tensor], Tensor]]:
    if system == "predators":
        start = torch.from_numpy(np.column_stack([random.uniform(1, 5, 24), random.uniform(0.5, 2, 24)]))
        model = TutoredODE(predators, [1.0], mode="parameters", parameters=[ATTACK], lam=1e-3, seed=seed)
        return start, model, saturated_predators
    start = torch.from_numpy(np.column_stack([random.uniform(-2, 2, 24), random.uniform(-2, 2, 24)]))
    return start, TutoredODE(pendulum, [1.0, 0.0], lam=1e-3, seed=seed), dragged_pendulum


def _true_correction(system: System, states: Tensor) -> Tensor:
    """The correction that would be right: of the attack rate; of the angle, the smallest shift that gives the drag."""
    if system == "predators":
        return 1 / (1 + SATURATION * states[:, 0]) - 1
    angle, velocity = states[:, 0], states[:, 1]
    wanted = angle.sin() + DRAG * velocity * velocity.abs() / GRAVITY
    # Beyond one no angle gives the drag; before it the branch near the angle is the smaller move.
    principal = wanted.clamp(-1, 1).asin()
    branch = torch.where(angle.cos() >= 0, principal, angle.sign() * torch.pi - principal)
    return torch.where(wanted.abs() < 1, branch - angle, torch.nan)


def _agreement(system: System, states: Tensor, correction: Tensor, wanted: Tensor) -> pd.DataFrame:
    known = torch.isfinite(wanted)
    found, true = correction[known].numpy(), wanted[known].numpy()
    slope = float(((true - true.mean()) * (found - found.mean())).sum() / np.square(true - true.mean()).sum())
    values = {"slope": slope}
    if found.std() > 0:
        values["correlation"] = float(np.corrcoef(found, true)[0, 1])
    if system == "predators":
        prey = states[:, 0].numpy()
        values["saturation"] = float((prey * (1 / (1 + correction.numpy()) - 1)).sum() / np.square(prey).sum())
    return pd.DataFrame([{"quantity": name, "value": value} for name, value in values.items()])


def _runs(model: TutoredODE, truth: Tensor, dt: float) -> pd.DataFrame:
    times = np.arange(len(truth)) * dt
    with torch.no_grad():
        runs = {
            "truth": truth,
            "pupil": model.simulate(truth[0], times, tutored=False),
            "tutored": model.simulate(truth[0], times),
        }
        correction = model.correction(truth)[:, 0].numpy()
    tables = [
        pd.DataFrame(
            {
                "time": times,
                "run": name,
                "first": states[:, 0].numpy(),
                "second": states[:, 1].numpy(),
                "correction": correction,
            }
        )
        for name, states in runs.items()
    ]
    return pd.concat(tables, ignore_index=True)
