"""The environments, by the libraries' own checkers and against the exact value."""

import dataclasses
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, seed_test

from gnomon.society.planner.environments import HerdAECEnv, HerdEnv
from gnomon.society.planner.evaluation import evaluate
from gnomon.society.planner.model import HerdModel, LinearCost
from gnomon.society.planner.policies import FixedPolicy

MODEL = HerdModel(0.7, 0.9, LinearCost(0.3))


@pytest.mark.parametrize("options", [{}, {"levels": 11}, {"history": True}])
def test_gymnasiums_own_checker_passes(options):
    with warnings.catch_warnings():
        # It recommends actions in [0, 1]; ours are precisions, in [1/2, 1].
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space", category=UserWarning)
        check_env(HerdEnv(MODEL, **options), skip_render_check=True)


def test_pettingzoos_own_checkers_pass():
    with warnings.catch_warnings():
        # pettingzoo's checker itself warns about spaces that are not images
        warnings.simplefilter("ignore", UserWarning)
        api_test(HerdAECEnv(MODEL), num_cycles=60)
        seed_test(HerdAECEnv, num_cycles=20)


def test_the_environment_is_registered():
    env = gymnasium.make("gnomon/Herd-v0")
    observation, _ = env.reset(seed=0)
    assert observation.tolist() == [0.5, 0.0]


@pytest.mark.parametrize("objective", ["altruistic", "biased"])
def test_episodes_are_worth_what_exact_evaluation_says(objective):
    model = dataclasses.replace(MODEL, objective=objective, delta=1.0, horizon=5)
    env = HerdEnv(model)
    returns = []
    for seed in range(1500):
        env.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            _, reward, done, _, _ = env.step(np.array([0.8], dtype=np.float32))
            total += reward
        returns.append(total)
    exact = evaluate(model, FixedPolicy(0.8), 0.5).V
    assert abs(np.mean(returns) - exact) < 4 * np.std(returns) / 1500**0.5


def test_the_planner_is_not_told_the_state_unless_asked():
    _, hidden = HerdEnv(MODEL).reset(seed=0)
    _, shown = HerdEnv(MODEL, reveal_state=True).reset(seed=0)
    assert "omega" not in hidden
    assert shown["omega"] in (1, -1)


def test_the_history_is_what_was_shown_and_done():
    env = HerdEnv(dataclasses.replace(MODEL, horizon=3), history=True)
    first, _ = env.reset(seed=1)
    assert first.tolist() == [0.5, 0.0, *[0.0] * 6]
    seen = []
    for q in (0.75, 1.0):
        observation, _, _, _, info = env.step(np.array([q]))
        seen += [q, float(info["action"] > 0)]
    assert observation[2:].tolist() == [*seen, 0.0, 0.0]


def test_planners_and_people_see_the_same_under_both_states():
    def seen(good):
        planner, both = HerdEnv(MODEL, history=True), HerdAECEnv(MODEL)
        first, info = planner.reset(seed=0)
        both.reset(seed=0)
        both._good = good
        return first.tolist(), info, both.observe("planner").tolist(), both.observe("person_0").tolist()

    assert seen(True) == seen(False)


def test_people_are_paid_for_being_right():
    env = HerdAECEnv(dataclasses.replace(MODEL, objective="biased"), people=2)
    env.reset(seed=3)
    env.step(np.array([1.0], dtype=np.float32))
    _, _, signal = env.observe("person_0")
    env.step(int(signal))
    assert env.rewards["person_0"] == 0.0
    assert env.rewards["planner"] == pytest.approx(-0.09 - float(signal == 0))


@pytest.mark.parametrize(
    "make", [lambda: HerdEnv(MODEL, levels=1), lambda: HerdAECEnv(MODEL, people=0), lambda: HerdEnv(MODEL, 1.5)]
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ValueError, match=r"must be >= |must lie in"):
        make()
