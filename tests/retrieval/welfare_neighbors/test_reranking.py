"""The adapters, each with its real library: LangChain's store and retriever, LlamaIndex's nodes."""

import numpy as np
import pandas as pd
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from gnomon.retrieval.welfare_neighbors.langchain import WelfareRetriever
from gnomon.retrieval.welfare_neighbors.llama_index import WelfareNodePostprocessor
from gnomon.retrieval.welfare_neighbors.reranking import rerank

SIMILARITY = [0.9, 0.89, 0.88, 0.87, 0.8, 0.3]
AUTHORS = ["ann", "ann", "ann", "ann", "bob", "cat"]


class Angles(Embeddings):
    """A text that is a number of degrees becomes the unit vector at that angle."""

    def embed_query(self, text: str) -> list[float]:
        angle = np.deg2rad(float(text))
        return [float(np.cos(angle)), float(np.sin(angle))]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class AnyScores(InMemoryVectorStore):
    """A store whose scores are distances, as those of many other stores are."""

    def similarity_search_with_score(self, query, k=4, **options):
        return [(doc, 1.0 - score) for doc, score in super().similarity_search_with_score(query, k, **options)]

    def _select_relevance_score_fn(self):
        return lambda distance: 1.0 - distance


def documents() -> list[Document]:
    return [
        Document(str(angle), metadata={"author": author})
        for angle, author in zip((1, 2, 3, 4, 8, 60), AUTHORS, strict=True)
    ]


def filled(store: type[InMemoryVectorStore]) -> InMemoryVectorStore:
    made = store(Angles())
    made.add_documents(documents())
    return made


def test_a_list_is_reranked_and_says_where_its_items_stood():
    answer = rerank(SIMILARITY, pd.DataFrame({"author": AUTHORS}), 3)
    assert [picked.rank_before for picked in answer.picked][:1] == [0]
    assert "bob" in [AUTHORS[picked.position] for picked in answer.picked]
    assert [picked.similarity for picked in answer.picked] == [SIMILARITY[p.position] for p in answer.picked]
    assert rerank([], pd.DataFrame({"author": []}), 3).picked == ()
    shuffled = rerank(SIMILARITY[::-1], pd.DataFrame({"author": AUTHORS[::-1]}), 3)
    assert [picked.rank_before for picked in shuffled.picked] == [picked.rank_before for picked in answer.picked]


@pytest.mark.parametrize(
    ("store", "scores"),
    [(InMemoryVectorStore, "similarity"), (AnyScores, "relevance"), (AnyScores, "cosine-distance")],
)
def test_langchain_retriever(store, scores):
    retriever = WelfareRetriever(vectorstore=filled(store), metadata_keys=["author"], k=3, scores=scores)
    found = retriever.invoke("0")
    assert len(found) == 3
    assert {document.metadata["author"] for document in found} >= {"ann", "bob"}
    assert found[0].metadata["welfare"]["rank_before"] == 0
    assert found[0].metadata["welfare"]["similarity"] == pytest.approx(np.cos(np.deg2rad(1)))
    plain = WelfareRetriever(vectorstore=filled(store), metadata_keys=["author"], k=3, p=1.0, scores=scores)
    assert [document.page_content for document in plain.invoke("0")] == ["1", "2", "3"]
    assert all("welfare" not in document.metadata for document in documents())


def test_langchain_errors():
    store = filled(InMemoryVectorStore)
    with pytest.raises(ValueError, match="InMemoryVectorStore has no relevance scores; say what its scores are"):
        WelfareRetriever(vectorstore=store, metadata_keys=["author"]).invoke("0")
    with pytest.raises(ValueError, match="no item has metadata 'writer'; there is author"):
        WelfareRetriever(vectorstore=store, metadata_keys=["writer"], scores="similarity").invoke("0")
    with pytest.raises(ValueError, match="pool_size must be at least k, got 2 for 4"):
        WelfareRetriever(vectorstore=store, metadata_keys=["author"], pool_size=2, scores="similarity").invoke("0")


def test_llama_index_postprocessor():
    nodes = [
        NodeWithScore(node=TextNode(text=author, metadata={"author": author}), score=score)
        for author, score in zip(AUTHORS, SIMILARITY, strict=True)
    ]
    kept = WelfareNodePostprocessor(metadata_keys=["author"], top_n=3).postprocess_nodes(nodes, QueryBundle("x"))
    assert len(kept) == 3
    assert "bob" in [node.node.metadata["author"] for node in kept]
    assert kept[0].score == 0.9
    assert kept[0].node.metadata["welfare"]["rank_before"] == 0
    assert "welfare" not in kept[0].node.get_content(metadata_mode="llm")  # pyright: ignore
    nodes[2].score = None
    with pytest.raises(ValueError, match="1 of 6 nodes have no score"):
        WelfareNodePostprocessor(metadata_keys=["author"]).postprocess_nodes(nodes)
