"""A LangChain retriever that spreads its documents over a metadata field (extra ``rag``)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gnomon.retrieval.welfare_neighbors.contrast import inverse_distance
from gnomon.retrieval.welfare_neighbors.reranking import label_columns, rerank

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
except ImportError as error:
    raise ImportError("langchain-core is not installed: pip install 'gnomon[rag]'") from error

from pydantic import Field


class WelfareRetriever(BaseRetriever):
    """Fetches a pool from a vector store and returns the k documents that serve the metadata values best.

    Every document comes with ``metadata["welfare"]``: gain, rank by similarity alone, and similarity.
    """

    vectorstore: VectorStore
    metadata_keys: list[str] = Field(min_length=1, description="Fields whose values are the attributes.")
    k: int = Field(default=4, ge=1)
    pool_size: int = Field(default=100, ge=1)
    p: float = Field(default=0.0, le=1)
    gamma: float = Field(default=0.1, gt=0)
    scores: Literal["relevance", "similarity", "cosine-distance", "l2-distance"] = Field(
        default="relevance",
        description="What the store's scores are: relevance in [0, 1], or, from similarity_search_with_score, "
        "a similarity or a distance. LangChain's stores differ, so it has to be said.",
    )

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:  # noqa: ARG002
        if self.pool_size < self.k:
            raise ValueError(f"pool_size must be at least k, got {self.pool_size} for {self.k}")
        found = self._pool(query)
        documents = [document for document, _ in found]
        labels = label_columns([document.metadata for document in documents], self.metadata_keys)
        similarity = _similarity(np.array([score for _, score in found], dtype=np.float64), self.scores)
        answer = rerank(similarity.tolist(), labels, self.k, p=self.p, gamma=self.gamma)
        return [
            documents[picked.position].model_copy(
                update={"metadata": {**documents[picked.position].metadata, "welfare": picked.note}}
            )
            for picked in answer.picked
        ]

    def _pool(self, query: str) -> list[tuple[Document, float]]:
        if self.scores != "relevance":
            return self.vectorstore.similarity_search_with_score(query, k=self.pool_size)
        try:
            return self.vectorstore.similarity_search_with_relevance_scores(query, k=self.pool_size)
        except NotImplementedError as error:
            raise ValueError(
                f"{type(self.vectorstore).__name__} has no relevance scores; say what its scores are: "
                "scores='similarity', 'cosine-distance' or 'l2-distance'"
            ) from error


def _similarity(scores: np.ndarray, kind: str) -> Any:
    if kind == "cosine-distance":
        return 1.0 - scores
    if kind == "l2-distance" and len(scores):
        return inverse_distance(scores[None])[0]
    return scores
