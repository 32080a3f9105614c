"""What choosing by welfare costs on top of the search: beside the search itself, and beside pyversity's re-rankers."""

from __future__ import annotations

import time
from collections.abc import Callable

import faiss
import hnswlib
import numpy as np
import pyversity

from gnomon.retrieval.welfare_neighbors import WelfareNeighbors, from_faiss, select

VECTORS, DIMENSION, ATTRIBUTES, QUERIES = 100_000, 128, 50, 256
POOL, RESULTS, EXPLORED = 200, 10, 300
PEER_QUERIES = 64


def run() -> dict:
    """Milliseconds a query of every part, the ratio to MMR, and the three bars that are met or not."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(VECTORS, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[:QUERIES] + 0.05 * rng.normal(size=(QUERIES, DIMENSION)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    codes = rng.integers(0, ATTRIBUTES, VECTORS)
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(DIMENSION)
    flat.add(vectors)  # pyright: ignore
    graph = hnswlib.Index(space="ip", dim=DIMENSION)
    graph.init_index(max_elements=VECTORS, ef_construction=100, M=16, random_seed=0)
    graph.set_num_threads(2)
    graph.add_items(vectors)
    graph.set_num_threads(1)
    graph.set_ef(EXPLORED)

    similarity, ids = flat.search(queries, POOL)  # pyright: ignore
    attributes = codes[ids]
    times = {
        "graph_fetch": _each(lambda: graph.knn_query(queries, k=POOL), QUERIES),
        "graph_top_k": _each(lambda: graph.knn_query(queries, k=RESULTS), QUERIES),
        "flat_fetch": _each(lambda: flat.search(queries, POOL), QUERIES),  # pyright: ignore
        "flat_top_k": _each(lambda: flat.search(queries, RESULTS), QUERIES),  # pyright: ignore
        "select_batch": _each(lambda: select(similarity, attributes, RESULTS), QUERIES),
        "select_single": _each(
            lambda: [select(similarity[row], attributes[row], RESULTS) for row in range(PEER_QUERIES)], PEER_QUERIES
        ),
    }
    pools = [vectors[ids[row]] for row in range(PEER_QUERIES)]  # fetched beforehand: only re-ranking is timed
    for name, rank in (("mmr", pyversity.mmr), ("dpp", pyversity.dpp)):
        times[name] = _each(
            lambda rank=rank: [rank(pools[row], similarity[row], k=RESULTS) for row in range(PEER_QUERIES)],
            PEER_QUERIES,
        )
    whole = WelfareNeighbors(RESULTS, index=from_faiss(flat), pool_size=POOL, expand="never").fit(vectors, codes)
    times["end_to_end"] = _each(lambda: whole.kneighbors(queries), QUERIES)
    return {
        "name": "welfare_neighbors",
        "ours": times["select_batch"],
        "peer": times["mmr"],
        "ratio": times["select_batch"] / times["mmr"],
        "unit": f"ms a query, one thread; peer: pyversity MMR; pool {POOL}, k={RESULTS}, d={DIMENSION}",
        **{f"{name}_ms": value for name, value in times.items()},
        "select_of_graph_fetch": times["select_batch"] / times["graph_fetch"],
        "single_select_of_flat_fetch": times["select_single"] / times["flat_fetch"],
        "end_to_end_of_flat_top_k": times["end_to_end"] / times["flat_top_k"],
        "mmr_over_batch": times["mmr"] / times["select_batch"],
        "mmr_over_single": times["mmr"] / times["select_single"],
        "bars": "select <= .10 of the fetch; single <= .10 of the flat fetch; end to end <= 1.5; mmr >= 7 and 1.5",
    }


def _each(work: Callable[[], object], queries: int, *, repeats: int = 5) -> float:
    """Milliseconds a query of the fastest repeat."""
    best = np.inf
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return 1e3 * best / queries
