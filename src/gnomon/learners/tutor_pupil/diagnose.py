"""One call from a fitted tutor and held-out rows to what it found, and whether a null would have found it too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from gnomon.evidence.intervals import Estimate
from gnomon.learners.tutor_pupil import baselines
from gnomon.learners.tutor_pupil.diagnostics import (
    alignment,
    cosine,
    feature_profile,
    gradient_corrections,
    output_gradients,
    region_tree,
    seed_cosine,
    support_ratio,
)
from gnomon.learners.tutor_pupil.formulas import Search, evolved_formula, symbolic_summary, term_library
from gnomon.learners.tutor_pupil.losses import top_two_gap
from gnomon.learners.tutor_pupil.nulls import TutorPupil, null_fits, random_pushes
from gnomon.learners.tutor_pupil.path import detection, failing_rows, row_losses, score
from gnomon.learners.tutor_pupil.reading import (
    ALONG_GRADIENT,
    OFF_SUPPORT,
    SOFT_GAP,
    Signs,
    alignment_sentence,
    monte_carlo_p,
    readable,
    shift_sentence,
    shift_share,
    size_ratio,
)
from gnomon.learners.tutor_pupil.report import TutorReport

Null = Literal["own-labels", "scattered-errors", "shuffled-input"]

_SEEDS = 5
_FORMULA = ["feature", "term", "coefficient", "low", "high", "r2"]
_MOST_ROWS = 2000
_MOST_FORMULAS = 6


def diagnose(
    model: TutorPupil,
    X: Any,
    y: Any,
    *,
    nulls: Sequence[Null] = get_args(Null),
    n_null: int = 20,
    n_boot: int = 2000,
    feature_names: Sequence[str] | None = None,
    formulas: Search = "terms",
    random_state: int = 0,
) -> TutorReport:
    """Score a fitted tutor on held-out rows against its nulls and baselines, and read its corrections.

    Args:
        model: Fitted; null fits use the training rows it keeps.
        X: Rows it was not fitted on.
        y: Their targets.
        nulls: Which nulls to refit.
        n_null: Refits of ``scattered-errors``; the p-value cannot fall below 1 / (1 + n_null). The other arms take
            five.
        n_boot: Bootstrap resamples of intervals.
        feature_names: Names for the columns; by default those the model was fitted with.
        formulas: How formulas are found: by pursuit in a library of ``"terms"``, or evolved by ``"gplearn"``.
        random_state: Of refits, pushes and resamples.

    Raises:
        ValueError: If a null is unknown or there are fewer than 10 rows.
    """
    if unknown := set(nulls) - set(get_args(Null)):
        raise ValueError(f"nulls must be among {get_args(Null)}, got {sorted(unknown)}")
    held = _HeldOut.of(model, X, y)
    random = np.random.default_rng(random_state)
    counts = {"treatment": _SEEDS, **{arm: n_null if arm == "scattered-errors" else _SEEDS for arm in nulls}}
    null, refits = null_fits(model, held.X, held.targets, counts, random)  # pyright: ignore[reportArgumentType]
    names = list(model.get_feature_names_out()) if feature_names is None else list(feature_names)
    scores, residual_size = _scores(model, held, random_state)
    by_seed = refits["treatment"].each(held.seen)
    gradients = output_gradients(model.tutoring(), held.x)
    smallest = gradient_corrections(gradients, held.tutored - held.outputs, model.lambda_)
    classification = held.targets.ndim == 1
    correctable = [str(names[column]) for column in model.frame_.correctable]
    path = getattr(model, "path_", pd.DataFrame())
    by_model = dict(zip(scores["model"], scores["score"], strict=True))
    signs = Signs(
        gain=_mean(held.losses - held.tutored_losses, n_boot, random_state),
        pupil=by_model["pupil"],
        tutored=by_model["tutored"],
        black_box=by_model["black-box"],
        p_scattered=monte_carlo_p(null),
        size_ratio=size_ratio(null),
        shift_share=shift_share(null),
        seed_cosine=seed_cosine(by_seed),
        auroc=detection(held.size, held.failing),
        readable=readable(path, model.lambda_),
    )
    along = alignment(gradients, held.correction, classification=classification)
    soft = score(model.differentiable_pupil().soft_outputs(held.moved), held.targets)
    off_support = _off_support(model, held)
    reasons = signs.reasons()
    if signs.reading() == "constant offset":
        shift = refits["shuffled-input"](held.seen).mean(0) * model.frame_.scale[model.frame_.correctable]
        reasons.append(shift_sentence(signs.shift_share, shift, correctable))
    if along > ALONG_GRADIENT:
        directions = gradients.shape[1] - int(classification)
        reasons.append(alignment_sentence(along, directions, gradients.shape[2]))
    if off_support > OFF_SUPPORT:
        reasons.append(f"the rows moved farthest end {off_support:.1f} times as far from the data as they were")
    if classification and abs(soft - signs.tutored) > SOFT_GAP:
        reasons.append(
            f"the {model.differentiable_pupil().kind_} pupil that trained the tutor scores {soft:.3f} on corrected "
            f"inputs, the pupil itself {signs.tutored:.3f}"
        )
    return TutorReport(
        reading=signs.reading(),
        reasons=tuple(reasons),
        gain=signs.gain,
        p_scattered=signs.p_scattered,
        size_ratio=signs.size_ratio,
        alignment=along,
        gradient_cosine=cosine(held.correction, smallest),
        seed_cosine=signs.seed_cosine,
        off_support=off_support,
        at_bound=float(model.frame_.domain.at_bound(held.moved).mean()),
        soft_gap=soft - signs.tutored,
        scores=scores,
        null=null,
        path=path,
        regions=_regions(model, held, names, n_boot, random_state),
        features=feature_profile(
            by_seed,
            smallest,
            model.frame_.scale[model.frame_.correctable],
            correctable,
            n_boot=n_boot,
            seed=random_state,
        ),
        symbolic=_symbolic(model, held, names, formulas, n_boot, random_state),
        detection=_detection(held, residual_size),
        pushes=random_pushes(model, held.X, held.targets, random),
        rows=_farthest(model, held, names),
    )


@dataclass(frozen=True)
class _HeldOut:
    """Held-out rows with everything that is computed from them once."""

    X: np.ndarray
    y: np.ndarray
    targets: np.ndarray
    x: np.ndarray
    seen: np.ndarray
    correction: np.ndarray
    moved: np.ndarray
    outputs: np.ndarray
    tutored: np.ndarray
    losses: np.ndarray
    tutored_losses: np.ndarray

    @property
    def size(self) -> np.ndarray:
        return np.linalg.norm(self.correction, axis=1)

    @property
    def failing(self) -> np.ndarray:
        return failing_rows(self.outputs, self.targets)

    @classmethod
    def of(cls, model: TutorPupil, X: Any, y: Any) -> _HeldOut:
        table = model.checked(X)
        labels = np.asarray(y)
        if len(table) < 10:
            raise ValueError(f"diagnose needs at least 10 held-out rows, got {len(table)}")
        if len(labels) != len(table):
            raise ValueError(f"X has {len(table)} rows, y has {len(labels)}")
        pupil = model.differentiable_pupil()
        targets = model.encode(labels)
        frame, tutoring = model.frame_, model.tutoring()
        seen = frame.standardize(table)
        correction = model.tutor_(seen)
        x, moved = frame.pupil_input(table), frame.pupil_input(frame.move(table, correction))
        outputs, tutored = pupil.outputs(x), pupil.outputs(moved)
        losses, after = (row_losses(tutoring, values, targets) for values in (outputs, tutored))
        return cls(table, labels, targets, x, seen, correction, moved, outputs, tutored, losses, after)


def _scores(model: TutorPupil, held: _HeldOut, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Pupil and tutored pupil beside nets of the same size and budget; and the residual net's size on each row."""
    kind = "Classifier" if held.targets.ndim == 1 else "Regressor"
    settings = {
        "context": [int(c) for c in range(held.X.shape[1]) if c not in set(model.frame_.pupil_columns.tolist())],
        "pupil_kind": model.pupil_kind,
        "hidden": model.hidden,
        "max_steps": model.max_steps,
        "batch_size": model.batch_size,
        "learning_rate": model.learning_rate,
        "random_state": seed,
    }
    y = model.train_targets_
    if held.targets.ndim == 1:
        y = model.classes_[y]  # pyright: ignore[reportAttributeAccessIssue]
    outputs = {"pupil": held.outputs, "tutored": held.tutored}
    residual_size = np.zeros(len(held.X))
    for name, prefix in {"residual": "Residual", "stack": "Stack", "black-box": "BlackBox"}.items():
        net = getattr(baselines, f"{prefix}{kind}")(model.pupil_, **settings).fit(model.train_rows_, y)
        outputs[name] = net.outputs(held.X)
        if name == "residual":
            residual_size = np.linalg.norm(net.output_correction(held.X), axis=1)
    tutoring = model.tutoring()
    table = pd.DataFrame(
        [
            {
                "model": name,
                "loss": float(row_losses(tutoring, values, held.targets).mean()),
                "score": score(values, held.targets),
            }
            for name, values in outputs.items()
        ]
    )
    return table, residual_size


def _mean(values: np.ndarray, n_boot: int, seed: int) -> Estimate:
    centre = float(values.mean())
    if np.ptp(values) == 0:
        return Estimate(centre, centre, centre)
    interval = bootstrap(
        (values,), np.mean, n_resamples=n_boot, method="percentile", rng=np.random.default_rng(seed), batch=256
    ).confidence_interval
    return Estimate(centre, float(interval.low), float(interval.high))


def _off_support(model: TutorPupil, held: _HeldOut) -> float:
    far = held.size > np.quantile(held.size, 0.95)
    if not far.any():
        return float("nan")
    scale, columns = model.frame_.scale[model.frame_.pupil_columns], model.frame_.pupil_columns
    train = model.train_rows_[:, columns] / scale
    return float(np.median(support_ratio(train, held.x[far] / scale, held.moved[far] / scale)))


def _regions(model: TutorPupil, held: _HeldOut, names: Sequence[str], n_boot: int, seed: int) -> pd.DataFrame:
    fit_size = np.linalg.norm(model.tutor_(model.frame_.standardize(model.train_rows_)), axis=1)
    return region_tree(
        model.train_rows_,
        fit_size,
        held.X,
        held.size,
        held.losses,
        held.tutored_losses,
        [str(name) for name in names],
        n_boot=n_boot,
        seed=seed,
    )


def _symbolic(
    model: TutorPupil, held: _HeldOut, names: Sequence[str], search: Search, n_boot: int, seed: int
) -> pd.DataFrame:
    """Formulas for the features that carry energy, over the features that vary most with them."""
    energy = np.square(held.correction).mean(0)
    leading = [index for index in np.argsort(-energy)[:_MOST_FORMULAS] if energy[index] > 0.05 * energy.sum()]
    if not leading:
        return pd.DataFrame(columns=_FORMULA)
    rows = np.random.default_rng(seed).permutation(len(held.X))[:_MOST_ROWS]
    columns = model.frame_.pupil_columns
    if len(columns) > _MOST_FORMULAS:
        columns = model.frame_.correctable[np.argsort(-energy)[:_MOST_FORMULAS]]
    x, shown = held.X[rows][:, columns], [str(names[column]) for column in columns]
    tables = []
    for index in leading:
        column = int(model.frame_.correctable[index])
        correction = held.correction[rows, index] * model.frame_.scale[column]
        if search == "terms":
            summary = symbolic_summary(correction, term_library(x, shown), n_boot=min(n_boot, 500), seed=seed)
        else:
            summary = evolved_formula(correction, x, shown, seed=seed)
        tables.append(summary.assign(feature=str(names[column])))
    return pd.concat(tables, ignore_index=True).reindex(columns=_FORMULA)


def _detection(held: _HeldOut, residual_size: np.ndarray) -> pd.DataFrame:
    records = [
        {"marker": "correction size", "auroc": detection(held.size, held.failing)},
        {"marker": "residual size", "auroc": detection(residual_size, held.failing)},
    ]
    if held.targets.ndim == 1:
        records.insert(1, {"marker": "pupil margin", "auroc": detection(-top_two_gap(held.outputs), held.failing)})
    return pd.DataFrame(records)


def _farthest(model: TutorPupil, held: _HeldOut, names: Sequence[str], most: int = 20) -> pd.DataFrame:
    order = np.argsort(-held.size)[:most]
    units = held.correction[order] * model.frame_.scale[model.frame_.correctable]
    table = pd.DataFrame(units, columns=[str(names[column]) for column in model.frame_.correctable])
    table.insert(0, "size", held.size[order])
    table.insert(0, "row", order)
    return table
