"""``gnomon welfare-neighbors``: diverse neighbours in your own vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="Neighbours that are similar and spread over attributes.", no_args_is_help=True)

Vectors = Annotated[Path, typer.Option(help="Vectors (n, d), saved with numpy.save.")]
Table = Annotated[Path, typer.Option(help="CSV file with one row a vector; its columns are classes of attributes.")]
Queries = Annotated[Path, typer.Option(help="Queries (m, d), saved with numpy.save.")]
Columns = Annotated[str, typer.Option(help="Columns to use, separated by commas; default: all.")]
Results = Annotated[int, typer.Option("-k", help="Results a query.", min=1)]
Metric = Annotated[str, typer.Option(help="cosine, ip or l2.")]
Kind = Annotated[str, typer.Option(help="brute, faiss, hnswlib or usearch.")]
Exponent = Annotated[float, typer.Option("-p", help="1 is plain top-k, 0 Nash welfare, below 0 the worst-off first.")]
Smoothing = Annotated[float, typer.Option(help="Larger is nearer to top-k.")]
PoolSize = Annotated[int, typer.Option(help="Candidates fetched a query; 0: 20 k, at least 200.", min=0)]
Json = Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")]


@app.callback()
def welfare_neighbors() -> None:
    """Neighbours that are similar and spread over attributes."""


@app.command()
def search(
    vectors: Vectors,
    attributes: Table,
    queries: Queries,
    k: Results = 10,
    columns: Columns = "",
    p: Exponent = 0.0,
    gamma: Smoothing = 0.1,
    metric: Metric = "cosine",
    index: Kind = "brute",
    pool: PoolSize = 0,
    output: Annotated[
        Path | None, typer.Option(help="Write the table to this CSV file in place of printing it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the k neighbours of every query with similarity, rank by similarity alone, gain and attributes."""
    import pandas as pd

    from gnomon.retrieval.welfare_neighbors import WelfareNeighbors

    collection, asked, labels = _array(vectors), _array(queries), _labels(attributes, columns)
    found = WelfareNeighbors(k, p=p, gamma=gamma, metric=metric, index=index, pool_size=pool or "auto")  # pyright: ignore
    similarity, ids, details = found.fit(collection, labels).kneighbors(asked, return_details=True)
    rows = [
        {
            "query": query,
            "place": place,
            "id": int(row),
            "similarity": float(similarity[query, place]),
            "rank_before": int(details.rank[query, place]),
            "gain": float(details.gains[query, place]),
            **labels.iloc[int(row)].to_dict(),
        }
        for query, chosen in enumerate(ids)
        for place, row in enumerate(chosen)
        if row >= 0
    ]
    table = pd.DataFrame(rows)
    certified = float(details.certified.mean())
    if output is not None:
        table.to_csv(output, index=False)
    if as_json:
        typer.echo(json.dumps({"certified": certified, "results": rows}, default=str))
        return
    if output is None:
        typer.echo(table.to_string(index=False, float_format="{:.4g}".format))
    typer.echo(f"\n{certified:.0%} of {len(ids)} answers are certified: no vector beyond the pool could change them")


@app.command()
def diversity(
    vectors: Vectors,
    attributes: Table,
    queries: Queries,
    k: Results = 10,
    columns: Columns = "",
    p: Exponent = 0.0,
    gamma: Smoothing = 0.1,
    limit: Annotated[int, typer.Option(help="Results the quota allows an attribute.", min=1)] = 2,
    metric: Metric = "cosine",
    index: Kind = "brute",
    pool: PoolSize = 0,
    seed: Annotated[int, typer.Option(help="Of random swaps and shuffled labels.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Compare welfare with top-k, a quota, and two controls on your queries; every column is diversified by itself."""
    from gnomon.retrieval.welfare_neighbors import diversity_report
    from gnomon.retrieval.welfare_neighbors.indexes import build_index

    collection, asked, labels = _array(vectors), _array(queries), _labels(attributes, columns)
    if len(labels) != len(collection):
        raise ValueError(f"{attributes} has {len(labels)} rows, {vectors} has {len(collection)} vectors")
    built = build_index(index, collection, metric, seed)  # pyright: ignore
    size = min(pool or max(200, 20 * k), len(collection))
    report = diversity_report(built, asked, labels, k=k, pool_size=size, limit=limit, p=p, gamma=gamma, seed=seed)
    if as_json:
        tables = {
            name: getattr(report, name).to_dict("records") for name in ("summary", "difference", "exposure", "gini")
        }
        typer.echo(json.dumps({"certified": report.certified, "pool_size": report.pool_size, **tables}))
        return
    for name in report.certified:
        typer.echo(f"\n{name}: mean over {len(asked)} queries [95 %], k={k}, {report.pool_size} candidates")
        rows = report.summary[report.summary["attribute_class"] == name]
        numbers = zip(rows["value"], rows["low"], rows["high"], strict=True)
        shown = rows.assign(text=[f"{value:.3f} [{low:.3f}, {high:.3f}]" for value, low, high in numbers])
        wide = shown.pivot_table(index="method", columns="reading", values="text", aggfunc="first")
        readings = ["relevance_ratio", "entropy_bits", "distinct", "largest_share"]
        typer.echo(wide.loc[list(dict.fromkeys(rows["method"])), readings].to_string())
        typer.echo(f"certified: {report.certified[name]:.0%} of the welfare answers")


def _array(file: Path) -> Any:
    import numpy as np

    if not file.is_file():
        raise FileNotFoundError(f"no file {file}")
    array = np.load(file, allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(f"{file} must hold a matrix of numbers (n, d), got {array.dtype} of shape {array.shape}")
    return array.astype(np.float32)


def _labels(file: Path, columns: str) -> Any:
    import pandas as pd

    if not file.is_file():
        raise FileNotFoundError(f"no file {file}")
    table = pd.read_csv(file)
    wanted = [name.strip() for name in columns.split(",") if name.strip()]
    if missing := [name for name in wanted if name not in table]:
        raise ValueError(f"{file} has no column {', '.join(missing)}; it has {', '.join(table)}")
    return table[wanted] if wanted else table
