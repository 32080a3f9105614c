"""The study's data: a fixed pupil, rows to correct it on, and where they exist the corrections that would be right."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from gnomon.data.digits import digits

GAS_CONSTANT = 0.082057  # L atm / (mol K)
COVOLUME = 0.0318  # L / mol
ATTRACTION = 1.36  # L^2 atm / mol^2
SHIFT = np.array([0.6, 0.0, 0.0, -0.5, 0.0, 0.0])
SCORECARD = ("mean texture", "mean smoothness", "mean symmetry", "mean fractal dimension", "mean compactness")


@dataclass(frozen=True)
class World:
    """A pupil with rows to fit a tutor on and rows to judge it on.

    Args:
        pupil: Fitted model or function.
        train_x, train_y: For the tutor.
        test_x, test_y: Seen once, at the end.
        names: Of the columns.
        options: Arguments of the estimator (mask, context, units, loss).
        region: Test rows on which the planted distortion acts.
    """

    pupil: Any
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    names: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    region: np.ndarray | None = None

    @property
    def classification(self) -> bool:
        """Whether the pupil names a class."""
        return not np.issubdtype(self.train_y.dtype, np.floating)


def make_world(name: str, random: np.random.Generator, *, pilot: bool = False) -> World:
    """A fresh draw of a world, or its pilot: rows on which the penalty is chosen and that no draw tests on.

    Where rows are scarce a pilot is all rows reserved for it and has none to test on: it is cross-validated.

    Raises:
        ValueError: If there is no such world.
    """
    if name not in WORLDS:
        raise ValueError(f"no world {name!r}; there are {', '.join(WORLDS)}")
    return WORLDS[name](random, pilot)


def ideal_pressure(x: torch.Tensor) -> torch.Tensor:
    """Pressure in atm of one mole of an ideal gas; columns temperature (K) and volume (L)."""
    return GAS_CONSTANT * x[:, 0] / x[:, 1]


def distorted_surface(x: torch.Tensor) -> torch.Tensor:
    """The planted world's true surface, which the pupil knows."""
    return torch.sin(1.5 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] ** 2


def _moons_tree(random: np.random.Generator, _pilot: bool) -> World:
    seed = int(random.integers(2**31))
    x, y = (np.asarray(part) for part in make_moons(2000, noise=0.15, random_state=seed))
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(x[:1000], y[:1000])
    return World(tree, x[:1000], y[:1000], x[1000:], y[1000:], ("x", "y"))


def _gas(
    random: np.random.Generator, pressure: Callable[[np.ndarray, np.ndarray], np.ndarray], noise: float, **options
):
    low, high = options.pop("volumes")
    n = options.pop("rows")
    temperature = random.uniform(250, 600, 2 * n)
    volume = np.exp(random.uniform(np.log(low), np.log(high), 2 * n))
    x = np.column_stack([temperature, volume])
    y = pressure(temperature, volume) * (1 + noise * random.normal(size=2 * n))
    # Large steps carry a small volume across the pole of P = RT/V, and no gradient leads back.
    options["learning_rate"] = 3e-3
    return World(ideal_pressure, x[:n], y[:n], x[n:], y[n:], ("T", "V"), options)


def _covolume_gas(random: np.random.Generator, _pilot: bool) -> World:
    return _gas(
        random, lambda t, v: GAS_CONSTANT * t / (v - COVOLUME), 0.01, volumes=(0.08, 2.0), rows=800, loss="relative"
    )


def _ideal_gas(random: np.random.Generator, _pilot: bool) -> World:
    return _gas(random, lambda t, v: GAS_CONSTANT * t / v, 0.01, volumes=(0.08, 2.0), rows=800, loss="relative")


def _van_der_waals(noise: float) -> Callable[[np.random.Generator, bool], World]:
    def draw(random: np.random.Generator, _pilot: bool) -> World:
        return _gas(
            random,
            lambda t, v: GAS_CONSTANT * t / (v - COVOLUME) - ATTRACTION / v**2,
            noise,
            volumes=(0.15, 2.0),
            rows=1500,
            loss="relative",
            correctable=["V"],
        )

    return draw


def _planted(random: np.random.Generator, _pilot: bool) -> World:
    n = 1500
    clean = random.normal(size=(2 * n, 6))
    y = distorted_surface(torch.from_numpy(clean)).numpy() + 0.05 * random.normal(size=2 * n)
    region = clean[:, 4] > 0.5
    x = clean + region[:, None] * SHIFT
    options = {"normalize": "pupil", "scale": 1.0}
    names = tuple(f"x{index}" for index in range(6))
    return World(distorted_surface, x[:n], y[:n], x[n:], y[n:], names, options, region[n:])


def _digits(make_pupil: Callable[[], Any]) -> Callable[[np.random.Generator, bool], World]:
    """500 digits are the pilot, the same in every draw; draws divide the others."""

    def draw(random: np.random.Generator, pilot: bool) -> World:
        reserved, others = digits().split((500, 1297), np.random.default_rng(0))
        train, test = (reserved, None) if pilot else others.split((800, 497), random)
        test_x, test_y = (train.flat[:0], train.labels[:0]) if test is None else (test.flat, test.labels)
        names = tuple(f"pixel {row},{column}" for row in range(8) for column in range(8))
        with warnings.catch_warnings():
            # NearestCentroid remarks on pixels that are always blank.
            warnings.filterwarnings("ignore", message="self.within_class_std_dev_")
            pupil = make_pupil().fit(train.flat, train.labels)
        return World(pupil, train.flat, train.labels, test_x, test_y, names, {"scale": 0.25})

    return draw


def _breast_cancer(with_context: bool) -> Callable[[np.random.Generator, bool], World]:
    def draw(random: np.random.Generator, pilot: bool) -> World:
        bunch: Any = load_breast_cancer()
        names = [str(name) for name in bunch.feature_names]
        reserved, others = train_test_split(
            np.arange(len(bunch.target)), test_size=409, random_state=0, stratify=bunch.target
        )
        seed = int(random.integers(2**31))
        fit, held = train_test_split(others, test_size=0.4, random_state=seed, stratify=bunch.target[others])
        if pilot:
            fit, held = reserved, np.arange(0)
        card = [names.index(name) for name in SCORECARD]
        shown = [*card, *(column for column in range(len(names)) if column not in card)] if with_context else card
        pupil = make_pipeline(StandardScaler(), LogisticRegression()).fit(bunch.data[fit][:, card], bunch.target[fit])
        options = {"context": list(range(len(card), len(shown)))} if with_context else {}
        x = bunch.data[:, shown]
        return World(
            pupil,
            x[fit],
            bunch.target[fit],
            x[held],
            bunch.target[held],
            tuple(names[column] for column in shown),
            options,
        )

    return draw


def _moons_forest(random: np.random.Generator, pilot: bool) -> World:
    tree_world = _moons_tree(random, pilot)
    forest = RandomForestClassifier(20, max_depth=2, random_state=0).fit(tree_world.train_x, tree_world.train_y)
    return World(forest, tree_world.train_x, tree_world.train_y, tree_world.test_x, tree_world.test_y, tree_world.names)


WORLDS: dict[str, Callable[[np.random.Generator, bool], World]] = {
    "moons-tree": _moons_tree,
    "moons-forest": _moons_forest,
    "covolume-gas": _covolume_gas,
    "ideal-gas": _ideal_gas,
    "van-der-waals": _van_der_waals(0.002),
    "van-der-waals-clean": _van_der_waals(0.0),
    "van-der-waals-noisy": _van_der_waals(0.01),
    "planted": _planted,
    "digits-centroid": _digits(NearestCentroid),
    "digits-logistic-weak": _digits(lambda: LogisticRegression(C=0.01, max_iter=1000)),
    "digits-logistic": _digits(lambda: LogisticRegression(C=1.0, max_iter=1000)),
    "scorecard": _breast_cancer(False),
    "scorecard-context": _breast_cancer(True),
}
