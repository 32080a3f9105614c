"""Where gnomon keeps what it can compute again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_root() -> Path:
    """The user cache: ``$GNOMON_CACHE``, else the platform's place for caches; it may not exist yet."""
    return Path(os.environ.get("GNOMON_CACHE") or platformdirs.user_cache_path("gnomon"))
