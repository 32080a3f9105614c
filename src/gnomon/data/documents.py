"""Documents and corpora: texts in a fixed order, split by document."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

Split = Literal["calibration", "match", "evaluation"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class Document:
    """One text.

    Args:
        title: Its title.
        kind: Its genre (``"narrative"``, ``"news"``); the name of the corpus where there is only one.
        text: The text without its title.
        split: The part of the corpus it belongs to.
    """

    title: str
    kind: str
    text: str
    split: Split


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order.

    Args:
        name: What a table made from it says (``"prose"``, ``"wikitext2-test, tokenised variant"``).
        documents: The texts.
    """

    name: str
    documents: tuple[Document, ...]

    @property
    def texts(self) -> list[str]:
        """The text of each document."""
        return [document.text for document in self.documents]

    @property
    def words(self) -> int:
        """Words separated by white space."""
        return sum(len(document.text.split()) for document in self.documents)

    @property
    def sha256(self) -> str:
        """Hash of titles, kinds, splits and texts."""
        lines = (f"{item.title}\n{item.kind}\n{item.split}\n{item.text}\0" for item in self.documents)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def part(self, split: Split) -> Corpus:
        """The documents of one split: ``calibration`` to estimate on, ``match`` to tune controls, ``evaluation``.

        Raises:
            ValueError: If there is no such split.
        """
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}; use {', '.join(SPLITS)}")
        return replace(self, documents=tuple(document for document in self.documents if document.split == split))

    def shuffled_words(self, rng: np.random.Generator) -> Corpus:
        """The same words in a random order within each document, with white space and line breaks left in place.

        A control for everything that needs word order: unigram statistics and document topics are kept.
        """
        shuffled = tuple(replace(item, text=_shuffle_words(item.text, rng)) for item in self.documents)
        return Corpus(f"{self.name}, words shuffled", shuffled)


def _shuffle_words(text: str, rng: np.random.Generator) -> str:
    pieces = re.split(r"(\s+)", text.strip())  # words at even places, white space between them
    pieces[::2] = [pieces[::2][index] for index in rng.permutation(len(pieces[::2]))]
    return "".join(pieces)
