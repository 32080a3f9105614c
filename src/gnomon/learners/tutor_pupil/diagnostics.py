"""Where corrections are large, along which features, and whether the direction is news."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from scipy.stats import bootstrap, false_discovery_control, wilcoxon
from sklearn.neighbors import NearestNeighbors
from sklearn.tree import DecisionTreeRegressor

from gnomon.learners.tutor_pupil.tutor import Tutoring


def region_tree(
    fit_rows: Float[np.ndarray, "m d"],
    fit_size: Float[np.ndarray, " m"],
    rows: Float[np.ndarray, "n d"],
    size: Float[np.ndarray, " n"],
    pupil_error: Float[np.ndarray, " n"],
    tutored_error: Float[np.ndarray, " n"],
    names: Sequence[str],
    *,
    depth: int = 3,
    n_boot: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Regions of the input in which corrections are large, from a shallow regression tree.

    The tree is honest: it is grown on ``fit_rows``, and leaf means with bootstrap intervals come from other rows.

    Returns:
        A row a leaf, largest correction first: ``region`` (its conditions in words), ``n``, mean ``size`` with ``low``
        and ``high``, ``pupil_error`` and ``tutored_error``.
    """
    grown = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=max(len(fit_rows) // 50, 5), random_state=seed)
    grown.fit(fit_rows, fit_size)
    leaf_of = grown.apply(rows)
    records = []
    for leaf, region in _leaf_regions(grown, names).items():
        inside = leaf_of == leaf
        if inside.sum() < 2:
            continue
        low, high = _mean_interval(size[inside], n_boot, seed)
        records.append(
            {
                "region": region,
                "n": int(inside.sum()),
                "size": float(size[inside].mean()),
                "low": low,
                "high": high,
                "pupil_error": float(pupil_error[inside].mean()),
                "tutored_error": float(tutored_error[inside].mean()),
            }
        )
    return pd.DataFrame(records).sort_values("size", ascending=False, ignore_index=True)


def _leaf_regions(grown: DecisionTreeRegressor, names: Sequence[str]) -> dict[int, str]:
    tree = grown.tree_
    regions: dict[int, str] = {}
    stack: list[tuple[int, dict[str, tuple[float, float]]]] = [(0, {})]
    while stack:
        node, box = stack.pop()
        if tree.children_left[node] < 0:
            regions[node] = " and ".join(_interval_text(name, *ends) for name, ends in box.items()) or "everywhere"
            continue
        name, threshold = names[int(tree.feature[node])], float(tree.threshold[node])
        low, high = box.get(name, (-np.inf, np.inf))
        stack.append((int(tree.children_left[node]), {**box, name: (low, min(high, threshold))}))
        stack.append((int(tree.children_right[node]), {**box, name: (max(low, threshold), high)}))
    return regions


def _interval_text(name: str, low: float, high: float) -> str:
    if np.isinf(low):
        return f"{name} <= {high:.3g}"
    return f"{name} > {low:.3g}" if np.isinf(high) else f"{low:.3g} < {name} <= {high:.3g}"


def _mean_interval(values: np.ndarray, n_boot: int, seed: int) -> tuple[float, float]:
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    interval = bootstrap(
        (values,), np.mean, n_resamples=n_boot, method="percentile", rng=np.random.default_rng(seed), batch=256
    ).confidence_interval
    return float(interval.low), float(interval.high)


def output_gradients(tutoring: Tutoring, x: Float[np.ndarray, "n pupil"]) -> Float[np.ndarray, "n q c"]:
    """Gradient of each pupil output in the correctable features, per standardised unit."""
    dtype = torch.float64
    rows = torch.from_numpy(x).to(dtype).requires_grad_(True)
    outputs = tutoring.pupil(rows)
    gradients = [torch.autograd.grad(outputs[:, k].sum(), rows, retain_graph=True)[0] for k in range(outputs.shape[1])]
    frame = tutoring.frame
    stacked = torch.stack(gradients, dim=1).numpy()
    return stacked[..., frame.moving] * frame.scale[frame.correctable]


def gradient_corrections(
    gradients: Float[np.ndarray, "n q c"], change: Float[np.ndarray, "n q"], penalty: float
) -> Float[np.ndarray, "n c"]:
    r"""The smallest correction that to first order changes the outputs as the tutor does.

    .. math:: \hat\epsilon = J^\top (J J^\top + \lambda I)^{-1} \Delta f

    For one output it is :math:`\Delta f\, \nabla f / (\lambda + \lVert \nabla f \rVert^2)`. It knows the pupil and the
    size of the change, nothing else: what a tutor's feature profile adds is its difference from this.
    """
    gram = np.einsum("nqc,npc->nqp", gradients, gradients)
    gram += penalty * np.eye(gram.shape[1])
    weights = np.linalg.solve(gram, change[..., None])[..., 0]
    return np.einsum("nqc,nq->nc", gradients, weights)


def alignment(
    gradients: Float[np.ndarray, "n q c"], corrections: Float[np.ndarray, "n c"], *, classification: bool
) -> float:
    r"""Share of :math:`\lVert \epsilon \rVert^2` in the span of the pupil's own gradients.

    For K classes the span is that of the K - 1 differences of class gradients. Near 1, the feature profile adds
    nothing beyond the pupil's weights. NaN if no row is corrected.
    """
    directions = gradients[:, 1:] - gradients[:, :1] if classification else gradients
    total = np.square(corrections).sum()
    if total == 0:
        return float("nan")
    _, spread, basis = np.linalg.svd(directions, full_matrices=False)
    # Directions of a flat pupil carry rounding noise only and span nothing.
    real = spread > 1e-10 * max(float(spread.max()), 1e-300)
    along = np.einsum("nqc,nc->nq", basis, corrections) * real
    return float(np.square(along).sum() / total)


def feature_profile(
    by_seed: Float[np.ndarray, "seed n c"],
    baseline: Float[np.ndarray, "n c"],
    scale: Float[np.ndarray, " c"],
    names: Sequence[str],
    *,
    n_boot: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """How much each feature moves, in which direction, and whether all seeds say so.

    Returns:
        A row a feature: mean absolute correction ``mean_abs`` and signed ``mean`` with bootstrap ``low`` and ``high``
        (standardised), the signed mean in the user's units ``mean_units``, share of ``energy``, ``sign_agreement`` (the
        share of seeds whose mean has the common sign), ``gradient_abs`` (the baseline's mean absolute correction), and
        ``p_adjusted`` of a signed-rank test of the mean (Benjamini-Hochberg over features).
    """
    corrections = by_seed.mean(0)
    energy = np.square(corrections).sum(0)
    p_values = [float(np.asarray(wilcoxon(column))[1]) if np.any(column) else 1.0 for column in corrections.T]
    adjusted = false_discovery_control(p_values, method="bh")
    records = []
    for index, name in enumerate(names):
        column = corrections[:, index]
        low, high = _mean_interval(column, n_boot, seed)
        signs = np.sign(by_seed[:, :, index].mean(1))
        records.append(
            {
                "feature": name,
                "mean_abs": float(np.abs(column).mean()),
                "mean": float(column.mean()),
                "low": low,
                "high": high,
                "mean_units": float(column.mean() * scale[index]),
                "energy": float(energy[index] / energy.sum()) if energy.sum() > 0 else 0.0,
                "sign_agreement": float((signs == np.sign(column.mean())).mean()),
                "gradient_abs": float(np.abs(baseline[:, index]).mean()),
                "p_adjusted": float(adjusted[index]),
            }
        )
    return pd.DataFrame(records).sort_values("energy", ascending=False, ignore_index=True)


def seed_cosine(by_seed: Float[np.ndarray, "seed n c"]) -> float:
    """Mean cosine between the corrections of two seeds, over all rows at once; NaN for one seed or no correction."""
    flat = by_seed.reshape(len(by_seed), -1)
    norms = np.linalg.norm(flat, axis=1)
    if len(flat) < 2 or not norms.all():
        return float("nan")
    cosines = (flat @ flat.T) / np.outer(norms, norms)
    return float(cosines[np.triu_indices(len(flat), 1)].mean())


def cosine(a: Float[np.ndarray, "n c"], b: Float[np.ndarray, "n c"]) -> float:
    """Cosine between two sets of corrections over all rows; NaN if either is zero."""
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float((a * b).sum() / norm) if norm > 0 else float("nan")


def support_ratio(
    train: Float[np.ndarray, "m d"], before: Float[np.ndarray, "n d"], after: Float[np.ndarray, "n d"], *, k: int = 5
) -> Float[np.ndarray, " n"]:
    """Distance to the data after a correction over that before it, by the k-th neighbour; > 1.5 is off the data."""
    index = NearestNeighbors(n_neighbors=min(k + 1, len(train))).fit(train)
    reference = index.kneighbors(before)[0][:, -1]
    return index.kneighbors(after)[0][:, -1] / np.maximum(reference, 1e-12)


def region_overlap(size: Float[np.ndarray, " n"], region: Bool[np.ndarray, " n"]) -> float:
    """Intersection over union of a region and as many rows of largest correction as the region has."""
    chosen = np.zeros(len(size), dtype=bool)
    chosen[np.argsort(-size)[: int(region.sum())]] = True
    union = (chosen | region).sum()
    return float((chosen & region).sum() / union) if union else float("nan")
