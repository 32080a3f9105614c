"""Files that are whole or absent: atomic writes, hashes, and tables as deterministic parquet."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

# Errors of a file system that will refuse the next unit too: no space, quota, file too large, read-only.
_REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
_NO_SPACE = 1 << 20


class StorageError(Exception):
    """The file system refuses to take results: it is full or read-only. Nothing finished is lost.

    ``path`` is the run that can be resumed, if there is one.
    """

    path: Path | None = None


def is_refusal(error: BaseException) -> bool:
    """Whether the error says that the file system takes no more data."""
    return isinstance(error, OSError) and error.errno in _REFUSALS


@contextlib.contextmanager
def told_if_full(folder: Path) -> Iterator[None]:
    """Say so if the disk is full when something fails: numpy, torch and others raise errors that do not."""
    try:
        yield
    except Exception as error:
        if not is_refusal(error) and shutil.disk_usage(folder).free < _NO_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


def sha256(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader, or a crash, never sees half of it."""
    temporary = _beside(path)
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON for people and programs, atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def copy_file(source: Path, destination: Path) -> None:
    """Copy atomically, through a temporary file beside the destination."""
    temporary = _beside(destination)
    try:
        shutil.copyfile(source, temporary)
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as parquet; the same table gives the same bytes."""
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, compression="zstd")


def read_tables(paths: Iterable[Path]) -> pd.DataFrame:
    """Rows of several parquet files, in order; a column that some lack is missing there."""
    tables = [pq.ParquetFile(path).read() for path in paths]
    return pa.concat_tables(tables, promote_options="permissive").replace_schema_metadata(None).to_pandas()


def damaged(folder: Path, hashes: Mapping[str, str]) -> list[str]:
    """Names of those files that are missing from the folder or have another hash than the recorded one."""
    return [name for name, expected in hashes.items() if not _has_hash(folder / name, expected)]


def _has_hash(path: Path, expected: str) -> bool:
    try:
        return sha256(path) == expected
    except FileNotFoundError:
        return False


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
