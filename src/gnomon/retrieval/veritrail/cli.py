"""``gnomon veritrail``: check a generated text claim by claim against the process that wrote it."""

from __future__ import annotations

import dataclasses
import json
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gnomon.models.call_cache import CallBudget
    from gnomon.retrieval.veritrail.console import Progress
    from gnomon.retrieval.veritrail.judges.judge import Judge
    from gnomon.retrieval.veritrail.process import Process
    from gnomon.retrieval.veritrail.sentences import SentenceIndex
    from gnomon.retrieval.veritrail.trail import Trail

app = typer.Typer(help="Which step of a process invented a sentence?", no_args_is_help=True)


class FormatName(StrEnum):
    """Formats of traces."""

    AUTO = "auto"
    JSON = "json"
    GRAPHRAG = "graphrag"
    LANGCHAIN = "langchain"
    OTEL = "otel"


class JudgeName(StrEnum):
    """Who rules on the claims."""

    OFFLINE = "offline"
    CHAT = "chat"
    LOCAL = "local"
    NLI = "nli"


class VerdictName(StrEnum):
    """Verdicts on claims."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"


Trace = Annotated[Path, typer.Argument(help="A trace: a file, or the output folder of GraphRAG.")]
TraceFormat = Annotated[FormatName, typer.Option("--format", help="Format of the trace.")]
Question = Annotated[str, typer.Option(help="What the user had asked for.")]
TraceId = Annotated[str, typer.Option("--trace", help="Id of the trace, where the file holds several.")]
Terminal = Annotated[str, typer.Option(help="Id of the call that wrote the final text; default: the last one.")]
Answer = Annotated[Path | None, typer.Option(help="File with the final text; GraphRAG's folder does not hold it.")]
Reports = Annotated[str, typer.Option(help="GraphRAG: numbers of the reports the answer was given, by commas.")]


@app.callback()
def veritrail() -> None:
    """Which step of a process invented a sentence?"""


@app.command()
def check(
    trace: Trace,
    format: TraceFormat = FormatName.AUTO,
    question: Question = "",
    trace_id: TraceId = "",
    terminal: Terminal = "",
    answer: Answer = None,
    reports: Reports = "",
    judge: Annotated[JudgeName, typer.Option(help="Who rules: rules and vectors, or a model.")] = JudgeName.OFFLINE,
    base_url: Annotated[str, typer.Option(help="Chat server, up to and including /v1.")] = "",
    model: Annotated[str, typer.Option(help="The server's name of the model; a local model's name or folder.")] = "",
    claims: Annotated[
        Path | None, typer.Option(help="File with one claim a line, in place of those of the final text.")
    ] = None,
    q: Annotated[int, typer.Option("--q", min=0, help="Steps in a row without support that end a walk; 0: none.")] = 3,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Calls to the server that may be made.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="What they may cost; needs --prices.")] = None,
    prices: Annotated[
        str | None, typer.Option(metavar="IN,OUT", help="What the server charges for a million tokens read, written.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Calls in flight.")] = 8,
    judge_check: Annotated[bool, typer.Option(help="Put the judge to the test on 60 generated pairs.")] = True,
    out: Annotated[Path, typer.Option(help="Folder for trail.json, trail.html and process.json.")] = Path("veritrail"),
    fail_on: Annotated[
        list[VerdictName] | None, typer.Option(help="Exit 1 if a claim has this verdict; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the claims as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Check every claim of the final text: verdict, path to the sources, or the step where it entered."""
    from gnomon.retrieval.veritrail.console import Progress, claim_record, print_trail, problems
    from gnomon.retrieval.veritrail.sentences import SentenceIndex
    from gnomon.retrieval.veritrail.trail_file import write_trail
    from gnomon.retrieval.veritrail.verify import verify
    from gnomon.retrieval.veritrail.viewer import write_page

    process = _process(trace, format, question, trace_id, terminal, answer, reports)
    listed = _claims(claims)
    if judge is not JudgeName.CHAT and (max_calls, max_cost, prices) != (None, None, None):
        raise ValueError("--max-calls, --max-cost and --prices are for --judge chat; the others call no server")
    budget, charges = _limits(max_calls, max_cost, prices, out)
    chosen = _judge(judge, base_url, model, budget, charges, concurrency)
    index = SentenceIndex(process)
    progress = Progress(quiet=quiet)
    progress.say(f"{len(process.nodes)} texts in {process.last_stage} stages, {len(index)} sentences")
    if judge is JudgeName.CHAT:
        progress.say(_estimate(index, len(listed) if listed else None, model, judge_check))
    with progress:
        trail = verify(process, judge=chosen, claims=listed, q=q or None, index=index, on_progress=progress.claims)
    trouble = problems(trail)
    if judge_check and not trouble:
        trail = _checked(trail, chosen, progress)
    out.mkdir(parents=True, exist_ok=True)
    process.to_json(out / "process.json")
    write_trail(trail, out / "trail.json")
    cost = budget.spent()[1] if charges else None
    write_page(trail, process, out / "trail.html", cost=cost)
    if as_json:
        typer.echo(json.dumps([claim_record(claim) for claim in trail.claims], indent=1, ensure_ascii=False))
    else:
        print_trail(trail, out)
    if trouble:
        typer.echo(f"gnomon: {trouble}", err=True)
        raise typer.Exit(1)
    if bad := sorted({str(claim.verdict) for claim in trail.claims} & set(map(str, fail_on or ()))):
        typer.echo(f"gnomon: there are claims that are {' and '.join(bad)}", err=True)
        raise typer.Exit(1)


@app.command()
def convert(
    trace: Trace,
    out: Annotated[Path, typer.Option(help="JSON file to write.")],
    format: TraceFormat = FormatName.AUTO,
    question: Question = "",
    trace_id: TraceId = "",
    terminal: Terminal = "",
    answer: Answer = None,
    reports: Reports = "",
) -> None:
    """Write a trace as a process in plain JSON, to look at or to correct before it is checked."""
    process = _process(trace, format, question, trace_id, terminal, answer, reports)
    process.to_json(out)
    typer.echo(f"{process}: {out}")


@app.command()
def view(
    folder: Annotated[Path, typer.Argument(help="Folder that check wrote.")],
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Draw the page of a stored trail anew."""
    from gnomon.retrieval.veritrail.process import Process
    from gnomon.retrieval.veritrail.trail_file import read_trail
    from gnomon.retrieval.veritrail.viewer import write_page

    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    page = folder / "trail.html"
    write_page(read_trail(folder / "trail.json"), Process.from_json(folder / "process.json"), page)
    typer.echo(f"page: {page}")
    if open_page:
        webbrowser.open(page.resolve().as_uri())


def _process(
    trace: Path,
    format: FormatName,
    question: str,
    trace_id: str,
    terminal: str,
    answer: Path | None,
    reports: str,
) -> Process:
    from gnomon.retrieval.veritrail.loaders.detection import read_process

    if answer is not None and not answer.is_file():
        raise FileNotFoundError(f"no file {answer}")
    return read_process(
        trace,
        None if format is FormatName.AUTO else format.value,  # pyright: ignore[reportArgumentType]
        question=question,
        trace=trace_id,
        terminal=terminal,
        answer=answer.read_text(encoding="utf-8") if answer else "",
        reports=[number.strip() for number in reports.split(",") if number.strip()],
    )


def _claims(file: Path | None) -> list[str] | None:
    if file is None:
        return None
    if not file.is_file():
        raise FileNotFoundError(f"no file {file}")
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{file} holds no claims")
    return lines


def _limits(max_calls: int | None, max_cost: float | None, prices: str | None, out: Path) -> tuple[CallBudget, Any]:
    """The ledger of this folder, over all its runs, and the server's prices."""
    from gnomon.chats import RunChats
    from gnomon.models.call_cache import CallBudget, CallCache

    limits = RunChats.limited(max_calls, max_cost, prices)
    return CallBudget(CallCache.default().path, f"veritrail {out.resolve()}", max_calls, max_cost), limits.prices


def _judge(name: JudgeName, base_url: str, model: str, budget: CallBudget, prices: Any, concurrency: int) -> Judge:
    from gnomon.models.call_cache import CallCache

    if name is JudgeName.OFFLINE:
        from gnomon.retrieval.veritrail.judges.offline import OfflineJudge

        if base_url or model:
            raise ValueError("--base-url and --model are for --judge chat, local or nli; the offline judge uses none")
        return OfflineJudge()
    if not model:
        raise ValueError(f"--judge {name} needs --model")
    if name is JudgeName.CHAT:
        from gnomon.models.endpoint import EndpointChat
        from gnomon.retrieval.veritrail.judges.chat import ChatJudge

        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"--judge chat needs --base-url, such as http://127.0.0.1:8000/v1; got {base_url!r}")
        cache = CallCache.default()
        return ChatJudge(
            EndpointChat(model, base_url, cache=cache, budget=budget, prices=prices, concurrency=concurrency)
        )
    if base_url:
        raise ValueError(f"--base-url is for --judge chat; --judge {name} loads the model into this process")
    if name is JudgeName.NLI:
        from gnomon.retrieval.veritrail.judges.nli import NliJudge

        return NliJudge(model)
    from gnomon.models.local_chat import LocalChat
    from gnomon.retrieval.veritrail.judges.local import LocalJudge

    return LocalJudge(LocalChat.named(model, cache=CallCache.default()))


def _estimate(index: SentenceIndex, claims: int | None, model: str, judge_check: bool) -> str:
    """What a chat judge may cost at most; before extraction every sentence counts as one claim."""
    from gnomon.retrieval.veritrail.check import PAIRS
    from gnomon.retrieval.veritrail.claimify import PROMPTS, SAMPLES
    from gnomon.retrieval.veritrail.estimate import estimate
    from gnomon.retrieval.veritrail.prompts import prompt
    from gnomon.retrieval.veritrail.reading import sentence_tokens, token_count

    sentences = index.of(index.process.terminal)
    size = {name: token_count(prompt(name).text) for name in (*PROMPTS, "evidence", "verdict")}
    window = max((sum(map(sentence_tokens, sentences[n : n + 11])) for n in range(len(sentences))), default=0)
    count = claims if claims is not None else len(sentences)
    walk = estimate(index.process, count, index=index)
    extraction = 0 if claims is not None else len(sentences) * (2 * SAMPLES + 1)
    pairs = PAIRS if judge_check else 0
    calls = walk.calls + extraction + count + pairs
    tokens = walk.tokens + walk.calls * max(size["evidence"], size["verdict"]) + pairs * (size["verdict"] + 100)
    tokens += (extraction + count) * (max(size[name] for name in PROMPTS) + window)
    known = f"{count} claims" if claims is not None else f"one claim in each of {count} sentences"
    return f"{model}: at most {calls:,} calls that read {tokens:,} tokens ({known}, {walk.steps} steps each)"


def _checked(trail: Trail, judge: Judge, progress: Progress) -> Trail:
    """The trail with the result of the judge check."""
    from gnomon.retrieval.veritrail.check import judge_check

    found = judge_check(judge)
    silent = f", {found.missing} without an answer" if found.missing else ""
    progress.say(f"judge check: AUROC {found.auroc} on {found.pairs} pairs{silent}")
    if not found.valid:
        typer.echo(f"gnomon: the judge is not validated: it failed the judge check{silent}", err=True)
    return dataclasses.replace(trail, check=found.summary())
