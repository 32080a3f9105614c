"""Welfare-diverse search where the vectors live: a PostgreSQL table with a pgvector column (extra ``pgvector``).

Names of table and columns are quoted as identifiers and values are sent as parameters; no SQL is built from text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gnomon.retrieval.welfare_neighbors.attributes import Missing
from gnomon.retrieval.welfare_neighbors.contrast import Contrast, inverse_distance
from gnomon.retrieval.welfare_neighbors.reranking import Reranked, rerank

try:
    import psycopg
    from pgvector import Vector
    from pgvector.psycopg import register_vector
    from psycopg import sql
except ImportError as error:
    raise ImportError("psycopg and pgvector are not installed: pip install 'gnomon[pgvector]'") from error

_OPERATORS = {"cosine": sql.SQL("<=>"), "ip": sql.SQL("<#>"), "l2": sql.SQL("<->")}
_DOUBLINGS = 3
_MOST_EXPLORED = 1000  # pgvector's limit of hnsw.ef_search


class PostgresNeighbors:
    """Neighbours from a table, spread over the values of some of its columns.

    Args:
        connection: An open psycopg connection; it is used, never closed.
        table: Table or view, perhaps with its schema: ``"items"`` or ``"shop.items"``.
        attributes: Columns whose values are the attributes, one class a column.
        vector: Column of type ``vector``.
        key: Column that identifies a row; returned, never interpreted.
        metric: ``cosine``, ``ip`` or ``l2``: use the one that the table's index was built for.

    Raises:
        ValueError: If the database lacks the extension, the table, or a column, or the column is no vector.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        table: str,
        attributes: Sequence[str],
        *,
        vector: str = "embedding",
        key: str = "id",
        metric: Literal["cosine", "ip", "l2"] = "cosine",
    ) -> None:
        if metric not in _OPERATORS:
            raise ValueError(f"metric must be one of {', '.join(_OPERATORS)}, got {metric!r}")
        if isinstance(attributes, str) or not attributes:
            raise ValueError(f"attributes must be a sequence of column names, got {attributes!r}")
        self._connection = connection
        self._table = sql.Identifier(*table.split("."))
        self._attributes = tuple(attributes)
        self._metric = metric
        if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            raise ValueError("the database has no extension vector: run CREATE EXTENSION vector")
        register_vector(connection)
        types = self._column_types(table)
        if missing := [name for name in (key, vector, *self._attributes) if name not in types]:
            raise ValueError(f"table {table} has no column {', '.join(missing)}; it has {', '.join(sorted(types))}")
        kind, self._dimension = types[vector]
        if kind != "vector":
            raise ValueError(f"column {vector} of {table} is of type {kind}, not vector")
        self._query = sql.SQL(
            "SELECT {key}, {attributes}, {vector} {operator} %(query)s AS distance FROM {table} "
            "WHERE {vector} IS NOT NULL ORDER BY {vector} {operator} %(query)s LIMIT %(count)s"
        ).format(
            key=sql.Identifier(key),
            attributes=sql.SQL(", ").join(map(sql.Identifier, self._attributes)),
            vector=sql.Identifier(vector),
            operator=_OPERATORS[metric],
            table=self._table,
        )

    def pool(self, query: ArrayLike, count: int) -> pd.DataFrame:
        """The ``count`` rows nearest to the query: key, attributes, similarity; descending.

        Raises:
            ValueError: If the query is not one finite vector of the column's dimension.
        """
        vector = np.asarray(query, dtype=np.float32)
        if vector.ndim != 1 or not np.isfinite(vector).all():
            raise ValueError(f"query must be one finite vector, got shape {vector.shape}")
        if self._dimension > 0 and len(vector) != self._dimension:
            raise ValueError(f"query has dimension {len(vector)}, the column {self._dimension}")
        with self._connection.transaction():
            # With fewer nodes explored than rows wanted an HNSW index returns a short list; for this transaction only.
            explored = str(min(max(count, 40), _MOST_EXPLORED))
            self._connection.execute("SELECT set_config('hnsw.ef_search', %s, true)", (explored,))
            try:
                cursor = self._connection.execute(self._query, {"query": Vector(vector), "count": count})
            except psycopg.errors.DataException as error:  # a column without a declared dimension
                raise ValueError(f"the database refused the query vector: {error.diag.message_primary}") from error
            rows = cursor.fetchall()
        table: Any = pd.DataFrame(rows, columns=["key", *self._attributes, "distance"]).astype(
            dict.fromkeys(self._attributes, object)
        )
        return table.assign(similarity=self._similarity(table.pop("distance").to_numpy(dtype=np.float64)))

    def search(
        self,
        query: ArrayLike,
        k: int = 10,
        *,
        pool_size: int | None = None,
        p: float = 0.0,
        gamma: float = 0.1,
        contrast: Contrast = "exp",
        missing: Missing = "group",
    ) -> pd.DataFrame:
        """The k rows that serve the attributes best.

        The pool is doubled, up to three times, while rows beyond it could change the answer.

        Args:
            query: One vector.
            k: Rows wanted.
            pool_size: Rows fetched at first; ``None``: ``20 k``, at least 200 and at most 2,000.
            p: See :func:`~gnomon.retrieval.welfare_neighbors.select`.
            gamma: Likewise.
            contrast: Likewise.
            missing: What becomes of rows whose attribute is NULL.

        Returns:
            Key, attributes, similarity, rank by similarity alone and gain, in the order of choice; ``certified`` says
            whether rows beyond the pool could have changed it.

        Raises:
            ValueError: If a parameter is out of range, or as :meth:`pool`.
        """
        if k < 1:
            raise ValueError(f"k must be >= 1, got {k}")
        size = int(np.clip(20 * k, 200, 2000)) if pool_size is None else pool_size
        if size < k:
            raise ValueError(f"pool_size must be at least k, got {size} for {k}")
        for doubling in range(_DOUBLINGS + 1):
            pool: Any = self.pool(query, size)
            answer = rerank(
                pool["similarity"].tolist(),
                pool[list(self._attributes)],
                k,
                p=p,
                gamma=gamma,
                contrast=contrast,
                missing=missing,
            )
            certified = answer.certified or len(pool) < size
            if certified or doubling == _DOUBLINGS:
                break
            size *= 2
        return _table(pool, answer, certified)

    def _similarity(self, distance: np.ndarray) -> np.ndarray:
        if self._metric == "cosine":
            return 1.0 - distance
        if self._metric == "ip":
            return -distance  # pgvector orders by the negative inner product
        return inverse_distance(distance[None])[0] if len(distance) else distance

    def _column_types(self, table: str) -> dict[str, tuple[str, int]]:
        """Type and modifier (for a vector its dimension) of each column."""
        name = self._table.as_string(self._connection)
        found = self._connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()
        if found is None or found[0] is None:
            raise ValueError(f"the database has no table {table}")
        rows = self._connection.execute(
            "SELECT a.attname, t.typname, a.atttypmod FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
            "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped",
            (name,),
        )
        return {column: (kind, dimension) for column, kind, dimension in rows}


def _table(pool: pd.DataFrame, answer: Reranked, certified: bool) -> pd.DataFrame:
    chosen = pool.iloc[[picked.position for picked in answer.picked]].reset_index(drop=True)
    return chosen.assign(
        rank_before=[picked.rank_before for picked in answer.picked],
        gain=[picked.gain for picked in answer.picked],
        certified=certified,
    )
