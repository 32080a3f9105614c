"""The ``gnomon`` command: list, run and check studies, and reach the instruments' own verbs.

Nothing heavy is imported until a command needs it. Results go to stdout, progress and errors to stderr. Exit codes:
0 done, 1 a study or a check failed, 2 wrong usage or configuration, 130 interrupted.
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from gnomon.names import nearest
from gnomon.studies import registry

if TYPE_CHECKING:
    from gnomon.studies.backends import Backend
    from gnomon.studies.store import Run
    from gnomon.studies.study import Study

VERBS = "gnomon.verbs"


class BackendName(StrEnum):
    """Where units are measured."""

    LOCAL = "local"
    RAY = "ray"


class VerdictName(StrEnum):
    """Verdicts that ``findings --fail-on`` takes."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    INCONCLUSIVE = "inconclusive"


class _Commands(TyperGroup):
    """Our commands, and one group an instrument whose verbs are loaded only when one is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_verbs())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.commands or cmd_name not in _verbs():
            return super().get_command(ctx, cmd_name)
        return TyperCommand(cmd_name, help=f"{cmd_name} on your own model or data.", rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, verbs = args[0], _verbs()
        if name in verbs and name not in self.commands:
            return name, typer.main.get_command(verbs[name].load()), args[1:]
        if name not in self.commands and not name.startswith("-"):
            if name in registry.study_names():
                ctx.fail(f"{name} has no verbs of its own; its study runs with 'gnomon run {name}'")
            ctx.fail(f"no command {name!r}{nearest(name, [*self.commands, *verbs])}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(help="Name of the study, as in 'gnomon list'.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or its name in the runs folder.")]
RunsDir = Annotated[Path, typer.Option(envvar="GNOMON_RUNS", help="Folder of the runs.")]
Backends = Annotated[BackendName, typer.Option("--backend", help="Where to measure.")]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Worker processes; by default one a core; 0: in this process, to debug.")
]
RayAddress = Annotated[str | None, typer.Option(help="Address of a running Ray cluster; by default Ray's own rule.")]
GpusPerUnit = Annotated[float | None, typer.Option(min=0, help="GPUs, or the share of one, for each unit on Ray.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> NoReturn:
    """Run the command line and exit."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    command = typer.main.get_command(app)
    # A scheduler that takes the machine back ends a run as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        command.main(args=arguments, prog_name="gnomon")
    except Exception as error:
        if debug:
            traceback.print_exc()
        print(f"gnomon: {_one_line(error)}", file=sys.stderr)
        sys.exit(2 if _is_usage(error) else 1)
    sys.exit(0)


def _print_version(asked: bool) -> None:
    if asked:
        import gnomon

        typer.echo(gnomon.__version__)
        raise typer.Exit


@app.callback()
def _gnomon(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere.")] = False,
) -> None:
    """Instruments for studying AI systems. No finding without its control."""
    # --version is answered by its callback; --debug is read by main() before parsing.
    del version, debug


@app.command("list")
def list_studies(as_json: AsJson = False) -> None:
    """List the instruments, one line each, by wing."""
    descriptions = registry.describe()
    if as_json:
        typer.echo(json.dumps([vars(description) for description in descriptions], indent=1, ensure_ascii=False))
        return
    width = max((len(description.name) for description in descriptions), default=0)
    wing = None
    for description in descriptions:
        if description.trouble:
            typer.echo(f"gnomon: {description.name}: {description.trouble}", err=True)
            continue
        if description.wing != wing:
            wing = description.wing
            typer.echo(wing)
        typer.echo(f"  {description.name:<{width}}  {description.title}")


@app.command()
def info(name: Name, as_json: AsJson = False) -> None:
    """Show a study's question, paper, claims with their controls, presets and config fields."""
    from gnomon.lookup import study_facts

    study = registry.load_study(name)
    facts = study_facts(study)
    if as_json:
        typer.echo(json.dumps(facts, indent=1, ensure_ascii=False, default=str))
        return
    typer.echo(f"{study.name}: {study.title}\n{facts['question']}\n")
    typer.echo(f"{study.paper.title}. {study.paper.authors}. {study.paper.venue}. {study.paper.link}\n\nclaims")
    for claim in study.claims:
        controls = ", ".join(claim.controls) or "a deliberately broken variant"
        typer.echo(f"  {claim.name}: {claim.statement}")
        typer.echo(f"    {claim.kind}; {claim.statistic}; against {controls}")
        typer.echo(f"    unit of analysis: {claim.unit}" + (f"; gate: {claim.gate}" if claim.gate else ""))
    typer.echo("\npresets")
    for preset, values in facts["presets"].items():
        typer.echo(f"  {preset}: {', '.join(f'{field}={value!r}' for field, value in values.items()) or 'as below'}")
    typer.echo("\nconfig fields (--set field=value)")
    for field, described in facts["fields"].items():
        typer.echo(f"  {field}: {described['type']} = {described['default']!r}  {described['description']}".rstrip())


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="Name of the study; may be left out with --resume.")] = "",
    preset: Annotated[str | None, typer.Option(help="quick, full, or another of the study's presets.")] = None,
    model: Annotated[str | None, typer.Option(help="Model to study; sets the config field 'model'.")] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE")] = None,
    seed: Annotated[int | None, typer.Option(help="Master seed.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; sets the config field 'seeds'.")] = None,
    backend: Backends = BackendName.LOCAL,
    workers: Workers = None,
    ray_address: RayAddress = None,
    gpus_per_unit: GpusPerUnit = None,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Calls to model servers the run may make.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="What they may cost; needs --prices.")] = None,
    prices: Annotated[
        str | None, typer.Option(metavar="IN,OUT", help="What a server charges for a million tokens read, written.")
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with an earlier run.")] = None,
    report: Annotated[bool, typer.Option(help="Draw the charts and report.html.")] = True,
    quiet: Quiet = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Run a study: its claims, each beside its control."""
    from gnomon.chats import RunChats
    from gnomon.lookup import find_run, resume_hint, trouble
    from gnomon.studies.files import StorageError
    from gnomon.studies.runner import Interrupted, run_study
    from gnomon.studies.settings import configure
    from gnomon.terminal import TerminalObserver, findings_table, results

    earlier = find_run(resume, runs_dir) if resume is not None else None
    if earlier is None and not name:
        raise ValueError("name a study, or a run with --resume; 'gnomon list' shows the studies")
    study = registry.load_study(name or earlier.study)  # pyright: ignore[reportOptionalMemberAccess]
    fields = {"model": model, "seed": seed, "seeds": seeds}
    chosen = {field: value for field, value in fields.items() if value is not None}
    if earlier is not None and (preset or assignments or chosen):
        raise ValueError("a resumed run keeps its configuration: leave out --preset, --set, --model, --seed, --seeds")
    preset = preset or "quick"
    config = None if earlier else configure(study, preset, assignments or (), chosen)
    observer = TerminalObserver(quiet=quiet)
    try:
        done = run_study(
            study,
            config,
            preset=preset,
            runs_dir=runs_dir,
            backend=_backend(backend, workers, ray_address, gpus_per_unit),
            resume=earlier.path if earlier else None,
            observer=observer,
            report=_write_report if report else None,
            chats=RunChats.limited(max_calls, max_cost, prices),
        )
    except Interrupted as interrupted:
        observer.close()
        typer.echo(f"interrupted; what was finished is kept. {resume_hint(interrupted.path)}", err=True)
        raise typer.Exit(130) from None
    except StorageError as error:
        observer.close()
        hint = f". {resume_hint(error.path)}" if error.path else ""
        typer.echo(f"gnomon: {error}{hint}", err=True)
        raise typer.Exit(1) from None
    finally:
        observer.close()
    if done.has_findings:
        results().print(findings_table(done.findings))
    if (done.path / "report.html").exists():
        typer.echo(f"report: {done.path / 'report.html'}")
    else:
        typer.echo(f"run: {done.path}")
    if done.status != "done":
        typer.echo(f"gnomon: the run is {done.status}{trouble(done)}. {resume_hint(done.path)}", err=True)
        raise typer.Exit(1)


@app.command()
def findings(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="By default each study's newest.")
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row a claim and control.")] = False,
    fail_on: Annotated[
        list[VerdictName] | None, typer.Option(help="Exit 1 if a finding has this verdict; may be repeated.")
    ] = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Show findings of runs, each effect beside its controls."""
    from gnomon.lookup import find_run, newest_runs
    from gnomon.terminal import findings_csv, findings_json, findings_table, results

    if as_json and as_csv:
        raise ValueError("choose one of --json and --csv")
    chosen = [find_run(name, runs_dir) for name in runs] if runs else newest_runs(runs_dir)
    if as_json:
        typer.echo(findings_json(chosen))
    elif as_csv:
        typer.echo(findings_csv(chosen), nl=False)
    else:
        for run in chosen:
            typer.echo(f"{run.study} ({run.preset}) {run.name}")
            results().print(findings_table(run.findings))
    verdicts = {str(finding.verdict) for run in chosen for finding in run.findings}
    if bad := sorted(verdicts & {str(verdict) for verdict in fail_on or ()}):
        typer.echo(f"gnomon: there are findings that are {' and '.join(bad)}", err=True)
        raise typer.Exit(1)


@app.command()
def verify(run: RunName, runs_dir: RunsDir = Path("runs")) -> None:
    """Check a run: its files by hash, its verdicts by judging the tables anew."""
    from gnomon.lookup import find_run

    found = find_run(run, runs_dir)
    problems = found.verify(registry.load_study(found.study))
    for problem in problems:
        typer.echo(problem)
    if problems:
        typer.echo(f"gnomon: run {found.name} does not verify", err=True)
        raise typer.Exit(1)
    files = sum(len(unit.files) for unit in found.units)
    typer.echo(f"{found.name}: {files} files as written, {len(found.findings)} verdicts confirmed")


@app.command()
def compare(first: RunName, second: RunName, as_json: AsJson = False, runs_dir: RunsDir = Path("runs")) -> None:
    """Put two runs side by side: what differs in their making, and what they found."""
    from gnomon.lookup import find_run
    from gnomon.studies.comparison import compare_runs
    from gnomon.terminal import comparison_record, comparison_table, results

    compared = compare_runs(find_run(first, runs_dir), find_run(second, runs_dir))
    if as_json:
        typer.echo(json.dumps(comparison_record(compared), indent=1, ensure_ascii=False))
        return
    for name, (one, two) in compared.differences.items():
        typer.echo(f"{name}: {one} | {two}")
    results().print(comparison_table(compared))


@app.command()
def tour(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="By default every instrument.")] = None,
    preset: Annotated[str, typer.Option(help="Preset to run of each.")] = "quick",
    backend: Backends = BackendName.LOCAL,
    workers: Workers = None,
    ray_address: RayAddress = None,
    gpus_per_unit: GpusPerUnit = None,
    quiet: Quiet = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Run every instrument and write one page: the state of their claims on this machine."""
    from gnomon.report.tour import write_tour
    from gnomon.studies.runner import Interrupted
    from gnomon.terminal import TerminalObserver, results
    from gnomon.tour import tour_table, visit

    stops = []
    page = runs_dir / "tour.html"
    try:
        for stop in visit(
            names or registry.study_names(),
            preset=preset,
            runs_dir=runs_dir,
            backend=lambda: _backend(backend, workers, ray_address, gpus_per_unit),
            observer=lambda name: TerminalObserver(quiet=quiet, title=name),
        ):
            stops.append(stop)
            # After every stop, so that a tour that is cut short has shown what it saw.
            write_tour(stops, page, preset=preset)
    except Interrupted:
        typer.echo("interrupted; the same command goes on where it stopped", err=True)
        raise typer.Exit(130) from None
    results().print(tour_table(stops))
    typer.echo(f"tour: {page}")
    if any(stop.trouble for stop in stops):
        raise typer.Exit(1)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the instrument: lower-case words joined by hyphens.")],
    wing: Annotated[str, typer.Option(help="mechanisms, training, learners, retrieval or society.")],
) -> None:
    """Write the skeleton of a new instrument into this checkout of gnomon."""
    from gnomon.scaffold import write_skeleton

    for path in write_skeleton(name, wing, Path.cwd()):
        typer.echo(path.relative_to(Path.cwd()))
    typer.echo("next: pip install --no-deps -e .  and  gnomon run " + name)


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on the loopback interface.")] = 8765,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Open instruments, live progress, runs and reports in a local web app."""
    from gnomon.report.server import serve as serve_runs

    serve_runs(runs_dir, port=port)


def _verbs() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=VERBS)}


def _backend(
    name: BackendName, workers: int | None, ray_address: str | None = None, gpus_per_unit: float | None = None
) -> Backend:
    from gnomon.studies.backends import InlineBackend, LocalBackend

    if name is BackendName.RAY:
        if workers is not None:
            raise ValueError("--workers is for the local backend; a Ray cluster knows its own size")
        from gnomon.studies.ray_backend import RayBackend

        return RayBackend(ray_address, gpus_per_unit=gpus_per_unit or 0.0)
    if ray_address is not None or gpus_per_unit is not None:
        raise ValueError("--ray-address and --gpus-per-unit are for --backend ray")
    return InlineBackend() if workers == 0 else LocalBackend(workers)


def _write_report(run: Run, study: Study) -> None:
    from gnomon.report.html import write_report

    write_report(run, study)


def _is_usage(error: Exception) -> bool:
    return isinstance(error, ValueError | KeyError | FileNotFoundError | NotADirectoryError | ModuleNotFoundError)


def _one_line(error: Exception) -> str:
    if type(error).__module__.partition(".")[0] == "pydantic_core":
        from gnomon.studies.settings import one_line

        return one_line(error)  # pyright: ignore[reportArgumentType]
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    text = " ".join(message.split())
    return text if _is_usage(error) and text else f"{type(error).__name__}: {text} (--debug shows where)"
