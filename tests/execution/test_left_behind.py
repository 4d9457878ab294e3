"""What a statement leaves on the user's connection: nothing, wherever it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import covey
from covey.execution import batch_size, source_samples
from covey.testing import PlantedModel
from effort import KILLS

# Places of an interrupt in each action; a nightly run takes all of them.
POINTS = 4 * KILLS
BOTH = (
    "SELECT id FROM t WHERE AI.IF(PROMPT('one {0}', s)) AND AI.IF(PROMPT('two {0}', s)) "
    "AND id < 6 ORDER BY id"
)
ACTIONS: dict[str, Callable[[covey.Connection], object]] = {
    "filter": lambda con: con.run(BOTH),
    "join": lambda con: con.run(
        "SELECT t.id FROM t JOIN u ON AI.IF(PROMPT('{0} {1}', t.s, u.s)) "
        "JOIN u AS w ON AI.IF(PROMPT('{0} {1}', w.s, u.s)) AND w.id > 1"
    ),
    "limit": lambda con: con.run("SELECT id FROM t WHERE AI.IF(PROMPT('x {0}', s)) LIMIT 2"),
    "output": lambda con: con.run("SELECT id, AI.SCORE(PROMPT('x {0}', s)) FROM t WHERE id > 2"),
    "demand": lambda con: con.run(
        "SELECT count(*) FILTER (AI.IF(PROMPT('x {0}', s))) FROM t GROUP BY id % 2"
    ),
    "exists": lambda con: con.run(
        "SELECT id FROM t WHERE EXISTS (FROM u WHERE AI.IF(PROMPT('{0} {1}', t.s, u.s)))"
    ),
    "update": lambda con: con.run("UPDATE u SET id = id WHERE AI.IF(PROMPT('x {0}', s))"),
    "pieces": lambda con: list(con.sql(BOTH.replace("ORDER BY id", "")).batches(early=True)),
    "explain": lambda con: con.explain(BOTH),
    "calibrate": lambda con: con.calibrate("Fine? {s}", pa.table({"s": "abcd" * 5, "label": GOOD})),
}
GOOD = pa.array([True, True, False, False] * 5)
STATE = (
    "SELECT table_name FROM duckdb_tables()",
    "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal",
    "SELECT function_name FROM duckdb_functions() WHERE function_name LIKE 'covey%'",
    "SELECT name FROM duckdb_variables()",
    "SELECT name, value FROM duckdb_settings()",
    "FROM duckdb_prepared_statements()",
)


class Interrupting:
    """A connection or relation of DuckDB, one call of which is interrupted.

    Args:
        real: what is called.
        at: which call, counted from 0; None for none.
        after: whether the call is carried out before it is interrupted.
    """

    def __init__(self, real: Any, at: int | None = None, after: bool = False) -> None:
        self.real, self.at, self.after = real, at, after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.real, name)
        return Call(self, value) if callable(value) else value


class Call:
    def __init__(self, owner: Interrupting, function: Callable[..., Any]) -> None:
        self.owner, self.function = owner, function

    def __call__(self, *given: Any, **named: Any) -> Any:
        owner = self.owner
        number, owner.calls = owner.calls, owner.calls + 1
        if number == owner.at and not owner.after:
            raise KeyboardInterrupt
        try:
            found = self.function(*given, **named)
        finally:
            if number == owner.at:
                raise KeyboardInterrupt
        return owner if found is owner.real else found


def state(real: duckdb.DuckDBPyConnection) -> list[list[Any]]:
    found = [sorted(real.execute(query).fetchall(), key=repr) for query in STATE]
    # Outside a transaction every statement is one of its own.
    one, two = (real.execute("SELECT txid_current()").fetchall() for _ in range(2))
    return [*found, [one != two]]


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Iterator[covey.Connection]:
    monkeypatch.setattr(batch_size, "FIRST_BATCH", 3)
    monkeypatch.setattr(source_samples, "SAMPLE_ROWS", 3)
    model = PlantedModel(lambda question, documents: 0.9 if "a" in documents[0] else 0.2)
    with covey.connect(model, cache=False, progress=False) as connection:
        connection.register("t", pa.table({"id": range(8), "s": list("abcdabcd")}))
        connection.duckdb.execute("CREATE TABLE u AS SELECT id, s || 'a' AS s FROM t LIMIT 3")
        connection.run("SET default_null_order = 'nulls_first'")
        connection.run("SET enable_optimizer = false")
        yield connection


@pytest.mark.fuzz
@pytest.mark.parametrize("action", ACTIONS)
def test_an_interrupt_at_any_call_of_duckdb_leaves_nothing(
    con: covey.Connection, action: str
) -> None:
    real = con.duckdb
    before = state(real)
    act = ACTIONS[action]

    def interrupted(at: int | None, after: bool = False) -> int:
        con._duckdb = watched = Interrupting(real, at, after)  # type: ignore[assignment]
        try:
            act(con)
            assert at is None, f"call {at} was not interrupted"
        except KeyboardInterrupt:
            assert at is not None
        finally:
            con._duckdb = real
        assert state(real) == before, f"interrupted {'after' if after else 'before'} call {at}"
        return watched.calls

    calls = interrupted(None)
    assert calls > 10
    for at in range(0, calls, max(calls // POINTS, 1)):
        interrupted(at, after=bool(at // max(calls // POINTS, 1) % 2))
    assert con.run(BOTH).fetchall() == [(0,), (4,)]
