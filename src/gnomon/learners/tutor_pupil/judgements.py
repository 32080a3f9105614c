"""From the study's tables to findings: pure, without models or randomness of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from gnomon.evidence import Claim, Finding
from gnomon.evidence.contrasts import against_draws, equivalent, paired, paired_arms
from gnomon.evidence.intervals import mean
from gnomon.learners.tutor_pupil.worlds import ATTRACTION, COVOLUME
from gnomon.studies.unit import MissingTable, Tables

WORLD_OF = {
    "tree-gain": "moons-tree",
    "tree-structure": "moons-tree",
    "tree-location": "moons-tree",
    "tree-over-output": "moons-tree",
    "forest-gain": "moons-forest",
    "digits-gain": "digits-centroid",
    "digits-beyond-black-box": "digits-centroid",
    "digits-direction": "digits-centroid",
    "digits-over-margin": "digits-logistic-weak",
    "planted-direction": "planted",
    "planted-region": "planted",
    "context": "scorecard-context",
}
SCOPE = {
    "moons-tree": "a depth-2 tree on two moons",
    "moons-forest": "twenty depth-2 trees on two moons",
    "digits-centroid": "nearest centroid on 8 x 8 digits, pixel tutor",
    "digits-logistic-weak": "logistic regression (C = .01) on 8 x 8 digits, pixel tutor",
    "planted": "a known surface of six features with a shift where x4 > .5",
    "scorecard-context": "a logistic scorecard of five breast-cancer features",
}


def judge(claim: Claim, tables: Tables) -> Finding:
    """The finding of one claim; withheld if a table it needs was not measured."""
    try:
        return _JUDGES[claim.name](claim, tables)
    except MissingTable as missing:
        return Finding(claim, withheld=str(missing))


def _of(tables: Tables, name: str, **where: object) -> Any:
    """Rows of a table with the given values.

    Raises:
        MissingTable: If there are none.
    """
    table: Any = tables[name]
    chosen = np.ones(len(table), dtype=bool)
    for column, value in where.items():
        chosen &= table[column].to_numpy() == value
    table = table[chosen]
    if table.empty:
        raise MissingTable(f"{name} has no rows for {', '.join(f'{c}={v}' for c, v in where.items())}")
    return table


def _finding(
    claim: Claim, arms: Mapping[str, np.ndarray], *, reading: str, also: tuple[str, ...] = (), scope: str = ""
) -> Finding:
    """Paired contrasts of the treatment with the claim's controls, and with others for information."""
    treatment = arms["treatment"]
    null = claim.sign * claim.margin
    contrasts = tuple(paired(name, treatment, arms[name], null=null) for name in (*claim.controls, *also))
    scope = scope or SCOPE[WORLD_OF[claim.name]]
    return Finding(claim, effect=mean(treatment), contrasts=contrasts, n=len(treatment), scope=scope, reading=reading)


def _gain(claim: Claim, tables: Tables) -> Finding:
    world = WORLD_OF[claim.name]
    arms = paired_arms(_of(tables, "draw.refits", world=world), "score_gain", unit="draw")
    return _finding(claim, arms, also=("own-labels",), reading=_flexibility(tables, world))


def _flexibility(tables: Tables, world: str) -> str:
    """Whether nets without a pupil do as well: then the gain is flexibility, not the pupil's knowledge."""
    scores = paired_arms(_of(tables, "draw.scores", world=world), "score", unit="draw", arm="model")
    tutored, black_box, residual = (scores[name].mean() for name in ("tutored", "black-box", "residual"))
    numbers = f"tutored {tutored:.3f}, output residual {residual:.3f}, black box {black_box:.3f}"
    if black_box > tutored:
        return f"performance from flexibility: {numbers}"
    return f"not flexibility alone: {numbers}"


def _structure(claim: Claim, tables: Tables) -> Finding:
    world = WORLD_OF[claim.name]
    table = _of(tables, "null", world=world)
    real = table.loc[table["arm"] == "treatment", "gain"]
    draws = table.loc[table["arm"] == "scattered-errors", "gain"].to_numpy()
    observed = float(real.iloc[0])
    contrast = against_draws("scattered-errors", observed, draws)
    above = int((draws >= observed).sum())
    reading = f"{reading_of(tables, world)}; {above} of {len(draws)} scattered refits gain as much"
    return Finding(
        claim,
        effect=mean(real) if len(real) > 1 else contrast.difference,
        contrasts=(contrast,),
        n=len(draws),
        scope=f"{SCOPE[world]}, one split",
        reading=reading,
    )


def reading_of(tables: Tables, world: str) -> str:
    """The report's word for a world's failure, with the share a constant shift explains and agreement over seeds."""
    refits = _of(tables, "draw.refits", world=world)
    gains, sizes = _means(refits, "arm", "gain"), _means(refits, "arm", "size")
    recovery = _recovered(tables, world)
    summary = _of(tables, "detail.summary", world=world).iloc[0]
    local = gains["shuffled-input"] / gains["treatment"] if gains["treatment"] > 0 else float("nan")
    floor = sizes["treatment"] / sizes["own-labels"] if sizes["own-labels"] > 0 else float("inf")
    return (
        f"{summary['reading']}: corrections {floor:.1f} times the own-label floor, {local:.0%} of the gain is one "
        f"shift for all rows, seeds agree with cosine {recovery['seed_cosine']:.2f}, "
        f"{recovery['alignment']:.0%} along the pupil's gradients"
    )


def _recovered(tables: Tables, world: str) -> dict[str, float]:
    """Mean over draws of each number read from the corrections."""
    return _means(_of(tables, "draw.recovery", world=world), "quantity", "value")


def _means(table: pd.DataFrame, key: str, column: str) -> dict[str, float]:
    """Mean of a column for each value of a key."""
    keys, values = table[key].to_numpy(), table[column].to_numpy(dtype=np.float64)
    return {str(name): float(values[keys == name].mean()) for name in dict.fromkeys(keys)}


def _location(claim: Claim, tables: Tables) -> Finding:
    world = WORLD_OF[claim.name]
    arms = paired_arms(_of(tables, "draw.refits", world=world), "auroc", unit="draw")
    markers = paired_arms(_of(tables, "draw.markers", world=world), "auroc", unit="draw", arm="marker")
    arms |= {"margin": markers["margin"], "residual": markers["residual"]}
    beaten = arms["treatment"].mean() > arms["margin"].mean()
    reading = f"{'more' if beaten else 'no more'} than the pupil's own margin says ({arms['margin'].mean():.2f})"
    return _finding(claim, arms, also=("margin", "residual"), reading=reading)


def _marker(claim: Claim, tables: Tables) -> Finding:
    markers = paired_arms(_of(tables, "draw.markers", world=WORLD_OF[claim.name]), "auroc", unit="draw", arm="marker")
    arms = {**markers, "treatment": markers["correction"]}
    others = tuple(name for name in ("margin", "residual") if name in arms and name not in claim.controls)
    recovery = _recovered(tables, WORLD_OF[claim.name])
    reading = f"{recovery['alignment']:.0%} of the corrections lies along the pupil's gradients"
    return _finding(claim, arms, also=others, reading=reading)


def _beyond_black_box(claim: Claim, tables: Tables) -> Finding:
    world = WORLD_OF[claim.name]
    arms = paired_arms(_of(tables, "draw.scores", world=world), "score", unit="draw", arm="model")
    arms["treatment"] = arms["tutored"]
    others = ("pupil", "residual", "stack", "tutored-log-loss")
    return _finding(claim, arms, also=others, reading=_flexibility(tables, world))


def _direction(claim: Claim, tables: Tables) -> Finding:
    world = WORLD_OF[claim.name]
    arms = paired_arms(_of(tables, "draw.pushes", world=world), "fixed", unit="draw")
    random = arms["random-direction"].mean()
    return _finding(claim, arms, reading=f"a random push of equal size makes {random:.0%} of the wrong rows right")


def _covolume(claim: Claim, tables: Tables) -> Finding:
    table = _of(tables, "constants", quantity="covolume")
    table = table.assign(arm=table["world"].replace({"covolume-gas": "treatment", "ideal-gas": "ideal-gas"}))
    arms = paired_arms(table[table["arm"].isin(["treatment", "ideal-gas"])], "value", unit="draw")
    moves = _of(tables, "constants", quantity="temperature_move", world="covolume-gas")["value"].mean()
    reading = f"at small volumes temperatures move by {moves:.1f} K on average"
    return _finding(claim, arms, reading=reading, scope=_GAS)


def _planted_value(quantity: str, world: str, truth: float) -> Callable[[Claim, Tables], Finding]:
    def found(claim: Claim, tables: Tables) -> Finding:
        values = _of(tables, "constants", quantity=quantity, world=world)["value"].to_numpy()
        contrast = equivalent("planted", values, np.full(len(values), truth), claim.margin)
        reading = f"truth {truth:g}, read as {values.mean():.4g}: {values.mean() / truth - 1:+.1%}"
        for other, noise in (("-clean", "without noise"), ("-noisy", "at 1 % noise")):
            same = _means(_of(tables, "constants", quantity=quantity), "world", "value")
            if world + other in same:
                reading += f"; {noise} {same[world + other]:.4g}"
        return Finding(claim, mean(values), (contrast,), n=len(values), scope=_GAS, reading=reading)

    return found


def _latent(claim: Claim, tables: Tables) -> Finding:
    arms = paired_arms(tables["latent.scores"], "score", unit="draw", arm="model")
    network, linear = arms["network-on-code"].mean(), arms["logistic-on-code"].mean()
    verdict = "performance from flexibility" if network > arms["treatment"].mean() else "not the code alone"
    others = tuple(name for name in arms if name not in (*claim.controls, "treatment"))
    reading = f"{verdict}: on the code a linear model {linear:.3f}, a network {network:.3f}"
    scope = "logistic regression (C = .01) on 8 x 8 digits, 12-dimensional autoencoder"
    return _finding(claim, arms, also=others, reading=reading, scope=scope)


def _planted(quantity: str, controls: Mapping[str, str]) -> Callable[[Claim, Tables], Finding]:
    def found(claim: Claim, tables: Tables) -> Finding:
        values = paired_arms(_of(tables, "draw.recovery", world="planted"), "value", unit="draw", arm="quantity")
        arms = {"treatment": values[quantity], **{arm: values[name] for arm, name in controls.items()}}
        return _finding(claim, arms, reading=f"seeds agree with cosine {values['seed_cosine'].mean():.2f}")

    return found


def _context(claim: Claim, tables: Tables) -> Finding:
    arms = paired_arms(_of(tables, "draw.refits", world="scorecard-context"), "score_gain", unit="draw")
    same = paired_arms(_of(tables, "draw.refits", world="scorecard"), "score_gain", unit="draw")
    arms["same-features"] = same["treatment"]
    recovery = _recovered(tables, "scorecard-context")
    reading = (
        f"the map shows for whom information is missing, not which feature is wrong: {recovery['alignment']:.0%} of "
        f"the corrections lies along the scorecard's weights"
    )
    return _finding(claim, arms, reading=reading)


def _predation(claim: Claim, tables: Tables) -> Finding:
    table = _of(tables, "dynamics.recovery", system="predators", quantity="slope")
    arms = paired_arms(table, "value", unit="draw")
    saturation = _of(tables, "dynamics.recovery", system="predators", quantity="saturation", arm="treatment")["value"]
    reading = f"saturation read from the correction {saturation.mean():.3f}, truth .25"
    scope = "Lotka-Volterra against Holling's second type, 16 trajectories"
    return _finding(claim, arms, reading=reading, scope=scope)


def _free_run(claim: Claim, tables: Tables) -> Finding:
    table = _of(tables, "dynamics.errors", system="pendulum")
    table = table.assign(
        arm=table["model"].replace({"tutored": "treatment", "pupil": "pupil"}), value=np.log10(table["free_run"])
    )
    arms = paired_arms(table, "value", unit="draw")
    ratio = 10 ** (arms["treatment"] - arms["pupil"]).mean()
    scope = "frictionless pendulum against quadratic drag, 16 trajectories"
    return _finding(claim, arms, reading=f"the tutored free run errs {ratio:.1%} as far", scope=scope)


_GAS = "one mole of gas, 250-600 K"
_JUDGES: dict[str, Callable[[Claim, Tables], Finding]] = {
    "tree-gain": _gain,
    "tree-structure": _structure,
    "tree-location": _location,
    "tree-over-output": _marker,
    "forest-gain": _gain,
    "covolume": _covolume,
    "covolume-value": _planted_value("covolume", "covolume-gas", COVOLUME),
    "virial-b": _planted_value("virial_b", "van-der-waals", COVOLUME),
    "virial-a": _planted_value("virial_a", "van-der-waals", ATTRACTION),
    "digits-gain": _gain,
    "digits-beyond-black-box": _beyond_black_box,
    "digits-direction": _direction,
    "digits-over-margin": _marker,
    "latent-gain": _latent,
    "latent-beyond-code": _latent,
    "planted-direction": _planted("cosine", {"gradient": "cosine_gradient", "scattered-errors": "cosine_scattered"}),
    "planted-region": _planted("overlap", {"scattered-errors": "overlap_scattered"}),
    "context": _context,
    "predation-rate": _predation,
    "pendulum-free-run": _free_run,
}
