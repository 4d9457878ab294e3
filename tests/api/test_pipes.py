"""A source that can be read once is read once, however often a query reads it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import covey
from covey.testing import PlantedModel

CSV = "id,body\n1,late\n2,fine\n3,late again\n"
LATE = "AI.IF(PROMPT('Is it late? {0}', body))"
TIMEOUT = 60

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")


@pytest.fixture
def model() -> PlantedModel:
    return PlantedModel(lambda question, documents: float("late" in documents[0]))


@contextmanager
def fed(path: Path, content: bytes) -> Iterator[Path]:
    """A named pipe, into which a thread writes once."""
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(content), daemon=True)
    writer.start()
    yield path
    writer.join(TIMEOUT)
    assert not writer.is_alive(), "nobody read it"


@contextmanager
def opened(content: bytes) -> Iterator[str]:
    """A pipe without a name, as `<(…)` gives, by the path of its descriptor."""
    read, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        file.write(content)
    try:
        yield f"/dev/fd/{read}"
    finally:
        os.close(read)


@pytest.mark.parametrize(
    "source",
    ["'{0}'", '"{0}"', "read_csv('{0}')", "read_csv(['{1}', '{0}'])", "read_csv_auto('{0}')"],
)
def test_a_named_pipe_is_read_once(source: str, model: PlantedModel, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,body\n9,late\n")
    with fed(tmp_path / "pipe.csv", CSV.encode()) as path, covey.connect(model, cache=False) as con:
        table = source.format(path, tmp_path / "a.csv")
        done = con.run(f"SELECT id FROM {table} WHERE {LATE} AND id < 9 ORDER BY id")
        assert done.fetchall() == [(1,), (3,)]
        assert len(model.calls) == 3
        assert done.explain() and done.explain(analyze=True)


def test_a_pipe_joined_with_itself_is_read_once(model: PlantedModel, tmp_path: Path) -> None:
    with fed(tmp_path / "p.csv", CSV.encode()) as path, covey.connect(model, cache=False) as con:
        query = f"SELECT count(*) FROM '{path}' a JOIN '{path}' b ON a.id < b.id"
        assert con.run(query).fetchall() == [(3,)]


def test_a_value_of_a_query_may_be_a_pipe(model: PlantedModel) -> None:
    with opened(CSV.encode()) as path, covey.connect(model, cache=False) as con:
        query = con.sql(f"SELECT id FROM read_csv(?) WHERE {LATE} ORDER BY id", [path])
        assert query.fetchall() == [(1,), (3,)]


def test_an_open_pipe_keeps_its_rows_for_the_connection(model: PlantedModel) -> None:
    with opened(CSV.encode()) as path, covey.connect(model, cache=False) as con:
        for _ in range(3):
            assert con.run(f"SELECT count(*) FROM read_csv('{path}')").fetchall() == [(3,)]
        con.run(f"CREATE TABLE t (id INT, body VARCHAR); COPY t FROM '{path}' (HEADER)")
        assert con.run(f"SELECT id FROM t WHERE {LATE} ORDER BY id").fetchall() == [(1,), (3,)]
        with (
            covey.connect(model, cache=False) as other,
            pytest.raises(covey.QueryError, match="was read before"),
        ):
            other.sql(f"SELECT count(*) FROM read_csv('{path}')")


def test_a_socket_is_read(model: PlantedModel) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, covey.connect(model, cache=False) as con:
        theirs.sendall(CSV.encode())
        theirs.shutdown(socket.SHUT_WR)
        query = f"SELECT count(*) FROM read_csv('/dev/fd/{ours.fileno()}')"
        assert con.run(query).fetchall() == [(3,)]


def test_parquet_comes_through_a_pipe(model: PlantedModel, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"body": ["late", "fine"]}), tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    with fed(tmp_path / "p.parquet", content) as path, covey.connect(model, cache=False) as con:
        assert con.run(f"SELECT body FROM '{path}' WHERE {LATE}").fetchall() == [("late",)]


def test_a_registered_pipe_is_read_when_it_is_registered(
    model: PlantedModel, tmp_path: Path
) -> None:
    with covey.connect(model, cache=False) as con:
        with fed(tmp_path / "p.csv", CSV.encode()) as path:
            con.register("t", path)
        for _ in range(2):
            assert con.run(f"SELECT count(*) FROM t WHERE {LATE}").fetchall() == [(2,)]
        with opened(b"x") as nameless, pytest.raises(covey.InputError, match="does not say its"):
            con.register("u", nameless)


def test_readers_that_end_are_read_when_they_are_registered(model: PlantedModel) -> None:
    table = pa.table({"body": ["late", "fine"]})
    dataset = pyarrow.dataset
    with covey.connect(model, cache=False) as con:
        for data in (
            table.to_reader(),
            dataset.Scanner.from_batches(table.to_reader()),
            dataset.dataset(table.to_batches()),
        ):
            con.register("t", data)
            for _ in range(2):
                assert con.run(f"SELECT body FROM t WHERE {LATE}").fetchall() == [("late",)]


def test_what_cannot_be_done_is_said_with_its_place(model: PlantedModel, tmp_path: Path) -> None:
    with covey.connect(model, cache=False) as con:
        with opened(CSV.encode()) as path:
            with pytest.raises(covey.QueryError, match=r"write read_csv\('/dev/fd/"):
                con.sql(f"FROM '{path}'")
            with pytest.raises(covey.QueryError, match="Create a table of it"):
                con.sql(f"CREATE VIEW v AS FROM read_csv('{path}')")
        with opened(b"") as path, pytest.raises(covey.QueryError, match="gives nothing"):
            con.sql(f"SELECT 1 FROM read_csv('{path}')")
    with (
        opened(CSV.encode()) as path,
        covey.connect(model, cache=False, allow=[tmp_path]) as con,
        pytest.raises(covey.QueryError, match="allow"),
    ):
        con.sql(f"SELECT 1 FROM read_csv('{path}')")
    assert not model.calls


def test_a_text_that_is_no_source_is_no_pipe(model: PlantedModel, tmp_path: Path) -> None:
    """Nobody writes into it: to open it would wait for ever."""
    path = tmp_path / "p.csv"
    os.mkfifo(path)
    with covey.connect(model, cache=False) as con:
        rows = con.run(
            f"SELECT '{path}' AS a, (SELECT x FROM (SELECT '{path}' AS x)) AS b, '{path}' IN "
            f"('{path}') AS c FROM unnest(['{path}']) t(u) WHERE u = '{path}'"
        ).fetchall()
    assert rows == [(str(path), str(path), True)]


@pytest.mark.parametrize(
    ("line", "out"),
    [
        ("cat x.csv | covey query \"SELECT count(*) AS n FROM read_csv('/dev/stdin')\"", "n\n3\n"),
        ("covey query \"SELECT count(*) AS n FROM read_csv('/dev/stdin')\" < x.csv", "n\n3\n"),
        ('covey query "SELECT count(*) AS n FROM read_csv(\'"<(cat x.csv)"\')"', "n\n3\n"),
        (
            "cat x.csv | covey query \"SELECT count(*) AS n FROM read_csv(['x.csv', "
            "'/proc/self/fd/0'])\"",
            "n\n6\n",
        ),
        ("echo \"SELECT * FROM read_csv('/dev/stdin')\" | covey query -", None),
        ("<&- covey query \"SELECT count(*) AS n FROM read_csv('/dev/stdin')\"", None),
        ("</dev/null covey query \"SELECT count(*) AS n FROM read_csv('/dev/fd/0')\"", None),
    ],
)
def test_the_command_line_reads_its_standard_input_once(
    line: str, out: str | None, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text(CSV)
    line = line.replace("covey", f'"{sys.executable}" -m covey', 1) + " -f csv"
    ended = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    if out is None:
        assert ended.returncode == 2 and "error: " in ended.stderr
    else:
        assert (ended.returncode, ended.stdout) == (0, out), ended.stderr
