"""A tiny rotary decoder in a folder, with a tokenizer that knows the words of the package's prose."""

import pytest

from gnomon.data.corpora import prose
from gnomon.models.load import load
from gnomon.models.tiny import tiny_decoder, word_tokenizer


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    words = sorted({word for text in prose().texts for word in text.split()})
    tokenizer = word_tokenizer(words)
    # Six layers of width 48 hold enough heads for every judge to have something to look at.
    model = tiny_decoder(
        "llama", vocab=len(tokenizer), width=48, layers=6, heads=6, kv_heads=2, context=128, initializer_range=0.3
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder):
    return load(tiny_folder)
