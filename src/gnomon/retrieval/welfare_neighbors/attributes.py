"""Attributes of vectors: labels of any kind, one or several a vector, encoded as numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import sparse

Missing = Literal["group", "own", "error"]

MISSING = "missing"


@dataclass(frozen=True)
class Attributes:
    """Which attributes each vector carries.

    Args:
        codes: Attribute numbers, -1 where a vector has fewer than the most.
        names: Name of each attribute; with several classes (columns) a pair of class and label.
        class_of: Class of each attribute.
        classes: Names of the classes.
    """

    codes: Int[np.ndarray, "vector each"]
    names: tuple[Hashable, ...]
    class_of: Int[np.ndarray, " attribute"]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def count(self) -> int:
        """Attributes of the collection."""
        return len(self.names)

    @property
    def most(self) -> int:
        """Most attributes a vector has."""
        return self.codes.shape[1]

    def balanced_weights(self) -> Float[np.ndarray, " attribute"]:
        """Weight of each attribute that gives every class the same total: a class of 1,000 does not drown one of 3."""
        return 1.0 / np.bincount(self.class_of, minlength=len(self.classes))[self.class_of]


def encode_attributes(attributes: Any, *, missing: Missing = "group") -> Attributes:
    """Number the attributes of a collection.

    Args:
        attributes: One of: a sequence of labels (n,); an array of labels (n, m) or a data frame, whose columns are
            classes (equal labels in two columns are two attributes); a sequence of sets of labels; a sparse 0/1 matrix
            (n, attributes).
        missing: What becomes of a vector without a label (None, NaN, empty set): ``group``: all of them share one
            attribute; ``own``: each is its own attribute, which rewards missing data; ``error``.

    Raises:
        TypeError: If labels are floats with fractional parts.
        ValueError: If the shape is none of those, or a label is missing under ``error``.

    >>> encode_attributes(["red", "blue", "red"]).codes.ravel()
    array([1, 0, 1])
    """
    if isinstance(attributes, Attributes):
        return attributes
    if missing not in ("group", "own", "error"):
        raise ValueError(f"missing must be 'group', 'own' or 'error', got {missing!r}")
    if sparse.issparse(attributes):
        return _of_sets(_rows_of(attributes), missing)
    if isinstance(attributes, pd.DataFrame):
        return _of_columns([attributes[name] for name in attributes], [str(name) for name in attributes], missing)
    if _is_sets(attributes):
        return _of_sets(list(attributes), missing)
    table = np.asarray(attributes)
    if table.ndim not in (1, 2) or table.size == 0:
        raise ValueError(f"attributes must be (n,), (n, m), a data frame or sets, got shape {table.shape}")
    columns = [table] if table.ndim == 1 else list(table.T)
    names = ["attribute"] if len(columns) == 1 else [f"attribute{index}" for index in range(len(columns))]
    return _of_columns([pd.Series(column) for column in columns], names, missing)


def candidate_codes(attributes: Any, shape: tuple[int, int]) -> Int[np.ndarray, "query candidate each"]:
    """Attribute numbers of a pool's candidates, as (queries, candidates, attributes a candidate), -1 for none.

    Args:
        attributes: Integers (queries, candidates) or (queries, candidates, m) (for a single query without its axis),
            a sequence of sets of integers, or a sparse 0/1 matrix, one row a candidate.
        shape: (queries, candidates).

    Raises:
        TypeError: If they are not whole numbers.
        ValueError: If there is not an entry for every candidate.
    """
    queries, candidates = shape
    if sparse.issparse(attributes):
        attributes = _rows_of(attributes)
    if _is_sets(attributes):
        attributes = _padded([sorted(members) for members in attributes])
    codes = np.asarray(attributes)
    if codes.dtype.kind == "f":
        _require_whole(codes)
    elif codes.dtype.kind not in "iub":
        raise TypeError(
            f"attributes of candidates must be integers, got {codes.dtype}; encode_attributes numbers labels"
        )
    codes = codes.astype(np.int64, copy=False)
    if queries == 1 and codes.shape[:1] == (candidates,) and codes.shape[:2] != shape:
        codes = codes[None]
    if codes.shape[:2] != shape or codes.ndim > 3:
        raise ValueError(f"attributes need an entry for each of {shape} (query, candidate), got shape {codes.shape}")
    return codes[:, :, None] if codes.ndim == 2 else codes


def _rows_of(indicator: Any) -> list[list[int]]:
    rows = sparse.csr_array(indicator)
    return [part.tolist() for part in np.split(rows.indices, rows.indptr[1:-1])]


def _of_columns(columns: Sequence[Any], classes: Sequence[str], missing: Missing) -> Attributes:
    codes, names, class_of = [], [], []
    for index, column in enumerate(columns):
        if column.dtype.kind == "f":
            _require_whole(column.to_numpy())
        code, labels = pd.factorize(column, sort=_sortable(column))
        code, labels = _fill(np.asarray(code, dtype=np.int64), list(labels), missing, classes[index])
        codes.append(code + len(names))
        names += labels if len(columns) == 1 else [(classes[index], label) for label in labels]
        class_of += [index] * len(labels)
    return Attributes(np.column_stack(codes), tuple(names), np.array(class_of), tuple(classes))


def _of_sets(sets: Sequence[Any], missing: Missing) -> Attributes:
    labels = list(dict.fromkeys(label for members in sets for label in members))
    if len({type(label) for label in labels}) <= 1:
        labels = sorted(labels)
    number = {label: index for index, label in enumerate(labels)}
    codes = _padded([sorted({number[label] for label in members}) for members in sets])
    first, names = _fill(codes[:, 0].copy(), labels, missing, "attribute")
    codes[:, 0] = first
    return Attributes(codes, tuple(names), np.zeros(len(names), dtype=np.int64), ("attribute",))


def _fill(
    code: Int[np.ndarray, " vector"], labels: list[Any], missing: Missing, name: str
) -> tuple[Int[np.ndarray, " vector"], list[Any]]:
    without = np.flatnonzero(code < 0)
    if not len(without):
        return code, labels
    if missing == "error":
        raise ValueError(
            f"{name} of vector {without[0]} is missing ({len(without)} in all); missing='group' groups them"
        )
    if missing == "group":
        code[without] = len(labels)
        return code, [*labels, MISSING]
    code[without] = len(labels) + np.arange(len(without))
    return code, [*labels, *(f"{MISSING} {index}" for index in without)]


def _padded(lists: Sequence[Sequence[int]]) -> Int[np.ndarray, "vector each"]:
    codes = np.full((len(lists), max(1, *(len(members) for members in lists), 1)), -1, dtype=np.int64)
    for row, members in zip(codes, lists, strict=True):
        row[: len(members)] = members
    return codes


def _is_sets(attributes: Any) -> bool:
    return isinstance(attributes, Sequence) and any(isinstance(a, Set | list | tuple) for a in attributes[:1])


def _sortable(column: Any) -> bool:
    return column.dtype.kind in "iufb" or len({type(label) for label in column.dropna()}) <= 1


def _require_whole(values: np.ndarray) -> None:
    known = values[np.isfinite(values)]
    fractional = known[known != np.floor(known)]
    if len(fractional):
        raise TypeError(f"attributes are labels, not measurements: got {fractional[0]:g}; bin the values first")
