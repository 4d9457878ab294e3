"""What Covey puts on a connection goes again, whatever stops the taking off."""

from __future__ import annotations

import duckdb
import pytest

from covey.sql.temporary import TemporaryObjects


class Interrupted:
    """A connection whose statements of one kind are interrupted once."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, word: str, error: BaseException):
        self._connection = connection
        self._word = word
        self._error: BaseException | None = error

    def execute(self, sql: str) -> duckdb.DuckDBPyConnection:
        error, self._error = self._error, None
        if error is not None and sql.startswith(self._word):
            raise error
        self._error = error
        return self._connection.execute(sql)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


# DuckDB's package makes a RuntimeError of a Ctrl-C that comes while it works.
INTERRUPTS = [KeyboardInterrupt(), RuntimeError("Query interrupted")]


@pytest.mark.parametrize("error", INTERRUPTS, ids=lambda error: type(error).__name__)
def test_an_interrupt_while_tables_are_dropped_leaves_none(error):
    with duckdb.connect() as connection:
        objects = TemporaryObjects(Interrupted(connection, "DROP", error), "covey_1")
        for _ in range(3):
            objects.create_table(objects.new_name("source"), "(i INTEGER)")
        with pytest.raises(type(error)):
            objects.clear()
        assert connection.execute("FROM duckdb_tables()").fetchall() == []


def test_another_error_is_not_taken_for_an_interrupt():
    with duckdb.connect() as connection:
        failing = Interrupted(connection, "DROP", RuntimeError("something else"))
        objects = TemporaryObjects(failing, "covey_1")
        objects.create_table(objects.new_name("source"), "(i INTEGER)")
        with pytest.raises(RuntimeError, match="something else"):
            objects.clear()
