"""Queries between BEGIN and COMMIT see the transaction's rows and ask as everywhere."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

QUESTION = "AI.IF(PROMPT('Refund? {0}', b))"


@pytest.fixture
def connection():
    answers = PlantedModel(lambda question, documents: 0.9 if "refund" in documents[0] else 0.1)
    with covey.connect(model=answers) as con:
        con.register("t", pa.table({"id": [1, 2, 3], "b": ["refund", "hello", "a refund"]}))
        con.run("CREATE TABLE s AS SELECT * FROM t")
        yield con


def test_a_query_runs_inside_an_open_transaction(connection):
    connection.run("BEGIN")
    connection.run("INSERT INTO s VALUES (4, 'refund too')")
    query = connection.sql(f"SELECT id FROM s WHERE {QUESTION} ORDER BY id")
    assert query.fetchall() == [(1,), (3,), (4,)]
    assert "a transaction is open" in query.explain()
    connection.run("ROLLBACK")
    again = connection.run(f"SELECT id FROM s WHERE {QUESTION} ORDER BY id")
    assert again.fetchall() == [(1,), (3,)]
    assert again.report.operators[0].how == "planned"


def test_a_table_made_in_a_transaction_is_there_after_its_commit(connection):
    connection.run("BEGIN")
    connection.run(f"CREATE TABLE kept AS SELECT id FROM t WHERE {QUESTION}")
    connection.run("COMMIT")
    assert connection.run("SELECT count(*) FROM kept").fetchall() == [(2,)]


def test_a_change_that_asks_is_refused_inside_a_transaction_with_the_mend(connection):
    connection.run("BEGIN")
    with pytest.raises(covey.RunError, match="COMMIT or ROLLBACK first"):
        connection.run(f"DELETE FROM s WHERE {QUESTION}")
    connection.run("ROLLBACK")
    assert connection.run("SELECT count(*) FROM s").fetchall() == [(3,)]


def test_a_failed_transaction_leaves_a_connection_that_works(connection):
    connection.run("BEGIN")
    with pytest.raises(covey.CoveyError):
        connection.run(f"SELECT 1 / (id - id) + CAST(b AS INT) FROM s WHERE {QUESTION}")
    connection.run("ROLLBACK")
    found = connection.run(f"SELECT id FROM s WHERE {QUESTION} ORDER BY id")
    assert found.fetchall() == [(1,), (3,)]


def test_a_change_that_draws_its_documents_is_refused_and_changes_nothing(connection):
    draws = "AI.IF(PROMPT('Refund? {0}', CAST(random() AS VARCHAR)))"
    with pytest.raises(covey.QueryError, match=r"another one each time(.|\n)*TEMP TABLE"):
        connection.run(f"DELETE FROM s WHERE {draws}")
    assert connection.run("SELECT count(*) FROM s").fetchall() == [(3,)]


def test_a_change_that_asks_in_several_rounds_is_kept(connection):
    run = connection.run(f"DELETE FROM s WHERE {QUESTION}")
    assert run.report.operators[0].prompts == 3
    assert connection.run("SELECT id FROM s").fetchall() == [(2,)]
