"""``gnomon planner``: solve a planner, simulate a crowd, audit a mediator's log, ask a model and read its biases."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gnomon.society.planner.solution import Solution

app = typer.Typer(no_args_is_help=True, help="A mediator who may only set how precise private signals are.")


class Aim(StrEnum):
    """What the planner wants."""

    ALTRUISTIC = "altruistic"
    BIASED = "biased"


class PlannerName(StrEnum):
    """Planners that ``simulate`` can put in charge."""

    BASELINE = "baseline"
    ALTRUISTIC = "altruistic"
    BIASED = "biased"
    NO_OBFUSCATION = "no-obfuscation"
    MYOPIC_BIASED = "myopic-biased"


P = Annotated[float, typer.Option("--p", help="Precision that costs nothing, in (0.5, 1).")]
K = Annotated[float, typer.Option("--k", help="Cost of precision, k |q - p|.")]
Delta = Annotated[float, typer.Option("--delta", help="Patience, in [0, 1).")]
Size = Annotated[int, typer.Option("--m", help="Lattice points per free move.")]


@app.command()
def solve(
    p: P = 0.7,
    k: K = 0.3,
    delta: Delta = 0.9,
    objective: Annotated[Aim, typer.Option(help="Whose welfare the planner pursues.")] = Aim.BIASED,
    r: Annotated[float, typer.Option("--r", help="Exponent of the cost.")] = 1.0,
    m: Size = 40,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the pictures and solution.json; planner-OBJECTIVE by default."),
    ] = None,
) -> None:
    """Print phases, thresholds and values of the optimal planner; draw policy and value."""
    from gnomon.society.planner.model import HerdModel
    from gnomon.society.planner.phase_diagram import conformity, cost_of
    from gnomon.society.planner.solver import solve as solve_model

    solution = solve_model(HerdModel(p, delta, cost_of(k, r), objective=objective.value), m=m)
    typer.echo(f"{objective.value} planner, p = {p:g}, cost {k:g} |q - p|^{r:g}, delta = {delta:g}")
    typer.echo("\nphases (public belief, what the planner does, precision)")
    for phase in solution.phases():
        if not phase.mixed:
            typer.echo(f"  {phase}")
    theorem = "Theorem 3" if objective is Aim.ALTRUISTIC else "Theorem 5"
    found = conformity(solution)
    typer.echo(f"  in the order of {theorem}: {'yes' if found.conforms else f'no, first at {found.violation}'}")
    typer.echo("\nthresholds")
    inner = [phase for phase in solution.phases() if not phase.mixed][1:]
    typer.echo("  " + ", ".join(f"{phase.b_low:.4f}" for phase in inner))
    typer.echo("\nvalue")
    for belief in (0.1, 0.3, 0.5, 0.7, 0.9):
        typer.echo(f"  b = {belief:.1f}   V = {float(solution.V(belief)):+.4f}   q = {float(solution.q(belief)):.4f}")
    typer.echo(f"  just above 1/2: V = {solution.just_above(0.5):+.4f}")
    defect = solution.convexity_defect()
    if objective is Aim.ALTRUISTIC:
        typer.echo(f"\nconvexity defect {defect.defect:.2g} at b = {defect.belief:.3f}")
    typer.echo(
        f"{len(solution.values)} states, residual {solution.residual:.1e}, {solution.n_added} moves added by the sweep"
    )
    _draw(solution, out or Path(f"planner-{objective.value}"))


@app.command()
def simulate(
    p: P = 0.7,
    k: K = 0.3,
    delta: Delta = 0.9,
    prior: Annotated[float, typer.Option(help="Public prior of the good state.")] = 0.5,
    planner: Annotated[PlannerName, typer.Option(help="Who sets precision.")] = PlannerName.BIASED,
    runs: Annotated[int, typer.Option(help="Independent runs.")] = 10_000,
    rounds: Annotated[int, typer.Option(help="Rounds a run.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    out: Annotated[Path | None, typer.Option(help="JSONL or CSV file for a log of 200 runs, for audit.")] = None,
) -> None:
    """Simulate a crowd under a planner and print welfare and cascades, beside the same crowd left alone."""
    from gnomon.evidence.intervals import mean
    from gnomon.society.planner.evaluation import evaluate
    from gnomon.society.planner.model import HerdModel, LinearCost
    from gnomon.society.planner.records import write_records
    from gnomon.society.planner.simulation import cascade_time, run_welfare, simulate_log, wrong_cascade_rate
    from gnomon.society.planner.simulation import simulate as run_crowd
    from gnomon.society.planner.welfare import planners

    compared = planners(HerdModel(p, delta, LinearCost(k)))
    for name in dict.fromkeys((planner.value, "baseline")):
        model, policy = compared[name]
        crowd = run_crowd(model, policy, prior, n_runs=runs, rounds=rounds, seed=seed)
        exact = evaluate(model, policy, prior)
        times = cascade_time(crowd)
        herds = times[times < rounds]
        typer.echo(
            f"{name:16} welfare {mean(run_welfare(crowd, delta))}, exact {exact.W:.4f} "
            f"(good {exact.W_G:.4f}, bad {exact.W_B:.4f}); spend {exact.spend:.4f}; share of G {exact.share_G:.3f}; "
            f"cascades {len(herds) / runs:.3f}, wrong {wrong_cascade_rate(crowd):.3f}, "
            f"after {herds.mean() if len(herds) else float('nan'):.2f} rounds"
        )
    if out is not None:
        model, policy = compared[planner.value]
        write_records(simulate_log(model, policy, prior, n_runs=200, rounds=min(rounds, 20), seed=seed), out)
        typer.echo(f"wrote {out}")


@app.command()
def audit(
    log: Annotated[Path, typer.Argument(help="JSONL or CSV: round, omega, b_public, q_declared, q_used, signal.")],
) -> None:
    """Check a mediator's log: does it know more than its users, does it lie, is what it uses what it shows?"""
    from gnomon.society.planner.audit import audit_log
    from gnomon.society.planner.records import read_records

    found = audit_log(read_records(log))
    typer.echo(str(found))
    if not found.passed:
        raise typer.Exit(1)


@app.command()
def ask(
    model: Annotated[str, typer.Argument(help="A model's name, folder or GGUF file, or NAME@URL of a server.")],
    out: Annotated[Path, typer.Option(help="JSONL or CSV file for the records.")],
    scenarios: Annotated[
        list[str] | None, typer.Option("--scenario", help="Scenario, may be repeated; by default all.")
    ] = None,
    paraphrases: Annotated[int, typer.Option(min=1, max=4, help="Wordings of each scenario.")] = 4,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Calls to a server that may be made.")] = None,
) -> None:
    """Put a model in the agent's seat and write down its answers, for estimate."""
    from gnomon.society.planner.asking import ask_everywhere
    from gnomon.society.planner.records import write_records

    records = ask_everywhere(model, scenarios or (), paraphrases, max_calls=max_calls, ledger=str(out.resolve()))
    write_records(records, out)
    missing = sum(not answered for answered in records["parse_ok"])
    typer.echo(f"wrote {len(records)} answers to {out}, {missing} of them missing")


@app.command()
def estimate(
    log: Annotated[Path, typer.Argument(help="JSONL or CSV: b_public, q_declared, signal, and the answers.")],
) -> None:
    """Estimate how an agent, model or person, weighs the public belief and its own signal; a Bayesian has 1, 1, 1."""
    from gnomon.society.planner.estimation import COEFFICIENTS, estimate_agent
    from gnomon.society.planner.records import answers, read_records

    fit = estimate_agent(answers(read_records(log)))
    for name in COEFFICIENTS[:3]:
        typer.echo(f"{name:13} {getattr(fit, name)}")
    typer.echo(
        f"{fit.n} answers in {len(fit.by_cluster)} clusters; within-cluster R2 {fit.r2:.3f}; "
        f"on the Bayesian side of even odds in {fit.sign_agreement:.0%}"
    )
    if not fit.reacts:
        typer.echo("no evidence that it reacts to belief or signal: nothing can be said of biases")


def _draw(solution: Solution, out: Path) -> None:
    from gnomon.report.figures import figure
    from gnomon.society.planner.figures import solved_charts

    out.mkdir(parents=True, exist_ok=True)
    for name, chart in solved_charts(solution).items():
        (out / f"{name}.png").write_bytes(figure(name, chart).png)
    (out / "solution.json").write_text(solution.to_json())
    typer.echo(f"wrote policy.png, value.png and solution.json to {out}")
