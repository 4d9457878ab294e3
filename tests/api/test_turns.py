"""Whose turn it is, where several threads share a connection."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

QUERY = "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s))"
ROWS = 2000
LONG = 20.0


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    model = PlantedModel(lambda question, documents: 0.9)
    with covey.connect(model, cache=False, progress=False) as connection:
        texts = [f"text {i}" for i in range(ROWS)]
        connection.register("t", pa.table({"id": range(ROWS), "s": texts}))
        yield connection


def elsewhere(work: Callable[[], Any]) -> Any:
    """What work gives in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(LONG)


def one(con: covey.Connection) -> list[tuple[Any, ...]]:
    return con.run("SELECT 1").fetchall()


def used(con: covey.Connection) -> bool:
    """Whether this thread and another one get their turns."""
    return one(con) == elsewhere(lambda: one(con)) == [(1,)]


@pytest.mark.parametrize("early", [False, True])
def test_each_batch_may_be_read_by_another_thread(con: covey.Connection, early: bool) -> None:
    rows = con.sql(QUERY).batches(early=early)
    found: list[int] = []
    while (batch := elsewhere(lambda: next(rows, None))) is not None:
        found += batch["id"].to_pylist()
    assert found == list(range(ROWS))
    assert used(con)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("begin", [elsewhere, lambda work: work()])
@pytest.mark.parametrize("end", ["close", "exhaust", "forget"])
def test_a_result_may_be_ended_by_another_thread(
    con: covey.Connection, early: bool, begin: Callable[[Callable[[], Any]], Any], end: str
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    held = [con.sql(QUERY).batches(early=early)]
    assert begin(lambda: next(held[0])).num_rows
    if end == "close":
        elsewhere(held[0].close)
    elif end == "exhaust":
        elsewhere(lambda: list(held[0]))
    else:
        elsewhere(lambda: (held.clear(), gc.collect()))
    assert used(con)
    assert signal.getsignal(signal.SIGINT) is handler, "Python's own, from the next run on"


def test_ctrl_c_behind_a_result_that_another_thread_ended(con: covey.Connection) -> None:
    rows = con.sql(QUERY).batches(early=True)
    next(rows)
    elsewhere(rows.close)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
    assert used(con)


def test_whoever_read_last_is_refused_and_others_wait(con: covey.Connection) -> None:
    rows = con.sql(QUERY).batches(early=True)
    next(rows)
    with pytest.raises(covey.InputError, match="open result"):
        one(con)
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as other:

        def read_and_ask() -> None:
            next(rows)
            with pytest.raises(covey.InputError, match="open result"):
                one(con)

        reader.submit(read_and_ask).result(LONG)
        began = threading.Event()
        waiting = other.submit(lambda: (began.set(), one(con))[1])
        assert began.wait(LONG)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        reader.submit(rows.close).result(LONG)
        assert waiting.result(LONG) == [(1,)]
    assert used(con)


def test_many_threads_take_turns(con: covey.Connection) -> None:
    con.run("CREATE TABLE n AS SELECT 0 AS x")

    def add(number: int) -> int:
        if number % 3:
            con.run("UPDATE n SET x = x + 1")
            return 1
        with pytest.raises(covey.QueryError):
            con.run("SELECT nope FROM n")
        return sum(batch.num_rows for batch in con.sql("FROM n").batches()) - 1

    with ThreadPoolExecutor(6) as pool:
        added = sum(pool.map(add, range(40), timeout=LONG))
    assert con.run("FROM n").fetchall() == [(added,)]
