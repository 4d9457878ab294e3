"""Several statements in one text, and statements that are no queries."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import covey
from covey.errors import InputError, QueryError, RunError
from covey.testing import PlantedModel


@pytest.fixture
def model() -> PlantedModel:
    return PlantedModel(lambda question, documents: 0.9 if "refund" in documents[0] else 0.1)


@pytest.fixture
def con(model: PlantedModel) -> Iterator[covey.Connection]:
    with covey.connect(model=model, progress=False) as connection:
        connection.duckdb.execute(
            "CREATE TABLE t AS FROM (VALUES (1, 'refund'), (2, 'hello')) AS v(id, body)"
        )
        yield connection


CALL = "AI.IF(PROMPT('x {0}', body))"


def test_all_run_in_order_and_the_last_gives_the_result(con: covey.Connection) -> None:
    query = con.sql(
        f"CREATE TABLE u AS SELECT id FROM t WHERE {CALL}; -- first; with a semicolon\n"
        "INSERT INTO u VALUES (9);; SELECT id, ';' FROM u ORDER BY id;"
    )
    assert query.fetchall() == [(1, ";"), (9, ";")]


def test_nothing_runs_when_a_query_is_made(con: covey.Connection, model: PlantedModel) -> None:
    con.sql(f"CREATE TABLE u AS SELECT 1 AS i; SELECT {CALL} FROM t, u")
    assert con.sql("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'u'").fetchall() == [
        (0,)
    ]
    assert model.calls == []


def test_statements_of_one_text_share_their_answers(
    con: covey.Connection, model: PlantedModel
) -> None:
    query = con.sql(f"CREATE TABLE u AS SELECT id, {CALL} AS a FROM t; SELECT {CALL} FROM t")
    assert query.report.operators[0].prompts == 2
    assert query.report.operators[1].prompts == 0
    assert query.report.counters.prompts == len(model.calls) == 2
    assert query.report.rows == 2


def test_an_error_in_a_later_statement_stands_at_its_place_in_the_text(
    con: covey.Connection,
) -> None:
    text = "CREATE TABLE u AS SELECT 1 AS i;\nSELECT nope FROM u"
    query = con.sql(text)
    with pytest.raises(QueryError) as caught:
        query.run()
    assert caught.value.span == (text.index("nope"), text.index("nope") + 4)
    assert str(caught.value).endswith("The statements before it have run.")


def test_a_misspelled_function_is_found_before_anything_runs(con: covey.Connection) -> None:
    with pytest.raises(QueryError, match="There is no AI function AI_FILTR"):
        con.sql("CREATE TABLE u AS SELECT 1 AS i; SELECT AI_FILTR(body) FROM t")


def test_a_users_own_ai_macro_is_duckdbs(con: covey.Connection) -> None:
    assert con.sql("CREATE MACRO ai_twice(x) AS 2 * x; SELECT ai_twice(4)").fetchall() == [(8,)]
    assert con.sql(f"SELECT ai_twice(id), {CALL} FROM t ORDER BY ALL").fetchall() == [
        (2, True),
        (4, False),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE ai_notes (id INT)",
        "CREATE TABLE IF NOT EXISTS ai_notes (id INT)",
        "CREATE TABLE ai_notes (id INT); INSERT INTO ai_notes (id) VALUES (1)",
        "CREATE TABLE ai_notes (id INT); CREATE INDEX i ON ai_notes (id)",
        "WITH ai_a (x) AS (SELECT 1), ai_b (y) AS (SELECT 2) SELECT * FROM ai_a, ai_b",
        "SELECT x FROM (SELECT 1) AS ai_score (x)",
        "CREATE TABLE ai_if (id INT)",
    ],
)
def test_a_name_that_begins_like_an_ai_function_is_no_call(
    con: covey.Connection, text: str
) -> None:
    assert con.run(text).report.operators == []


@pytest.mark.parametrize("text", ["", "  \n", ";;", "-- only a comment", "/* only */ ;"])
def test_a_text_without_a_statement_is_refused(con: covey.Connection, text: str) -> None:
    with pytest.raises(QueryError, match="holds no SQL statement"):
        con.sql(text)


def test_sql_that_is_no_text_is_refused(con: covey.Connection) -> None:
    with pytest.raises(InputError, match="SQL is a text, not of type int"):
        con.sql(1)  # type: ignore[arg-type]


def test_statements_that_duckdb_cannot_explain_run(con: covey.Connection) -> None:
    con.run("SET threads = 1; PRAGMA enable_progress_bar; SET VARIABLE x = 3")
    text = "BEGIN; DELETE FROM t; ROLLBACK; SELECT count(*), getvariable('x') FROM t"
    assert con.sql(text).fetchall() == [(2, 3)]


def test_a_statement_with_effects_has_them_once(con: covey.Connection) -> None:
    con.run("CREATE SEQUENCE s; CREATE TABLE u (i INT)")
    con.run("INSERT INTO u SELECT nextval('s')")
    assert con.sql("FROM u").fetchall() == [(1,)]


def test_explain_as_a_statement_gives_coveys_plan(
    con: covey.Connection, model: PlantedModel
) -> None:
    text = f"SELECT id FROM t WHERE {CALL}"
    assert con.sql(f"EXPLAIN {text}").fetchall() == [("covey_plan", con.explain(text))]
    assert con.sql("EXPLAIN SELECT 1").fetchall()[0][0] == "physical_plan"
    with pytest.raises(QueryError, match="takes no options"):
        con.sql(f"EXPLAIN (FORMAT JSON) {text}")
    assert model.calls == []


def test_explain_analyze_runs_the_query_and_says_what_it_did(
    con: covey.Connection, model: PlantedModel
) -> None:
    text = f"SELECT id FROM t WHERE {CALL}"
    [(key, plan)] = con.sql(f"EXPLAIN ANALYZE {text}").fetchall()
    assert key == "covey_plan"
    assert len(model.calls) == 2
    assert re.search(r"was: 2 prompts, \d TRUE", plan)
    assert con.sql("EXPLAIN ANALYZE SELECT 1").fetchall()[0][0] == "analyzed_plan"


def test_describe_and_schema_ask_nothing(con: covey.Connection, model: PlantedModel) -> None:
    text = f"SELECT id, {CALL} AS refund FROM t"
    assert con.sql(text).schema == [("id", "INTEGER"), ("refund", "BOOLEAN")]
    described = con.sql(f"DESCRIBE {text}").fetchall()
    assert [row[:2] for row in described] == [("id", "INTEGER"), ("refund", "BOOLEAN")]
    assert model.calls == []


def test_explain_of_several_plans_what_binds_already(con: covey.Connection) -> None:
    text = con.sql(f"CREATE TABLE u AS SELECT 1 AS i; SELECT i FROM u; SELECT {CALL} FROM t")
    assert text.explain().splitlines() == [
        "statement 1 of 3: CREATE TABLE u AS SELECT 1 AS i",
        "DuckDB runs all of it",
        "statement 2 of 3: SELECT i FROM u",
        "planned when the statements before it have run",
        f"statement 3 of 3: SELECT {CALL} FROM t",
        *con.explain(f"SELECT {CALL} FROM t").splitlines(),
    ]


def test_a_statement_without_a_result_gives_no_rows(con: covey.Connection) -> None:
    query = con.sql("CREATE TABLE u (i INT)")
    assert query.fetchall() == []
    assert len(query.df()) == 0
    with pytest.raises(RunError, match="already exists"):
        con.run("CREATE TABLE u (i INT)")
