"""A short formula for one feature's correction: from a library of terms, or evolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.linear_model import LinearRegression, OrthogonalMatchingPursuit
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Search = Literal["terms", "gplearn"]


def term_library(x: Float[np.ndarray, "n d"], names: Sequence[str]) -> dict[str, Float[np.ndarray, " n"]]:
    """Terms for a symbolic summary: x, x^2, 1/x and log x where defined, products and quotients."""
    terms: dict[str, np.ndarray] = {}
    nonzero = [bool((np.abs(column) > 1e-9).all()) for column in x.T]
    for index, name in enumerate(names):
        column = x[:, index]
        terms[name] = column
        terms[f"{name}^2"] = column**2
        if nonzero[index]:
            terms[f"1/{name}"] = 1 / column
        if (column > 0).all():
            terms[f"log {name}"] = np.log(column)
        for other in range(len(names)):
            if other > index:
                terms[f"{name}*{names[other]}"] = column * x[:, other]
            if other != index and nonzero[other]:
                terms[f"{name}/{names[other]}"] = column / x[:, other]
    return terms


def symbolic_summary(
    correction: Float[np.ndarray, " n"],
    terms: Mapping[str, Float[np.ndarray, " n"]],
    *,
    max_terms: int = 3,
    n_boot: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """A short formula for one feature's correction, in the user's units.

    Terms enter by orthogonal matching pursuit; their number is the smallest whose cross-validated R squared is within
    .01 of the best (a constant alone if none gains that much), and coefficients are refitted by least squares.

    Returns:
        A row a term, the constant first (``1``): ``coefficient`` with bootstrap ``low`` and ``high``, and the
        formula's cross-validated ``r2``.
    """
    names = [name for name, values in terms.items() if np.ptp(values) > 0]
    matrix = np.column_stack([terms[name] for name in names]) if names else np.empty((len(correction), 0))
    chosen: list[int] = []
    r2 = 0.0
    if names and np.ptp(correction) > 0:
        scores = [0.0]
        for count in range(1, min(max_terms, len(names)) + 1):
            model = make_pipeline(StandardScaler(), OrthogonalMatchingPursuit(n_nonzero_coefs=count))
            scores.append(float(np.mean(cross_val_score(model, matrix, correction, cv=5))))
        size = int(np.argmax(np.array(scores) >= max(scores) - 0.01))
        r2 = scores[size]
        if size:
            model = make_pipeline(StandardScaler(), OrthogonalMatchingPursuit(n_nonzero_coefs=size))
            model.fit(matrix, correction)
            pursuit: Any = model[-1]
            chosen = np.flatnonzero(pursuit.coef_).tolist()
    design = np.column_stack([np.ones(len(correction)), matrix[:, chosen]])
    coefficients = np.linalg.lstsq(design, correction, rcond=None)[0]
    random = np.random.default_rng(seed)
    draws = np.empty((n_boot, design.shape[1]))
    for draw in range(n_boot):
        rows = random.integers(0, len(design), len(design))
        gram = design[rows].T @ design[rows]
        draws[draw] = np.linalg.lstsq(gram, design[rows].T @ correction[rows], rcond=None)[0]
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return pd.DataFrame(
        {
            "term": ["1", *(names[index] for index in chosen)],
            "coefficient": coefficients,
            "low": low,
            "high": high,
            "r2": r2,
        }
    )


def linear_coefficients(
    correction: Float[np.ndarray, " n"], terms: Sequence[Float[np.ndarray, " n"]]
) -> Float[np.ndarray, " terms"]:
    """Least-squares coefficients of a constant and given terms: a physicist's reading of one feature's correction."""
    fitted = LinearRegression().fit(np.column_stack(terms), correction)
    return np.concatenate([[fitted.intercept_], fitted.coef_])


def evolved_formula(
    correction: Float[np.ndarray, " n"], x: Float[np.ndarray, "n d"], names: Sequence[str], *, seed: int = 0
) -> pd.DataFrame:
    """A formula for one feature's correction by genetic programming, for corrections that no library term describes.

    Inputs are divided by their median magnitude and the correction by its mean magnitude, without which the search does
    not see a small constant beside a large input; the formula says so: ``div((T/444), -0.989)``. It is evolved on every
    other row and its R squared measured on the rest. Fewer promises than :func:`symbolic_summary` can make: the
    coefficient has no interval, and another seed may give another formula.

    Returns:
        One row: ``term``, ``coefficient`` (NaN ``low`` and ``high``) and held-out ``r2``.

    Raises:
        ImportError: If gplearn is not installed.
    """
    try:
        from gplearn.genetic import SymbolicRegressor
    except ImportError as error:
        raise ImportError("gplearn is not installed: pip install 'gnomon[symbolic]'") from error
    unit = float(np.abs(correction).mean())
    if unit == 0:
        return pd.DataFrame([{"term": "1", "coefficient": 0.0, "low": np.nan, "high": np.nan, "r2": 0.0}])
    size = np.median(np.abs(x), axis=0)
    size = np.where(size > 0, size, 1.0)
    search = SymbolicRegressor(
        population_size=500,
        generations=12,
        metric="mse",
        parsimony_coefficient=0.005,
        const_range=(-2, 2),
        feature_names=[f"({name}/{value:.3g})" for name, value in zip(names, size, strict=True)],
        random_state=seed,
    )
    search.fit(x[::2] / size, correction[::2] / unit)
    r2 = search.score(x[1::2] / size, correction[1::2] / unit)
    found = {"term": str(search), "coefficient": unit, "low": np.nan, "high": np.nan, "r2": float(r2)}
    return pd.DataFrame([found])
