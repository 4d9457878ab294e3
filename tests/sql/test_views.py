"""Views with AI calls behave as DuckDB's views over the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import covey
from covey.errors import QueryError, RunError, UnsupportedError
from covey.sql.scopes import relation_names
from covey.sql.text import TokenList
from covey.testing import PlantedModel

ROWS = (
    "CREATE TABLE t AS FROM (VALUES (1, 'a refund', 'x'), (2, 'hello', 'x'), (3, NULL, 'y'), "
    "(4, 'refund now', 'y')) AS v(id, body, product)"
)
# How plain DuckDB is given the planted answers.
PLAIN = {
    "AI.IF(PROMPT('Refund? {0}', body))": "(body LIKE '%refund%')",
    "AI.IF(PROMPT('Now? {0}', body))": "(body LIKE '%now%')",
    "round(AI.SCORE(PROMPT('Now? {0}', body)), 6)": "CASE WHEN body LIKE '%now%' THEN 0.75 "
    "WHEN body IS NOT NULL THEN 0.25 END::DOUBLE",
}
REFUND, NOW, SCORE = PLAIN


def answer(question: str, documents: tuple[str, ...]) -> float:
    word = "now" if question.startswith("Now") else "refund"
    return 0.75 if word in documents[0] else 0.25


def plain(text: str) -> str:
    for call, expression in PLAIN.items():
        text = text.replace(call, expression)
    return text


@pytest.fixture
def model() -> PlantedModel:
    return PlantedModel(answer)


@pytest.fixture
def con(model: PlantedModel) -> Iterator[covey.Connection]:
    with covey.connect(model=model, progress=False) as connection:
        connection.duckdb.execute(ROWS)
        yield connection


@pytest.fixture
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(ROWS)
        yield connection


VIEW = f"CREATE VIEW v AS SELECT id, body, product, {REFUND} AS refund FROM t"
OVER = f"CREATE VIEW w(number, score) AS SELECT id, {SCORE} FROM v WHERE refund"


@pytest.mark.parametrize(
    "statements",
    [
        ["SELECT * FROM v"],
        ['SELECT id FROM "v" WHERE refund'],
        ["FROM V"],
        ["FROM v AS x SELECT x.id WHERE x.refund"],
        ["SELECT a.id, b.id FROM v AS a, v AS b WHERE a.refund AND NOT b.refund"],
        ["SELECT a.id FROM t AS a LEFT JOIN v USING (id) WHERE v.refund IS NULL"],
        ["SELECT product, count(*) FILTER (refund) FROM v GROUP BY product"],
        ["SELECT * FROM (SELECT id FROM v WHERE refund) UNION ALL SELECT 9 ORDER BY id"],
        ["(SELECT id FROM v) EXCEPT SELECT 1"],
        ["WITH q AS (SELECT * FROM v WHERE refund) SELECT id FROM q"],
        [
            "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) "
            "SELECT i, refund FROM n JOIN v ON i = id"
        ],
        ["SELECT id FROM t WHERE id IN (SELECT id FROM v WHERE refund)"],
        ["SELECT id FROM t WHERE EXISTS (SELECT 1 FROM v WHERE v.id = t.id AND v.refund)"],
        [f"SELECT id FROM v WHERE refund AND {NOW}"],
        ["SELECT * FROM main.v", "SELECT id FROM memory.main.v WHERE v.refund"],
        ["SELECT * FROM w"],
        ["SELECT number, refund FROM w JOIN v ON id = number"],
        ["WITH v AS (SELECT 5 AS number) SELECT * FROM v, w"],
        ["SELECT (WITH v AS (SELECT 7 AS x) SELECT max(x) FROM v)"],
        ["SELECT * FROM v, (WITH v AS (SELECT 7 AS x) SELECT x FROM v)"],
        ["SELECT id AS v FROM t ORDER BY v"],
        ["PIVOT v ON product USING count(*) GROUP BY refund"],
        ["DESCRIBE v"],
        ["CREATE TABLE z AS SELECT * FROM v WHERE refund", "FROM z"],
        ["CREATE TABLE z AS (FROM v)", "FROM z"],
        [
            "CREATE TABLE z (id INT, ok BOOLEAN)",
            "INSERT INTO z (id, ok) SELECT id, refund FROM v",
            "INSERT INTO z VALUES ((SELECT count(*) FROM v WHERE refund), NULL)",
            "FROM z",
        ],
        ["UPDATE t SET product = 'z' WHERE id IN (SELECT id FROM v WHERE refund)", "FROM t"],
        ["UPDATE t SET product = 'z' FROM v WHERE t.id = v.id AND v.refund IS NULL", "FROM t"],
        ["DELETE FROM t USING v WHERE t.id = v.id AND v.refund", "FROM t"],
        [
            "WITH q AS (SELECT * FROM v) DELETE FROM t WHERE id IN (SELECT id FROM q WHERE refund "
            "IS NULL)",
            "FROM t",
        ],
        ["CREATE OR REPLACE VIEW v AS SELECT id + 1 AS id FROM t", "FROM v"],
        [f"CREATE OR REPLACE VIEW v AS SELECT id, {NOW} AS refund FROM t", "FROM v"],
        [f"CREATE VIEW IF NOT EXISTS v AS SELECT {NOW} AS other FROM t", "SELECT refund FROM v"],
        [
            f"CREATE TEMP VIEW v AS SELECT id, {NOW} AS refund FROM t",
            "FROM v",
            "FROM main.v",
            "DROP VIEW temp.v",
            "FROM v",
        ],
        ["CREATE SCHEMA s", f"CREATE VIEW s.v AS SELECT id, {NOW} AS x FROM t", "FROM s.v"],
        [
            "BEGIN",
            f"CREATE VIEW gone AS SELECT {REFUND} AS x FROM t",
            "FROM gone",
            "ROLLBACK",
            "SELECT count(*) FROM duckdb_views() WHERE view_name = 'gone'",
        ],
        ["CREATE VIEW over AS SELECT id FROM v WHERE refund", "FROM over"],
    ],
)
def test_statements_over_views_give_what_duckdb_gives(
    con: covey.Connection, oracle: duckdb.DuckDBPyConnection, statements: list[str]
) -> None:
    for statement in [VIEW, OVER]:
        con.run(statement)
        oracle.execute(plain(statement))
    for statement in statements:
        got = con.run(statement).fetchall()
        expected = oracle.execute(plain(statement)).fetchall()
        if not statement.startswith("CREATE TABLE") and "VIEW" not in statement:
            assert sorted(map(repr, got)) == sorted(map(repr, expected)), statement


def test_a_view_that_is_read_twice_is_asked_once(
    con: covey.Connection, model: PlantedModel
) -> None:
    con.run(VIEW)
    con.run("CREATE VIEW over AS SELECT id FROM v WHERE refund")
    assert model.calls == []
    con.run("SELECT count(*) FROM v AS a JOIN v AS b USING (id) JOIN over USING (id)")
    assert sorted(model.calls) == sorted(set(model.calls))
    assert len(model.calls) == 3


def test_a_view_that_a_statement_only_hides_is_not_asked(
    con: covey.Connection, model: PlantedModel
) -> None:
    con.run(VIEW)
    con.run("SELECT id AS v, (WITH v AS (SELECT 7 AS x) SELECT x FROM v) FROM t")
    assert model.calls == []


def test_a_view_lives_in_its_database_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    with covey.connect(model=PlantedModel(answer), database=path, progress=False) as con:
        con.run(ROWS)
        con.run(VIEW)
    with covey.connect(model=PlantedModel(answer), database=path, progress=False) as con:
        assert con.sql("SELECT id FROM v WHERE refund ORDER BY id").fetchall() == [(1,), (4,)]


def test_an_error_in_a_later_statement_stands_at_its_own_place(con: covey.Connection) -> None:
    con.run(VIEW)
    text = "SELECT id\nFROM v WHERE nope"
    with pytest.raises(QueryError) as caught:
        con.sql(text)
    assert caught.value.sql == text
    assert caught.value.span == (text.index("nope"), len(text))


def test_an_error_inside_a_view_shows_the_text_of_the_view(con: covey.Connection) -> None:
    con.run(VIEW)
    con.run("ALTER TABLE t RENAME body TO words")
    with pytest.raises(QueryError, match="In the view v: ") as caught:
        con.sql("SELECT id FROM v")
    assert caught.value.sql == VIEW.removeprefix("CREATE VIEW v AS ")


def test_a_wrong_view_is_refused_when_it_is_created(con: covey.Connection) -> None:
    text = f"CREATE VIEW v AS SELECT nope FROM t WHERE {REFUND}"
    with pytest.raises(QueryError) as caught:
        con.sql(text)
    assert caught.value.span == (text.index("nope"), text.index("nope") + 4)


def test_a_name_that_is_taken_is_refused_as_duckdb_does(con: covey.Connection) -> None:
    con.run(VIEW)
    with pytest.raises(RunError, match='"v" already exists'):
        con.run(VIEW)
    with pytest.raises(RunError, match='"v" already exists'):
        con.run("CREATE TABLE v (i INT)")


def test_a_view_cannot_read_itself(con: covey.Connection) -> None:
    con.run(VIEW)
    con.run(OVER)
    with pytest.raises(QueryError, match="The view v reads itself"):
        con.sql(f"CREATE OR REPLACE VIEW v AS SELECT {REFUND} FROM v")
    with pytest.raises(QueryError, match="In the view w: The view v reads itself"):
        con.sql(f"CREATE OR REPLACE VIEW v AS SELECT number, {REFUND} FROM w, t")


def test_two_views_of_one_name_in_one_statement_are_refused(con: covey.Connection) -> None:
    con.run(VIEW)
    con.run(f"CREATE TEMP VIEW v AS SELECT {NOW} AS x FROM t")
    with pytest.raises(UnsupportedError, match="of something else here"):
        con.sql("SELECT * FROM memory.main.v, temp.v")


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE MACRO m() AS TABLE SELECT {REFUND} FROM t",
        "CREATE MACRO m(x) AS AI.IF(x)",
        f"PREPARE p AS SELECT {REFUND} FROM t",
        "CREATE TABLE z (a VARCHAR, b BOOLEAN DEFAULT AI.IF('x'))",
    ],
)
def test_a_call_that_duckdb_would_keep_is_refused(con: covey.Connection, text: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be kept by"):
        con.sql(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "SELECT a, b FROM t, u AS x, (SELECT 1 FROM w), lateral_f(v), s.q WHERE a IN (b, c)",
            ["t", "u", "w", "s.q"],
        ),
        (
            "FROM a JOIN b ON f(a, b), c LEFT JOIN (d CROSS JOIN e) USING (k, l)",
            ["a", "b", "c", "d", "e"],
        ),
        ("SELECT extract(year FROM y), trim(BOTH ' ' FROM z), a IS DISTINCT FROM b FROM t", ["t"]),
        ("SELECT 1 FROM t GROUP BY g, h HAVING x UNION SELECT 2 FROM u ORDER BY o, p", ["t", "u"]),
        ("DELETE FROM t USING u, w WHERE x", ["t", "u", "w"]),
        ("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE", ["u"]),
        ("PIVOT t ON a, b USING sum(c)", ["t"]),
        ("FROM 'file.parquet' AS f, \"odd name\"", ['"odd name"']),
    ],
)
def test_names_of_relations_are_found(text: str, names: list[str]) -> None:
    tokens = TokenList(text)
    found = [text[slice(*tokens.span(*place))] for place in relation_names(tokens)]
    assert found == names
