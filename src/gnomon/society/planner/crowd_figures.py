"""Figures of what planners do to a crowd: welfare, beliefs, cascades, and agents who are not Bayesian."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from gnomon.report.charts import bars, captioned
from gnomon.report.theme import CATEGORIES, CONTROL_COLOR, TREATMENT_COLOR, WIDTH

_STATES = alt.Scale(domain=["good", "bad"], range=[TREATMENT_COLOR, CONTROL_COLOR])
_HALF = WIDTH // 2 - 30


def welfare(evaluated: pd.DataFrame) -> Any:
    """Change of welfare by state under each planner, beside random precision of the same spend and the rule."""
    wide = evaluated.pivot_table(index=["p", "k", "delta", "prior"], columns="planner", values=["W_G", "W_B"])
    compared = {
        "biased": {
            "treatment": "biased",
            "cost-matched random": "random-as-biased",
            "obfuscation forbidden": "no-obfuscation",
        },
        "altruistic": {"treatment": "altruistic", "cost-matched random": "random-as-altruistic"},
    }
    rows = []
    for objective, arms in compared.items():
        for state, column in (("bad", "W_B"), ("good", "W_G")):
            for arm, planner in arms.items():
                change = np.asarray(wide[column][planner]) - np.asarray(wide[column]["baseline"])
                low, high = np.quantile(change, [0.1, 0.9])
                rows.append(
                    {
                        "case": f"{objective} planner, {state} state",
                        "arm": arm,
                        "value": change.mean(),
                        "low": low,
                        "high": high,
                    }
                )
    return bars(
        pd.DataFrame(rows),
        category="case",
        title="Steering hurts where the state is bad, and it is the blurring that hurts",
        x_title="welfare a round less that under the free precision (in C)",
        caption=f"Exact evaluation; mean over {len(wide)} settings and priors, whiskers from the 10th to the 90th "
        "percentile of settings. Random precision that costs the same does not do this.",
    )


def belief_paths(paths: pd.DataFrame) -> Any:
    """Public belief over rounds in simulated runs, by planner and state."""
    rows = paths.loc[
        (paths["prior"] == paths["prior"].min()) & paths["planner"].isin(["baseline", "biased", "no-obfuscation"])
    ]
    base = alt.Chart(rows).encode(x=alt.X("round:Q", title="round"))
    colour = alt.Color("state:N", scale=_STATES, legend=alt.Legend(title="state", orient="top"))
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="public belief"), y2="high:Q", color=colour)
    line = base.mark_line().encode(y="mean:Q", color=colour)
    return captioned(
        alt.layer(band, line).properties(width=200, height=180).facet(column=alt.Column("planner:N", title=None)),
        "Beliefs under three planners",
        caption=f"Mean and 5-95 % range of simulated runs from prior {_only(rows, 'prior'):g}; planners share the luck "
        "of the signals. Under the biased planner beliefs stop moving: nothing more is learned.",
    )


def cascade_time(survival: pd.DataFrame) -> Any:
    """Share of runs in which agents still act on their signals."""
    rows = survival.loc[survival["prior"] == survival["prior"].max()]
    order = list(dict.fromkeys(rows["planner"]))
    line = (
        alt.Chart(rows)
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("round:Q", title="round", scale=alt.Scale(domain=[0, 20], clamp=True)),
            y=alt.Y("open:Q", title="runs not in a cascade", axis=alt.Axis(format="%")),
            color=alt.Color(
                "planner:N",
                scale=alt.Scale(domain=order, range=list(CATEGORIES)),
                legend=alt.Legend(title=None, orient="top", columns=3),
            ),
        )
        .properties(width=_HALF, height=200)
        .facet(column=alt.Column("state:N", title="state"))
    )
    return captioned(
        line,
        "How long the crowd keeps learning",
        caption=f"Simulated runs from prior {_only(rows, 'prior'):g}; a cascade has begun when no later action "
        "depends on its signal.",
    )


def agents(replaced: pd.DataFrame) -> Any:
    """The Bayesian optimum on agents who are not Bayesian."""
    rows = replaced.query("planner in ['biased', 'baseline']")
    bad: Any = rows.rename(columns={"W_B": "value"}).assign(
        arm=lambda rows: rows["planner"].map({"biased": "treatment", "baseline": "free precision"})
    )
    return bars(
        bad[["agents", "value", "arm"]],
        category="agents",
        title="Blurring works on Bayesians and fails on agents who over-react to contrary signals",
        x_title="welfare a round in the bad state (in C)",
        caption=f"Planners solved for Bayesian agents, prior {_only(rows, 'prior'):g}, k={_only(rows, 'k'):g}; "
        "treatment: the biased planner. Exact evaluation.",
    )


def _only(rows: pd.DataFrame, column: str) -> float:
    """The value that a column has in all rows."""
    return float(rows[column].to_numpy()[0])
