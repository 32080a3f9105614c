import hashlib
from collections import Counter
from importlib import resources

import numpy as np
import pytest

from gnomon.data import corpora
from gnomon.data.corpora import prose, text_file
from gnomon.data.documents import SPLITS


def test_prose_is_the_frozen_text():
    corpus = prose()
    assert corpus.sha256 == corpora.PROSE_SHA256
    assert len(corpus.documents) == 40
    assert 11_000 < corpus.words < 13_500
    assert min(Counter(document.kind for document in corpus.documents).values()) >= 1
    assert all(document.title and "\n" not in document.title for document in corpus.documents)
    assert all(len(document.text.split()) > 150 for document in corpus.documents)


def test_changed_prose_is_noticed(monkeypatch):
    monkeypatch.setattr(corpora, "PROSE_SHA256", hashlib.sha256(b"another text").hexdigest())
    with pytest.raises(ValueError, match="was changed; reinstall gnomon"):
        prose.__wrapped__()


def test_splits_are_disjoint_and_of_similar_size_and_kind():
    corpus = prose()
    parts = [corpus.part(split) for split in SPLITS]
    titles = [document.title for part in parts for document in part.documents]
    assert sorted(titles) == sorted(document.title for document in corpus.documents)
    assert len(set(titles)) == len(titles)
    for part in parts:
        assert part.words == pytest.approx(corpus.words / 3, rel=0.1)
        assert {"dialogue", "encyclopedia", "instructions", "narrative", "news"} <= {
            document.kind for document in part.documents
        }
    with pytest.raises(ValueError, match=r"^unknown split 'train'; use calibration, match, evaluation$"):
        corpus.part("train")  # pyright: ignore[reportArgumentType]


def test_prose_has_its_licence_beside_it():
    assert "CC0" in (resources.files("gnomon.data") / "prose" / "LICENSE").read_text()


def test_shuffling_moves_words_within_documents_only():
    corpus = prose()
    shuffled = corpus.shuffled_words(np.random.default_rng(0))
    assert shuffled.name == "prose, words shuffled"
    assert shuffled.texts == corpus.shuffled_words(np.random.default_rng(0)).texts
    for before, after in zip(corpus.documents, shuffled.documents, strict=True):
        assert Counter(before.text.split()) == Counter(after.text.split())
        assert before.text != after.text
        assert before.text.count("\n") == after.text.count("\n")
        assert (before.title, before.split) == (after.title, after.split)


def test_a_text_file_is_cut_between_paragraphs(tmp_path):
    paragraphs = [f"Paragraph {index}. " + "word " * 98 + "end." for index in range(10)]
    file = tmp_path / "essay.txt"
    file.write_bytes("\ufeff".encode() + "\r\n\r\n".join(paragraphs).encode())
    corpus = text_file(file)
    assert [document.title for document in corpus.documents] == [f"essay.txt, passage {i}" for i in (1, 2, 3)]
    assert "\n\n".join(corpus.texts).split() == " ".join(paragraphs).split()
    assert [document.split for document in corpus.documents] == list(SPLITS)
    assert [document.text.count("Paragraph") for document in corpus.documents] == [3, 3, 4]  # a short rest joins


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no text file .*essay.txt$"),
        (b"", "essay.txt is empty$"),
        (b" \n\n \t", "essay.txt is empty$"),
        (b"caf\xe9", r"essay.txt is not UTF-8 text \(byte 3\); save it as UTF-8$"),
    ],
)
def test_bad_text_files_are_one_line(content, message, tmp_path):
    file = tmp_path / "essay.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        text_file(file)
