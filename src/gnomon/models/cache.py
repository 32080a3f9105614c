"""The user cache: where converted models are kept, and hashes of large files that are computed once."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from gnomon.user_cache import cache_root


def cache_folder(*parts: str) -> Path:
    """A folder of the user cache, created if need be: ``$GNOMON_CACHE``, else the platform's place for caches.

    Raises:
        PermissionError: If it cannot be created, naming the variable that moves it.
    """
    folder = cache_root().joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionError(
            f"cannot create the cache folder {folder} ({error.strerror}); set GNOMON_CACHE to a folder you can write to"
        ) from error
    return folder


def file_sha256(file: Path) -> str:
    """SHA-256 of a file in hexadecimal, remembered in the user cache until the file's size or mtime changes."""
    stamp = file_stamp(file)
    record = cache_folder("hashes") / f"{stamp[0]}-{stamp[1]}.json"  # by device and inode: a rename keeps it valid
    try:
        known = json.loads(record.read_text())
        if known["stamp"] == list(stamp):
            return known["sha256"]
    except (OSError, ValueError, KeyError, TypeError):  # no record, or one cut short: compute it
        pass
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    write_atomically(record, json.dumps({"stamp": stamp, "sha256": digest, "file": str(file.resolve())}))
    return digest


def file_stamp(file: Path) -> tuple[int, int, int, int]:
    """Device, inode, size and modification time in nanoseconds: what changes when a file is replaced or edited."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def write_atomically(file: Path, text: str) -> None:
    """Write a small text file so that readers see either the old content or the new, never a part."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(file)
