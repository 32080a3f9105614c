"""Instructions for language models, one Markdown file each: a line ``version: N``, an empty line, the text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Prompt:
    """Instructions for one kind of question.

    Args:
        name: Name of its file.
        version: Number its authors gave it.
        text: What the model is told.
    """

    name: str
    version: str
    text: str

    @property
    def mark(self) -> str:
        """Version and the beginning of the text's SHA-256: two prompts with one mark are the same."""
        return f"{self.version}-{hashlib.sha256(self.text.encode()).hexdigest()[:12]}"


@cache
def prompt(name: str) -> Prompt:
    """The instructions in ``NAME.md``."""
    head, _, text = (files(__name__) / f"{name}.md").read_text(encoding="utf-8").partition("\n\n")
    return Prompt(name, head.removeprefix("version:").strip(), text)
