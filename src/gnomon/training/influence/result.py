"""Scores of examples and groups, always with their null, their baselines and what they were computed from."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from gnomon.training.influence.estimators import Estimator, max_threshold, rates, unequal_variance_distance
from gnomon.training.influence.nulls import (
    benjamini_hochberg,
    bulk_z,
    group_p,
    normal_p,
    random_group_sums,
    rank_p,
)
from gnomon.training.influence.record import Record
from gnomon.training.influence.stability import rank_correlation
from gnomon.training.influence.sums import FEW_STEPS, block_variance, gather, shifts, standardised
from gnomon.training.influence.tradeoff import empirical_tradeoff, gaussian_tradeoff

#: Random groups behind a group's p: the smallest p is 1 / 501.
NULL_GROUPS = 500


@dataclass(frozen=True)
class GroupInfluence:
    """Influence of a set of examples together.

    Args:
        size: Examples in the set that were observed.
        mu_step: Of one step that has the whole set in it.
        mu_run: Of the whole run, each example in a step with probability batch / training set.
        mu_paper: As if the set were in every step; see :class:`InfluenceResult`.
        se: Standard error of ``mu_run`` over observed steps.
        p: Two-sided, against random groups of the same size.
        q: The same under the false discovery rate, if several groups were asked for together; else p.
        z: ``mu_run`` in standard deviations of the random groups.
        null: 5, 50 and 95 % quantiles of the random groups' ``mu_run``.
    """

    size: int
    mu_step: float
    mu_run: float
    mu_paper: float
    se: float
    p: float
    q: float
    z: float
    null: tuple[float, float, float]


@dataclass(frozen=True)
class Summary:
    """What must be known to read a table of scores.

    Args:
        examples: Ids with a score.
        unscored: Ids observed without a step that counts: they have no score (and not zero).
        observed_steps: Steps in the record.
        steps_an_example: Median steps that count, by example.
        degenerate_steps: Steps left out because all inner products were equal.
        distinct: Share of scores that differ from all others.
        infinite: Share of infinite scores.
        reliability: Spearman correlation of scores from odd and from even steps: what seeds can agree on at most.
        with_loss: Spearman correlation of the score's size with the mean training loss.
        with_gradient_norm: The same with the mean gradient norm; NaN if not measured.
        estimator: Its name.
        query: The query.
        method: How inner products were computed.
        sign: What a positive score means.
    """

    examples: int
    unscored: int
    observed_steps: int
    steps_an_example: float
    degenerate_steps: int
    distinct: float
    infinite: float
    reliability: float
    with_loss: float
    with_gradient_norm: float
    estimator: str
    query: str
    method: str
    sign: str


class InfluenceResult:
    r"""Influence of every example of a record on one query.

    Three scalings of one ranking, from the rate r (mean standardised shift of a slot):

    .. math:: \mu_{step} = r / \sqrt B, \qquad \mu_{run} = \frac{\sqrt{T B}}{N}\, r, \qquad
        \mu_{paper} = \sqrt K\, \bar z

    ``mu_step`` is the size of the influence of one inclusion, ``mu_run`` that of a whole run of T steps with N
    examples, ``mu_paper`` the paper's composition over the K observed steps. The last assumes an example in every step
    and independent observations, and overstates what retraining finds; measure by how much with
    :func:`~gnomon.training.influence.calibration.calibrate`.

    Args:
        record: The observed steps.
        steps: Optimiser steps of the run, T; by default up to the last observed one.
        query: Name of the query, if the record has several.
        estimator: See :mod:`gnomon.training.influence.estimators`.

    Raises:
        ValueError: If the record is empty, or has no such query or estimator.
    """

    def __init__(
        self,
        record: Record,
        *,
        steps: int | None = None,
        query: str | None = None,
        estimator: Estimator = "exact",
    ) -> None:
        names = record.setting.queries
        if query is not None and query not in names:
            raise ValueError(f"the record has no query {query!r}; it has {', '.join(names)}")
        self.record = record
        self.query = query or names[0]
        self.estimator = estimator
        self._column = names.index(self.query)
        self.sums = gather(record, self._column)
        self.n_train = record.setting.n_train or len(self.sums.index)
        self.batch_size = record.setting.batch_size or self.sums.batch_size
        self.run_steps = steps or (record.last_step or 0) + 1
        self.rates = self._max_threshold() if estimator == "max-threshold" else rates(self.sums, estimator)
        few = float(np.median(self.sums.steps))
        if few < FEW_STEPS:
            warnings.warn(
                f"examples were observed at {few:g} steps (median): standard errors need at least {FEW_STEPS}",
                stacklevel=3,
            )

    def __repr__(self) -> str:
        return f"InfluenceResult({len(self.rates)} examples, query {self.query!r}, estimator {self.estimator!r})"

    @property
    def index(self) -> Int[np.ndarray, " id"]:
        """Ids in the order of the scores."""
        return self.sums.index

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row an example.

        Columns: ``index``; ``mu_step``, ``mu_run``, ``mu_paper``; ``se`` of ``mu_run``; ``z_null``, distance from the
        bulk of all examples, with its normal ``p``, ``p_rank`` that assumes nothing, and ``q`` (Benjamini-Hochberg);
        ``n_obs``; and the plain scores from the same observations: ``tracin``, ``last_dot`` (the last observed step
        alone), ``mean_loss``, ``grad_norm``.
        """
        sums, steps = self.sums, np.where(self.sums.steps > 0, self.sums.steps, np.nan)
        finite = np.where(np.isfinite(self.rates), self.rates, np.nan)
        z = bulk_z(finite)
        p = normal_p(z)
        with np.errstate(invalid="ignore", divide="ignore"):
            se = np.sqrt(sums.shift_variance / (sums.noise * steps)) * self._run_scale
            paper = np.sqrt(steps) * sums.z / steps
        return pd.DataFrame(
            {
                "index": sums.index,
                "mu_step": self.rates / self.batch_size**0.5,
                "mu_run": self.rates * self._run_scale,
                "mu_paper": paper,
                "se": se,
                "z_null": z,
                "p": p,
                "p_rank": rank_p(finite),
                "q": benjamini_hochberg(p),
                "n_obs": sums.steps,
                "tracin": sums.raw,
                "last_dot": sums.last,
                "mean_loss": sums.loss,
                "grad_norm": np.sqrt(sums.squared_norm),
            }
        )

    def top(self, k: int, *, sign: int = 1) -> pd.DataFrame:
        """The k rows of ``scores`` that help the query most (or, with sign -1, hurt it most)."""
        return self.scores.sort_values("mu_run", ascending=sign < 0, na_position="last").head(k)

    def group(
        self,
        ids: Iterable[int],
        *,
        draws: int = NULL_GROUPS,
        strata: Mapping[int, object] | None = None,
        seed: int = 0,
    ) -> GroupInfluence:
        """Influence of a set of examples, with its random-group null.

        Args:
            ids: Its examples.
            draws: Random groups.
            strata: A label for every id: the random groups then have the set's labels.
            seed: Of the random groups.

        Raises:
            ValueError: If the set is empty, repeats an id, has one that was not observed, or too few others are left.
        """
        members = self._positions(ids)
        rate = self.rates[members]
        if np.isnan(rate).any():
            raise ValueError(f"example {self.index[members[np.isnan(rate)][0]]} has no score: no step of it counts")
        labels = None if strata is None else np.array([str(strata[int(one)]) for one in self.index])
        rng = np.random.default_rng((seed, len(members)))
        null = random_group_sums(self.rates, members, draws=draws, rng=rng, strata=labels)
        # Removing the group raises the mean of what is left: members count against the rest, not against all.
        scale = self.n_train / max(self.n_train - len(members), 1)
        observed = float(self._group_rate(members)) * scale
        null = null * scale
        spread = float(null.std(ddof=1))
        distances, noises = shifts(self.record, self.index[members], self._column)
        se = np.sqrt(block_variance(distances) / (noises.sum() * len(noises))) * len(members) * scale
        p = group_p(observed, null)
        low, median, high = np.quantile(null, (0.05, 0.5, 0.95)) * self._run_scale
        return GroupInfluence(
            size=len(members),
            mu_step=observed / self.batch_size**0.5,
            mu_run=observed * self._run_scale,
            mu_paper=float(np.sqrt(self.sums.steps[members].mean()) * observed / len(members)),
            se=float(se * self._run_scale),
            p=p,
            q=p,
            z=(observed - float(null.mean())) / spread if spread > 0 else float("nan"),
            null=(float(low), float(median), float(high)),
        )

    def groups(
        self,
        sets: Mapping[str, Iterable[int]],
        *,
        draws: int = NULL_GROUPS,
        strata: Mapping[int, object] | None = None,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Influence of several sets, one row each, with ``q`` over all of them; arguments as :meth:`group`."""
        rows = [
            {"group": name, **asdict(self.group(ids, draws=draws, strata=strata, seed=seed))}
            for name, ids in sets.items()
        ]
        table = pd.DataFrame(rows)
        table[["null_low", "null_median", "null_high"]] = table.pop("null").to_list()
        return table.assign(q=benjamini_hochberg(table["p"].to_numpy()))

    def tradeoff(self, ids: Iterable[int]) -> pd.DataFrame:
        """Trade-off curve of one slot: the set's standardised products against all others', and the Gaussian one.

        Columns ``alpha`` (type I error), ``beta`` (observed type II error), ``gaussian`` (that of the set's mean rate).
        """
        members = self._positions(ids)
        own = standardised(self.record, self.index[members], self._column)
        rest = standardised(self.record, np.delete(self.index, members), self._column)
        alpha, beta = empirical_tradeoff(rest[np.isfinite(rest)], own[np.isfinite(own)])
        gaussian = gaussian_tradeoff(alpha, float(np.nanmean(self.rates[members])))
        return pd.DataFrame({"alpha": alpha, "beta": beta, "gaussian": gaussian})

    def trajectory(self, ids: Sequence[int]) -> pd.DataFrame:
        """Standardised products of some examples at every observed step: columns ``step``, ``index``, ``z``."""
        members = self._positions(ids)
        values = standardised(self.record, self.index[members], self._column)
        table = pd.DataFrame(values, columns=self.index[members], index=self.record.steps()["step"].to_numpy())
        return table.rename_axis("step").reset_index().melt("step", var_name="index", value_name="z").dropna()

    def summary(self) -> Summary:
        """What must be known to read the table."""
        sums, known = self.sums, ~np.isnan(self.rates)
        with np.errstate(invalid="ignore", divide="ignore"):
            halves = sums.half_shift / np.sqrt(sums.half_noise)
        both = np.isfinite(halves).all(axis=0)

        def size_against(values: np.ndarray) -> float:
            usable = np.isfinite(self.rates) & np.isfinite(values)
            if usable.sum() < 3 or np.ptp(values[usable]) == 0:
                return float("nan")
            return rank_correlation(np.abs(self.rates[usable]), values[usable])

        return Summary(
            examples=int(known.sum()),
            unscored=int((~known).sum()),
            observed_steps=sums.observed_steps,
            steps_an_example=float(np.median(sums.steps)),
            degenerate_steps=sums.degenerate,
            distinct=_distinct(self.rates[known]),
            infinite=float(np.isinf(self.rates[known]).mean()) if known.any() else float("nan"),
            reliability=rank_correlation(*halves[:, both]) if both.sum() > 2 else float("nan"),
            with_loss=size_against(sums.loss),
            with_gradient_norm=size_against(sums.squared_norm),
            estimator=self.estimator,
            query=self.query,
            method=self.record.setting.method,
            sign=self.record.setting.sign,
        )

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the table of scores."""
        self.scores.to_parquet(path, index=False)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write summary and scores."""
        rows = json.loads(self.scores.to_json(orient="records") or "[]")
        setting = {**asdict(self.record.setting), "parameters": sum(self.record.setting.parameters.values())}
        content = {"summary": asdict(self.summary()), "setting": setting, "scores": rows}
        Path(path).write_text(json.dumps(content, indent=1), encoding="utf-8")

    @property
    def _run_scale(self) -> float:
        return (self.run_steps * self.batch_size) ** 0.5 / self.n_train

    def _group_rate(self, members: np.ndarray) -> float:
        """Summed rate; for ``unequal`` the distance of the pooled observations, times the size."""
        if self.estimator != "unequal":
            return float(self.rates[members].sum())
        pooled = (values[members].sum() for values in (self.sums.z, self.sums.z_squared, self.sums.steps))
        z, squares, count = (np.array([float(value)]) for value in pooled)
        return float(unequal_variance_distance(z, squares, count)[0]) * len(members)

    def _max_threshold(self) -> Float[np.ndarray, " id"]:
        own = standardised(self.record, self.index, self._column)
        rng = np.random.default_rng(self.record.setting.seed)
        others = rng.permuted(own, axis=1) if np.isfinite(own).all() else _permute_observed(own, rng)
        return max_threshold(own, others)

    def _positions(self, ids: Iterable[int]) -> np.ndarray:
        wanted = np.array(list(ids), dtype=np.int64)
        if not len(wanted):
            raise ValueError("a group needs at least one example")
        if len(np.unique(wanted)) < len(wanted):
            raise ValueError("the group names an example twice")
        place = np.searchsorted(self.index, wanted).clip(max=len(self.index) - 1)
        unknown = wanted[self.index[place] != wanted]
        if len(unknown):
            raise ValueError(f"example {unknown[0]} was never observed ({len(unknown)} of {len(wanted)} ids unknown)")
        return place


def _distinct(values: np.ndarray) -> float:
    if not len(values):
        return float("nan")
    _, counts = np.unique(values, return_counts=True)
    return float((counts == 1).sum() / len(values))


def _permute_observed(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each step's observed values in random order, so that an example is compared with as many others."""
    permuted = values.copy()
    for row in permuted:
        seen = np.flatnonzero(np.isfinite(row))
        row[seen] = row[rng.permutation(seen)]
    return permuted
