"""What statements, functions and settings of DuckDB can do: by a list, and by trying."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import covey
from covey.api import capabilities
from covey.api.capabilities import FUNCTIONS, SETTINGS, STATEMENTS, Capability
from covey.testing import PlantedModel
from effort import EXAMPLES, SEED


def model() -> PlantedModel:
    return PlantedModel(lambda question, documents: 0.9)


def of_duckdb(query: str) -> set[str]:
    with duckdb.connect() as fresh:
        return {name.lower() for (name,) in fresh.execute(query).fetchall()}


def test_every_setting_function_and_statement_of_duckdb_has_a_capability() -> None:
    functions = of_duckdb("SELECT DISTINCT function_name FROM duckdb_functions()")
    # IS DISTINCT FROM and its like are operators, which no text calls.
    assert {name for name in functions if " " not in name} == FUNCTIONS.keys()
    # The old spelling of a setting is not listed.
    settings = of_duckdb("SELECT name FROM duckdb_settings()") | {"extension_directory"}
    assert settings == SETTINGS.keys()
    assert set(duckdb.StatementType.__members__) == STATEMENTS.keys()


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("open", "closed"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "t.csv").write_text("a\n1\n")
        (tmp_path / name / "deep" / f"{name}_deep.csv").write_text("a\n1\n")
    return tmp_path


TOO_FAR = [
    "CALL enable_logging(storage = 'file', storage_path = '{closed}')",
    "FROM enable_logging()",
    "SELECT * FROM system.main.ENABLE_LOGGING /* ( */ ()",
    'SELECT (SELECT 1 FROM "enable_logging"())',
    "CREATE VIEW v AS FROM enable_logging(storage = 'file')",
    "CREATE MACRO m() AS TABLE FROM enable_logging()",
    "PREPARE p AS FROM enable_logging()",
    "EXPLAIN ANALYZE FROM enable_logging()",
    "FROM enable_profiling(save_location = '{closed}/p')",
    "PRAGMA enable_profiling",
    "FROM query('FROM enable_logging()')",
    "FROM query_table('t')",
    "PRAGMA json_execute_serialized_sql('x')",
    "FROM arrow_scan(1::POINTER, 1::POINTER, 1::POINTER)",
    "FROM duckdb_secrets()",
    "CREATE SECRET s (TYPE http)",
    "CREATE OR REPLACE PERSISTENT SECRET s (TYPE http)",
    "DROP SECRET s",
    "LOAD json",
    "INSTALL json",
    "UPDATE EXTENSIONS",
    "IMPORT DATABASE '{open}'",
    "PRAGMA import_database('{open}')",
    "SET logging_storage = 'file'",
    "SET SESSION home_directory = '{closed}'",
    "RESET secret_directory",
    "SET GLOBAL \"profiling_output\" TO '{open}/p.json'",
    "PRAGMA log_query_path = '{open}/q'",
    "SET max_expression_depth = 1000000",
    "SET errors_as_json = false",
    "SET nobody_knows_this = 1",
]


@pytest.mark.parametrize("statement", TOO_FAR)
def test_what_goes_past_allow_is_refused(statement: str, folders: Path) -> None:
    for read_only in (False, True):
        with covey.connect(model(), allow=[folders / "open"], read_only=read_only) as con:
            con.register("t", pa.table({"a": [1]}))
            text = statement.format(open=folders / "open", closed=folders / "closed")
            with pytest.raises(covey.QueryError) as caught:
                con.run(text)
            assert caught.value.hint and "onnect without" in caught.value.hint
            assert con.run("SELECT a FROM t WHERE AI.IF(PROMPT('{0}', a))").fetchall() == [(1,)]


FINE = [
    "SET default_order = 'desc'",
    "SET VARIABLE query = 1",
    "SET TIME ZONE 'UTC'",
    "PRAGMA threads = 2",
    "PRAGMA table_info('t')",
    "CALL pragma_version()",
    "CREATE TABLE query (a INT); INSERT INTO query (a) VALUES (1); FROM query",
    "WITH query(a) AS (SELECT 1) FROM query",
    "CREATE MACRO twice(x) AS 2 * x; SELECT twice(2)",
    "PIVOT t ON a USING count(*)",
    "CREATE SEQUENCE s; SELECT nextval('s')",
    "CHECKPOINT",
    "USE memory",
    "CREATE TABLE secret (a INT)",
    "FROM '{open}/*.csv'",
    "FROM '{open}/*/*.csv'",
    "FROM glob('{open}/' || '**')",
]


@pytest.mark.parametrize("statement", FINE)
def test_what_stays_inside_runs(statement: str, folders: Path) -> None:
    with covey.connect(model(), allow=[folders / "open"]) as con:
        con.register("t", pa.table({"a": [1]}))
        con.run(statement.format(open=folders / "open"))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT nextval('s')",
        "FROM checkpoint()",
        "CALL force_checkpoint()",
        "PRAGMA enable_optimizer",
    ],
)
def test_functions_that_change_something_need_more_than_reading(statement: str) -> None:
    with (
        covey.connect(model(), read_only=True) as con,
        pytest.raises(covey.QueryError, match="read-only"),
    ):
        con.run(statement)


@pytest.mark.parametrize("statement", ["PRAGMA table_info('t')", "CALL pragma_version()", "BEGIN"])
def test_a_read_only_connection_shows_what_there_is(statement: str) -> None:
    with covey.connect(model(), read_only=True) as con:
        con.register("t", pa.table({"a": [1]}))
        con.run(statement)


@pytest.mark.parametrize(
    "pattern",
    [
        "glob('{open}/*/*')",
        "glob('{open}/l?nk/*')",
        "glob('{open}/deep/../[l]ink/**')",
        "read_text('{open}/*/*')",
        "'{open}/*/*.csv'",
        '"{open}/*/*.csv"',
        "glob('{open}' || '/*/*')",
        "read_text(getvariable('x'))",
        "read_csv([x for x in ['{open}/*/*']])",
    ],
)
def test_no_pattern_lists_what_a_link_leads_out_to(pattern: str, folders: Path) -> None:
    (folders / "open" / "link").symlink_to(folders / "closed" / "deep")
    (folders / "open" / "near").symlink_to(folders / "open" / "deep")
    with covey.connect(model(), allow=[folders / "open"]) as con:
        con.duckdb.execute("SET VARIABLE x = 'x'")
        with pytest.raises(covey.QueryError, match="the link") as caught:
            con.run(f"FROM {pattern.format(open=folders / 'open')}")
        assert "closed_deep" not in str(caught.value)
        assert len(con.run(f"FROM glob('{folders}/open/n*/*')").fetchall()) == 1
        assert con.run("SELECT 'is */*?'").fetchall()


def test_what_a_database_brings_along_is_judged_where_it_is_named(folders: Path) -> None:
    file = folders / "open" / "d.duckdb"
    with duckdb.connect(str(file)) as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS a")
        con.execute("CREATE VIEW inner_v AS FROM enable_logging(level = 'error')")
        con.execute("CREATE VIEW outer_v AS SELECT * FROM inner_v")
        con.execute("CREATE MACRO m() AS TABLE SELECT * FROM outer_v")
        con.execute("CREATE VIEW fine AS SELECT * FROM t")
    for access in ({"allow": []}, {"read_only": True}):
        with covey.connect(model(), database=file, **access) as con:
            assert con.run("SELECT a FROM fine WHERE AI.IF(PROMPT('{0}', a))").fetchall() == [(1,)]
            for text in ("FROM inner_v", "SELECT 1 FROM outer_v, t", "FROM m()"):
                with pytest.raises(covey.QueryError, match="enable_logging"):
                    con.run(text)


def test_what_a_new_duckdb_brings_is_refused_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(capabilities.FUNCTIONS, "pi")
    monkeypatch.delitem(capabilities.SETTINGS, "threads")
    monkeypatch.delitem(capabilities.STATEMENTS, "CREATE")
    with covey.connect(model(), allow=[]) as con:
        for text in ("SELECT pi()", "SET threads = 1", "CREATE TABLE t (a INT)"):
            with pytest.raises(covey.QueryError):
                con.run(text)
        con.duckdb.create_function("own", lambda x: x, ["INT"], "INT")
        assert con.run("SELECT own(1), sin(0)").fetchall() == [(1, 0.0)]
    with covey.connect(model(), read_only=True) as con, pytest.raises(covey.QueryError):
        con.run("SELECT pi()")
    with covey.connect(model()) as con:
        con.run("SELECT pi(); SET threads = 1")


@pytest.mark.parametrize("name", [n for n, r in SETTINGS.items() if r is Capability.RELIED])
@pytest.mark.parametrize("form", ["SET {} = true", "RESET {}", "PRAGMA {} = true"])
def test_what_covey_relies_on_is_not_set(name: str, form: str) -> None:
    text = "no variable of Covey's own"
    with covey.connect(model()) as con:
        with pytest.raises(covey.QueryError, match=name):
            con.run(form.format(name))
        with pytest.raises(covey.QueryError, match="does not exist"):
            con.run("FROM text")
    assert text


@pytest.mark.fuzz
def test_random_statements_see_and_change_nothing_outside(tmp_path: Path) -> None:
    inside, outside, home = (tmp_path / name for name in ("inside", "outside", "home"))
    hidden = [secrets.token_hex(8) for _ in range(3)]
    for folder in (inside, outside, outside / "deep", home):
        folder.mkdir()
    (inside / "t.csv").write_text("a\nfine\n")
    (outside / "known.csv").write_text(f"a\n{hidden[0]}\n")
    (outside / "deep" / f"{hidden[1]}.csv").write_text(f"a\n{hidden[0]}\n")
    (home / f"{hidden[2]}.csv").write_text(hidden[0])
    (home / ".duckdbrc").write_text(hidden[0])
    (inside / "link").symlink_to(outside / "deep")
    (inside / "leads_out.csv").symlink_to(outside / "known.csv")
    program = Path(__file__).with_name("reach_statements.py")
    given = [str(SEED), str(EXAMPLES), str(inside), str(outside), *hidden]
    done = subprocess.run(
        [sys.executable, str(program), *given],
        env={**os.environ, "HOME": str(home), "COVEY_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=90 + EXAMPLES / 10,
        cwd=inside,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert not done.returncode, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    assert sorted(path.name for path in home.iterdir()) == sorted([".duckdbrc", f"{hidden[2]}.csv"])
