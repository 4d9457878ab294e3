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
from crowd import at_once

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


@pytest.mark.parametrize("early", [False, True])
def test_while_a_result_is_open_every_thread_is_refused(con: covey.Connection, early: bool) -> None:
    before = con.sql("SELECT 1")
    rows = con.sql(QUERY).batches(early=early)
    used(con)
    next(rows)
    asks: list[Callable[[], Any]] = [
        before.df,
        lambda: before.report,
        lambda: next(before.batches()),
        before.explain,
        lambda: before.schema,
        lambda: one(con),
        lambda: con.register("u", pa.table({"x": [1]})),
    ]
    for ask in asks:
        for somewhere in (lambda work: work(), elsewhere):
            with pytest.raises(covey.InputError, match="open result"):
                somewhere(ask)
    rows.close()
    assert used(con)


def test_who_asks_while_a_first_batch_is_made_does_not_wait_for_it() -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def answer(question: str, documents: tuple[str, ...]) -> float:
        at_work.set()
        return float(go_on.wait(LONG))

    with covey.connect(PlantedModel(answer), cache=False, progress=False) as con:
        rows = con.sql("SELECT 1 WHERE AI.IF(PROMPT('A'))").batches()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(lambda: next(rows))
            assert at_work.wait(LONG)
            with pytest.raises(covey.InputError, match="open result"):
                one(con)
            go_on.set()
            assert first.result(LONG).num_rows == 1
        assert list(rows) == []
        assert used(con)


class Slow:
    """A connection on whose model every prompt waits."""

    def __init__(self) -> None:
        self.at_work, self.go_on = threading.Event(), threading.Event()
        self.model = PlantedModel(self._answer)
        self.con = covey.connect(self.model, cache=False, progress=False)
        self.con.duckdb.execute("CREATE TABLE made (x INTEGER)")

    def _answer(self, question: str, documents: tuple[str, ...]) -> float:
        self.at_work.set()
        assert self.go_on.wait(LONG)
        return 1.0

    def query(self) -> covey.Query:
        return self.con.sql("INSERT INTO made SELECT 7 WHERE AI.IF(PROMPT('A'))")


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go_on.set()
    made.con.close()


def test_a_query_runs_once_whoever_asks_for_its_result(slow: Slow) -> None:
    query = slow.query()
    asks: list[Callable[[], Any]] = [
        query.arrow,
        query.df,
        query.fetchall,
        query.run,
        lambda: query.report,
        lambda: list(query.batches()),
        lambda: query.explain(analyze=True),
    ]
    with ThreadPoolExecutor(len(asks)) as pool:
        first = pool.submit(query.arrow)
        assert slow.at_work.wait(LONG)
        others = [pool.submit(ask) for ask in asks[1:]]
        slow.go_on.set()
        for other in [first, *others]:
            other.result(LONG)
    assert len(slow.model.calls) == 1
    assert slow.con.run("FROM made").fetchall() == [(7,)]


def test_close_waits_for_a_query_and_those_behind_it_are_refused(slow: Slow) -> None:
    query, other = slow.query(), slow.con.sql("SELECT 1")
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(query.arrow)
        assert slow.at_work.wait(LONG)
        closing = [pool.submit(slow.con.close) for _ in range(2)]
        waiting = pool.submit(other.arrow)
        with pytest.raises(TimeoutError):
            closing[0].result(0.05)
        slow.go_on.set()
        assert running.result(LONG).num_rows == 1
        for close in closing:
            close.result(LONG)
        try:
            waiting.result(LONG)
        except covey.InputError as error:
            assert "is closed" in str(error)
    slow.con.close()
    assert query.fetchall() == [(1,)], "a result that is there stays"
    with pytest.raises(covey.InputError, match="is closed"):
        slow.con.sql("SELECT 1")


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("close", [elsewhere, lambda work: work()])
def test_close_ends_a_result_that_nobody_reads(
    con: covey.Connection, early: bool, close: Callable[[Callable[[], Any]], Any]
) -> None:
    rows = con.sql(QUERY).batches(early=early)
    assert next(rows).num_rows
    close(con.close)
    assert list(rows) == []
    close(con.close)
    with pytest.raises(covey.InputError, match="is closed"):
        one(con)
    # Whoever sets a handler of their own meanwhile finds no bell of ours behind the next run.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with covey.connect(PlantedModel(lambda *_: 0.9), cache=False, progress=False) as other:
        assert one(other) == [(1,)]
    assert signal.set_wakeup_fd(-1) == -1


def test_what_fails_between_two_batches_is_what_the_caller_sees(con: covey.Connection) -> None:
    with pytest.raises(ZeroDivisionError), con:
        for batch in con.sql(QUERY).batches(early=True):
            assert batch.num_rows / 0


def test_nothing_is_done_on_a_connection_from_within_its_query() -> None:
    told: list[str] = []

    def answer(question: str, documents: tuple[str, ...]) -> float:
        for ask in (
            lambda: con.sql("SELECT 1"),
            lambda: query.report,
            lambda: con.register("u", pa.table({"x": [1]})),
            con.close,
        ):
            with pytest.raises(covey.InputError) as refused:
                ask()
            told.append(str(refused.value))
        with covey.connect(PlantedModel(lambda *_: 1.0), cache=False, progress=False) as other:
            return float(other.run("SELECT 1 WHERE AI.IF(PROMPT('B'))").fetchall() == [(1,)])

    with covey.connect(PlantedModel(answer), cache=False, progress=False) as con:
        query = con.sql("SELECT 1 WHERE AI.IF(PROMPT('A'))")
        assert query.fetchall() == [(1,)]
        query = con.sql("SELECT 1 WHERE AI.IF(PROMPT('A'))")
        assert [batch.num_rows for batch in query.batches(early=True)] == [1]
        assert used(con)
    assert len(told) == 8 and all("from within it" in text for text in told)


def test_ctrl_c_while_another_thread_has_the_turn(slow: Slow) -> None:
    query = slow.query()
    main = threading.main_thread().ident
    assert main is not None
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(query.arrow)
        assert slow.at_work.wait(LONG)
        over = threading.Event()

        def press() -> None:
            while not over.wait(0.05):
                signal.pthread_kill(main, signal.SIGINT)

        pressing = pool.submit(press)
        with pytest.raises(KeyboardInterrupt):
            try:
                slow.con.sql("SELECT 1")
            finally:
                over.set()
        pressing.result(LONG)
        slow.go_on.set()
        running.result(LONG)
    assert used(slow.con)


def test_many_threads_take_turns(con: covey.Connection) -> None:
    con.run("CREATE TABLE n AS SELECT 0 AS x")

    def add(number: int) -> int:
        if number % 3:
            con.run("UPDATE n SET x = x + 1")
            return 1
        with pytest.raises(covey.QueryError):
            con.run("SELECT nope FROM n")
        return len(con.run("FROM n").fetchall()) - 1

    with ThreadPoolExecutor(6) as pool:
        added = sum(pool.map(add, range(40), timeout=LONG))
    assert con.run("FROM n").fetchall() == [(added,)]


def test_threads_that_read_in_batches_are_served_or_refused(con: covey.Connection) -> None:
    def read(number: int) -> int | None:
        try:
            return sum(batch.num_rows for batch in con.sql(QUERY).batches(early=True))
        except covey.InputError as error:
            assert "open result" in str(error)
            return None

    found = [rows for _ in range(5) for rows in at_once(read)]
    assert ROWS in found and set(found) <= {ROWS, None}
    assert used(con)
