"""What SQL may reach: files, settings, extensions, tables to change."""

from __future__ import annotations

import stat
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import covey
from covey.testing import PlantedModel

FILTER = "SELECT id FROM {} WHERE AI.IF(PROMPT('? {{0}}', s)) ORDER BY id"


def model() -> PlantedModel:
    return PlantedModel(lambda question, documents: 0.9)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    table = pa.table({"id": range(5), "s": list("abcde")})
    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "t.parquet")
    return tmp_path


def hostile(folders: Path) -> list[str]:
    """Statements that reach for what they must not have."""
    closed = folders / "closed"
    return [
        FILTER.format(f"'{closed}/t.parquet'"),
        f"FROM read_parquet('{folders}/open/../closed/t.parquet')",
        f"FROM read_text('{closed}/*')",
        "FROM read_text('/etc/passwd')",
        f"FROM glob('{closed}/*')",
        "FROM 'https://example.com/t.parquet'",
        "FROM 's3://bucket/t.parquet'",
        f"COPY (SELECT 1) TO '{closed}/out.csv'",
        f"COPY ({FILTER.format('t')}) TO '{closed}/out.parquet'",
        f"ATTACH '{closed}/x.duckdb' AS x",
        f"EXPORT DATABASE '{closed}/dump'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET autoload_known_extensions = true; FROM 'https://example.com/t.parquet'",
        "SET temp_directory = '/'",
        "SET extension_directory = '/tmp'; INSTALL httpfs",
        f"CREATE VIEW v AS FROM '{closed}/t.parquet'; FROM v",
        f"SELECT (SELECT content FROM read_text('{closed}/t.parquet')), "
        "AI.IF(PROMPT('? {0}', s)) FROM t",
    ]


@pytest.mark.parametrize("number", range(20))
def test_sql_reaches_only_what_is_allowed(folders, number):
    planted = model()
    with covey.connect(planted, allow=[folders / "open"]) as con:
        con.register("t", pa.table({"id": range(5), "s": list("abcde")}))
        with pytest.raises(covey.CoveyError):
            con.run(hostile(folders)[number])
        assert not planted.calls
        assert sorted(path.name for path in (folders / "closed").iterdir()) == ["t.parquet"]


def test_what_is_allowed_or_registered_works(folders):
    out = folders / "open" / "out.parquet"
    with covey.connect(model(), allow=[folders / "open"]) as con:
        con.register("data", pa.table({"id": range(5), "s": list("abcde")}))
        con.register("path", folders / "open" / "t.parquet")
        for source in ("data", "path", f"'{folders}/open/t.parquet'"):
            assert len(con.run(FILTER.format(source)).fetchall()) == 5
        con.run(f"COPY ({FILTER.format('data')}) TO '{out}'")
        with pytest.raises(covey.InputError, match="cannot be registered"):
            con.register("other", folders / "closed" / "t.parquet")
    assert pq.read_table(out).num_rows == 5


def test_one_file_may_be_allowed_or_none(folders):
    file = folders / "open" / "t.parquet"
    with covey.connect(model(), allow=[file]) as con:
        assert len(con.run(FILTER.format(f"'{file}'")).fetchall()) == 5
    with covey.connect(model(), allow=[]) as con, pytest.raises(covey.CoveyError):
        con.run(f"FROM '{file}'")


def test_extensions_are_off_unless_wanted(folders):
    with covey.connect(model()) as con:
        names = [f"'{name}_known_extensions'" for name in ("autoinstall", "autoload")]
        for name in names:
            assert con.run(f"SELECT current_setting({name})").fetchall() == [(False,)]
    with covey.connect(model(), extensions=True) as con:
        assert con.run(f"SELECT current_setting({names[0]})").fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow": "data"}, "a list of files"),
        ({"allow": ["no such folder"]}, "does not exist"),
        ({"allow": [], "extensions": True}, "more than allow names"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(covey.InputError, match=message):
        covey.connect(model(), **options)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE u (x INT)",
        "INSERT INTO t VALUES (1, 'x')",
        "DELETE FROM t",
        "WITH w AS (SELECT 1) DELETE FROM t",
        "DROP TABLE t",
        "COPY (SELECT 1) TO '/tmp/never.csv'",
        "EXPLAIN ANALYZE DELETE FROM t",
        "SET threads = 1",
        "CREATE VIEW v AS SELECT AI.IF(PROMPT('? {0}', s)) FROM t",
        "SELECT 1; DROP TABLE t",
    ],
)
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_read_only_connection_changes_nothing(statement, kind, tmp_path):
    file = tmp_path / "d.duckdb"
    with covey.connect(model(), database=file) as con:
        con.run("CREATE TABLE t AS SELECT 1 AS id, 'x' AS s")
    database = file if kind == "file" else ":memory:"
    with covey.connect(model(), database=database, read_only=True) as con:
        if kind == "memory":
            con.register("t", pa.table({"id": [1], "s": ["x"]}))
        with pytest.raises(covey.QueryError, match="read-only"):
            con.run(statement)
        assert con.run(FILTER.format("t")).fetchall() == [(1,)]
        assert con.run("SHOW TABLES").fetchall()
        assert con.run("EXPLAIN SELECT 1").fetchall()


def test_temporary_files_are_private_and_go_with_the_connection():
    con = covey.connect(model())
    ((folder,),) = con.run("SELECT current_setting('temp_directory')").fetchall()
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    con.close()
    assert not Path(folder).exists()


def test_a_read_only_connection_explains_and_analyses_queries_alone() -> None:
    with covey.connect(model(), read_only=True) as con:
        assert con.sql("EXPLAIN ANALYZE SELECT AI.IF('x')").fetchall()
        with pytest.raises(covey.QueryError, match="read-only"):
            con.sql("EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1 AS a")


def test_no_memory_for_a_database_is_no_mistake_of_the_users(monkeypatch):
    def full(*arguments, **options):
        raise duckdb.OutOfMemoryException("Out of Memory Error: Allocation failure")

    monkeypatch.setattr(duckdb, "connect", full)
    with pytest.raises(covey.RunError, match="no memory left for a database"):
        covey.connect(model(), cache=False)
