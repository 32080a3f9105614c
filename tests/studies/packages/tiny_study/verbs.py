"""``gnomon tiny-walks VERB``: the method on one's own numbers."""

from typing import Annotated

import numpy as np
import typer

from tiny_study.summaries import slope

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def _tiny_walks():
    """Random walks of your own."""


@app.command()
def mean_step(positions: Annotated[list[float], typer.Argument(help="Where the walk was.")]):
    """Mean step of a walk."""
    if not np.isfinite(positions).all():
        raise ValueError(f"positions must be finite, got {positions}")
    typer.echo(slope(np.array(positions)))
