"""From the study's tables to its findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gnomon.evidence import Claim, ExactCheck, Finding, contrasts, intervals
from gnomon.evidence.resampling import from_sums, from_weights
from gnomon.evidence.tests import slopes
from gnomon.evidence.weighted import auroc
from gnomon.retrieval.veritrail.experiments import CHECKS, Q
from gnomon.retrieval.veritrail.metrics import macro_f1_of_sums
from gnomon.studies.unit import MissingTable, Tables

TOLERATED = 0.05
"""Share of claims without an answer from which nothing is decided."""

SIGMAS = 4.5
"""Standard errors from which a share departs from its prediction: by chance once in 150,000 cells."""

_COUNTS = ["kept", "lost", "missed", "caught"]


def judge(claim: Claim, tables: Tables) -> Finding:
    """The finding of a claim; withheld, with the reason, where its tables are missing."""
    rulings = {
        "walk-exact": walk_exact,
        "markov-exact": markov_exact,
        "judge-discriminates": judge_discriminates,
        "q-precision": q_precision,
        "q-recall": q_recall,
        "beats-direct": beats_direct,
        "short-reader": short_reader,
        "locates": locates,
        "locates-early": locates_early,
        "provenance": provenance,
        "selection-matters": selection_matters,
        "checks-matter": checks_matter,
        "cost": cost,
    }
    try:
        return rulings[claim.name](claim, tables)
    except MissingTable as missing:
        return Finding(claim, withheld=str(missing))


def walk_exact(claim: Claim, tables: Tables) -> Finding:
    """Verdicts and stages of a judge that is never wrong against the rule, and those of a walk one round too short."""
    rows: Any = tables["oracle"]
    broken = rows.dropna(subset=["broken_wrong"])
    check = ExactCheck(
        instances=len(rows),
        violations=int(rows["wrong"].sum()),
        broken_instances=len(broken),
        broken_violations=int(broken["broken_wrong"].astype(bool).sum()),
        broken="a walk that stops one round early",
    )
    kinds = ", ".join(sorted(set(rows["topology"])))
    scope = f"{rows['seed'].nunique()} generated processes of each of 3 shapes ({kinds}), q = 1 to 5"
    return Finding(
        claim,
        exact=check,
        n=len(rows),
        scope=scope,
        reading="a gap of L steps is bridged from q = L + 1 on, and the stage of every error is named",
    )


def markov_exact(claim: Claim, tables: Tables) -> Finding:
    """Shares of claims a noisy judge ends up supporting against the chain's, and against the chain of one more q."""
    rows: Any = noisy_cells(tables["noisy"])
    departs = np.abs(deviations(rows, "predicted")) > SIGMAS
    broken = np.abs(deviations(rows, "predicted_one_more")) > SIGMAS
    check = ExactCheck(
        instances=len(rows),
        violations=int(departs.sum()),
        broken_instances=len(rows),
        broken_violations=int(broken.sum()),
        broken="the prediction for one more q",
    )
    deviation = deviations(rows, "predicted")
    return Finding(
        claim,
        exact=check,
        n=len(rows),
        scope=f"{int(rows['claims'].sum())} walks on generated processes of 5 stages",
        reading=f"largest departure {np.abs(deviation).max():.1f} standard errors, their spread {deviation.std():.2f}",
    )


def judge_discriminates(claim: Claim, tables: Tables) -> Finding:
    """AUROC of the offline judge's probability against the cosine and the recall alone."""
    rows: Any = tables["judge_check"]
    label = rows["supports"].to_numpy(dtype=float)
    statistic = {name: auroc(rows[name], label) for name in ("treatment", "cosine", "recall")}
    clusters = rows["family"].to_numpy()
    found = tuple(
        contrasts.paired_weights(name, statistic["treatment"], statistic[name], len(rows), clusters=clusters)
        for name in ("cosine", "recall")
    )
    blind = sorted(kind for kind, right in rows.groupby("kind")["right"].mean().items() if right < 0.5)
    return Finding(
        claim,
        effect=from_weights(statistic["treatment"], len(rows), clusters=clusters),
        contrasts=found,
        n=len(set(clusters)),
        scope=f"{len(rows)} generated pairs, {rows['made_with'].iloc[0]}",
        reading=f"{rows['right'].mean():.1%} of the verdicts are right; "
        + (f"it does not see: {', '.join(blind)}" if blind else "no kind of error is overlooked"),
    )


def q_precision(claim: Claim, tables: Tables) -> Finding:
    """Share of claims called unsupported that are, at q = 3 against q = 1."""
    return _share(claim, tables, "caught", "lost")


def q_recall(claim: Claim, tables: Tables) -> Finding:
    """Share of unsupported claims called so, at q = 3 against q = 1."""
    return _share(claim, tables, "caught", "missed")


def beats_direct(claim: Claim, tables: Tables) -> Finding:
    """Macro F1 with three sentences of evidence a step, among the most near-duplicates measured."""
    rows = most_crowded(tables)
    return _macro_f1(claim, rows, "few", {name: f"few-{name}" for name in claim.controls}, _crowd(rows))


def short_reader(claim: Claim, tables: Tables) -> Finding:
    """Macro F1 with a judge that overlooks what lies beyond twenty sentences."""
    rows = main_setting(tables)
    return _macro_f1(claim, rows, "short", {"direct": "short-direct"}, _scope(rows))


def selection_matters(claim: Claim, tables: Tables) -> Finding:
    """Macro F1 against evidence taken at random; by cosine alone for information."""
    rows = main_setting(tables)
    arms = {name: name for name in (*claim.controls, "cosine-evidence")}
    return _macro_f1(claim, rows, "treatment", arms, _scope(rows))


def checks_matter(claim: Claim, tables: Tables) -> Finding:
    """Macro F1 against the judge without each of its checks."""
    rows = main_setting(tables)
    return _macro_f1(claim, rows, "treatment", {f"no-{check}": f"no-{check}" for check in CHECKS}, _scope(rows))


def locates(claim: Claim, tables: Tables) -> Finding:
    """Share of all errors whose stage was named exactly; a missed error counts as wrong."""
    return _localisation(claim, main_setting(tables), latest=0)


def locates_early(claim: Claim, tables: Tables) -> Finding:
    """The same for errors at least two stages before the final text; controls do not know that they are early."""
    return _localisation(claim, main_setting(tables), latest=2)


def provenance(claim: Claim, tables: Tables) -> Finding:
    """F1 of the path's edges of true claims, against the rewired process and a random path."""
    rows: Any = tables["process.paths"]
    rows = rows[rows["setting"] == "main"]
    by_arm = contrasts.paired_arms(rows, "edge_f1", unit="dag")
    roots = rows[rows["arm"] == "treatment"]["root_found"].mean()
    return Finding(
        claim,
        effect=intervals.mean(by_arm["treatment"]),
        contrasts=tuple(contrasts.paired(name, by_arm["treatment"], by_arm[name]) for name in claim.controls),
        n=len(by_arm["treatment"]),
        scope=_scope(main_setting(tables)),
        reading=f"the source document is found for {roots:.1%} of the true claims",
    )


def cost(claim: Claim, tables: Tables) -> Finding:
    """Exponent of the sentences read for a true claim in the size of the source; checking the source itself has 1."""
    rows: Any = tables["reading"]
    exponents = slopes(rows["source_sentences"], rows["sentences_read"], rows["replicate"], log_log=True)
    largest = rows.loc[rows["chunks"] == rows["chunks"].max()]
    return Finding(
        claim,
        effect=intervals.mean(exponents),
        contrasts=(contrasts.against_constant("direct", exponents, 1.0),),
        n=len(exponents),
        scope=f"{rows['chunks'].min()} to {rows['chunks'].max()} chunks, a judge that is never wrong, q = {Q}",
        reading=f"{largest['sentences_read'].mean():.0f} of {largest['source_sentences'].mean():.0f} sentences "
        "at the largest size",
    )


def main_setting(tables: Tables) -> Any:
    """Rows of the main setting."""
    rows: Any = tables["process.claims"]
    return _answered(rows[rows["setting"] == "main"])


def most_crowded(tables: Tables) -> Any:
    """Rows of the setting with the most near-duplicates."""
    rows: Any = tables["process.claims"]
    return _answered(rows[rows["near_duplicates"] == rows["near_duplicates"].max()])


def counts(rows: Any) -> dict[str, pd.DataFrame]:
    """Claims by arm and process: supported and called so (kept), supported and not (lost), missed, and caught."""
    arm, arms = pd.factorize(rows["arm"])
    dag, names = pd.factorize(rows["dag"], sort=True)
    called = (rows["verdict"] == "supported").to_numpy(dtype=bool)
    outcome = np.where(rows["supports"].to_numpy(dtype=bool), ~called, 2 + ~called)
    cells = np.zeros((len(arms), len(names), 4))
    np.add.at(cells, (arm, dag, outcome), 1)
    index = pd.Index(names, name="dag")
    return {str(name): pd.DataFrame(cells[place], index, _COUNTS) for place, name in enumerate(arms)}


def right_stage(rows: Any, arm: str) -> pd.DataFrame:
    """Errors of an arm: process (``dag``), ``stage`` at which they entered, and what was named.

    ``right``: this stage and no other; ``near``: all named stages within one of it; ``named``: the stage named, 0 if
    there are several or none.
    """
    errors: Any = rows[((rows["arm"] == arm) & (rows["stage"] > 0)).to_numpy()]
    code, texts = pd.factorize(errors["named"])
    stages = [named_stages(text) for text in texts]
    ends = np.array([(min(found), max(found)) if found else (-9, -9) for found in stages]).reshape(-1, 2)[code]
    stage = errors["stage"].to_numpy()
    off = np.abs(ends - stage[:, None]).max(axis=1)
    named = np.where((ends[:, 0] == ends[:, 1]) & (ends[:, 0] > 0), ends[:, 0], 0)
    table = {"dag": errors["dag"].to_numpy(), "stage": stage, "right": off == 0, "near": off <= 1, "named": named}
    return pd.DataFrame(table)


def by_process(values: Any, dag: Any) -> pd.Series:
    """Means by process."""
    code, names = pd.factorize(dag, sort=True)
    return pd.Series(np.bincount(code, values) / np.bincount(code), index=names)


def named_stages(text: str) -> set[int]:
    """Stages as the table stores them."""
    return {int(stage) for stage in text.split(",") if stage}


def noisy_cells(rows: Any) -> pd.DataFrame:
    """Cells of all blocks added up, those with too few claims for a normal approximation left out."""
    by = ["pattern", "q", "missed", "invented", "predicted", "predicted_one_more"]
    cells: Any = rows.groupby(by, as_index=False)[["claims", "supported"]].sum()
    expected = cells["claims"] * np.minimum(cells["predicted"], 1 - cells["predicted"])
    return cells[expected >= 5].reset_index(drop=True)


def deviations(cells: pd.DataFrame, prediction: str) -> np.ndarray:
    """Observed less predicted count, in standard errors."""
    expected = cells[prediction].to_numpy()
    n = cells["claims"].to_numpy()
    return (cells["supported"].to_numpy() - n * expected) / np.sqrt(n * expected * (1 - expected))


def _answered(rows: Any) -> Any:
    missing = float((rows["verdict"] == "missing").mean()) if len(rows) else 1.0
    if missing > TOLERATED:
        raise MissingTable(f"missing: {missing:.0%} of the claims have no verdict, at most {TOLERATED:.0%} allowed")
    return rows


def _macro_f1(claim: Claim, rows: Any, treatment: str, controls: dict[str, str], scope: str) -> Finding:
    by_arm = counts(rows)
    ours = by_arm[treatment].to_numpy()
    dags = np.arange(len(ours))
    found = [
        contrasts.paired_sums(name, ours, by_arm[arm].to_numpy(), macro_f1_of_sums, clusters=dags)
        for name, arm in controls.items()
    ]
    effect = from_sums(ours, macro_f1_of_sums, clusters=dags)
    reading = "; ".join(f"{contrast.estimate.value:.3f} with {contrast.control}" for contrast in found)
    return Finding(
        claim,
        effect=effect,
        contrasts=tuple(found),
        n=len(ours),
        scope=scope,
        reading=f"macro F1 {effect.value:.3f}; {reading}",
    )


def _share(claim: Claim, tables: Tables, part: str, rest: str) -> Finding:
    rows = main_setting(tables)
    by_arm = counts(rows)
    sums = {
        arm: np.column_stack([by_arm[arm][part], by_arm[arm][part] + by_arm[arm][rest]])
        for arm in ("treatment", *claim.controls)
    }
    dags = np.arange(len(sums["treatment"]))
    found = tuple(contrasts.paired_sums(name, sums["treatment"], sums[name], clusters=dags) for name in claim.controls)
    effect = from_sums(sums["treatment"], clusters=dags)
    return Finding(
        claim,
        effect=effect,
        contrasts=found,
        n=len(dags),
        scope=_scope(rows),
        reading=f"{effect.value:.3f} at q = {Q}, {found[0].estimate.value:.3f} at {found[0].control}",
    )


def _localisation(claim: Claim, rows: Any, *, latest: int) -> Finding:
    """Accuracy over the errors at least ``latest`` stages before the final text, by process."""
    deepest = rows["depth"].max() - latest
    errors = right_stage(rows, "treatment")
    asked: Any = errors[errors["stage"] <= deepest]
    rewired = right_stage(rows, "rewired")
    rewired = rewired[rewired["stage"] <= deepest]
    ours = by_process(asked["right"], asked["dag"])
    controls = {
        "stage-prior": _prior(errors, asked),
        "permuted-stages": _permuted(errors, asked),
        "rewired": by_process(rewired["right"], rewired["dag"]),
    }
    return Finding(
        claim,
        effect=intervals.mean(ours),
        contrasts=tuple(contrasts.paired(name, ours, controls[name]) for name in claim.controls),
        n=len(ours),
        scope=_scope(rows),
        reading=f"{asked['right'].mean():.1%} of {len(asked)} errors, {asked['near'].mean():.1%} within one stage",
    )


def _processes(dag: Any) -> tuple[np.ndarray, pd.Index]:
    code, names = pd.factorize(dag, sort=True)
    return code, pd.Index(names)


def _prior(errors: Any, asked: Any) -> pd.Series:
    """Accuracy by process of naming the commonest stage of the errors of all other processes."""
    dag, names = _processes(errors["dag"])
    by_stage = np.zeros((len(names), int(errors["stage"].max()) + 1))
    np.add.at(by_stage, (dag, errors["stage"].to_numpy()), 1)
    guess = (by_stage.sum(axis=0) - by_stage).argmax(axis=1)
    return by_process(asked["stage"].to_numpy() == guess[names.get_indexer(asked["dag"])], asked["dag"])


def _permuted(errors: Any, asked: Any) -> pd.Series:
    """Expected accuracy by process when the stages named for its errors are dealt to them at random."""
    dag, names = _processes(errors["dag"])
    dealt = np.zeros((len(names), int(errors[["stage", "named"]].to_numpy().max()) + 1))
    np.add.at(dealt, (dag, errors["named"].to_numpy()), 1)
    dealt /= dealt.sum(axis=1, keepdims=True)
    return by_process(dealt[names.get_indexer(asked["dag"]), asked["stage"].to_numpy()], asked["dag"])


def _scope(rows: Any) -> str:
    return f"{rows['dag'].nunique()} generated processes of {rows['depth'].max()} stages, offline judge, q = {Q}"


def _crowd(rows: Any) -> str:
    return f"{rows['dag'].nunique()} generated processes, {rows['near_duplicates'].max()} near-duplicates a claim"
