"""Which k vectors serve a query best, when best means similar *and* spread over attributes, and what does it cost?

Each attribute (a seller, a city, a source document) is taken for a party with utility: the summed similarity of the
results that carry it. The answer maximises a p-mean of these utilities. One exponent runs from plain top-k (p = 1) over
Nash welfare (p = 0) to the worst-off first, and a query that asks for one attribute keeps it.

    >>> import numpy as np
    >>> from gnomon.retrieval.welfare_neighbors import WelfareNeighbors
    >>> vectors = np.random.default_rng(0).normal(size=(500, 16))
    >>> sellers = np.arange(500) % 7
    >>> neighbours = WelfareNeighbors(n_neighbors=5).fit(vectors, sellers)
    >>> similarity, indices = neighbours.kneighbors(vectors[:2])

Paper: Barman, Das, Gupta & Shiragur, "Welfarist Formulations for Diverse Similarity Search" (ICLR 2026),
arXiv 2602.08742.
"""

from gnomon.retrieval.welfare_neighbors.attributes import Attributes, encode_attributes
from gnomon.retrieval.welfare_neighbors.baselines import dpp_map, matched_random_swap, mmr, quota, topk
from gnomon.retrieval.welfare_neighbors.diversity import DiversityReport, diversity_report
from gnomon.retrieval.welfare_neighbors.indexes import (
    BruteIndex,
    Index,
    from_callable,
    from_faiss,
    from_hnswlib,
    from_usearch,
)
from gnomon.retrieval.welfare_neighbors.neighbors import InsufficientCandidatesWarning, WelfareDetails, WelfareNeighbors
from gnomon.retrieval.welfare_neighbors.selection import Selection, select
from gnomon.retrieval.welfare_neighbors.welfare import welfare

__all__ = [
    "Attributes",
    "BruteIndex",
    "DiversityReport",
    "Index",
    "InsufficientCandidatesWarning",
    "Selection",
    "WelfareDetails",
    "WelfareNeighbors",
    "diversity_report",
    "dpp_map",
    "encode_attributes",
    "from_callable",
    "from_faiss",
    "from_hnswlib",
    "from_usearch",
    "matched_random_swap",
    "mmr",
    "quota",
    "select",
    "topk",
    "welfare",
]
