"""What the study measures on one draw of a world: scores, refits under nulls, markers, and recovered constants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from gnomon.learners.tutor_pupil import baselines
from gnomon.learners.tutor_pupil.classifier import TutorPupilClassifier
from gnomon.learners.tutor_pupil.diagnose import diagnose
from gnomon.learners.tutor_pupil.diagnostics import (
    alignment,
    cosine,
    gradient_corrections,
    output_gradients,
    region_overlap,
    seed_cosine,
)
from gnomon.learners.tutor_pupil.formulas import linear_coefficients
from gnomon.learners.tutor_pupil.losses import top_two_gap
from gnomon.learners.tutor_pupil.nulls import Arm, TutorPupil, null_fits, random_pushes
from gnomon.learners.tutor_pupil.path import detection, failing_rows, row_losses, score
from gnomon.learners.tutor_pupil.regressor import TutorPupilRegressor
from gnomon.learners.tutor_pupil.report import TutorReport
from gnomon.learners.tutor_pupil.tutor import TutorWeights
from gnomon.learners.tutor_pupil.worlds import GAS_CONSTANT, SHIFT, World

REFITS: dict[Arm, int] = {"treatment": 3, "own-labels": 3, "scattered-errors": 3, "shuffled-input": 3}


@dataclass(frozen=True)
class Budget:
    """Steps, widths and learning rate of every net of a run: tutors, nulls and baselines alike.

    The rate is the one at which the training objective comes nearest its converged value within a few hundred steps. At
    the estimators' 3e-3, made for 1,500 steps, it is still two to six times that value after 200: the task is learned,
    but corrections that nothing needs have not yet been given up, and their size marks nothing.
    """

    steps: int
    hidden: tuple[int, ...]
    learning_rate: float = 0.03


def tutor_for(
    world: World, budget: Budget, *, lam: float | str = "1se", loss: str | None = None, seed: int = 0, **options
) -> TutorPupil:
    """An unfitted tutor for a world's pupil."""
    settings = {"learning_rate": budget.learning_rate, **world.options, **options}
    if loss is not None:
        settings["loss"] = loss
    estimator: Any = TutorPupilClassifier if world.classification else TutorPupilRegressor
    return estimator(
        world.pupil,
        lam=lam,
        max_steps=budget.steps,
        hidden=budget.hidden,
        random_state=seed,
        **settings,
    )


def frame(world: World, x: np.ndarray) -> pd.DataFrame:
    """Rows under the world's column names."""
    return pd.DataFrame(x, columns=list(world.names))


def penalty_table(world: World, budget: Budget, lambdas: tuple[float, ...], seed: int) -> pd.DataFrame:
    """The cross-validated penalty path on the pilot's rows, the choice marked; for classifiers under both losses."""
    tables = []
    for loss in ("satisficing", "log_loss") if world.classification else (None,):
        model = tutor_for(world, budget, loss=loss, seed=seed, lambdas=lambdas)
        model.fit(frame(world, world.train_x), world.train_y)
        path = model.path_.assign(chosen=model.path_["lambda"] == model.lambda_, loss=model.loss)
        # The ratio is infinite where own-label refits move nothing.
        tables.append(path.assign(ratio=path["ratio"].clip(upper=1e6)))
    return pd.concat(tables, ignore_index=True)


def measure_draw(world: World, budget: Budget, lam: float, random: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Everything one draw contributes to the claims.

    Returns:
        ``scores`` of pupil, tutored pupil and nets of equal size; ``refits`` under each null; ``markers`` of failing
        rows with their AUROC; ``pushes``, the tutor's against random ones of equal size; and ``recovery``, numbers
        read from the corrections that have a known truth.
    """
    seed = int(random.integers(2**31 - 1))
    model = tutor_for(world, budget, lam=lam, seed=seed)
    model.fit(frame(world, world.train_x), world.train_y)
    targets = model.encode(world.test_y)
    refits, weights = null_fits(model, world.test_x, targets, REFITS, random)
    nets = _nets(world, budget, seed)
    pushes = random_pushes(model, world.test_x, targets, random, draws=50)
    pushes = pd.DataFrame(pushes.groupby("arm", as_index=False)[["loss", "score", "fixed"]].mean())
    return {
        "scores": _scores(world, model, nets, budget, lam, seed, targets),
        "refits": refits,
        "markers": _markers(world, model, nets["residual"], targets),
        "pushes": pushes,
        "recovery": _recovery(world, model, weights),
    }


def measure_constants(world: World, budget: Budget, lam: float, seed: int) -> pd.DataFrame:
    """Constants read from the corrections of one fit, without nulls or baselines."""
    model = tutor_for(world, budget, lam=lam, seed=seed)
    model.fit(frame(world, world.train_x), world.train_y)
    found = _gas_constants(world, model.corrections(frame(world, world.test_x)))
    return pd.DataFrame([{"quantity": name, "value": value} for name, value in found.items()])


def measure_scatter(world: World, budget: Budget, lam: float, draws: int, random: np.random.Generator) -> pd.DataFrame:
    """Refits under scattered errors beside one refit of the real targets, for the test of structure."""
    model = tutor_for(world, replace(budget, steps=1), lam=lam).fit(frame(world, world.train_x), world.train_y)
    counts: dict[Arm, int] = {"treatment": 1, "scattered-errors": draws}
    schedule = replace(model.schedule(), steps=budget.steps)
    return null_fits(model, world.test_x, model.encode(world.test_y), counts, random, schedule=schedule)[0]


def measure_detail(world: World, budget: Budget, lam: float, random: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Tables of the full report on one draw, and its held-out rows with their corrections, for the figures."""
    model = tutor_for(world, budget, lam=lam, seed=0)
    model.fit(frame(world, world.train_x), world.train_y)
    report = diagnose(
        model, frame(world, world.test_x), world.test_y, n_null=20, n_boot=500, random_state=int(random.integers(2**31))
    )
    shown = np.arange(min(len(world.test_x), 600))
    units = model.corrections(frame(world, world.test_x[shown]))
    outputs = model.differentiable_pupil().outputs(model.frame_.pupil_input(world.test_x[shown]))
    targets = model.encode(world.test_y[shown])
    standardized = model.corrections(frame(world, world.test_x[shown]), standardized=True)
    rows = pd.DataFrame({"row": shown, "size": np.linalg.norm(standardized, axis=1)})
    rows["failing"] = failing_rows(outputs, targets)
    rows["margin"] = top_two_gap(outputs) if world.classification else np.nan
    rows["target"] = world.test_y[shown].astype(np.float64)
    rows["answer"] = outputs.argmax(1) if world.classification else outputs[:, 0]
    wide = pd.DataFrame(
        {f"{kind}.{name}": values[:, i] for kind, values in (("x", world.test_x[shown]), ("move", units))
         for i, name in enumerate(world.names)}
    )  # fmt: skip
    return {
        "rows": pd.concat([rows, wide], axis=1),
        "regions": report.regions,
        "features": report.features,
        "formulas": report.symbolic,
        "summary": _summary(report),
    }


def _summary(report: TutorReport) -> pd.DataFrame:
    values = {
        "gain": report.gain.value,
        "gain_low": report.gain.low,
        "p_scattered": report.p_scattered,
        "size_ratio": min(report.size_ratio, 1e6),
        "alignment": report.alignment,
        "gradient_cosine": report.gradient_cosine,
        "seed_cosine": report.seed_cosine,
        "off_support": report.off_support,
        "at_bound": report.at_bound,
        "soft_gap": report.soft_gap,
    }
    return pd.DataFrame([{"reading": report.reading, "reasons": "; ".join(report.reasons), **values}])


def _nets(world: World, budget: Budget, seed: int) -> dict[str, Any]:
    kind = "Classifier" if world.classification else "Regressor"
    return {
        name: getattr(baselines, f"{prefix}{kind}")(
            world.pupil,
            context=world.options.get("context"),
            hidden=budget.hidden,
            max_steps=budget.steps,
            learning_rate=budget.learning_rate,
            random_state=seed,
        ).fit(world.train_x, world.train_y)
        for name, prefix in {"residual": "Residual", "stack": "Stack", "black-box": "BlackBox"}.items()
    }


def _scores(
    world: World, model: TutorPupil, nets: dict[str, Any], budget: Budget, lam: float, seed: int, targets: np.ndarray
) -> pd.DataFrame:
    tutoring, view = model.tutoring(), model.frame_

    def tutored(one: TutorPupil) -> np.ndarray:
        return tutoring.pupil.outputs(view.pupil_input(np.asarray(one.correct(frame(world, world.test_x)))))

    outputs = {"pupil": tutoring.pupil.outputs(view.pupil_input(world.test_x)), "tutored": tutored(model)}
    if world.classification:
        other = tutor_for(world, budget, lam=lam, loss="log_loss", seed=seed)
        outputs["tutored-log-loss"] = tutored(other.fit(frame(world, world.train_x), world.train_y))
    outputs |= {name: net.outputs(world.test_x) for name, net in nets.items()}
    return pd.DataFrame(
        [
            {
                "model": name,
                "loss": float(row_losses(tutoring, values, targets).mean()),
                "score": score(values, targets),
            }
            for name, values in outputs.items()
        ]
    )


def _markers(world: World, model: TutorPupil, residual: Any, targets: np.ndarray) -> pd.DataFrame:
    outputs = model.differentiable_pupil().outputs(model.frame_.pupil_input(world.test_x))
    failing = failing_rows(outputs, targets)
    correction = model.tutor_(model.frame_.standardize(world.test_x))
    markers = {
        "correction": np.linalg.norm(correction, axis=1),
        "residual": np.linalg.norm(residual.output_correction(world.test_x), axis=1),
    }
    if world.classification:
        markers["margin"] = -top_two_gap(outputs)
    return pd.DataFrame([{"marker": name, "auroc": detection(value, failing)} for name, value in markers.items()])


def _recovery(world: World, model: TutorPupil, weights: dict[Arm, TutorWeights]) -> pd.DataFrame:
    seen = model.frame_.standardize(world.test_x)
    gradients = output_gradients(model.tutoring(), model.frame_.pupil_input(world.test_x))
    correction = model.tutor_(seen)
    found = {
        "seed_cosine": seed_cosine(weights["treatment"].each(seen)),
        "alignment": alignment(gradients, correction, classification=world.classification),
    }
    if "V" in world.names:
        found |= _gas_constants(world, model.corrections(frame(world, world.test_x)))
    if world.region is not None:
        found |= _planted_agreement(world, model, gradients, weights["scattered-errors"](seen))
    return pd.DataFrame([{"quantity": name, "value": value} for name, value in found.items()])


def _gas_constants(world: World, units: np.ndarray) -> dict[str, float]:
    """Covolume from small volumes, and both van der Waals constants from the virial regression at large ones."""
    temperature, volume = world.test_x.T
    exact = GAS_CONSTANT * temperature / world.test_y - volume
    small, large = volume < 0.15, volume > 0.5
    found = {"inverse_correlation": float(np.corrcoef(units[:, 1], exact)[0, 1])}
    if small.any():
        found["covolume"] = float(-units[small, 1].mean())
        found["temperature_move"] = float(np.abs(units[small, 0]).mean())
    constant, slope = linear_coefficients(units[large, 1], [1 / temperature[large]])
    return {**found, "virial_b": float(-constant), "virial_a": float(slope * GAS_CONSTANT)}


def _planted_agreement(
    world: World, model: TutorPupil, gradients: np.ndarray, scattered: np.ndarray
) -> dict[str, float]:
    """Agreement with the move that undoes the distortion: of the tutor, the pupil's gradient, and a null's tutor."""
    inside = world.region
    assert inside is not None
    correction = model.tutor_(model.frame_.standardize(world.test_x))
    wanted = np.broadcast_to(-SHIFT, correction[inside].shape)
    pupil = model.differentiable_pupil()
    change = pupil.outputs(model.frame_.move(world.test_x, correction)) - pupil.outputs(world.test_x)
    smallest = gradient_corrections(gradients, change, model.lambda_)
    return {
        "cosine": cosine(correction[inside], wanted),
        "cosine_gradient": cosine(smallest[inside], wanted),
        "cosine_scattered": cosine(scattered[inside], wanted),
        "overlap": region_overlap(np.linalg.norm(correction, axis=1), inside),
        "overlap_scattered": region_overlap(np.linalg.norm(scattered, axis=1), inside),
    }
