"""Runge-Kutta against its order, and tutored differential equations against the equations that made the data."""

import numpy as np
import pytest
import torch

from gnomon.learners.tutor_pupil import TutoredODE
from gnomon.learners.tutor_pupil.dynamics import rk4
from gnomon.learners.tutor_pupil.experiments import (
    _true_correction,
    dragged_pendulum,
    measure_dynamics,
    measure_latent,
    pendulum,
    predators,
    saturated_predators,
)


def test_runge_kutta_is_of_fourth_order():
    start = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    exact = torch.tensor([np.cos(2.0), -np.sin(2.0)], dtype=torch.float64)

    def oscillator(state, time):
        return torch.stack([state[..., 1], -state[..., 0]], dim=-1)

    errors = [float((rk4(oscillator, start, 2.0 / n, n)[-1, 0] - exact).norm()) for n in (20, 40, 80)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders, 4, atol=0.1)


def test_time_reaches_the_right_hand_side():
    start = torch.zeros(2, 1, dtype=torch.float64)
    begin = torch.tensor([0.0, 1.0], dtype=torch.float64)
    path = rk4(lambda state, time: (3 * time**2).unsqueeze(-1), start, 0.1, 10, start_time=begin)
    torch.testing.assert_close(path[-1, :, 0], (begin + 1) ** 3 - begin**3)


@pytest.fixture(scope="module")
def decay():
    """Truth s' = -s + .5, pupil s' = -s: the state must be moved by -.5 everywhere."""
    start = torch.linspace(-2, 2, 12, dtype=torch.float64).unsqueeze(-1)
    data = rk4(lambda state, time: -state + 0.5, start, 0.1, 40).transpose(0, 1)
    model = TutoredODE(lambda state, time: -state, [1.0], lam=1e-4, hidden=(16,))
    return model.fit(data, 0.1, matching_steps=400, shooting_steps=40), data


def test_state_correction_of_a_linear_system(decay):
    model, data = decay
    found = (model.scale * model.correction(data.reshape(-1, 1))).detach()
    np.testing.assert_allclose(found, -0.5, atol=0.1)
    assert abs(float(found.mean()) + 0.5) < 0.02
    before, after = model.errors(data, 0.1, tutored=False), model.errors(data, 0.1)
    assert after.free_run < 0.1 * before.free_run
    assert after.one_step < 0.1 * before.one_step
    run = model.simulate(data[:, 0], np.arange(41) * 0.1)
    assert (run.transpose(0, 1) - data).abs().max() < 0.1


def test_an_unfitted_model_is_its_pupil():
    model = TutoredODE(pendulum, [1.0, 0.0])
    state = torch.randn(5, 2, dtype=torch.float64)
    time = torch.zeros(5, dtype=torch.float64)
    assert torch.equal(model.derivative(state, time), pendulum(state, time))


def test_the_mask_holds():
    model = TutoredODE(pendulum, [1.0, 0.0], hidden=(8,))
    start = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    data = rk4(dragged_pendulum, start, 0.05, 30).transpose(0, 1)
    model.fit(data, 0.05, matching_steps=5, shooting_steps=2)
    found = model.correction(data)
    assert (found[..., 1] == 0).all()
    assert (found[..., 0] != 0).any()


def test_predators_attack_rate_is_recovered():
    measured = measure_dynamics("predators", 0, 250, np.random.default_rng(0))
    found = measured["recovery"].set_index("quantity")["value"]
    assert found["correlation"] > 0.99
    assert found["saturation"] == pytest.approx(0.25, abs=0.02)
    errors = measured["errors"].set_index("model")["free_run"]
    assert errors["tutored"] < 0.1 * errors["pupil"]


def test_the_true_corrections_give_the_true_equations():
    state = torch.tensor([[0.7, 1.5], [-0.7, -1.0], [2.2, 0.8]], dtype=torch.float64)
    time = torch.zeros(3, dtype=torch.float64)
    shift = _true_correction("pendulum", state)
    moved = torch.stack([state[:, 0] + shift, state[:, 1]], dim=-1)
    torch.testing.assert_close(pendulum(moved, time)[:, 1], dragged_pendulum(state, time)[:, 1])
    rate = 0.6 * (1 + _true_correction("predators", state.abs()))
    torch.testing.assert_close(predators(state.abs(), time, rate.unsqueeze(-1)), saturated_predators(state.abs(), time))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TutoredODE(predators, [1.0], mode="parameters"), "needs the pupil's parameters"),
        (lambda: TutoredODE(predators, [1.0, 0.0], mode="parameters", parameters=[0.6]), "2 entries for 1 parameters"),
        (lambda: TutoredODE(pendulum, [1.0]).fit(torch.zeros(2, 30, 2), 0.1), "mask has 1 entries for 2 states"),
        (lambda: TutoredODE(pendulum, [1.0, 0.0]).fit(torch.zeros(2, 5, 2), 0.1), "too short for windows of 10"),
        (lambda: TutoredODE(pendulum, [1.0, 0.0]).fit(torch.full((2, 30, 2), np.nan), 0.1), "not finite"),
        (
            lambda: TutoredODE(pendulum, [1.0, 0.0]).simulate(torch.zeros(1, 2), np.array([0.0, 0.1, 0.3])),
            "equally spaced",
        ),
    ],
)
def test_bad_input_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_latent_experiment_measures_every_control():
    measured = measure_latent(5, np.random.default_rng(0))
    assert set(measured["scores"]["model"]) >= {
        "pupil", "treatment", "reconstruction", "random-direction", "network-on-code", "logistic-on-code",
    }  # fmt: skip
    assert measured["scores"]["score"].between(0, 1).all()
