"""The verbs, on the command line."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gnomon.retrieval.welfare_neighbors.cli import app

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 300)
    vectors = rng.normal(size=(4, 8))[codes] * 0.5 + rng.normal(size=(300, 8))
    np.save(folder / "X.npy", vectors)
    np.save(folder / "Q.npy", vectors[:6] + 0.1)
    pd.DataFrame({"seller": [f"s{code}" for code in codes], "year": 2000 + codes}).to_csv(folder / "A.csv", index=False)
    return folder


def run(verb, files, *options):
    names = ("--vectors", "X.npy"), ("--attributes", "A.csv"), ("--queries", "Q.npy")
    return CliRunner().invoke(app, [verb, *(str(x) for o, f in names for x in (o, files / f)), *options])


def test_search_prints_and_writes(files, tmp_path):
    result = run("search", files, "-k", "5", "--columns", "seller")
    assert result.exit_code == 0, result.output
    assert "rank_before" in result.output
    assert "answers are certified" in result.output
    out = tmp_path / "found.csv"
    assert run("search", files, "-k", "5", "--index", "hnswlib", "--output", str(out)).exit_code == 0
    written = pd.read_csv(out)
    assert len(written) == 30
    assert set(written) == {"query", "place", "id", "similarity", "rank_before", "gain", "seller", "year"}


def test_search_as_json_at_p_one_is_top_k(files):
    found = json.loads(run("search", files, "-k", "4", "-p", "1", "--json").output)
    assert [row["rank_before"] for row in found["results"][:4]] == [0, 1, 2, 3]
    assert found["certified"] == 1.0


def test_diversity_compares_methods_for_every_column(files):
    result = run("diversity", files, "-k", "6")
    assert result.exit_code == 0, result.output
    for word in ("seller", "year", "top-k", "nash", "matched-random-swap", "shuffled-attributes", "certified"):
        assert word in result.output
    report = json.loads(run("diversity", files, "-k", "6", "--columns", "seller", "--json").output)
    assert set(report) == {"certified", "pool_size", "summary", "difference", "exposure", "gini"}


@pytest.mark.parametrize(
    ("verb", "options", "error", "message"),
    [
        ("search", ["--columns", "colour"], ValueError, "has no column colour; it has seller, year"),
        ("search", ["-p", "2"], ValueError, "p must be <= 1"),
        ("search", ["--vectors", "absent.npy"], FileNotFoundError, "no file absent.npy"),
        ("diversity", ["--index", "annoy"], ValueError, "index must be"),
    ],
)
def test_errors_are_one_clear_line(files, verb, options, error, message):
    result = run(verb, files, *options)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
