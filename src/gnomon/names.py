"""Names that a user may mistype."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """End of an error message: the known name that looks most like the given one.

    >>> nearest("quik", ["full", "quick"])
    "; nearest is 'quick'"
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    return f"; nearest is {near[0]!r}" if near else "; there is none"
