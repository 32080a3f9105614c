"""``gnomon rope-heads scores``: label the heads of your own model on your own text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

    from gnomon.mechanisms.rope_heads.profile import HeadProfile

CONTROL = "random-init"
SHOWN = 8

app = typer.Typer(help="Which attention heads look at where, and which at what.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Which attention heads look at where, and which at what."""


@app.command()
def scores(
    text: Annotated[Path, typer.Option(help="Plain text, UTF-8; it is cut into prompts.")],
    model: Annotated[str, typer.Option(help="Hub id, folder, GGUF file, or smollm2.")] = "smollm2",
    out: Annotated[Path, typer.Option(help="Folder for heads.csv, heads.png and heads.svg.")] = Path("rope-heads"),
    length: Annotated[int, typer.Option(min=8, help="Tokens a prompt.")] = 128,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts at most.")] = 32,
    queries: Annotated[int, typer.Option(min=1, help="Queries a prompt.")] = 4,
) -> None:
    """Score every head of a model with rotary embeddings and draw the map of heads."""
    import pandas as pd

    from gnomon.data.corpora import text_file
    from gnomon.mechanisms.rope_heads.figures import balance_map
    from gnomon.mechanisms.rope_heads.profile import HeadProfiler
    from gnomon.mechanisms.rope_heads.prompts import windows
    from gnomon.models.load import load
    from gnomon.models.randomize import randomize
    from gnomon.report.figures import figure

    corpus = text_file(text)
    loaded = load(model)
    cut = windows(loaded, corpus.texts, length=length)[:prompts]

    def profile_of(network: Any) -> HeadProfile:
        profiler = HeadProfiler(network, loaded.tokenizer, queries_per_prompt=queries, max_length=length)
        return profiler.profile_tokens(cut)

    profile = profile_of(loaded.model)
    control = profile_of(randomize(loaded.model, CONTROL, seed=0))
    table = pd.concat([profile.scores.assign(arm="treatment"), control.scores.assign(arm=CONTROL)], ignore_index=True)
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "heads.csv", index=False)
    figure("heads", balance_map(table)).save(out)
    _print(profile.scores)
    typer.echo(
        f"{len(profile.scores)} heads, {profile.prompts} prompts of {length} tokens, attention pattern rebuilt to "
        f"{profile.capture_error:.0e}\n"
        f"balance of heads, 10 % to 90 %: {_range(profile)}; {CONTROL} copy: {_range(control)}\n"
        f"written to {out}: heads.csv, heads.png, heads.svg"
    )


def _range(profile: HeadProfile) -> str:
    low, high = profile.scores["balance"].quantile([0.1, 0.9])
    return f"{low:.2f} to {high:.2f}"


def _print(scores: pd.DataFrame) -> None:
    """Counts of labels, and the most positional and most symbolic heads."""
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    counts = scores["label"].value_counts()
    typer.echo(", ".join(f"{count} {label}" for label, count in counts.items()))
    ranked = scores.sort_values("balance", ascending=False)
    shown = pd.concat([ranked.head(SHOWN), ranked.tail(SHOWN)]) if len(ranked) > 2 * SHOWN else ranked
    table = Table("head", "label", "balance", "positional", "symbolic", "95 % of difference", "high-frequency energy")
    for row in shown.to_dict("records"):
        table.add_row(
            f"{row['layer']}.{row['head']}",
            row["label"],
            f"{row['balance']:.2f}",
            f"{row['positional']:.2f}",
            f"{row['symbolic']:.2f}",
            f"{row['lo']:+.2f} to {row['hi']:+.2f}",
            f"{row['high']:.0%}",
        )
    Console().print(table)
