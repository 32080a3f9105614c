"""Texts as documents, with a split fixed by document: our own frozen prose, WikiText-2, or the user's file.

>>> corpus = prose()
>>> sorted({document.kind for document in corpus.documents})
['dialogue', 'encyclopedia', 'essay', 'instructions', 'letter', 'narrative', 'news']
>>> [len(corpus.part(split).documents) for split in ("calibration", "match", "evaluation")]
[14, 13, 13]
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path

from gnomon.data.documents import SPLITS, Corpus, Document
from gnomon.data.wikitext import wikitext2

__all__ = ["Corpus", "Document", "prose", "text_file", "wikitext2"]

#: SHA-256 of the names and texts of the shipped prose; a change of the text would change every table made with it.
PROSE_SHA256 = "ffc19964c08582373f5cf92c691d14cfe969ca35d386afa1e369e1077b731cda"

_PASSAGE_WORDS = 250  # a plain text file is cut between paragraphs into passages of at least this many words


@cache
def prose() -> Corpus:
    """Forty short documents written for gnomon, about 12,000 words of varied English, CC0.

    Shipped in the package, frozen with its hash and part of no model's training before it was published.

    Raises:
        ValueError: If the installed text is not the frozen one.
    """
    folder = resources.files("gnomon.data") / "prose"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".txt")), key=lambda file: file.name)
    documents = []
    for index, file in enumerate(files):
        title, _, text = file.read_text(encoding="utf-8").partition("\n")
        kind = file.name.partition("-")[0]
        documents.append(Document(title.strip(), kind, text.strip(), SPLITS[index % len(SPLITS)]))
    corpus = Corpus("prose", tuple(documents))
    if corpus.sha256 != PROSE_SHA256:
        raise ValueError(f"the prose in {folder} was changed; reinstall gnomon")
    return corpus


def text_file(path: str | Path) -> Corpus:
    """A plain UTF-8 text file, cut between paragraphs (blank lines) into passages that serve as documents.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is empty or not UTF-8.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no text file {path}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    if not text.strip():
        raise ValueError(f"{path} is empty")
    documents = [
        Document(f"{path.name}, passage {index + 1}", path.stem, passage, SPLITS[index % len(SPLITS)])
        for index, passage in enumerate(_passages(text))
    ]
    return Corpus(path.name, tuple(documents))


def _passages(text: str) -> list[str]:
    """Consecutive paragraphs joined until each passage has enough words; a short rest joins the last one."""
    passages: list[list[str]] = [[]]
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if sum(len(part.split()) for part in passages[-1]) >= _PASSAGE_WORDS:
            passages.append([])
        passages[-1].append(paragraph.strip())
    if len(passages) > 1 and sum(len(part.split()) for part in passages[-1]) < _PASSAGE_WORDS // 2:
        rest = passages.pop()
        passages[-1] += rest
    return ["\n\n".join(passage) for passage in passages]
