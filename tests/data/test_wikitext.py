import gzip
import os
import subprocess
import sys

import huggingface_hub.constants
import pandas as pd
import pytest

from gnomon.data.corpora import wikitext2
from gnomon.data.documents import SPLITS

LINES = """
 = The Dial = 

 A sundial , or dial , tells the time . Its <unk> is called a gnomon . It cost $ 1 @,@ 250 @.@ 50 in 1920 – 21 . 

 = = History = = 

 The well @-@ known " Dial of Ahaz " isn 't Egypt 's ( or Rome 's ) ; 12 % doubt it : why ? 
 = 3 is an equation = 
 <unk> only . 

 = Nothing <unk> = 

 It was <unk> . 

 = Noon = 

 Noon is short . 
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "wikitext2-test.txt.gz", "wt", encoding="utf-8") as stream:
        stream.write(LINES)
    monkeypatch.setenv("GNOMON_DATA", str(tmp_path))


def test_articles_are_plain_text_without_unknown_words(data):
    corpus = wikitext2("test")
    assert [document.title for document in corpus.documents] == ["The Dial", "Noon"]
    assert corpus.name == "wikitext2-test, tokenised variant"
    assert corpus.documents[0].text == (
        "A sundial, or dial, tells the time. It cost $1,250.50 in 1920–21.\n\n"
        "The well-known \"Dial of Ahaz\" isn't Egypt's (or Rome's); 12% doubt it: why?"
    )
    assert [document.split for document in corpus.documents] == list(SPLITS[:2])


def test_a_copy_in_the_hubs_cache_is_used(data, tmp_path, monkeypatch):
    expected = wikitext2("test").texts
    monkeypatch.delenv("GNOMON_DATA")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "datasets--Salesforce--wikitext"
    folder = repository / "snapshots" / ("0" * 40) / "wikitext-2-v1"
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    pd.DataFrame({"text": LINES.splitlines()}).to_parquet(folder / "test-00000-of-00001.parquet")
    assert wikitext2("test").texts == expected


def test_a_missing_corpus_names_both_places(tmp_path):
    """In a process of its own: the hub's address and cache are read at import."""
    code = (
        "from gnomon.data.corpora import wikitext2\n"
        "try: wikitext2('valid')\n"
        "except FileNotFoundError as error: print(error)\n"
    )
    environment = {
        **os.environ,
        "HF_ENDPOINT": "http://127.0.0.1:1",
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
        "GNOMON_DATA": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "WikiText-2 was found in neither of two places: set GNOMON_DATA to a folder with wikitext2-valid.txt.gz "
        f"(now {tmp_path}), or connect to the hub (Salesforce/wikitext)"
    )
    assert "Retrying" not in done.stderr


def test_there_are_two_splits():
    with pytest.raises(ValueError, match=r"^unknown split 'train' of WikiText-2; use 'valid' or 'test'$"):
        wikitext2("train")  # pyright: ignore[reportArgumentType]
