"""Results that are never held whole."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import covey
from covey.execution import bridge
from covey.testing import PlantedModel

PLANNED = "SELECT id, s FROM t WHERE AI.IF(PROMPT('A {0}', s)) ORDER BY id"
ON_DEMAND = (
    "SELECT id, (SELECT max(AI.SCORE(PROMPT('B {0} {1}', t.s, u.s))) FROM t AS u "
    "WHERE u.id < t.id) AS b FROM t WHERE id < 20 ORDER BY id"
)
ROWS = 500
ROWS_A_BATCH = 7


@pytest.fixture
def connection(monkeypatch):
    monkeypatch.setattr(bridge, "ROWS_A_BATCH", ROWS_A_BATCH)

    def answer(question, documents):
        return len("".join(documents)) % 5 / 5

    model = PlantedModel(lambda question, documents: model.answer(question, documents))
    model.answer = answer
    with covey.connect(model) as con:
        con.model = model
        con.register("t", pa.table({"id": range(ROWS), "s": ["x" * (i % 9) for i in range(ROWS)]}))
        yield con


@pytest.mark.parametrize(
    ("query", "rows"),
    [(PLANNED, 167), (ON_DEMAND, 20), ("SELECT id FROM t", ROWS), ("SELECT 1 WHERE false", 0)],
)
def test_batches_are_the_result_in_pieces(connection, query, rows):
    pieces = list(connection.sql(query).batches())
    sizes = [piece.num_rows for piece in pieces if piece.num_rows]
    full, rest = divmod(rows, ROWS_A_BATCH)
    assert sizes == [ROWS_A_BATCH] * full + [rest] * bool(rest)
    whole = connection.run(query)
    assert len(whole.fetchall()) == rows
    if pieces:
        assert pa.Table.from_batches(pieces).to_pylist() == whole.arrow().to_pylist()


def test_everything_is_asked_before_the_first_batch_and_nothing_after(connection):
    query = connection.sql(PLANNED)
    rows = query.batches()
    first = next(rows)
    asked = len(connection.model.calls)
    assert asked
    assert query.report.operators[0].prompts == asked
    rest = sum(piece.num_rows for piece in rows)
    assert first.num_rows == ROWS_A_BATCH and rest
    assert query.report.rows == first.num_rows + rest
    assert len(query.fetchall()) == query.report.rows
    assert len(connection.model.calls) == asked, "a run after it asks nothing again"
    assert sum(piece.num_rows for piece in query.batches()) == query.report.rows


def test_a_reader_that_stops_early_leaves_the_connection_in_order(connection):
    rows = connection.sql(PLANNED).batches()
    next(rows)
    with pytest.raises(covey.CoveyError, match="open result"):
        connection.run("SELECT 1")
    rows.close()
    assert connection.run("SELECT 1").fetchall() == [(1,)]
    left = connection.run("SELECT table_name FROM duckdb_tables()").fetchall()
    assert not [name for (name,) in left if name.startswith("covey_source")]


def test_statements_before_the_last_run_first(connection):
    query = connection.sql("CREATE TABLE u AS SELECT 42 AS x; FROM u")
    assert [piece.to_pylist() for piece in query.batches()] == [[{"x": 42}]]
    created = connection.sql("CREATE TABLE v AS SELECT 42 AS x")
    assert sum(piece.num_rows for piece in created.batches()) <= 1
    assert connection.run("FROM v").fetchall() == [(42,)]


def test_mistakes_come_before_the_first_batch(connection):
    failing = connection.sql("SELECT AI.IF(PROMPT('? {0}', s), on_error => 'fail') FROM t")
    connection.model.answer = lambda question, documents: None
    with pytest.raises(covey.RunError, match="failed"):
        next(failing.batches())
    assert connection.run("SELECT 1").fetchall() == [(1,)]


def test_copy_writes_what_the_query_gives(connection, tmp_path):
    for number, query in enumerate((PLANNED, ON_DEMAND)):
        target = tmp_path / f"{number}.parquet"
        connection.run(f"COPY ({query}) TO '{target}'")
        assert pq.read_table(target).to_pylist() == connection.run(query).arrow().to_pylist()
