"""What a tutor costs beside a net of the same size that corrects the output, and what stacking and warm starts save.

* ``ratio``: a tutor's fit over an output-residual net's, equal width, steps and data (bar: at most 1.5).
* ``tree``: the recursive form of a depth-6 relaxed tree over ours, 4,096 rows (bar: at least 5).
* ``forest_ms``: 100 relaxed trees of depth 8 on 256 rows (bar: below 20).
* ``path``: a warm-started path of six penalties over six independent fits, and the quotient of their validation losses
  (bars: at most .5, at equal loss).
* ``nulls``: twenty refits of 64-unit tutors one by one over the same twenty in one stack (bar: at least 4).
* ``corrections_s``: correcting a million rows of thirty columns (bar: below 5).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from gnomon.learners.tutor_pupil import ResidualRegressor, TutorPupilRegressor, as_differentiable
from gnomon.learners.tutor_pupil.nulls import null_fits


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Best processor time of some repeats: other processes only ever add."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a target that a linear pupil misses in part."""
    x = np.random.default_rng(0).normal(size=(rows, columns))
    return x, x[:, 0] + np.sin(2 * x[:, 1])


def fit_ratio() -> dict[str, float]:
    """A tutor beside an output-residual net."""
    x, y = data(2000, 6)
    pupil = Ridge().fit(x, y)
    tutor = seconds(lambda: TutorPupilRegressor(pupil, lam=0.1, max_steps=300, random_state=0).fit(x, y))
    residual = seconds(lambda: ResidualRegressor(pupil, max_steps=300, random_state=0).fit(x, y))
    return {"ours": tutor, "peer": residual, "ratio": tutor / residual}


def tree_ratio() -> float:
    """A relaxed tree, node by node in Python, over ours."""
    x, y = data(4096, 6)
    grown = DecisionTreeRegressor(max_depth=6, random_state=0).fit(x, y)
    nodes, scale = grown.tree_, torch.from_numpy(x.std(0))
    pupil = as_differentiable(grown, tau=0.1)
    rows = torch.from_numpy(x)

    def recursive(row: torch.Tensor, node: int = 0) -> torch.Tensor | float:
        left = nodes.children_left[node]
        if left < 0:
            return float(nodes.value[node, 0, 0])
        feature = nodes.feature[node]
        gate = torch.sigmoid((nodes.threshold[node] - row[feature]) / (0.1 * scale[feature]))
        return gate * recursive(row, left) + (1 - gate) * recursive(row, nodes.children_right[node])

    some = 32
    slow = seconds(lambda: [recursive(row) for row in rows[:some]], 1) * len(rows) / some
    return slow / seconds(lambda: pupil(rows))


def forest_milliseconds() -> float:
    """A hundred relaxed trees on a minibatch, in float32 as they train."""
    x, y = data(4000, 12)
    forest = RandomForestClassifier(100, max_depth=8, random_state=0).fit(x, y > 0)
    pupil = as_differentiable(forest).in_dtype(torch.float32)
    rows = torch.from_numpy(x[:256]).float()
    return 1000 * seconds(lambda: pupil(rows), 20)


def path_ratio() -> tuple[float, float]:
    """Time and validation loss of a warm-started path over those of independent fits; the final refit not counted."""
    x, y = data(1500, 6)
    pupil = Ridge().fit(x, y)
    lambdas = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)

    def fitted(**settings: Any) -> TutorPupilRegressor:
        return TutorPupilRegressor(pupil, max_steps=300, random_state=0, **settings).fit(x, y)

    refit = seconds(lambda: fitted(lam=0.1))
    warm = seconds(lambda: fitted(lambdas=lambdas), 1) - refit
    cold = seconds(lambda: [fitted(lambdas=(lam,)) for lam in lambdas], 1) - len(lambdas) * refit
    losses = [float(fitted(lambdas=(lam,)).path_["task_loss"].iloc[0]) for lam in lambdas]
    return warm / cold, float(np.sum(fitted(lambdas=lambdas).path_["task_loss"].to_numpy())) / sum(losses)


def null_ratio() -> float:
    """Twenty refits, one by one and stacked."""
    x, y = data(1000, 6)
    pupil = Ridge().fit(x, y)
    model = TutorPupilRegressor(pupil, lam=0.1, max_steps=100, hidden=(64, 64), random_state=0).fit(x, y)
    held = x[:50], y[:50, None]

    def refit(count: int) -> None:
        null_fits(model, *held, {"scattered-errors": count}, np.random.default_rng(0))

    return seconds(lambda: [refit(1) for _ in range(20)]) / seconds(lambda: refit(20))


def correction_seconds() -> float:
    """A million rows of thirty columns."""
    x, y = data(2000, 30)
    model = TutorPupilRegressor(Ridge().fit(x, y), lam=0.1, max_steps=5, random_state=0).fit(x, y)
    many = np.random.default_rng(1).normal(size=(1_000_000, 30))
    return seconds(lambda: model.corrections(many), 1)


def run() -> dict[str, Any]:
    """All of it, in a minute or two."""
    path, losses = path_ratio()
    return {
        "name": "tutor-pupil",
        "peer_name": "output-residual net of equal width and steps",
        **fit_ratio(),
        "tree": tree_ratio(),
        "forest_ms": forest_milliseconds(),
        "path": path,
        "path_loss": losses,
        "nulls": null_ratio(),
        "corrections_s": correction_seconds(),
    }
