"""From the study's tables to its findings."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from gnomon.evidence import Claim, ExactCheck, Finding, contrasts, intervals
from gnomon.retrieval.welfare_neighbors.instances import BOUND
from gnomon.retrieval.welfare_neighbors.sweeps import GAMMA
from gnomon.studies.unit import Tables

ROUNDING = 1e-12
NOTICED = 1e-9
_GRID = 41  # levels of relevance at which two fronts are compared


def greedy_exact(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Gap of greedy to the best of all sets, and that of a greedy made wrong."""
    rows: Any = tables["brute.single"]
    check = ExactCheck(
        instances=len(rows),
        violations=int((rows["gap"] > ROUNDING).sum()),
        broken_instances=len(rows),
        broken_violations=int((rows["broken_gap"] > NOTICED).sum()),
        broken="gains compared without eta, or with the wrong sign for p < 0",
    )
    reading = f"largest relative gap {rows['gap'].max():.1e}; the broken variant's: {rows['broken_gap'].max():.2f}"
    return Finding(claim, exact=check, n=len(rows), scope=_instances(config, "10 candidates, k=4"), reading=reading)


def multi_greedy(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Share of the best gain that greedy reaches with several attributes, beside chance."""
    rows: Any = tables["brute.several"]
    check = ExactCheck(
        instances=len(rows),
        violations=int((rows["greedy"] < BOUND).sum()),
        broken_instances=len(rows),
        broken_violations=int((rows["random"] < BOUND).sum()),
        broken="a random set of k",
    )
    reading = (
        f"of the best gain greedy reaches {rows['greedy'].mean():.3f} on average, {rows['greedy'].min():.3f} at worst, "
        f"a quota {rows['quota'].mean():.3f} and {rows['quota'].min():.3f}, chance {rows['random'].mean():.3f}"
    )
    scope = _instances(config, "12 candidates, two classes of 4 attributes, k=4")
    return Finding(claim, exact=check, n=len(rows), scope=scope, reading=reading)


def ann_factor(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Welfare ratio against the alpha of simulated oracles; alpha of the ranking as a whole is the broken variant."""
    rows: Any = tables["oracle"]
    short = rows["welfare_ratio"] < rows["alpha"] * (1 - ROUNDING)
    broken = rows["welfare_ratio"] < rows["alpha_overall"] * (1 - ROUNDING)
    check = ExactCheck(
        instances=len(rows),
        violations=int(short.sum()),
        broken_instances=len(rows),
        broken_violations=int(broken.sum()),
        broken="alpha measured on the ranking as a whole, not by attribute",
    )
    reading = (
        f"mean alpha {rows['alpha'].mean():.3f}, mean welfare ratio {rows['welfare_ratio'].mean():.3f}: "
        "the bound is far from tight"
    )
    scope = _instances(config, "120 candidates of which an oracle misses up to half, k=6")
    return Finding(claim, exact=check, n=len(rows), scope=scope, reading=reading)


def certificate(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Certified answers that differ from the answer over the whole of the larger pool."""
    rows: Any = tables["pool"]
    wrong = ~rows["same"]
    check = ExactCheck(
        instances=int(rows["certified"].sum()),
        violations=int((rows["certified"] & wrong).sum()),
        broken_instances=int(rows["broken_certified"].sum()),
        broken_violations=int((rows["broken_certified"] & wrong).sum()),
        broken="a certificate that compares similarities in place of gains",
    )
    shares: Any = rows.groupby(["setting", "pool"])[["certified", "same"]].mean()
    smallest = shares.loc["contrast"].iloc[0]
    reading = (
        f"with the contrast {smallest['certified']:.0%} of answers from a pool of {rows['pool'].min()} are certified, "
        f"{smallest['same']:.0%} are right"
    )
    return Finding(claim, exact=check, n=check.instances, scope=_sentences(tables, config), reading=reading)


def stays_specific(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Attribute precision of the default, against controls that spread broad queries as far."""
    return _precision(claim, tables, config, method="welfare")


def raw_cosine_stays_specific(claim: Claim, tables: Tables, config: Any) -> Finding:
    """The same for sums of raw cosines at the same gamma."""
    return _precision(claim, tables, config, method="raw-cosine")


def broad_diverse(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Entropy of cities on broad queries, against top-k and against a method that sees dealt labels."""
    cells = _cells(tables)
    ours = _at(cells, "broad", "welfare", GAMMA)
    controls = {"top-k": 0.0, "shuffled-attributes": GAMMA}
    arms = {name: _at(cells, "broad", name, controls[name])["entropy"] for name in claim.controls}
    return Finding(
        claim,
        effect=intervals.mean(ours["entropy"]),
        contrasts=tuple(contrasts.paired(name, ours["entropy"], theirs) for name, theirs in arms.items()),
        n=len(ours),
        scope=_sentences(tables, config),
        reading=f"{ours['entropy'].mean():.2f} bits, not {arms['top-k'].mean():.2f}, "
        f"for {1 - ours['ratio'].mean():.1%} of the relevance",
    )


def front(claim: Claim, tables: Tables, config: Any, *, data: str) -> Finding:
    """Entropy at equal relevance, over each control's settings; the controls the claim does not name are shown too."""
    if data == "sentences":
        unit, table, kind = "family", tables["select.readings"], "broad"
        scope = _sentences(tables, config)
    else:
        unit, table, kind = "mixture", tables["mixture.readings"], data
        scope = (
            f"{config.mixtures} Gaussian mixtures of {config.points} points, {data} attributes, k={config.mixture_k}"
        )
    means: Any = table[table["kind"] == kind].groupby(["method", unit, "knob"])[["ratio", "entropy"]].mean()
    start = _settings(means, "top-k")[:, 0]
    hulls = {
        method: [hull(at, top) for at, top in zip(_settings(means, method), start, strict=True)]
        for method in ("welfare", *claim.controls, "mmr", "dpp", "shuffled-attributes")
    }
    found, gained = [], np.zeros(0)
    for control in list(hulls)[1:]:
        ours, theirs = _at_equal_relevance(hulls["welfare"], hulls[control])
        found.append(contrasts.paired(control, ours, theirs))
        if control == claim.controls[0]:
            gained = ours
    return Finding(
        claim,
        effect=intervals.mean(gained),
        contrasts=tuple(found),
        n=len(gained),
        scope=scope,
        reading="; ".join(f"{contrast.difference.value:+.2f} bits against {contrast.control}" for contrast in found),
    )


def trend(claim: Claim, tables: Tables, config: Any, *, reading: str) -> Finding:
    """Rank correlation of p with a reading of each broad query, against exponents dealt at random."""
    rows: Any = tables["select.trends"]
    arms = contrasts.paired_arms(rows[rows["kind"] == "broad"], reading, unit="family")
    ours, permuted = arms["treatment"], arms["permuted-p"]
    return Finding(
        claim,
        effect=intervals.mean(ours),
        contrasts=(contrasts.paired("permuted-p", ours, permuted),),
        n=len(ours),
        scope=_sentences(tables, config),
        reading=f"mean rank correlation {ours.mean():+.2f} over six exponents from -10 to 1",
    )


def _precision(claim: Claim, tables: Tables, config: Any, *, method: str) -> Finding:
    cells = _cells(tables)
    ours = _at(cells, "specific", method, GAMMA)["precision"]
    spread = _at(cells, "broad", method, GAMMA)["entropy"].mean()
    found = tuple(
        contrasts.paired(control, ours, _at_equal_entropy(cells, control.removeprefix("equal-entropy-"), spread))
        for control in claim.controls
    )
    flat = _at(cells, "specific", "top-k", 0.0)["precision"].mean()
    return Finding(
        claim,
        effect=intervals.mean(ours),
        contrasts=found,
        n=len(ours),
        scope=_sentences(tables, config),
        reading=f"{ours.mean():.2f} of the results are from the city asked for (top-k {flat:.2f}), "
        f"where broad queries get {spread:.2f} bits",
    )


def _cells(tables: Tables) -> Any:
    """Mean readings by kind of query, method, setting and family."""
    by = ["kind", "method", "knob", "family"]
    return tables["select.readings"].groupby(by)[["precision", "entropy", "ratio"]].mean()


def _at(cells: Any, kind: str, method: str, knob: float) -> Any:
    """Readings by family at one setting; families are in sorted order."""
    return cells.loc[(kind, method, knob)]


def _at_equal_entropy(cells: Any, method: str, spread: float) -> Any:
    """Precision by family of the mixture of two neighbouring settings that spreads broad queries exactly as far.

    A quota is a whole number, so equal spread is reached by using one limit for some queries and the next for others.
    """
    name = {"quota": "quota-filled"}.get(method, method)
    by_knob = cells.loc[("broad", name), "entropy"].groupby(level="knob").mean().sort_values()
    place = float(np.interp(spread, by_knob.to_numpy(), np.arange(len(by_knob))))
    lower, share = int(place), place - int(place)
    upper = min(lower + 1, len(by_knob) - 1)
    knobs = by_knob.index.to_numpy(dtype=np.float64)
    first, second = (_at(cells, "specific", name, knobs[index])["precision"] for index in (lower, upper))
    return (1 - share) * first + share * second


def hull(settings: Float[np.ndarray, "setting 2"], start: Float[np.ndarray, " 2"]) -> Float[np.ndarray, "corner 2"]:
    """Corners of the upper concave hull of (relevance lost, entropy), from top-k on.

    Between two settings lie the mixtures of both over queries, so a method with a coarse knob (a whole-numbered quota)
    is not put at a disadvantage.

    Args:
        settings: Relevance lost and entropy at each setting.
        start: The same of top-k.
    """
    points = np.vstack([start, settings])
    points = points[np.lexsort((-points[:, 1], points[:, 0]))]
    corners: list[np.ndarray] = []
    for point in points:
        if corners and point[1] <= corners[-1][1]:
            continue
        while len(corners) > 1 and _turns_up(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return np.array(corners)


def _turns_up(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> bool:
    rise, run = second - first, third - first
    return bool(rise[1] * run[0] <= run[1] * rise[0])


def _settings(means: Any, method: str) -> Float[np.ndarray, "unit setting 2"]:
    """Relevance lost and entropy of each unit at each setting of a method."""
    at = means.loc[method]
    points = at.to_numpy().reshape(at.index.get_level_values(0).nunique(), -1, 2)
    return np.stack([1 - points[:, :, 0], points[:, :, 1]], axis=2)


def _at_equal_relevance(ours: list[np.ndarray], theirs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean entropy of both hulls over the losses of relevance up to the largest that ours makes, unit by unit.

    A method that stops before gives its last entropy for greater losses too.
    """
    means: tuple[list[float], list[float]] = ([], [])
    for pair in zip(ours, theirs, strict=True):
        grid = np.linspace(pair[0][0, 0], pair[0][-1, 0], _GRID)
        for into, corners in zip(means, pair, strict=True):
            into.append(float(np.interp(grid, corners[:, 0], corners[:, 1]).mean()))
    return np.array(means[0]), np.array(means[1])


def _sentences(tables: Tables, config: Any) -> str:
    encoder = ", ".join(sorted(set(tables["embed.world"]["made_with"])))
    return f"{config.worlds} x {config.sentences} invented sentences, {encoder}, attribute city, k={config.k}"


def _instances(config: Any, shape: str) -> str:
    return f"{config.blocks * config.instances} random instances of {shape}"
