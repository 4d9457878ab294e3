"""What DuckDB's catalogue says of functions and views is read where a text needs it, and anew."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import covey
from covey.sql import volatile
from covey.sql.volatile import NO_FUNCTIONS
from covey.testing import PlantedModel

CONDITION = "AI.IF(PROMPT('is it {0}', b))"


@pytest.fixture
def model():
    return PlantedModel(lambda question, documents: 1.0, lambda question, labels, documents: 0)


@pytest.fixture
def con(model):
    with covey.connect(model=model, cache=False) as connection:
        connection.register("t", pa.table({"id": list(range(4)), "b": list("wxyz")}))
        yield connection


@pytest.fixture
def read(monkeypatch):
    """How often the list of functions is looked at."""
    found: list[int] = []
    classified = volatile._classified

    def counted(listed, defined):
        found.append(len(listed))
        return classified(listed, defined)

    monkeypatch.setattr(volatile, "_classified", counted)
    return found


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT id FROM t WHERE {CONDITION}",
        f"SELECT id, AI.SCORE((b)) FROM t WHERE id IN (1, 2) AND (NOT ({CONDITION})) LIMIT 1",
        f"WITH c AS (SELECT * FROM t) SELECT id FROM c WHERE EXISTS (FROM t) AND {CONDITION}",
        "SELECT AI_CLASSIFY(b, ['x', 'y']) FROM t",
    ],
)
def test_the_list_of_functions_is_not_read_for_a_text_that_calls_none(con, read, query):
    con.sql("CREATE VIEW plain AS SELECT id FROM t WHERE id > 1").run()
    con.sql(query).fetchall()
    assert read == []


def test_the_list_of_functions_is_read_once_for_each_planning(con, read):
    query = f"SELECT lower(b), upper(b) FROM t WHERE length(b) > 0 AND {CONDITION} LIMIT 2"
    con.sql(query).fetchall()
    # When it is made, and when it runs.
    assert len(read) == 2


@pytest.mark.parametrize("word", sorted(NO_FUNCTIONS))
def test_a_word_that_is_taken_for_no_function_calls_none(word):
    with duckdb.connect() as database:
        try:
            database.execute(f"CREATE MACRO {word}(x) AS x")
        except duckdb.ParserException:
            return
        with pytest.raises(duckdb.ParserException):
            database.execute(f"SELECT {word}(1)")


def by_sql(con):
    con.sql("CREATE MACRO f(x) AS x || random()").run()


def by_duckdb(con):
    con.duckdb.execute("CREATE MACRO f(x) AS x || random()")


def by_cursor(con):
    con.duckdb.cursor().execute("CREATE MACRO f(x) AS x || random()")


def by_python(con):
    con.duckdb.create_function("f", lambda text: text, ["VARCHAR"], "VARCHAR", side_effects=True)


def instead_of_another(con):
    con.sql("CREATE MACRO f(x) AS x || 'a'").run()
    con.sql(f"SELECT f(b) FROM t WHERE {CONDITION}").fetchall()
    con.duckdb.execute("CREATE OR REPLACE MACRO f(x) AS x || random()")


@pytest.mark.parametrize("make", [by_sql, by_duckdb, by_cursor, by_python, instead_of_another])
def test_a_function_is_known_however_it_was_made(con, make):
    query = con.sql(f"SELECT lower(b) FROM t WHERE {CONDITION}")
    query.fetchall()
    make(con)
    known = volatile.Volatile(con.duckdb)
    assert known.catalogue.functions["f"] >= volatile.Changes.WITH_ROW


def test_a_view_that_draws_through_another_is_known(con):
    con.sql("CREATE VIEW inner_one AS SELECT id, b || random() AS b FROM t").run()
    con.sql("CREATE VIEW outer_one AS SELECT * FROM inner_one").run()
    known = volatile.Volatile(con.duckdb)
    assert "outer_one" in known._may_change and "t" not in known._may_change
    assert known.catalogue.views["outer_one"] == volatile.Changes.WITH_ROW


@pytest.mark.parametrize(
    "call", ["sum(id)", '"sum"(id)', "total(id)", "whole(id)", "main.total(id)"]
)
@pytest.mark.parametrize("rest", ["LIMIT 1", ""])
def test_rows_that_an_aggregate_needs_are_asked_about_under_a_limit(con, model, call, rest):
    con.sql("CREATE MACRO total(x) AS sum(x)").run()
    con.sql("CREATE MACRO whole(x) AS coalesce(total(x), 0)").run()
    query = con.sql(f"SELECT {call} FROM t WHERE {CONDITION} {rest}")
    assert query.fetchall() == [(6,)]
    assert len(model.calls) == 4
