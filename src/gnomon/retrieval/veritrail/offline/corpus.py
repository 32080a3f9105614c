"""All sentences a judge will be asked about, each read and embedded once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from gnomon.models.embeddings import Encoder, embed
from gnomon.retrieval.veritrail.offline.frames import Frame, Lexicon
from gnomon.retrieval.veritrail.offline.names import FUNCTION_WORDS


class Corpus:
    """Sentences and claims with vectors, frames and the rarity of their words.

    Args:
        sentences: Texts of the process; repeated ones are read once.
        claims: Claims, and parts of claims, to be compared with them.
        encoder: See :func:`~gnomon.models.embeddings.embed`.
        alike: Cosine from which two counted things may be the same (``staff``, ``employees``); without sentence
            vectors that know meanings (TF-IDF) they always may.
    """

    def __init__(
        self, sentences: Iterable[str], claims: Iterable[str], *, encoder: Encoder = "auto", alike: float = 0.0
    ) -> None:
        told = list(dict.fromkeys(sentences))
        self._told = set(told)
        texts = list(dict.fromkeys([*told, *claims]))
        self.lexicon = Lexicon(told)
        self._row = {text: row for row, text in enumerate(texts)}
        made = embed(texts or [""], encoder=encoder)
        self.vectors: Float[np.ndarray, "text d"] = made.vectors
        self.encoder = made.encoder
        self._frames: dict[str, Frame] = {}
        self._content: dict[str, dict[str, float]] = {}  # rarity of the stems of each claim
        self._alike = alike if "TF-IDF" not in made.encoder else -1.0
        self._phrases = self._embedded_phrases(texts, encoder) if self._alike > -1 else {}

    def _embedded_phrases(self, texts: list[str], encoder: Encoder) -> dict[str, Float[np.ndarray, " d"]]:
        counted = {quantity.counted for text in texts for quantity in self.frame(text).quantities if quantity.counted}
        phrases = sorted({variant for phrase in counted for variant in _variants(phrase)})
        if not phrases:
            return {}
        return dict(zip(phrases, embed(phrases, encoder=encoder).vectors, strict=True))

    def frame(self, text: str) -> Frame:
        """Frame of a text, read once."""
        if (known := self._frames.get(text)) is None:
            known = self._frames[text] = self.lexicon.frame(text)
        return known

    def alike(self, first: str, second: str) -> bool:
        """Whether two counted things may be the same."""
        if self._alike <= -1 or first == second:
            return True
        return self.likeness(first, second) >= self._alike

    def likeness(self, first: str, second: str) -> float:
        """Largest cosine of the first word, or the first two, of each phrase."""
        left, right = ([self._phrases[part] for part in _variants(phrase)] for phrase in (first, second))
        return max(float(a @ b) for a in left for b in right)

    def covers(self, sentences: Iterable[str], claims: Iterable[str]) -> bool:
        """Whether these are the sentences it was made of, and it knows the claims."""
        return set(sentences) == self._told and all(claim in self._row for claim in claims)

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """Rows of texts in ``vectors``.

        Raises:
            KeyError: If a text was not announced.
        """
        return np.fromiter((self._row[text] for text in texts), dtype=np.intp, count=len(texts))

    def cosines(self, claims: Sequence[str], sentences: Sequence[str]) -> Float[np.ndarray, "claim sentence"]:
        """Cosines of claims and sentences, one matrix product."""
        return self.vectors[self.rows(claims)] @ self.vectors[self.rows(sentences)].T

    def recall(self, claim: str, sentence: str) -> float:
        """Share of the claim's content, weighted by rarity, whose stems the sentence has."""
        return self.recall_of_stems(claim, self.frame(sentence).stems)

    def recall_of_stems(self, claim: str, stems: frozenset[str]) -> float:
        """The same for the stems of several sentences together."""
        if (content := self._content.get(claim)) is None:
            # Sorted: in the order of a set, which differs from process to process, the sum's last digit would too.
            content = {stem: self.lexicon.rarity(stem) for stem in sorted(self.frame(claim).stems)}
            self._content[claim] = content
        whole = sum(content.values())
        return sum([weight for stem, weight in content.items() if stem in stems]) / whole if whole else 0.0


def _variants(phrase: str) -> tuple[str, ...]:
    """A counted phrase by its first word and by all its words."""
    first = phrase.split()[0]
    return (phrase,) if first == phrase or first in FUNCTION_WORDS else (first, phrase)
