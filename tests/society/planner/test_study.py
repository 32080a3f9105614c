"""The study: units, honest judges, what is withheld, and a tiny real run."""

import numpy as np
import pandas as pd
import pytest

from gnomon.evidence import Verdict
from gnomon.evidence.calibration import assert_calibrated, verdict_rates
from gnomon.society.planner.roles import AGENT_ARMS, PLANNER_ARMS, cluster_estimates
from gnomon.society.planner.rulings import PLANTED
from gnomon.society.planner.study import EXACT, Planner
from gnomon.studies.unit import Done, Gated, Tables, Unit

STUDY = Planner()
FULL = STUDY.Config.preset("full")
CLUSTERS = 12


def slopes(rng, *, agree=1.0, contra=1.0, alpha=1.0, reacts=True, recovered=True, sd=0.15):
    """Slopes by cluster and arm; the model's are given, a Bayesian's are one, the scripted agent's as planted."""
    rows = []
    for cluster in range(CLUSTERS):

        def row(arm, a, g, c, sd=sd, cluster=cluster):
            noisy = dict(zip(("alpha", "gamma_agree", "gamma_contra"), rng.normal((a, g, c), sd), strict=True))
            return {"arm": arm, "cluster": cluster, **noisy, "intercept": 0.0, "label_bias": 0.8}

        truth = (alpha, agree, contra) if reacts else (0.0, 0.0, 0.0)
        shift = 0.0 if recovered else 0.5
        planted = [PLANTED[name] + shift for name in ("alpha", "gamma_agree", "gamma_contra")]
        rows += [
            row("treatment", *truth),
            row("bayesian", 1.0, 1.0, 1.0, sd),
            row("grether", *planted, 1e-3),
            row("random-init", 0.0, 0.0, 0.0),
            row("swapped-labels", 0.0, 0.0, 0.0),
        ]
    return pd.DataFrame(rows)


def seats(rng, *, own=0.2, shuffled=0.2, constant=0.2, sd=0.03, scripted=True):
    rows = []
    for source in PLANNER_ARMS:
        for cluster in range(CLUSTERS):
            base = rng.normal(0, 0.02)
            levels = (own, shuffled, constant)
            if source == "scripted":
                levels = (0.0, 0.15, 0.12) if scripted else (0.15, 0.15, 0.12)
            for arm, level in zip(("treatment", "shuffled-belief", "constant"), levels, strict=True):
                rows.append(
                    {
                        "source": source,
                        "cluster": cluster,
                        "arm": arm,
                        "deviation": level + base + rng.normal(0, sd),
                        "share_close": 0.5,
                        "share_phase": 0.5,
                        "regret": 0.1,
                    }
                )
    return pd.DataFrame(rows)


def played(rng, *, gain=0.0):
    rows = []
    for cluster in range(CLUSTERS):
        base = rng.normal(-0.6, 0.1)
        for arm, shift in (("treatment", gain), ("hybrid", 0.0), ("aware", 0.1)):
            rows.append({"cluster": cluster, "arm": arm, "value": base + shift + rng.normal(0, 0.03)})
    return pd.DataFrame(rows)


def judged(name, table):
    return lambda frames: getattr(STUDY, f"judge_{name.replace('-', '_')}")(Tables({table: frames}), FULL)


@pytest.mark.parametrize(
    ("claim", "effect"),
    [
        ("agent-underreaction", {"agree": 0.6}),
        ("agent-overreaction", {"contra": 1.4}),
        ("agent-late-cascade", {"alpha": 0.8, "contra": 1.2}),
    ],
)
def test_judges_of_agents_are_calibrated(claim, effect):
    assert_calibrated(
        judged(claim, "estimate.slopes"),
        null=lambda rng: slopes(rng),
        planted=lambda rng: slopes(rng, **effect),
        draws=400,
        family=5,
    )


def test_the_judge_of_the_planners_seat_is_calibrated():
    assert_calibrated(
        judged("planner-tracks-optimum", "estimate.seats"),
        null=lambda rng: seats(rng),
        planted=lambda rng: seats(rng, own=0.1),
        draws=400,
        family=5,
    )


def test_the_judge_of_brittleness_is_calibrated():
    def judge(frames):
        return STUDY.judge_hybrid_brittle(Tables(frames), FULL)

    def world(gain):
        return lambda rng: {"estimate.slopes": slopes(rng), "estimate.played": played(rng, gain=gain)}

    assert_calibrated(judge, null=world(0.0), planted=world(0.1), draws=400, family=5)


@pytest.mark.parametrize("claim", ["agent-underreaction", "agent-overreaction", "agent-late-cascade"])
def test_a_model_that_reacts_to_nothing_gets_no_verdict(claim):
    # Weights of zero would "support" under-reaction; the gate on some weight being there forbids it.
    rates = verdict_rates(judged(claim, "estimate.slopes"), lambda rng: slopes(rng, reacts=False), draws=60)
    assert rates[claim].supported <= 0.05
    assert "no evidence that it reacts" in rates[claim].reasons[0]


def test_without_the_positive_control_nothing_is_said():
    broken = slopes(np.random.default_rng(0), agree=0.6, recovered=False)
    finding = judged("agent-underreaction", "estimate.slopes")(broken)
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert "positive control" in finding.reason
    unscripted = judged("planner-tracks-optimum", "estimate.seats")(
        seats(np.random.default_rng(0), own=0.1, scripted=False)
    )
    assert unscripted.reason == "the scripted optimal planner does not pass"


def exact_tables():
    """Hand-made tables in which every exact claim holds."""
    grid = [{"p": 0.7, "k": k, "r": 1.0, "delta": delta} for k in (0.1, 0.3) for delta in (0.0, 0.9)]
    solved = pd.DataFrame(
        [
            {
                **at,
                "objective": objective,
                "convexity_defect": 0.0,
                "defect_belief": 0.5,
                "conforms": True,
                "sequence": "max,none",
                "t_max": 0.3 - 0.2 * at["delta"],
            }
            for at in grid
            for objective in ("altruistic", "biased")
        ]
    )
    broken = solved.assign(permuted_conforms=False, uncontrolled_defect=0.2)
    welfare = {
        "baseline": -0.2,
        "altruistic": -0.1,
        "biased": -0.8,
        "no-obfuscation": -0.4,
        "no-raising": -0.9,
        "random-as-altruistic": -0.25,
        "random-as-biased": -0.1,
    }
    values = {"altruistic": -1.0, "myopic-altruistic": -1.5, "biased": -1.0, "myopic-biased": -2.0}
    rows = [
        {
            "p": 0.7,
            "k": 0.3,
            "delta": 0.9,
            "prior": prior,
            "planner": name,
            "W_G": w,
            "W_B": w,
            "V": values.get(name, -1.0),
        }
        for prior in (0.4, 0.5)
        for name, w in (welfare | {"myopic-altruistic": -0.2, "myopic-biased": -0.5}).items()
    ]
    return {"solve": solved, "broken": broken, "evaluate": pd.DataFrame(rows)}


def judge_exact(tables):
    return {claim: judged_all(tables)[claim] for claim in EXACT}


def judged_all(tables):
    findings = STUDY.judge(Tables(tables), STUDY.Config.preset("quick"))
    return {finding.claim.name: finding for finding in findings}


def test_exact_claims_are_supported_where_nothing_violates_them():
    assert {finding.verdict for finding in judge_exact(exact_tables()).values()} == {Verdict.SUPPORTED}


@pytest.mark.parametrize(
    ("claim", "table", "column", "where", "value"),
    [
        ("value-convexity", "solve", "convexity_defect", "objective == 'altruistic' and delta > 0", 0.01),
        ("altruistic-phases", "solve", "conforms", "objective == 'altruistic' and delta > 0", False),
        ("biased-phases", "solve", "conforms", "objective == 'biased' and delta > 0", False),
        ("myopic-threshold", "solve", "t_max", "objective == 'altruistic' and delta > 0", 0.4),
        ("altruistic-welfare", "evaluate", "W_B", "planner == 'altruistic'", -0.3),
        ("biased-harm", "evaluate", "W_B", "planner == 'biased'", -0.1),
        ("obfuscation-rule", "evaluate", "W_B", "planner == 'no-obfuscation'", -0.8),
        ("foresight", "evaluate", "V", "planner == 'myopic-biased'", -1.0),
    ],
)
def test_one_violation_contradicts_and_only_its_own_claim(claim, table, column, where, value):
    tables = exact_tables()
    tables[table].loc[tables[table].query(where).index, column] = value
    found = judge_exact(tables)
    assert found[claim].verdict == Verdict.CONTRADICTED
    others = {name: finding.verdict for name, finding in found.items() if name not in (claim, "obfuscation-rule")}
    assert set(others.values()) == {Verdict.SUPPORTED}


@pytest.mark.parametrize(
    ("claim", "table", "column", "value"),
    [
        ("value-convexity", "broken", "uncontrolled_defect", 0.0),
        ("altruistic-phases", "broken", "permuted_conforms", True),
        ("biased-phases", "broken", "permuted_conforms", True),
    ],
)
def test_a_check_that_misses_the_broken_variant_decides_nothing(claim, table, column, value):
    tables = exact_tables()
    tables[table][column] = value
    finding = judge_exact(tables)[claim]
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert "does not catch" in finding.reason


def test_presets_plan_what_they_decide():
    quick = list(STUDY.units(STUDY.Config.preset("quick")))
    assert {unit.stage for unit in quick} == {"oracle", "solve", "broken", "evaluate", "curves", "replace", "simulate"}
    assert sum(unit.seconds for unit in quick) < 100
    full = list(STUDY.units(FULL))
    arms = {(unit.stage, unit.params["arm"]) for unit in full if unit.stage in ("agent", "seat")}
    assert arms == {("agent", arm) for arm in AGENT_ARMS} | {("seat", arm) for arm in PLANNER_ARMS}
    assert sum(unit.stage == "estimate" for unit in full) == CLUSTERS
    assert sum(unit.seconds for unit in full) < 2200


class Run:
    """What measure gets, for units without randomness of their own."""

    def __init__(self, done=()):
        self._done = {unit.identity: tables for unit, tables in done}

    def need(self, unit):
        return Done(unit, self._done[unit.identity], None)

    def rng(self, *stream):
        return np.random.default_rng(abs(hash(stream)) % 2**32)

    def note(self, subject, facts):
        return None


def test_a_small_real_run_gives_the_tables_and_charts():
    config = STUDY.Config(
        ps=(0.7,),
        ks=(0.3, 2.0),
        deltas=(0.3, 0.9),
        priors=(0.4, 0.6),
        welfare_ks=(0.3,),
        welfare_deltas=(0.9,),
        m=8,
        runs=50,
        horizon=3,
        claims=EXACT,
    )
    tables: dict[str, list[pd.DataFrame]] = {}
    for unit in STUDY.units(config):
        measured = STUDY.measure(unit, Run())
        named = measured if isinstance(measured, dict) else {"": measured}
        for name, frame in named.items():
            tables.setdefault(f"{unit.stage}.{name}".rstrip("."), []).append(frame.reset_index(drop=True))
    joined = Tables({name: pd.concat(frames, ignore_index=True) for name, frames in tables.items()})
    found = {finding.claim.name: finding for finding in STUDY.judge(joined, config)}
    assert found["biased-harm"].verdict == Verdict.SUPPORTED
    assert found["value-convexity"].exact.instances == 4
    assert found["agent-underreaction"].verdict == Verdict.INCONCLUSIVE
    drawn = STUDY.charts(joined, list(found.values()))
    assert {"policy", "value", "welfare", "phase_diagram", "convexity_map", "belief_paths", "horizon"} <= set(drawn)
    assert joined["oracle"]["difference"].max() < 0.02


def test_estimates_of_a_cluster_hold_all_arms():
    run = Run()
    at = {"scenario": "car", "paraphrase": 0, "model": "none"}
    agents = [STUDY.measure_agent(_unit("agent", at, arm), run).assign(arm=arm) for arm in ("bayesian", "grether")]
    agents.append(agents[0].assign(arm="treatment"))
    scripted = STUDY.measure_seat(_unit("seat", at, "scripted"), run).assign(arm="scripted")
    found = cluster_estimates(pd.concat(agents), pd.concat([scripted, scripted.assign(arm="treatment")]))
    by_arm = found["slopes"].set_index("arm")
    assert by_arm.loc["grether", "gamma_contra"] == pytest.approx(1.4)
    assert by_arm.loc["treatment", "alpha"] == pytest.approx(1.0)
    own = found["seats"].set_index(["source", "arm"])["deviation"]
    assert own[("scripted", "treatment")] < 0.02 < own[("scripted", "constant")]
    values = found["played"].set_index("arm")["value"]
    assert values["aware"] >= values["hybrid"] - 0.02


def test_the_planners_seat_is_drawn_beside_the_optimum_it_was_told_of():
    at = {"scenario": "car", "paraphrase": 0, "model": "none"}
    seat = STUDY.measure_seat(_unit("seat", at, "scripted"), Run()).assign(arm="treatment")
    drawn = STUDY.charts(Tables({"seat": seat}), [])
    assert list(drawn) == ["seat"]
    assert "p=0.7, k=2, delta=0.6" in str(drawn["seat"].to_dict())


def test_a_cluster_with_too_many_missing_answers_is_gated():
    at = {"scenario": "car", "paraphrase": 0, "model": "none"}
    agents = STUDY.measure_agent(_unit("agent", at, "bayesian"), Run())
    seat = STUDY.measure_seat(_unit("seat", at, "scripted"), Run())
    units = [_unit("agent", at, "treatment"), _unit("seat", at, "treatment")]

    def measured(agent_rows, seat_rows):
        answered = agents.assign(arm="treatment", logodds=agents["logodds"].mask(agents.index < agent_rows))
        set_ = seat.assign(arm="treatment", precision=seat["precision"].mask(seat.index < seat_rows))
        done = zip(units, ({"agent": answered}, {"seat": set_}), strict=True)
        return STUDY.measure_estimate(Unit("estimate", at, tuple(units)), Run(done))

    # One of 30 answers may be missing; the weights come from the others.
    assert measured(1, 0)["slopes"].set_index("arm").loc["treatment", "alpha"] == pytest.approx(1.0)
    with pytest.raises(Gated, match="10% of the agent answers of arm treatment are missing"):
        measured(3, 0)
    with pytest.raises(Gated, match="7% of the seat answers of arm treatment are missing"):
        measured(0, 1)


def _unit(stage, at, arm):
    return Unit(stage, {**at, "arm": arm})
