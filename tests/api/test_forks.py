"""Processes that are forked behind a query: they work, or are refused at once, and end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import covey
from covey.hardware import forks
from covey.testing import PlantedModel

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")

QUERY = "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s))"
ROWS = 600
LONG = 60.0


def connected(cache: bool | Path = False, database: str | Path = ":memory:") -> covey.Connection:
    model = PlantedModel(lambda question, documents: 0.9, fingerprint="forked")
    con = covey.connect(model, cache=cache, database=database, progress=False)
    con.register("t", pa.table({"id": range(ROWS), "s": [f"text {i}" for i in range(ROWS)]}))
    return con


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    with connected() as connection:
        yield connection


def in_child(work: Callable[[], object]) -> str:
    """What work gives in a forked process, or the error's words; it must end, and in good order."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = str(work())
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(write, found.encode())
        os._exit(0)
    os.close(write)
    give_up = threading.Timer(LONG, os.kill, (child, signal.SIGKILL))
    give_up.start()
    with os.fdopen(read) as answer:
        found = answer.read()
    _, status = os.waitpid(child, 0)
    give_up.cancel()
    give_up.join()
    assert status == 0, f"{found} and then {status}"
    return found


def new_query() -> int:
    with connected() as fresh:
        return len(fresh.run(QUERY).fetchall())


def is_refused(found: str) -> bool:
    return found.startswith("InputError") and '"spawn"' in found


def test_what_a_child_may_do_with_a_connection(con: covey.Connection) -> None:
    done, planned = con.run(QUERY), con.sql(QUERY)
    assert len(done.fetchall()) == ROWS  # so that a database for conversions is inherited, too
    folder = con.duckdb.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
    asks: list[Callable[[], object]] = [
        lambda: con.sql(QUERY),
        planned.df,
        planned.explain,
        lambda: next(planned.batches()),
        lambda: con.register("u", pa.table({"x": [1]})),
        lambda: con.duckdb,
    ]
    for ask in asks:
        assert is_refused(in_child(ask))
    assert in_child(lambda: len(done.fetchall())) == str(ROWS)
    assert in_child(new_query) == str(ROWS)
    assert in_child(con.close) == "None"
    assert in_child(con._delete_files) == "None"
    assert Path(folder).is_dir(), "the child deleted the parent's temporary files"
    assert len(planned.fetchall()) == ROWS


@pytest.mark.parametrize("early", [False, True])
def test_an_open_result_is_the_parents(con: covey.Connection, early: bool) -> None:
    held = [con.sql(QUERY).batches(early=early)]
    first = next(held[0]).num_rows
    assert is_refused(in_child(lambda: list(held[0])))
    assert in_child(held[0].close) == "None"
    assert in_child(lambda: (held.clear(), gc.collect(), "done")[-1]) == "done"
    assert is_refused(in_child(lambda: con.sql("SELECT 1")))
    assert in_child(new_query) == str(ROWS)
    assert first + sum(batch.num_rows for batch in held[0]) == ROWS


def test_a_fork_while_another_thread_runs_a_query(tmp_path: Path) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def answer(question: str, documents: tuple[str, ...]) -> float:
        at_work.set()
        return float(go_on.wait(LONG))

    model = PlantedModel(answer, fingerprint="slow")
    with covey.connect(model, cache=tmp_path, progress=False) as con:
        query = con.sql("SELECT 1 WHERE AI.IF(PROMPT('A'))")
        running = threading.Thread(target=query.run)
        running.start()
        assert at_work.wait(LONG)
        assert is_refused(in_child(lambda: con.sql("SELECT 1")))
        assert in_child(con.close) == "None"
        assert in_child(new_query) == str(ROWS)
        go_on.set()
        running.join(LONG)
        assert query.fetchall() == [(1,)]


def test_no_process_is_forked_while_the_store_is_open(tmp_path: Path) -> None:
    """DuckDB would give the child the parent's open file."""
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            with connected(tmp_path) as con:
                con.run(QUERY)

    def child() -> str:
        with connected(tmp_path) as con:
            report = con.run(QUERY).report
        return f"{report.rows} {report.notes}"

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(5):
            assert in_child(child) == f"{ROWS} []"
    finally:
        over.set()
        writing.join(LONG)


def test_a_database_that_is_open_in_the_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with connected(database=path):
        assert is_refused(in_child(lambda: covey.connect(database=path)))
        assert in_child(new_query) == str(ROWS)
    assert in_child(lambda: connected(database=path).run(QUERY).report.rows) == str(ROWS)


def work_of_a_pool(number: int) -> int:
    return new_query() + number


def test_pools_and_processes(con: covey.Connection) -> None:
    assert len(con.run(QUERY).fetchall()) == ROWS
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(work_of_a_pool, range(3), timeout=LONG)) == [ROWS, ROWS + 1, ROWS + 2]


def test_a_signal_to_the_child_is_none_to_the_parent(con: covey.Connection) -> None:
    rows = con.sql(QUERY).batches(early=True)
    next(rows)

    def stopped() -> str:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(LONG)
        except KeyboardInterrupt:
            return "stopped at once"
        return "not stopped"

    assert in_child(stopped) == "stopped at once"
    assert sum(batch.num_rows for batch in rows) > 0


def test_a_child_that_ends_as_any_program_does() -> None:
    """Python then collects what it inherited, which DuckDB does not survive."""
    program = """
        import os, sys, pathlib
        import pyarrow as pa
        import covey
        from covey.testing import PlantedModel

        con = covey.connect(PlantedModel(lambda q, d: 0.9), cache=False, progress=False)
        con.duckdb.execute("CREATE TABLE large AS SELECT range i FROM range(1000000)")
        con.register("t", pa.table({"s": [f"{i}" for i in range(600)]}))
        folder = con.duckdb.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
        rows = con.sql("SELECT s FROM t WHERE AI.IF(PROMPT('A {0}', s))").batches(early=True)
        next(rows)
        child = os.fork()
        if child == 0:
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pathlib.Path(folder).is_dir())
        print(sum(batch.num_rows for batch in rows))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["7", "True", "344"], done.stderr


def test_a_model_behind_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch was loaded before, its threads are missed at once, and not waited for."""
    import torch

    from covey.engine import load
    from models.tiny import make_model, write_folder

    folder = write_folder(tmp_path, make_model("llama", tied=True))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert load(folder).name == folder.name
        found = in_child(lambda: load(folder))
        assert found.startswith("ModelError") and '"spawn"' in found
        assert in_child(lambda: (torch.set_num_threads(1), load(folder).name)[1]) == folder.name
    finally:
        torch.set_num_threads(threads)
    assert not forks.was_forked() and not forks.torch_came_along()
