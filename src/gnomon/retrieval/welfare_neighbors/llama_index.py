"""A LlamaIndex postprocessor that spreads retrieved nodes over a metadata field (extra ``rag``)."""

from __future__ import annotations

from gnomon.retrieval.welfare_neighbors.reranking import label_columns, rerank

try:
    from llama_index.core.bridge.pydantic import Field
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import NodeWithScore, QueryBundle
except ImportError as error:
    raise ImportError("llama-index-core is not installed: pip install 'gnomon[rag]'") from error


class WelfareNodePostprocessor(BaseNodePostprocessor):
    """Keeps the ``top_n`` nodes that serve the metadata values best, in the order of choice.

    Let the retriever fetch many (``similarity_top_k=100``). Every node kept has ``metadata["welfare"]``: gain, rank by
    similarity alone, and similarity; its score is left as it was.
    """

    metadata_keys: list[str] = Field(min_length=1, description="Fields whose values are the attributes.")
    top_n: int = Field(default=5, ge=1)
    p: float = Field(default=0.0, le=1)
    gamma: float = Field(default=0.1, gt=0)

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises it."""
        return "WelfareNodePostprocessor"

    def _postprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,  # noqa: ARG002 - the scores hold what is to be known of the query
    ) -> list[NodeWithScore]:
        scores = [node.score for node in nodes if node.score is not None]
        if len(scores) < len(nodes):
            raise ValueError(
                f"{len(nodes) - len(scores)} of {len(nodes)} nodes have no score; welfare weighs similarity"
            )
        labels = label_columns([node.node.metadata for node in nodes], self.metadata_keys)
        kept = []
        for picked in rerank(scores, labels, self.top_n, p=self.p, gamma=self.gamma).picked:
            node = nodes[picked.position]
            node.node.metadata["welfare"] = picked.note
            # Numbers about the ranking are for the caller, neither for the language model nor for an embedding.
            node.node.excluded_llm_metadata_keys = [*node.node.excluded_llm_metadata_keys, "welfare"]
            node.node.excluded_embed_metadata_keys = [*node.node.excluded_embed_metadata_keys, "welfare"]
            kept.append(node)
        return kept
