"""One call from a fitted tutor and held-out rows to what it found, and whether a null would have found it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    symbolic_summary,
    term_library,
)
from gnomon.learners.tutor_pupil.losses import top_two_gap
from gnomon.learners.tutor_pupil.nulls import TutorPupil, null_fits, random_pushes
from gnomon.learners.tutor_pupil.path import detection, failing_rows, one_standard_error, row_losses, score

Reading = Literal["structured", "constant offset", "calibration only", "penalty too small to read", "none"]
Null = Literal["own-labels", "scattered-errors", "shuffled-input"]

_SEEDS = 5
_FORMULA = ["feature", "term", "coefficient", "low", "high", "r2"]
_MOST_ROWS = 2000
_MOST_FORMULAS = 6


@dataclass(frozen=True)
class TutorReport:
    """What a tutor found about a pupil, on rows it was not fitted on.

    Attributes:
        reading: ``structured``: the pupil fails in a pattern of its inputs that scattered errors do not show;
            ``constant offset``: one shift for all rows does most of it; ``calibration only``: the loss falls, the score
            does not rise; ``penalty too small to read``: inputs move far for no gain; ``none``.
        reasons: Sentences behind the reading.
        gain: Mean fall of the task loss on held-out rows, with a bootstrap interval.
        p_scattered: Share of scattered-error refits that gain as much, as a Monte-Carlo p; NaN without that null.
        size_ratio: Median size of corrections over that of own-label refits.
        alignment: Share of the corrections' energy in the span of the pupil's gradients.
        gradient_cosine: Cosine between corrections and the smallest ones of equal effect.
        seed_cosine: Mean cosine between refits from different seeds.
        off_support: Of the rows moved farthest (upper twentieth), the median ratio of distances to the data.
        at_bound: Share of corrected rows at a bound.
        soft_gap: Score of the relaxed, distilled or black-box pupil on corrected rows minus that of the pupil itself.
        scores: Pupil, tutored pupil, residual, stack and black box: ``loss`` and ``score``.
        null: The refits, a row each (see ``null_fits``).
        path: The penalty path, empty if the penalty was given.
        regions: Honest tree of correction size (see ``region_tree``).
        features: Profile over features (see ``feature_profile``).
        symbolic: Short formulas for the corrections that matter, in the user's units.
        detection: AUROC for "the pupil fails here" of correction size, pupil margin and residual size.
        pushes: Random pushes of equal size (see ``random_pushes``).
        rows: The held-out rows that move farthest: ``row``, ``size``, and the correction of each feature in its units.
    """

    reading: Reading
    reasons: tuple[str, ...]
    gain: Estimate
    p_scattered: float
    size_ratio: float
    alignment: float
    gradient_cosine: float
    seed_cosine: float
    off_support: float
    at_bound: float
    soft_gap: float
    scores: pd.DataFrame
    null: pd.DataFrame
    path: pd.DataFrame
    regions: pd.DataFrame
    features: pd.DataFrame
    symbolic: pd.DataFrame
    detection: pd.DataFrame
    pushes: pd.DataFrame
    rows: pd.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready values; tables become lists of rows."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, pd.DataFrame):
                plain[name] = value.to_dict("records")
            elif isinstance(value, Estimate):
                plain[name] = {"value": value.value, "low": value.low, "high": value.high}
            else:
                plain[name] = list(value) if isinstance(value, tuple) else value
        return plain

    def __str__(self) -> str:
        lines = [f"{self.reading}: {'; '.join(self.reasons)}"]
        if len(self.regions):
            top = self.regions.iloc[0]
            lines.append(f"where: {top['region']} (n={top['n']}, mean size {top['size']:.2f})")
        if len(self.features):
            leading = self.features.head(3)
            named = ", ".join(
                f"{name} {move:+.3g}" for name, move in zip(leading["feature"], leading["mean_units"], strict=True)
            )
            lines.append(f"which: {named}")
        return "\n".join(lines)


def diagnose(
    model: TutorPupil,
    X: Any,
    y: Any,
    *,
    nulls: Sequence[Null] = get_args(Null),
    n_null: int = 20,
    n_boot: int = 2000,
    feature_names: Sequence[str] | None = None,
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
    gain = _mean(held.losses - held.tutored_losses, n_boot, random_state)
    numbers = {
        "p_scattered": _monte_carlo(null, "scattered-errors"),
        "size_ratio": _size_ratio(null),
        "seed_cosine": seed_cosine(by_seed),
        "alignment": alignment(gradients, held.correction, classification=classification),
    }
    path = getattr(model, "path_", pd.DataFrame())
    reading, reasons = _read(held, gain, null, path, scores, model.lambda_, numbers)
    if numbers["alignment"] > 0.95:
        reasons += (_alignment_sentence(numbers["alignment"], gradients, classification),)
    return TutorReport(
        reading=reading,
        reasons=reasons,
        gain=gain,
        gradient_cosine=cosine(held.correction, smallest),
        off_support=_off_support(model, held),
        at_bound=float(model.frame_.domain.at_bound(held.moved).mean()),
        soft_gap=score(model.differentiable_pupil().soft_outputs(held.moved), held.targets)
        - score(held.tutored, held.targets),
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
        symbolic=_symbolic(model, held, names, n_boot, random_state),
        detection=_detection(held, residual_size),
        pushes=random_pushes(model, held.X, held.targets, random),
        rows=_farthest(model, held, names),
        **numbers,
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


def _arm(null: pd.DataFrame, arm: str, column: str) -> np.ndarray:
    return null.loc[null["arm"] == arm, column].to_numpy(dtype=np.float64)


def _monte_carlo(null: pd.DataFrame, arm: str) -> float:
    draws = _arm(null, arm, "gain")
    observed = _arm(null, "treatment", "gain").mean()
    return float((1 + (draws >= observed).sum()) / (1 + len(draws))) if len(draws) else float("nan")


def _size_ratio(null: pd.DataFrame) -> float:
    own = _arm(null, "own-labels", "median")
    if not len(own):
        return float("nan")
    floor = float(own.mean())
    return float(_arm(null, "treatment", "median").mean()) / floor if floor > 0 else float("inf")


def _read(
    held: _HeldOut,
    gain: Estimate,
    null: pd.DataFrame,
    path: pd.DataFrame,
    scores: pd.DataFrame,
    penalty: float,
    numbers: Mapping[str, float],
) -> tuple[Reading, tuple[str, ...]]:
    """The reading, by rules fixed before any test row was seen."""
    by_model = dict(zip(scores["model"], scores["score"], strict=True))
    gained = float(by_model["tutored"] - by_model["pupil"])
    reasons = [
        f"the pupil scores {by_model['pupil']:.3f}, on corrected inputs {by_model['tutored']:.3f}",
        f"task loss falls by {gain}",
        f"p against scattered errors {numbers['p_scattered']:.3g}",
        f"corrections are {numbers['size_ratio']:.3g} times those of own-label refits",
        f"refits from other seeds agree with cosine {numbers['seed_cosine']:.2f}",
    ]
    if by_model["black-box"] > by_model["tutored"]:
        reasons.append(f"performance from flexibility: a black box of equal size scores {by_model['black-box']:.3f}")
    shuffled = _arm(null, "shuffled-input", "gain")
    real = _arm(null, "treatment", "gain").mean()
    reading: Reading = "none"
    if gain.low > 0 and len(shuffled) and shuffled.mean() > 0.8 * real:
        reading = "constant offset"
        reasons.append(f"one shift for all rows gives {shuffled.mean() / real:.0%} of the gain")
    elif gain.low > 0 and _too_small(path, penalty):
        reading = "penalty too small to read"
    elif gain.low > 0 and gained <= 0 and detection(held.size, held.failing) < 0.6:
        reading = "calibration only"
    elif (
        gain.low > 0
        and not numbers["p_scattered"] > 0.05
        and not numbers["size_ratio"] < 2
        and numbers["seed_cosine"] >= 0.5
    ):
        reading = "structured"
    return reading, tuple(reasons)


def _too_small(path: pd.DataFrame, penalty: float) -> bool:
    """Whether a chosen penalty lies where the path no longer reads: location lost, or moves tripled for no score."""
    if path.empty or penalty not in set(path["lambda"]):
        return False
    by_penalty = {row["lambda"]: row for row in path.to_dict("records")}
    here, reference = by_penalty[penalty], by_penalty[one_standard_error(path)]
    lost = here["auroc"] < max(row["auroc"] for row in by_penalty.values()) - 0.1
    far = here["size"] > 3 * reference["size"] and here["score"] <= reference["score"]
    return bool(lost or far)


def _alignment_sentence(share: float, gradients: np.ndarray, classification: bool) -> str:
    directions = gradients.shape[1] - int(classification)
    if directions >= gradients.shape[2]:
        return f"{directions} outputs span all {gradients.shape[2]} correctable features, so alignment says nothing"
    return (
        f"{share:.0%} of the corrections lies along the pupil's gradients: "
        f"the feature profile adds nothing beyond the pupil's weights"
    )


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


def _symbolic(model: TutorPupil, held: _HeldOut, names: Sequence[str], n_boot: int, seed: int) -> pd.DataFrame:
    """Formulas for the features that carry energy, over the features that vary most with them."""
    energy = np.square(held.correction).mean(0)
    leading = [index for index in np.argsort(-energy)[:_MOST_FORMULAS] if energy[index] > 0.05 * energy.sum()]
    if not leading:
        return pd.DataFrame(columns=_FORMULA)
    rows = np.random.default_rng(seed).permutation(len(held.X))[:_MOST_ROWS]
    columns = model.frame_.pupil_columns
    if len(columns) > _MOST_FORMULAS:
        columns = model.frame_.correctable[np.argsort(-energy)[:_MOST_FORMULAS]]
    terms = term_library(held.X[rows][:, columns], [str(names[column]) for column in columns])
    tables = []
    for index in leading:
        column = int(model.frame_.correctable[index])
        summary = symbolic_summary(
            held.correction[rows, index] * model.frame_.scale[column], terms, n_boot=min(n_boot, 500), seed=seed
        )
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


__all__ = ["Null", "Reading", "TutorReport", "diagnose"]
