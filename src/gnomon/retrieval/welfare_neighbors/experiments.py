"""The study's two collections: sentences about invented events, and points of a Gaussian mixture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from gnomon.data.fact_world import FactWorld
from gnomon.models.embeddings import Encoder, embed
from gnomon.retrieval.welfare_neighbors.indexes import BruteIndex
from gnomon.retrieval.welfare_neighbors.sweeps import Pools

KINDS = 20
"""Attributes of a mixture."""


@dataclass(frozen=True)
class Sentences:
    """A world of sentences with its queries.

    Args:
        table: One row a sentence: text, city, family, organisation, decade.
        queries: One row a query: text, family, search, kind (``broad`` or ``specific``), city (empty if broad).
        vectors: Of the sentences.
        query_vectors: Of the queries.
        encoder: What made the vectors.
    """

    table: pd.DataFrame
    queries: pd.DataFrame
    vectors: Float[np.ndarray, "sentence d"]
    query_vectors: Float[np.ndarray, "query d"]
    encoder: str


def sentence_world(count: int, seed: int, cities: int, encoder: Encoder = "auto") -> Sentences:
    """Sentences of the evaluation half of the fact world, and searches with and without a city.

    Every search of every family is asked once without a city (broad) and once for each of some cities (specific).

    Args:
        count: Sentences.
        seed: Of the facts, their paraphrases and the cities asked for.
        cities: Cities asked for with each search.
        encoder: See :func:`~gnomon.models.embeddings.embed`.
    """
    world = FactWorld("evaluation", seed=seed)
    rng = np.random.default_rng((seed, 1))
    facts = world.facts(count)
    rows = [
        {
            "text": fact.sentence(int(rng.integers(4))),
            "city": fact.city,
            "family": fact.family.name,
            "organisation": fact.organisation,
            "decade": fact.decade,
        }
        for fact in facts
    ]
    asked = []
    for family in world.families:
        for number, search in enumerate(family.searches):
            named = rng.choice(world.cities, cities, replace=False)
            for city in ("", *named):
                kind = "specific" if city else "broad"
                text = f"{search} in {city}" if city else search
                asked.append({"text": text, "family": family.name, "search": number, "kind": kind, "city": str(city)})
    table, queries = pd.DataFrame(rows), pd.DataFrame(asked)
    made = embed([*table["text"], *queries["text"]], encoder=encoder)
    return Sentences(table, queries, made.vectors[:count], made.vectors[count:], made.encoder)


def sentence_pools(
    table: pd.DataFrame,
    queries: pd.DataFrame,
    vectors: Float[np.ndarray, "sentence d"],
    query_vectors: Float[np.ndarray, "query d"],
    size: int,
    rng: np.random.Generator,
) -> Pools:
    """The ``size`` sentences nearest to each query; the attribute is the city."""
    names = sorted(set(table["city"]))
    codes = table["city"].map(names.index).to_numpy()
    wanted = queries["city"].map(lambda city: names.index(city) if city in names else -1).to_numpy()
    return _pools(vectors, query_vectors, codes, size, len(names), wanted, rng)


def mixture(
    kind: str, n: int, centres: int, dimension: int, queries: int, size: int, rng: np.random.Generator
) -> Pools:
    """Pools from a Gaussian mixture with Zipf weights, queries being further draws from it.

    Args:
        kind: ``clusters``: attributes are 20 k-means clusters, so that they go with the place; ``skewed``: with
            probability .9 one of three, else one of the other seventeen, wherever the point is.
        n: Points.
        centres: Components.
        dimension: Of the points.
        queries: Queries.
        size: Candidates a query.
        rng: Source of randomness.

    Raises:
        ValueError: If the kind is neither.
    """
    means = rng.normal(size=(centres, dimension))
    weight = 1.0 / np.arange(1, centres + 1)
    component = rng.choice(centres, n + queries, p=weight / weight.sum())
    points = means[component] + 0.7 * rng.normal(size=(n + queries, dimension))
    collection, asked = points[:n], points[n:]
    if kind == "clusters":
        from sklearn.cluster import KMeans

        codes = KMeans(KINDS, n_init=1, max_iter=50, random_state=0).fit_predict(collection)  # pyright: ignore
    elif kind == "skewed":
        common = rng.random(n) < 0.9
        codes = np.where(common, rng.integers(0, 3, n), rng.integers(3, KINDS, n))
    else:
        raise ValueError(f"kind must be 'clusters' or 'skewed', got {kind!r}")
    return _pools(collection, asked, codes, size, KINDS, np.full(queries, -1), rng)


def _pools(
    vectors: Float[np.ndarray, "vector d"],
    queries: Float[np.ndarray, "query d"],
    codes: Int[np.ndarray, " vector"],
    size: int,
    count: int,
    wanted: Int[np.ndarray, " query"],
    rng: np.random.Generator,
) -> Pools:
    similarity, ids = BruteIndex(vectors).search(queries, size)
    shuffled = rng.permutation(codes)
    # Cosines of a mixture may be negative; relevance ratios and raw utilities need them as they are, above 0.
    return Pools(similarity, codes[ids], shuffled[ids], vectors[ids], count, wanted)
