"""From the study's tables to its findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gnomon.evidence import Claim, Contrast, Estimate, ExactCheck, Finding, contrasts, intervals
from gnomon.studies.unit import Tables

DEFECT = 1e-6
DIFFERENT = 1e-6
PLANTED = {"alpha": 0.8, "gamma_agree": 0.6, "gamma_contra": 1.4}
"""Slopes of the scripted Grether agent; see :mod:`gnomon.society.planner.roles`."""

REACTION = 0.05
"""Smallest weight that counts as a reaction, a twentieth of a Bayesian's: a weight of -.002 may differ from zero."""

SLOPES = ("alpha", "gamma_agree", "gamma_contra")


def value_convexity(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Theorem 2 over the grid, with quadratic cost and the uncontrolled model beside it."""
    solved = _patient(tables["solve"], "altruistic")
    linear, quadratic = solved.loc[solved["r"] == 1], solved.loc[solved["r"] == 2]
    uncontrolled = tables["broken"].query("objective == 'altruistic'")
    bad = linear.loc[linear["convexity_defect"] > DEFECT]
    check = ExactCheck(
        instances=len(linear),
        violations=len(bad),
        broken_instances=len(uncontrolled),
        broken_violations=int(np.sum(np.asarray(uncontrolled["uncontrolled_defect"]) > DEFECT)),
        broken="a planner who may not act, whose value jumps down at p",
    )
    reading = f"convex in {len(linear) - len(bad)} of {len(linear)} settings"
    if len(bad):
        worst = bad.loc[bad["convexity_defect"].idxmax()]
        reading += (
            f"; largest defect {worst['convexity_defect']:.4f} at p={worst['p']:g}, k={worst['k']:g}, "
            f"delta={worst['delta']:g}, belief {worst['defect_belief']:.2f}; all with k >= {bad['k'].min():g}"
        )
    if len(quadratic):
        curved = int(np.sum(np.asarray(quadratic["convexity_defect"]) > DEFECT))
        reading += f"; with quadratic cost {curved} of {len(quadratic)} settings are not convex"
    return Finding(claim, exact=check, n=len(linear), scope=_grid(config), reading=reading)


def phases_in_order(claim: Claim, tables: Tables, config: Any, objective: str) -> Finding:
    """Theorem 3 or 5 over the grid, against permuted policies."""
    solved = _patient(tables["solve"], objective)
    solved = solved.loc[solved["r"] == 1]
    permuted = tables["broken"].query("objective == @objective")
    check = ExactCheck(
        instances=len(solved),
        violations=int(np.sum(~np.asarray(solved["conforms"], dtype=bool))),
        broken_instances=len(permuted),
        broken_violations=int(np.sum(~np.asarray(permuted["permuted_conforms"], dtype=bool))),
        broken="the optimal policy with its beliefs permuted",
    )
    common = solved["sequence"].value_counts()
    shown = "; ".join(f"{sequence} ({count})" for sequence, count in common.head(3).items())
    more = f"; {len(common) - 3} other orders" if len(common) > 3 else ""
    return Finding(claim, exact=check, n=len(solved), scope=_grid(config), reading=f"{shown}{more}")


def myopic_threshold(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Thresholds of certainty by patience; the same check with the order of patience reversed."""
    solved = tables["solve"].query("objective == 'altruistic' and r == 1")
    wide = solved.pivot_table(index=["p", "k"], columns="delta", values="t_max")
    # A threshold is known to one lattice step, at most a quarter of it in belief.
    p = wide.index.get_level_values("p").to_numpy(dtype=float)
    step = (np.log(p / (1 - p)) / config.m / 4)[:, None]
    rises = np.diff(wide.to_numpy(), axis=1)
    check = ExactCheck(
        instances=int(rises.size),
        violations=int((rises > step).sum()),
        broken_instances=int(rises.size),
        broken_violations=int((-rises > step).sum()),
        broken="patience in reverse order",
    )
    myopic, patient = np.asarray(wide.iloc[:, 0]), np.asarray(wide.iloc[:, -1])
    reading = (
        f"mean threshold {myopic.mean():.3f} for the myopic planner, {patient.mean():.3f} at delta {wide.columns[-1]:g}"
    )
    return Finding(claim, exact=check, n=check.instances, scope=_grid(config), reading=reading)


def altruistic_welfare(claim: Claim, tables: Tables, config: Any) -> Finding:
    """The altruistic planner against the baseline in each state, and a random planner of equal spend."""
    by_state = {state: _by_planner(tables, state) for state in ("W_G", "W_B")}
    gains = np.concatenate([(table["altruistic"] - table["baseline"]).to_numpy() for table in by_state.values()])
    random = np.concatenate(
        [(table["random-as-altruistic"] - table["baseline"]).to_numpy() for table in by_state.values()]
    )
    check = ExactCheck(
        instances=len(gains),
        violations=int((gains < -DIFFERENT).sum()),
        broken_instances=len(random),
        broken_violations=int((random < -DIFFERENT).sum()),
        broken="a random planner of the same spend",
    )
    reading = (
        f"welfare rises in {int((gains > DIFFERENT).sum())} of {len(gains)} cases, by {gains.mean():.3f} C a round on "
        f"average; random precision of the same spend: {random.mean():+.3f}"
    )
    return Finding(claim, exact=check, n=len(gains), scope=_welfare_grid(config), reading=reading)


def biased_harm(claim: Claim, tables: Tables, config: Any) -> Finding:
    """The biased planner against the baseline in the bad state, and a random planner of equal spend."""
    welfare = _by_planner(tables, "W_B")
    harm = (welfare["biased"] - welfare["baseline"]).to_numpy()
    random = (welfare["random-as-biased"] - welfare["baseline"]).to_numpy()
    check = ExactCheck(
        instances=len(harm),
        violations=int((harm >= -DIFFERENT).sum()),
        broken_instances=len(random),
        broken_violations=int((random >= -DIFFERENT).sum()),
        broken="a random planner of the same spend",
    )
    reading = (
        f"welfare changes by {harm.mean():+.3f} C a round on average ({harm.min():+.2f} to {harm.max():+.2f}); random "
        f"precision of the same spend: {random.mean():+.3f}, so spend as such is not what harms"
    )
    if idle := int((np.abs(harm) <= DIFFERENT).sum()):
        reading += f"; no change in {idle} cases, in which the planner leaves precision alone"
    return Finding(claim, exact=check, n=len(harm), scope=_welfare_grid(config), reading=reading)


def obfuscation_rule(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Welfare in the bad state with and without the rule; a rule aimed at the wrong lever is the broken variant."""
    welfare = _by_planner(tables, "W_B")
    saved = (welfare["no-obfuscation"] - welfare["biased"]).to_numpy()
    wrong = (welfare["no-raising"] - welfare["biased"]).to_numpy()
    harm = (welfare["baseline"] - welfare["biased"]).to_numpy()
    check = ExactCheck(
        instances=len(saved),
        violations=int((saved <= DIFFERENT).sum()),
        broken_instances=len(wrong),
        broken_violations=int((wrong <= DIFFERENT).sum()),
        broken="a rule against raising precision",
    )
    reading = (
        f"the rule prevents {saved.sum() / harm.sum():.0%} of the harm, the wrong rule {wrong.sum() / harm.sum():.0%}"
    )
    if check.violations:
        idle = int((harm <= DIFFERENT).sum())
        reading += (
            f"; it saves nothing in {check.violations} cases, {idle} of them without harm, in the others it does not "
            f"bind; at worst it saves {saved.min():+.3f}"
        )
    return Finding(claim, exact=check, n=len(saved), scope=_welfare_grid(config), reading=reading)


def foresight(claim: Claim, tables: Tables, config: Any) -> Finding:
    """The optimal against the myopic planner, each by its own objective, at the prior where it matters most."""
    values = _by_planner(tables, "V")
    losses: dict[str, np.ndarray] = {}
    for objective in ("altruistic", "biased"):
        loss = pd.DataFrame({"loss": values[objective] - values[f"myopic-{objective}"]})
        losses[objective] = np.asarray(loss.groupby(["p", "k", "delta"])["loss"].max())
    all_losses = np.concatenate(list(losses.values()))
    check = ExactCheck(
        instances=len(all_losses),
        violations=int((all_losses <= DIFFERENT).sum()),
        broken_instances=len(all_losses),
        broken_violations=len(all_losses),
        broken="the same planner twice",
    )
    reading = "; ".join(
        f"{objective}: in {int((loss > DIFFERENT).sum())} of {len(loss)} settings, up to {loss.max():.2f} C"
        for objective, loss in losses.items()
    )
    return Finding(claim, exact=check, n=len(all_losses), scope=_welfare_grid(config), reading=reading)


def agent_bias(claim: Claim, tables: Tables, config: Any, statistic: str) -> Finding:
    """A slope of the model against that of a Bayesian through the same readout."""
    slopes = _with_caution(tables["estimate.slopes"])
    if withheld := _agent_gate(slopes):
        return Finding(claim, withheld=withheld, scope=_model_scope(config), reading=_slope_reading(slopes))
    arms = contrasts.paired_arms(slopes, statistic, unit="cluster")
    return Finding(
        claim,
        effect=intervals.mean(arms["treatment"]),
        contrasts=tuple(
            contrasts.paired(arm, arms["treatment"], arms[arm]) for arm in ("bayesian", "random-init") if arm in arms
        ),
        n=len(arms["treatment"]),
        scope=_model_scope(config),
        reading=_slope_reading(slopes),
    )


def planner_tracks_optimum(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Distance of the model's precision from the optimum, against its answers to other beliefs and a constant."""
    seats = tables["estimate.seats"]
    scripted = _tracking(seats.loc[seats["source"] == "scripted"])
    if not all(contrast.difference.high < 0 for contrast in scripted[1]):
        return Finding(claim, withheld="the scripted optimal planner does not pass", scope=_model_scope(config))
    effect, found = _tracking(seats.loc[seats["source"] == "treatment"])
    others = [
        contrasts.paired(source, _deviation(seats, "treatment"), _deviation(seats, source))
        for source in ("no-future", "random-init")
        if source in set(seats["source"])
    ]
    treatment = seats.loc[(seats["source"] == "treatment") & (seats["arm"] == "treatment")]
    reading = (
        f"within 10 % of the range in {treatment['share_close'].mean():.0%} of beliefs; same phase as the optimum in "
        f"{treatment['share_phase'].mean():.0%}; loses {treatment['regret'].mean():.2f} of value"
    )
    return Finding(
        claim,
        effect=effect,
        contrasts=(*found, *others),
        n=found[0].n,
        scope=_model_scope(config),
        reading=reading,
    )


def hybrid_brittle(claim: Claim, tables: Tables, config: Any) -> Finding:
    """Values of policies played on the estimated agents, per scenario and paraphrase."""
    if withheld := _agent_gate(_with_caution(tables["estimate.slopes"])):
        return Finding(claim, withheld=withheld, scope=_model_scope(config))
    arms = contrasts.paired_arms(tables["estimate.played"], "value", unit="cluster")
    return Finding(
        claim,
        effect=intervals.mean(arms["treatment"]),
        contrasts=tuple(contrasts.paired(arm, arms["treatment"], arms[arm]) for arm in ("hybrid", "aware")),
        n=len(arms["treatment"]),
        scope=_model_scope(config),
    )


def _tracking(seats: pd.DataFrame) -> tuple[Estimate, tuple[Contrast, ...]]:
    arms = contrasts.paired_arms(seats, "deviation", unit="cluster")
    found = tuple(contrasts.paired(arm, arms["treatment"], arms[arm]) for arm in ("shuffled-belief", "constant"))
    return intervals.mean(arms["treatment"]), found


def _deviation(seats: pd.DataFrame, source: str) -> np.ndarray:
    own = seats.loc[(seats["source"] == source) & (seats["arm"] == "treatment")]
    return np.asarray(own.groupby("cluster", sort=True)["deviation"].mean())


def _agent_gate(slopes: pd.DataFrame) -> str:
    """Why nothing may be said about the model; empty if something may."""
    planted = slopes.loc[slopes["arm"] == "grether"]
    for name, truth in PLANTED.items():
        estimate = intervals.mean(planted[name].to_numpy())
        if not estimate.low - 0.02 <= truth <= estimate.high + 0.02:
            return f"positive control: the scripted agent's {name} of {truth} was read as {estimate}"
    model = slopes.loc[slopes["arm"] == "treatment"]
    read = {name: intervals.mean(model[name].to_numpy()) for name in SLOPES}
    if all(estimate.low <= REACTION for estimate in read.values()):
        shown = ", ".join(f"{name} {estimate}" for name, estimate in read.items())
        return f"no evidence that it reacts to belief or signal at all: {shown}"
    return ""


def _with_caution(slopes: pd.DataFrame) -> pd.DataFrame:
    return slopes.assign(caution=slopes["gamma_contra"] - slopes["alpha"])


def _slope_reading(slopes: pd.DataFrame) -> str:
    own = slopes.loc[slopes["arm"] == "treatment"]
    read = ", ".join(f"{name} {intervals.mean(np.asarray(own[name]))}" for name in SLOPES)
    return f"{read}; bias for the letter A {float(np.mean(np.asarray(own['label_bias']))):.2f} nats"


def _patient(solved: pd.DataFrame, objective: str) -> pd.DataFrame:
    return solved.loc[(solved["objective"] == objective) & (solved["delta"] > 0)]


def _by_planner(tables: Tables, column: str) -> pd.DataFrame:
    return tables["evaluate"].pivot_table(index=["p", "k", "delta", "prior"], columns="planner", values=column)


def _grid(config: Any) -> str:
    return f"p in {list(config.ps)}, k in {list(config.ks)}, delta in {list(config.deltas)}, linear cost, m={config.m}"


def _welfare_grid(config: Any) -> str:
    return (
        f"p in {list(config.ps)}, k in {list(config.welfare_ks)}, delta in {list(config.welfare_deltas)}, "
        f"priors {list(config.priors)}, linear cost; exact evaluation"
    )


def _model_scope(config: Any) -> str:
    return f"{config.model}, 3 scenarios x {config.paraphrases} paraphrases; language models are not people"
