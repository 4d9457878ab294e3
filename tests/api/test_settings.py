"""A user's settings, names and macros: they stay, and change nothing but what is theirs."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import covey
from covey.execution.answers import QueryAnswers
from covey.execution.udf import AnswerUDFs, RowDocuments
from covey.prompts.documents import DocumentStore
from covey.sql.bind import has_function
from covey.sql.call_parser import find_calls
from covey.sql.extract import extract_calls
from covey.sql.text import read_tokens
from covey.testing import PlantedModel

SCORES = "SELECT a, round(AI.SCORE(PROMPT('q {0}', a)), 6) FROM t ORDER BY a ASC"
RIGHT = [("a", 0.25), ("b", 0.5), ("c", 0.75)]


def model() -> PlantedModel:
    return PlantedModel(lambda question, documents: {"a": 0.25, "b": 0.5}.get(documents[0], 0.75))


@pytest.fixture
def con() -> covey.Connection:
    connection = covey.connect(model(), cache=False, progress=False)
    connection.register("t", pa.table({"a": list("abc")}))
    return connection


@pytest.mark.parametrize("wrong", [False, True])
def test_an_optimizer_that_is_off_stays_off(con: covey.Connection, wrong: bool) -> None:
    con.run("PRAGMA disable_optimizer")
    if wrong:
        with pytest.raises(covey.QueryError):
            con.run("SELECT nope FROM t WHERE AI.IF(PROMPT('q {0}', a))")
    else:
        assert con.run(SCORES).fetchall() == RIGHT
    assert con.duckdb.execute("SELECT current_setting('enable_optimizer')").fetchall() == [(False,)]


@pytest.mark.parametrize(
    "setting",
    [
        "SET default_order = 'desc'",
        "SET default_null_order = 'nulls_first'",
        "SET preserve_identifier_case = 'uppercase'",
        "SET lock_configuration = true",
        "CREATE SCHEMA s; SET search_path = 's,main'",
        "SET arrow_output_version = '1.4'; SET arrow_large_buffer_size = true",
        "SET enable_external_access = false",
    ],
)
def test_answers_stand_beside_their_rows(con: covey.Connection, setting: str) -> None:
    con.run(setting)
    assert con.run(SCORES).fetchall() == RIGHT
    kept = "SELECT a FROM t WHERE AI.SCORE(PROMPT('q {0}', a)) > 0.3 AND AI.IF(PROMPT('{0}', a))"
    assert sorted(con.run(kept).fetchall()) == [("c",)]


@pytest.mark.parametrize(
    "macro",
    [
        *("hash(x) AS 1", "strlen(x) AS 0", "count(x) AS 7", "txid_current() AS random()"),
        *("getvariable(x) AS 0", "duckdb_functions() AS TABLE SELECT 1 AS one"),
        *("lower(x) AS 'x'", "upper(x) AS 'x'", "list_contains(x, y) AS true", "len(x) AS 0"),
        *("current_schema() AS 'x'", "duckdb_views() AS TABLE SELECT 1 AS one"),
    ],
)
def test_a_macro_of_the_users_changes_nothing_of_coveys(con: covey.Connection, macro: str) -> None:
    con.duckdb.execute(f"CREATE MACRO {macro}").fetchall()
    both = "SELECT a FROM t WHERE AI.IF(PROMPT('x {0}', a)) AND AI.SCORE(PROMPT('y {0}', a)) > 0"
    assert con.run(both).fetchall() == [("c",)]


NAMES = ["covey_batch", "covey_kept", "covey_asked", "covey_wanted", "covey_source_0", "covey_0"]


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_columns_may_be_called_anything(con: covey.Connection, name: str) -> None:
    columns = ["covey_row", "covey_at", "covey_0", "covey_left", "covey_right", name]
    shown = ", ".join(f"a AS {column}" for column in dict.fromkeys(columns))
    con.run(f"CREATE TABLE {name} AS SELECT a, {shown} FROM t")
    con.run(f"CREATE MACRO {name}(x) AS 'macro ' || x")
    for column in columns:
        query = (
            f"SELECT {column}, {name}({column}) FROM {name} "
            f"WHERE AI.IF(PROMPT('x {{0}}', {column})) "
            f"AND AI.SCORE(PROMPT('y {{0}}', {column})) > 0.1 LIMIT 3"
        )
        assert con.run(query).fetchall() == [("c", "macro c")]
    pairs = (
        f"SELECT u.{name} FROM {name} AS u JOIN t ON AI.IF(PROMPT('{{0}} {{1}}', u.{name}, t.a)) "
        "JOIN t AS v ON AI.IF(PROMPT('{0} {1}', v.a, t.a)) WHERE covey_left = 'c'"
    )
    assert con.run(pairs).fetchall() == [("c",)] * 3
    assert con.run(f"SELECT count(*) FROM {name}").fetchall() == [(3,)]


def test_connections_that_share_a_database_share_no_names(tmp_path: Path) -> None:
    file = tmp_path / "d.duckdb"
    with covey.connect(model(), database=file, cache=False) as one:
        one.run("CREATE TABLE t AS SELECT unnest(['a', 'b', 'c']) AS a")
        with covey.connect(model(), database=file, cache=False) as two:
            first, found = one.sql(SCORES).batches(), list[list[tuple[str, float]]]()
            rows = next(first).to_pylist()
            thread = threading.Thread(target=lambda: found.append(two.run(SCORES).fetchall()))
            thread.start()
            thread.join(60)
            rows += [row for batch in first for row in batch.to_pylist()]
            assert [tuple(row.values()) for row in rows] == found[0] == RIGHT


def test_a_query_inside_a_query_keeps_to_its_own(con: covey.Connection) -> None:
    inner = covey.connect(model(), cache=False)
    inner.register("t", pa.table({"a": list("abc")}))

    def asks(text: str) -> str:
        found = inner.run("SELECT a FROM t WHERE AI.IF(PROMPT('in {0}', a))").fetchall()
        return f"{text}{found[0][0]}"

    con.duckdb.create_function("asks", asks, ["VARCHAR"], "VARCHAR")
    query = "SELECT asks(a) FROM t WHERE AI.IF(PROMPT('out {0}', a)) AND asks(a) <> ''"
    assert con.run(query).fetchall() == [("cc",)]


def test_a_planned_call_that_nothing_asked_gives_no_answer(con: covey.Connection) -> None:
    documents, objects = DocumentStore(), con.new_objects()
    lookups = AnswerUDFs(objects, QueryAnswers(), documents)
    sql = "SELECT AI.IF(PROMPT('q {0}', a)) FROM t"
    found = find_calls(read_tokens(sql), partial(has_function, con.duckdb))
    calls = extract_calls(sql, found, con.duckdb, prefix=objects.prefix).calls
    lookups.register(calls)
    query = f"SELECT {calls[0].row_udf}(x) FROM range(2) AS r(x)"
    assert con.duckdb.execute(query).fetchall() == [(None,), (None,)], "it is only planned"
    lookups.expect_rows()
    with pytest.raises(duckdb.Error, match="never asked"):
        con.duckdb.execute(query).fetchall()
    con.duckdb.abort()
    lookups.begin(0, (RowDocuments(0, np.empty(0, np.int64)),))
    assert con.duckdb.execute(query).fetchall() == [(None,), (None,)], "no row needed it"
    objects.clear()
