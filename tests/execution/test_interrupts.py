"""Ctrl-C: once stops after the batch and keeps its answers, twice stops at once."""

from __future__ import annotations

import os
import signal
import threading

import pyarrow as pa
import pytest

import covey
from covey.execution.stop import Stopped
from covey.testing import PlantedModel, planted

QUERY = "SELECT count(*) FROM t WHERE AI.IF(PROMPT('Refund? {0}', s))"


def table(rows: int = 40) -> pa.Table:
    return pa.table({"s": [f"ticket {i}" for i in range(rows)]})


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 10)


def model(*interrupted: int) -> PlantedModel:
    """Answers TRUE; the prompts of those numbers are interrupted once."""
    left = list(interrupted)
    asked = iter(range(10**6))

    def answer(question: str, documents: tuple[str, ...]) -> float:
        if left and next(asked) == left[0]:
            left.pop(0)
            signal.raise_signal(signal.SIGINT)
        return 1.0

    return PlantedModel(answer, fingerprint="interrupted")


def test_one_interrupt_stops_after_the_batch_and_the_query_goes_on_later(small_batches, caplog):
    stopped = model(14)
    with covey.connect(stopped) as con:
        con.register("t", table())
        with pytest.raises(Stopped, match="run the same query again"):
            con.run(QUERY)
        assert len(stopped.calls) == 20, "the second batch ran to its end"
        assert "Ctrl-C again stops at once" in caplog.text
        assert con.run("SELECT 1").fetchall() == [(1,)], "the connection is in order"
    later = model()
    with covey.connect(later) as con:
        con.register("t", table())
        assert con.run(QUERY).fetchall() == [(40,)]
    assert len(later.calls) == 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_two_interrupts_stop_at_once_and_keep_what_was_answered(small_batches):
    stopped = model(14, 15)
    with covey.connect(stopped) as con:
        con.register("t", table())
        with pytest.raises(KeyboardInterrupt) as raised:
            con.run(QUERY)
        assert not isinstance(raised.value, Stopped)
        assert len(stopped.calls) == 16
    later = model()
    with covey.connect(later) as con:
        con.register("t", table())
        assert con.run(QUERY).fetchall() == [(40,)]
    assert len(later.calls) == 30


def test_without_a_store_the_message_does_not_promise_one(small_batches):
    with covey.connect(model(3), cache=False) as con:
        con.register("t", table())
        with pytest.raises(Stopped, match="not kept"):
            con.run(QUERY)


def test_an_interrupt_reaches_duckdb_while_it_works():
    with covey.connect(model()) as con:
        con.register("t", table(2500))
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            con.run("SELECT count(*) FROM t, t AS u, t AS v WHERE hash(t.s || u.s || v.s) = 3")
        timer.join()
        assert con.run("SELECT 1").fetchall() == [(1,)]


def test_a_handler_of_the_callers_stays():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with covey.connect(model(3)) as con:
            con.register("t", table())
            assert con.run(QUERY).fetchall() == [(40,)]
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1]


def test_an_interrupt_before_the_run_is_one():
    """DuckDB's package makes a RuntimeError of one that comes while it works."""
    stopped = 0
    with covey.connect(model(), cache=False) as con:
        con.register("t", table())
        for number in range(15):
            timer = threading.Timer(0.002 * number, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                con.sql(QUERY).estimate()
                timer.join()
            except KeyboardInterrupt:
                stopped += 1
            timer.join()
        found = con.duckdb.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert stopped and not found
        assert con.run(QUERY).fetchall() == [(40,)]
