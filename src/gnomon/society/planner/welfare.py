"""What planners do to welfare in each state of the world, beside random planners of equal spend and two rules."""

from __future__ import annotations

import dataclasses

import pandas as pd

from gnomon.society.planner.evaluation import evaluate
from gnomon.society.planner.model import HerdModel
from gnomon.society.planner.phase_diagram import myopic_policy, without_obfuscation
from gnomon.society.planner.policies import FixedPolicy, Policy, RandomPolicy
from gnomon.society.planner.solver import solve

BASELINE = "baseline"
"""The planner who leaves precision at ``p``."""


TOLERANCE = 1e-8
"""Weight below which a path is cut off: a hundredth of the smallest difference that is called one."""


def planners(model: HerdModel, *, m: int = 40) -> dict[str, tuple[HerdModel, Policy]]:
    """The planners compared at one setting, each with the objective it is valued by.

    ``no-obfuscation`` is the biased planner under the rule that precision may not fall below ``p``; ``no-raising`` is
    the same planner under a rule aimed at the wrong lever, precision may not exceed ``p``.
    """
    altruistic = dataclasses.replace(model, objective="altruistic")
    biased = dataclasses.replace(model, objective="biased")
    return {
        BASELINE: (biased, FixedPolicy(model.p)),
        "altruistic": (altruistic, solve(altruistic, m=m).policy),
        "biased": (biased, solve(biased, m=m).policy),
        "no-obfuscation": (biased, solve(without_obfuscation(biased), m=m).policy),
        "no-raising": (biased, solve(dataclasses.replace(biased, q_max=biased.p), m=m).policy),
        "myopic-altruistic": (altruistic, myopic_policy(altruistic, m=m)),
        "myopic-biased": (biased, myopic_policy(biased, m=m)),
    }


def welfare_table(model: HerdModel, priors: tuple[float, ...], *, m: int = 40) -> pd.DataFrame:
    """Exact evaluation of every planner from every prior; one row each.

    ``random-as-altruistic`` and ``random-as-biased`` are coins between a lower and a higher precision that spend what
    that planner spends: what effort does when it has no direction.
    """
    compared = planners(model, m=m)
    rows = []
    for prior in priors:
        spends = {}
        for name, (objective, policy) in compared.items():
            worth = evaluate(objective, policy, prior, tol=TOLERANCE)
            spends[name] = worth.spend
            rows.append({"planner": name, "prior": prior, **dataclasses.asdict(worth)})
        biased = compared["biased"][0]
        for name in ("altruistic", "biased"):
            random = RandomPolicy.matching(biased, spends[name])
            worth = evaluate(biased, random, prior, tol=TOLERANCE)
            rows.append({"planner": f"random-as-{name}", "prior": prior, **dataclasses.asdict(worth)})
    return pd.DataFrame(rows)
