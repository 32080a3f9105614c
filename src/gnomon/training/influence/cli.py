"""``gnomon influence rank``: which examples moved the model, from a record or from a finished run's checkpoints."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from gnomon.training.influence.result import InfluenceResult

SHOWN = 10

app = typer.Typer(help="Which training examples mattered, with their null.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Which training examples mattered, with their null."""


@app.command()
def rank(
    source: Annotated[
        Path, typer.Argument(metavar="RUN_OR_RECORD", help="A recorder's folder, or a Trainer's output folder.")
    ],
    target: Annotated[
        str,
        typer.Option(help="For a run: JSON lines with the query. For a record: the recorded query's name."),
    ] = "",
    top: Annotated[int, typer.Option(min=1, help="Examples to list at each end.")] = 50,
    data: Annotated[
        Path | None, typer.Option(help="Training examples, JSON lines; by default RUN_OR_RECORD/train.jsonl.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for top.csv, scores.parquet and summary.json.")] = Path("influence"),
    estimator: Annotated[str, typer.Option(help="exact, rank, unequal, steps or max-threshold.")] = "exact",
    blocks: Annotated[int, typer.Option(min=0, help="For a run: last blocks whose parameters enter; 0 for all.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=4, help="For a run: longest example.")] = 128,
) -> None:
    """List the examples that helped and hurt a query most, with p-values against the bulk and null quantiles."""
    import pandas as pd

    from gnomon.training.influence.estimators import ESTIMATORS

    if estimator not in ESTIMATORS:
        raise ValueError(f"unknown estimator {estimator!r}; known: {', '.join(ESTIMATORS)}")
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is not a folder")
    texts = data or source / "train.jsonl"
    if (source / "record.json").is_file():
        result = _from_record(source, target, estimator)
    else:
        result = _from_run(source, target, texts, estimator, blocks=blocks, max_tokens=max_tokens)
    count = min(top, len(result.scores) // 2)
    listed = pd.concat([result.top(count), result.top(count, sign=-1).iloc[::-1]])
    listed.insert(1, "null_quantile", _null_quantiles(listed["z_null"].to_numpy()))
    if data is not None or texts.is_file():
        listed.insert(2, "text", _texts(texts, listed["index"].to_numpy()))
    null = result.group(result.top(count)["index"])
    summary = {
        **asdict(result.summary()),
        "top_group": {"size": null.size, "mu_run": null.mu_run, "p": null.p, "random_groups": list(null.null)},
    }
    out.mkdir(parents=True, exist_ok=True)
    listed.to_csv(out / "top.csv", index=False)
    result.to_parquet(out / "scores.parquet")
    (out / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    _print(listed, count)
    facts = result.summary()
    typer.echo(
        f"{facts.examples} examples, query {facts.query!r}, {facts.steps_an_example:g} steps an example; {facts.sign}\n"
        f"distinct scores {facts.distinct:.0%}, agreement of odd and even steps {facts.reliability:.2f}, "
        f"correlation of size with mean loss {facts.with_loss:.2f}\n"
        f"the {count} most helpful together: mu_run {null.mu_run:.2f}, random groups {null.null[0]:.2f} to "
        f"{null.null[2]:.2f}, p {null.p:.3f}\n"
        f"written to {out}: top.csv, scores.parquet, summary.json"
    )


def _from_record(folder: Path, target: str, estimator: Any) -> InfluenceResult:
    from gnomon.training.influence.record import Record
    from gnomon.training.influence.result import InfluenceResult

    record = Record.open(folder)
    if target and target not in record.setting.queries:
        raise ValueError(
            f"{folder} is a record: its inner products are with {', '.join(record.setting.queries)}, not with "
            f"{target!r}; a new query needs the run's checkpoints"
        )
    return InfluenceResult(record, query=target or None, estimator=estimator)


def _from_run(
    folder: Path, target: str, data: Path, estimator: Any, *, blocks: int, max_tokens: int
) -> InfluenceResult:
    import copy

    from gnomon.models.load import load
    from gnomon.training.influence.checkpoints import observe_checkpoints, trainer_batch_size, trainer_checkpoints
    from gnomon.training.influence.instructions import encode_answers, read_instructions
    from gnomon.training.influence.recorder import FInfluence

    checkpoints = trainer_checkpoints(folder)
    if not target:
        raise ValueError("a run needs --target FILE: JSON lines with the query")
    train, query = read_instructions(data), read_instructions(target)
    loaded = load(checkpoints[-1].path)
    model = copy.deepcopy(loaded.model)
    if blocks:
        model.requires_grad_(False)
        for block in list(model.get_submodule("model.layers").children())[-blocks:]:
            block.requires_grad_(True)

    def encoded(examples: list[Any]) -> dict[str, Any]:
        rows = [(one.prompt, one.answer) for one in examples]
        return encode_answers(loaded.tokenizer, rows, start=loaded.provenance.start_id, max_tokens=max_tokens)

    recorder = FInfluence(
        model,
        query=encoded(query),
        pool=(encoded(train), [one.index for one in train]),
        batch_size=trainer_batch_size(folder),
        method="ghost",
        chunk=16,
    )
    observe_checkpoints(recorder, checkpoints)
    return recorder.finalize(steps=checkpoints[-1].step, estimator=estimator)


def _null_quantiles(z: np.ndarray) -> np.ndarray:
    """Where each example stands in a normal bulk: .5 in the middle."""
    from scipy.special import ndtr

    return ndtr(z)


def _texts(path: Path, index: np.ndarray) -> list[str]:
    from gnomon.training.influence.instructions import read_instructions

    words = {one.index: one.text for one in read_instructions(path)}
    return [words.get(int(one), "") for one in index]


def _print(listed: pd.DataFrame, count: int) -> None:
    """The ends of the ranking."""
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    shown = min(count, SHOWN)
    ends = pd.concat([listed.head(shown), listed.tail(shown)])
    table = Table("id", "mu_run", "se", "null quantile", "q", "steps", "mean loss", "text")
    for row in ends.to_dict("records"):
        table.add_row(
            str(row["index"]),
            f"{row['mu_run']:+.3f}",
            f"{row['se']:.3f}",
            f"{row['null_quantile']:.4f}",
            f"{row['q']:.2g}",
            str(row["n_obs"]),
            f"{row['mean_loss']:.3f}",
            str(row.get("text", ""))[:60],
        )
    Console().print(table)
