"""WikiText-2, the validation and test splits of its tokenised variant, with the spacing undone.

Source: Merity et al. (2016), "Pointer Sentinel Mixture Models". Text from English Wikipedia, CC BY-SA 3.0.
"""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Literal, get_args

import pandas as pd

from gnomon.data.documents import SPLITS, Corpus, Document
from gnomon.models.hub import download_snapshot, local_snapshot

WikiTextSplit = Literal["valid", "test"]

_HUB = "Salesforce/wikitext"
_HUB_SPLITS = {"valid": "validation", "test": "test"}

_HEADING = re.compile(r"=( =)* .+ =( =)*")
_TITLE = re.compile(r"= [^=]+ =")
_SENTENCE_END = re.compile(r"(?<= [.?!])( \"| '| \))? ")

# In this order: split numbers and compounds, then the marks that belong to the word before or after them.
_RULES = (
    (re.compile(r" @([-,.])@ "), r"\1"),
    (re.compile(r"\" ([^\"]*?) \""), r'"\1"'),
    (re.compile(r" ([.,;:!?%)\]}°]|'(?:s|t|re|ve|ll|d|m)\b|n't\b)"), r"\1"),
    (re.compile(r"([(\[{$£€¥#]) "), r"\1"),
    (re.compile(r"(\d) ([–/]) (\d)"), r"\1\2\3"),
)


def wikitext2(split: WikiTextSplit = "test") -> Corpus:
    """Articles of WikiText-2 as plain text; looked for in the folder ``GNOMON_DATA``, else on the hub.

    Rare words are ``<unk>`` in this variant: sentences with one are dropped, as are headings, which leaves 49,000 words
    in 60 articles of each split. Perplexities are not comparable with those on the raw variant.

    Args:
        split: ``"valid"`` or ``"test"``.

    Raises:
        ValueError: If there is no such split.
        FileNotFoundError: If it is in neither place.
    """
    if split not in get_args(WikiTextSplit):
        raise ValueError(f"unknown split {split!r} of WikiText-2; use 'valid' or 'test'")
    articles = _articles(_lines(split))
    documents = [
        Document(_plain(title), "wikipedia", text, SPLITS[index % len(SPLITS)])
        for index, (title, text) in enumerate(articles)
    ]
    return Corpus(f"wikitext2-{split}, tokenised variant", tuple(documents))


def _lines(split: str) -> list[str]:
    name = f"wikitext2-{split}.txt.gz"
    folder = os.environ.get("GNOMON_DATA")
    if folder and (Path(folder) / name).is_file():
        with gzip.open(Path(folder) / name, "rt", encoding="utf-8") as stream:
            return [line.strip() for line in stream]
    file = f"wikitext-2-v1/{_HUB_SPLITS[split]}-00000-of-00001.parquet"
    snapshot = local_snapshot(_HUB, kind="dataset")
    if snapshot is None or not (snapshot / file).is_file():
        try:
            snapshot = download_snapshot(_HUB, [file], kind="dataset")
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"WikiText-2 was found in neither of two places: set GNOMON_DATA to a folder with {name} "
                f"(now {folder or 'not set'}), or connect to the hub ({_HUB})"
            ) from error
    return [line.strip() for line in pd.read_parquet(snapshot / file)["text"]]


def _articles(lines: list[str]) -> list[tuple[str, str]]:
    """Title and text of each article: a title stands alone between blank lines."""
    framed = ["", *lines, ""]
    found: list[tuple[str, list[str]]] = []
    for before, line, after in zip(framed, framed[1:], framed[2:], strict=False):
        if _TITLE.fullmatch(line) and not before and not after:
            found.append((line.strip("= "), []))
        elif line and found and not _HEADING.fullmatch(line):
            found[-1][1].append(line)
    articles = []
    for title, paragraphs in found:
        kept = [_plain(" ".join(clean)) for paragraph in paragraphs if (clean := _clean_sentences(paragraph))]
        articles.append((title, "\n\n".join(kept)))
    return [(title, text) for title, text in articles if text]


def _clean_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph that have no ``<unk>``."""
    ends = [match.end() for match in _SENTENCE_END.finditer(paragraph)]
    sentences = [paragraph[start:end] for start, end in zip([0, *ends], [*ends, len(paragraph)], strict=True)]
    return [sentence.strip() for sentence in sentences if "<" not in sentence and sentence.strip()]


def _plain(text: str) -> str:
    """Text as it was before tokenising: ``12 @,@ 500 men 's ships .`` becomes ``12,500 men's ships.``"""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
