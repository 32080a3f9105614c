"""Model folders as the hub has them, but tiny."""

from pathlib import Path

import pytest

from gnomon.models.load import Loaded, load
from gnomon.models.tiny import tiny_decoder, word_tokenizer

WORDS = [f"w{index}" for index in range(58)] + ["A", "B", "one"]


def save_tiny(folder: Path, family: str = "llama", **options) -> Path:
    """A tiny decoder and its tokenizer in a folder of the hub's layout."""
    tiny_decoder(family, **options).save_pretrained(folder)
    word_tokenizer(WORDS).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="session")
def tiny(tiny_folder) -> Loaded:
    return load(tiny_folder)


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    """An empty user cache."""
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
