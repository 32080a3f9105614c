"""``gnomon tutor-pupil``: where does your own fitted model need help?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

app = typer.Typer(help="Where a fitted model fails, by the smallest change to its inputs.", no_args_is_help=True)


@app.callback()
def tutor_pupil() -> None:
    """Where a fitted model fails, by the smallest change to its inputs."""


@app.command()
def diagnose(
    pupil: Annotated[Path, typer.Option(help="Fitted scikit-learn model or pipeline, saved with skops.io.dump.")],
    data: Annotated[Path, typer.Option(help="CSV file with the pupil's columns, the target, and any context columns.")],
    target: Annotated[str, typer.Option(help="Column the pupil should predict.")],
    correctable: Annotated[str, typer.Option(help="Columns that may move, separated by commas; default: all.")] = "",
    context: Annotated[str, typer.Option(help="Columns the tutor sees and the pupil does not take.")] = "",
    lam: Annotated[str, typer.Option(help="Penalty weight, or '1se' to choose it on validation rows.")] = "1se",
    held_out: Annotated[float, typer.Option(help="Share of rows the report is made on.", min=0.05, max=0.95)] = 0.4,
    steps: Annotated[int, typer.Option(help="Optimiser steps of each net.", min=1)] = 1500,
    nulls: Annotated[int, typer.Option(help="Refits under scattered errors.", min=1)] = 99,
    kind: Annotated[str, typer.Option(help="auto, exact, relaxed, black-box or surrogate.")] = "auto",
    formulas: Annotated[str, typer.Option(help="terms (library) or gplearn (evolved; an extra).")] = "terms",
    seed: Annotated[int, typer.Option(help="Of split, tutor and nulls.", min=0)] = 0,
    save_to: Annotated[Path | None, typer.Option("--save", help="Write the fitted tutor here (skops).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Fit a tutor for a saved pupil, test it against its nulls, and print where, how far and along what it fails."""
    import pandas as pd
    from sklearn.base import is_classifier
    from sklearn.model_selection import train_test_split

    from gnomon.learners.tutor_pupil import TutorPupilClassifier, TutorPupilRegressor, load, save
    from gnomon.learners.tutor_pupil import diagnose as diagnose_tutor
    from gnomon.learners.tutor_pupil.formulas import Search

    if formulas not in get_args(Search):
        raise ValueError(f"--formulas must be one of {', '.join(get_args(Search))}, got {formulas!r}")
    model = load(pupil)
    if not data.is_file():
        raise FileNotFoundError(f"no file {data}")
    table = pd.read_csv(data)
    hidden = _names(context)
    taken = _pupil_columns(model, table, target, hidden)
    columns = [*taken, *hidden]
    if missing := [name for name in [*columns, target] if name not in table]:
        raise ValueError(f"{data} has no column {', '.join(map(repr, missing))}")
    if texts := [name for name in columns if not pd.api.types.is_numeric_dtype(table[name])]:
        raise ValueError(f"columns must be numbers, {', '.join(map(repr, texts))} are not")
    classifies = is_classifier(model)
    x, y = table[columns].astype(float), table[target].to_numpy()
    fit_x, test_x, fit_y, test_y = train_test_split(
        x, y, test_size=held_out, random_state=seed, stratify=y if classifies else None
    )
    estimator: Any = TutorPupilClassifier if classifies else TutorPupilRegressor
    tutor = estimator(
        model,
        lam=lam if lam == "1se" else _number(lam),
        context=hidden or None,
        correctable=_names(correctable) or None,
        pupil_kind=kind,
        max_steps=steps,
        random_state=seed,
    ).fit(fit_x, fit_y)
    report = diagnose_tutor(tutor, test_x, test_y, n_null=nulls, formulas=cast(Search, formulas), random_state=seed)
    if save_to is not None:
        save(tutor, save_to)
    if as_json:
        typer.echo(json.dumps({"lambda": tutor.lambda_, **report.to_dict()}, default=float))
        return
    typer.echo(f"penalty {tutor.lambda_:g}, {len(fit_x)} rows to fit, {len(test_x)} held out")
    for name in ("scores", "detection", "regions", "features", "symbolic", "rows"):
        typer.echo(f"\n{name}\n{_shown(getattr(report, name).head(10), index=False)}")
    null = report.null.pivot_table(index="arm", values=["gain", "score_gain", "size", "auroc"])
    typer.echo(f"\nnulls\n{_shown(null)}")
    typer.echo(f"\n{report.reading}")
    for reason in report.reasons:
        typer.echo(f"  {reason}")


def _shown(table: Any, **options: Any) -> str:
    return table.to_string(float_format="{:.3g}".format, **options)


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--lam must be '1se' or a number > 0, got {text!r}") from None


def _pupil_columns(model: Any, table: Any, target: str, hidden: list[str]) -> list[str]:
    """The pupil's columns: by name if it was fitted with names, else all but target and context, in order."""
    if hasattr(model, "feature_names_in_"):
        return [str(name) for name in model.feature_names_in_]
    return [str(name) for name in table.columns if name != target and name not in hidden]
