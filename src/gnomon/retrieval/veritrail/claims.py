"""Factual claims of the final text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One standalone, verifiable statement of the final text.

    Args:
        id: Unique within a text.
        text: The statement.
        sentence: Id of the sentence it was taken from; empty for a claim that was handed in.
        span: Characters of that sentence in the final text.
        subclaims: Its parts, where it says more than one thing; they guide the search for evidence.
        derivation: What became of the sentence on the way: without what cannot be verified, then without ambiguity.
    """

    id: str
    text: str
    sentence: str = ""
    span: tuple[int, int] | None = None
    subclaims: tuple[str, ...] = ()
    derivation: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dropped:
    """A sentence without a claim to verify.

    Args:
        sentence: Its id.
        text: The sentence.
        why: ``unverifiable`` (no specific proposition), ``ambiguous`` (readers would not agree on one reading), or
            ``error`` (the judge did not answer).
        reason: In the judge's words.
    """

    sentence: str
    text: str
    why: str
    reason: str = ""


@dataclass(frozen=True)
class Extraction:
    """Claims of a text, and the sentences that yielded none."""

    claims: tuple[Claim, ...]
    dropped: tuple[Dropped, ...] = ()
