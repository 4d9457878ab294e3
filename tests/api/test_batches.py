"""Results that are never held whole."""

from __future__ import annotations

import gc
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import covey
from covey.execution import batch_size, bridge
from covey.testing import PlantedModel, planted

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
        con.planted = model
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
    assert pa.Table.from_batches(pieces) == whole.arrow()


STREAMED = [
    "SELECT id, s FROM t WHERE AI.IF(PROMPT('A {0}', s))",
    "SELECT *, AI.CLASSIFY(s, ['x', 'y']) AS c FROM t WHERE AI.IF(PROMPT('A {0}', s)) AND id > 9",
    "SELECT id AS n, AI.SCORE(PROMPT('A {0}', t.s)) FROM t",
    "SELECT t.id FROM t WHERE AI.IF(PROMPT('A {0}', s)) AND NOT AI.IF(PROMPT('B {0}', s)) -- end",
    "SELECT t.id, u.k FROM t, u WHERE t.id % 7 = u.k AND AI_JOIN(PROMPT('A {0} {1}', t.s, u.s))",
    "WITH v AS (SELECT * FROM t WHERE AI.IF(PROMPT('A {0}', s))) "
    "SELECT v.id FROM v JOIN u ON v.id % 7 = u.k "
    "WHERE AI.IF(PROMPT('B {0} {1}', v.s, u.s)) OR v.id < 9",
    "SELECT id, random() >= 0 AS r FROM (SELECT id, s FROM t WHERE id < 400 ORDER BY s) AS v "
    "WHERE AI.IF(PROMPT('A {0}', s))",
    "SELECT id FROM t WHERE id < 0 AND AI.IF(PROMPT('A {0}', s))",
    "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s), threshold => 1.0)",
]
WHOLE = [
    "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s)) ORDER BY s, id",
    "SELECT s, count(*) AS n FROM t WHERE AI.IF(PROMPT('A {0}', s)) GROUP BY s",
    "SELECT DISTINCT s FROM t WHERE AI.IF(PROMPT('A {0}', s))",
    "SELECT max(id) FROM t WHERE AI.IF(PROMPT('A {0}', s))",
    "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s)) LIMIT 50",
    "SELECT id, row_number() OVER (ORDER BY id) FROM t WHERE AI.IF(PROMPT('A {0}', s))",
    "SELECT t.id, u.k FROM t LEFT JOIN u ON t.id = u.k WHERE AI.IF(PROMPT('A {0}', t.s))",
    "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s)) UNION ALL SELECT k FROM u",
    "SELECT id, (SELECT min(k) FROM u) FROM t WHERE AI.IF(PROMPT('A {0}', s))",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE AI.IF(PROMPT('A {0} {1}', t.s, u.s)))",
    "SELECT id FROM t WHERE id NOT IN (SELECT k FROM u) AND AI.IF(PROMPT('A {0}', s))",
    ON_DEMAND,
]


@pytest.fixture
def stream(monkeypatch):
    """A connection whose tables have many texts, asked in small pieces."""
    monkeypatch.setattr(bridge, "ROWS_A_BATCH", 40)
    monkeypatch.setattr(bridge, "MOST_ROWS", 90)
    monkeypatch.setattr(batch_size, "FIRST_BATCH", 16)
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 10)
    model = PlantedModel(
        lambda question, documents: sum(map(ord, question + "".join(documents))) % 10 / 10,
        lambda question, labels, documents: len(documents[0]) % len(labels),
        fingerprint="stream",
    )
    with covey.connect(model) as con:
        con.planted = model
        texts = [None if i % 50 == 7 else f"text {i // 2}" for i in range(ROWS)]
        con.register("t", pa.table({"id": range(ROWS), "s": texts}))
        con.register("u", pa.table({"k": range(7), "s": [f"u {i}" for i in range(7)]}))
        yield con


@pytest.mark.parametrize("query", [*STREAMED, *WHOLE])
def test_rows_that_come_early_are_the_rows_of_the_result(stream, query):
    pieces = list(stream.sql(query).batches(early=True))
    assert pieces, "one batch at least shows the columns"
    whole = covey.connect(stream.planted, cache=False)
    whole.register("t", stream.duckdb.table("t").to_arrow_table())
    whole.register("u", stream.duckdb.table("u").to_arrow_table())
    expected = whole.run(query)
    found = pa.Table.from_batches(pieces)
    assert found.schema == expected.arrow().schema
    assert sorted(found.to_pylist(), key=repr) == sorted(expected.arrow().to_pylist(), key=repr)
    if query in STREAMED and " u" not in query and "ORDER" not in query:
        assert found.to_pylist() == expected.arrow().to_pylist(), "in the order of the table"


@pytest.mark.parametrize("query", STREAMED[:-2])
def test_after_the_first_batch_only_a_part_is_asked(stream, query):
    reading = stream.sql(query)
    rows = reading.batches(early=True)
    first = next(rows)
    asked = len(stream.planted.calls)
    assert 0 < first.num_rows == reading.report.rows
    rest = sum(batch.num_rows for batch in rows)
    assert rest
    total = len(stream.planted.calls)
    assert asked < 0.7 * total
    assert reading.report.rows == first.num_rows + rest
    assert reading.report.counters.prompts == total


@pytest.mark.parametrize("query", WHOLE)
def test_where_a_row_may_depend_on_later_ones_all_is_asked_first(stream, query):
    rows = stream.sql(query).batches(early=True)
    next(rows)
    asked = len(stream.planted.calls)
    assert asked
    list(rows)
    assert len(stream.planted.calls) == asked


def test_a_reader_that_stops_stops_the_model_and_keeps_the_answers(stream):
    query = stream.sql(STREAMED[0])
    rows = query.batches(early=True)
    first = next(rows)
    with pytest.raises(covey.InputError, match="open result"):
        stream.run("SELECT 1")
    with pytest.raises(covey.InputError, match="open result"):
        next(stream.sql(STREAMED[0]).batches(early=True))
    rows.close()
    asked = len(stream.planted.calls)
    assert query.report.rows == first.num_rows
    assert asked < ROWS / 4
    assert len(query.fetchall()) > first.num_rows
    total = len(stream.planted.calls)
    assert len(set(stream.planted.calls)) == total == 250, "nothing was asked twice"
    assert stream.run(STREAMED[0]).report.operators[0].stored == total
    left = stream.run("SELECT table_name FROM duckdb_tables()").fetchall()
    assert not [name for (name,) in left if name.startswith("covey_source")]


def test_a_reader_that_forgets_its_rows_leaves_the_connection_in_order(stream):
    for _ in zip(stream.sql(STREAMED[0]).batches(early=True), range(2), strict=False):
        pass
    gc.collect()
    assert stream.run("SELECT 1").fetchall() == [(1,)]


def test_a_mistake_comes_behind_the_rows_that_were_final_before(stream):
    stream.register("t", pa.table({"id": range(ROWS), "s": [f"text {i}" for i in range(ROWS)]}))
    answered = iter(range(ROWS))
    stream.planted._answer = lambda question, documents: 0.9 if next(answered) < 300 else None
    for option, message in (("on_error => 'fail'", "failed"), ("max_error_ratio => 0.1", "ratio")):
        answered = iter(range(ROWS))
        found = []
        query = f"SELECT id FROM t WHERE AI.IF(PROMPT('{message} {{0}}', s), {option})"
        with pytest.raises(covey.RunError, match=message):
            for batch in stream.sql(query).batches(early=True):
                found += batch["id"].to_pylist()
        assert found == list(range(len(found)))
        assert 0 < len(found) <= 300
    assert stream.run("SELECT 1").fetchall() == [(1,)]


def test_everything_is_asked_before_the_first_batch_and_nothing_after(connection):
    query = connection.sql(PLANNED)
    rows = query.batches()
    first = next(rows)
    asked = len(connection.planted.calls)
    assert asked
    assert query.report.operators[0].prompts == asked
    rest = sum(piece.num_rows for piece in rows)
    assert first.num_rows == ROWS_A_BATCH and rest
    assert query.report.rows == first.num_rows + rest
    assert len(query.fetchall()) == query.report.rows
    assert len(connection.planted.calls) == asked, "a run after it asks nothing again"
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
    assert sum(piece.num_rows for piece in created.batches()) == 1
    assert connection.run("FROM v").fetchall() == [(42,)]


EMPTY = [
    PLANNED.replace("WHERE", "WHERE id < 0 AND"),
    "SELECT id, s FROM t WHERE id < 0",
    "SELECT id, s FROM t WHERE id < 0 AND AI.IF(PROMPT('A {0}', s))",
    "INSERT INTO w SELECT id, s FROM t WHERE id < 0 RETURNING id, s",
    "INSERT INTO w SELECT id, s FROM t WHERE id < 0 AND AI.IF(PROMPT('A {0}', s)) RETURNING id, s",
    "DELETE FROM w RETURNING id, s",
]


@pytest.mark.parametrize("query", EMPTY)
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("done", [False, True])
def test_one_batch_at_least_shows_the_columns(connection, query, early, done):
    connection.run("CREATE TABLE w (id BIGINT, s VARCHAR)")
    reading = connection.sql(query)
    if done:
        reading.run()
    (batch,) = reading.batches(early=early)
    assert batch.schema == pa.schema({"id": pa.int64(), "s": pa.string()})
    assert batch.num_rows == 0


def test_a_statement_without_a_result_gives_a_batch_without_columns(connection):
    query = connection.sql("CREATE VIEW e AS SELECT AI.IF(PROMPT('A {0}', s)) FROM t")
    assert [batch.num_columns for batch in query.batches()] == [0]


def test_unless_rows_are_wanted_early_nothing_is_asked_in_small_batches(stream):
    query = STREAMED[0]
    asked = []
    ask = planted.PlantedSession.submit

    def submit(self, batch):
        asked.append(len(batch.documents))
        return ask(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planted.PlantedSession, "submit", submit)
        stream.run(query)
        whole, asked[:] = list(asked), []
        reading = stream.sql(query.replace("'A {0}'", "'B {0}'"))
        rows = reading.batches()
        next(rows)
        assert asked == whole, "as a result that is read whole"
        rest = list(rows)
        assert rest and asked == whole


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("end", ["close", "to the end"])
def test_the_reader_s_own_time_is_not_the_run_s(stream, early, end):
    query = stream.sql(STREAMED[0])
    rows = query.batches(early=early)
    began = time.perf_counter()
    next(rows)
    first = time.perf_counter() - began
    time.sleep(0.3)
    began = time.perf_counter()
    if end == "close":
        rows.close()
    else:
        list(rows)
    rest = time.perf_counter() - began
    assert 0 < query.report.seconds <= first + rest


def test_mistakes_come_before_the_first_batch(connection):
    failing = connection.sql("SELECT AI.IF(PROMPT('? {0}', s), on_error => 'fail') FROM t")
    connection.planted.answer = lambda question, documents: None
    with pytest.raises(covey.RunError, match="failed"):
        next(failing.batches())
    assert connection.run("SELECT 1").fetchall() == [(1,)]


def test_copy_writes_what_the_query_gives(connection, tmp_path):
    for number, query in enumerate((PLANNED, ON_DEMAND)):
        target = tmp_path / f"{number}.parquet"
        connection.run(f"COPY ({query}) TO '{target}'")
        assert pq.read_table(target).to_pylist() == connection.run(query).arrow().to_pylist()
