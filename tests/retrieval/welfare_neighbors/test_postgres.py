"""Search in a real PostgreSQL with pgvector, from the wheel that brings both."""

import numpy as np
import psycopg
import pytest
from pgvector.psycopg import register_vector

from gnomon.retrieval.welfare_neighbors import BruteIndex, WelfareNeighbors
from gnomon.retrieval.welfare_neighbors.postgres import PostgresNeighbors

ROWS, DIMENSION = 300, 6


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(ROWS, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def sellers():
    return [f"seller {code}" for code in np.random.default_rng(1).integers(0, 5, ROWS)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))  # pgserver asks for it when imported
        import pgserver

        started = pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
        yield started
        started.cleanup()


@pytest.fixture(scope="module")
def database(server, vectors, sellers):
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        register_vector(connection)
        connection.execute("CREATE SCHEMA shop")
        connection.execute(
            'CREATE TABLE shop."odd; name" (id bigint PRIMARY KEY, embedding vector(6), seller text, "select" int, '
            "note text)"
        )
        connection.execute("CREATE TABLE loose (id int, embedding vector, seller text)")
        with connection.cursor() as cursor:
            rows = [(i, vector, seller, i % 3) for i, (vector, seller) in enumerate(zip(vectors, sellers, strict=True))]
            cursor.executemany('INSERT INTO shop."odd; name" VALUES (%s, %s, %s, %s)', rows)
            cursor.execute("INSERT INTO loose VALUES (1, %s, 'a')", (vectors[0],))
        connection.execute('INSERT INTO shop."odd; name" VALUES (1000, NULL, NULL, NULL)')
        yield connection


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_gives_what_the_estimator_gives_in_memory(database, vectors, sellers, metric):
    here = WelfareNeighbors(5, metric=metric, pool_size=200, expand="never").fit(vectors, sellers)
    there = PostgresNeighbors(database, "shop.odd; name", ["seller"], metric=metric)
    for query in vectors[:5] + np.float32(0.3):
        similarity, ids = here.kneighbors(query[None])
        found = there.search(query, 5, pool_size=200)
        assert found["key"].tolist() == ids[0].tolist()
        assert found["similarity"].to_numpy() == pytest.approx(similarity[0], rel=1e-4)
        assert found["seller"].tolist() == [sellers[row] for row in ids[0]]


def test_an_hnsw_index_returns_whole_pools(database, vectors):
    database.execute('CREATE INDEX ON shop."odd; name" USING hnsw (embedding vector_cosine_ops)')
    database.execute("SET enable_seqscan = off")
    try:
        pool = PostgresNeighbors(database, "shop.odd; name", ["seller"]).pool(vectors[0], 150)
        assert len(pool) == 150
        exact = BruteIndex(vectors).search(vectors[:1], 150)[1][0]
        assert len(set(pool["key"]) & set(exact)) > 140
        assert database.execute("SHOW hnsw.ef_search").fetchone() == ("40",)  # as it was before
    finally:
        database.execute("SET enable_seqscan = on")


def test_several_columns_and_names_that_need_quotes(database, vectors):
    found = PostgresNeighbors(database, "shop.odd; name", ["seller", "select"]).search(vectors[3], 4)
    assert set(found) == {"key", "seller", "select", "similarity", "rank_before", "gain", "certified"}
    assert len(found) == 4


def test_the_pool_grows_until_it_is_the_whole_table(database, vectors):
    found = PostgresNeighbors(database, "shop.odd; name", ["seller"]).search(
        vectors[0], 5, pool_size=60, contrast="none", p=-10.0
    )
    assert found["certified"].all()  # 60 doubled thrice is more than there is


def test_values_are_parameters(database, vectors):
    database.execute('UPDATE shop."odd; name" SET seller = %s WHERE id = 0', ('\'; DROP TABLE shop."odd; name"; --',))
    found = PostgresNeighbors(database, "shop.odd; name", ["seller"]).search(vectors[0], 5)
    assert '\'; DROP TABLE shop."odd; name"; --' in found["seller"].tolist()
    with pytest.raises(ValueError, match="no table loose; DROP TABLE loose"):
        PostgresNeighbors(database, "loose; DROP TABLE loose", ["seller"])
    assert database.execute("SELECT count(*) FROM loose").fetchone() == (1,)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("absent", {}, "the database has no table absent"),
        ("loose", {"attributes": ["colour"]}, "has no column colour; it has embedding, id, seller"),
        ("loose", {"vector": "seller"}, "column seller of loose is of type text, not vector"),
        ("loose", {"metric": "hamming"}, "metric must be one of"),
        ("loose", {"attributes": "seller"}, "sequence of column names"),
    ],
)
def test_what_is_missing_is_said(database, table, options, message):
    with pytest.raises(ValueError, match=message):
        PostgresNeighbors(database, table, **{"attributes": ["seller"], **options})


def test_wrong_queries(database):
    strict = PostgresNeighbors(database, "shop.odd; name", ["seller"])
    with pytest.raises(ValueError, match="query has dimension 4, the column 6"):
        strict.search(np.ones(4))
    with pytest.raises(ValueError, match="one finite vector"):
        strict.search([np.nan] * 6)
    with pytest.raises(ValueError, match="pool_size must be at least k"):
        strict.search(np.ones(6), 10, pool_size=5)
    with pytest.raises(ValueError, match="refused the query vector: different vector dimensions 6 and 4"):
        PostgresNeighbors(database, "loose", ["seller"]).search(np.ones(4), 1)


def test_a_database_without_the_extension(server, database):
    database.execute("CREATE DATABASE bare")
    with (
        psycopg.connect(server.get_uri("bare"), autocommit=True) as bare,
        pytest.raises(ValueError, match="run CREATE EXTENSION vector"),
    ):
        PostgresNeighbors(bare, "anything", ["seller"])
