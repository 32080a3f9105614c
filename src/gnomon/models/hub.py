"""Repositories of the Hugging Face hub: a local copy first, a download that fails within seconds otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import huggingface_hub
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

Kind = Literal["model", "dataset"]

_TIMEOUT = 5.0  # seconds for the first answer


def local_snapshot(repository: str, *, revision: str | None = None, kind: Kind = "model") -> Path | None:
    """The copy in the hub's cache, perhaps only a part of the files, without asking the hub; else ``None``."""
    try:
        return Path(
            huggingface_hub.snapshot_download(repository, repo_type=kind, revision=revision, local_files_only=True)
        )
    except LocalEntryNotFoundError:
        return None


def download_snapshot(
    repository: str, patterns: Sequence[str], *, revision: str | None = None, kind: Kind = "model"
) -> Path:
    """Download the files that match the patterns into the hub's cache.

    Raises:
        FileNotFoundError: If the hub does not answer within 5 s, has no such repository, or does not give it.
    """
    try:
        # Asked first because a download alone waits for ever behind a firewall that drops packets, and retries for half
        # a minute without a network.
        facts = huggingface_hub.HfApi().repo_info(repository, repo_type=kind, revision=revision, timeout=_TIMEOUT)
        return Path(
            huggingface_hub.snapshot_download(
                repository, repo_type=kind, revision=facts.sha, allow_patterns=list(patterns)
            )
        )
    except GatedRepoError as error:
        raise FileNotFoundError(f"{repository} is gated: accept its terms on the hub and set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise FileNotFoundError(f"the hub has no {kind} {repository!r} (or it is private)") from error
    except Exception as error:  # whatever the hub's HTTP client of the day raises
        raise FileNotFoundError(
            f"cannot download {repository}: the hub does not answer and there is no local copy"
        ) from error
