"""What Covey puts on a user's connection while a statement is planned and run.

Temporary tables, functions and registered data have names that nobody else's have, and are
noted before they are made, so that all of them go again, whatever ends the statement.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import ARROW, SPECIAL

from covey.errors import is_masked_interrupt


class TemporaryObjects:
    """The objects of one statement, or of one call of the API.

    Args:
        connection: where they are made.
        prefix: what all their names begin with; nothing else's name does.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, prefix: str) -> None:
        self.prefix = prefix
        self._connection = connection
        self._numbers = itertools.count()
        # How each is taken off, the oldest first.
        self._made: dict[str, Callable[[str], object]] = {}

    def new_name(self, kind: str) -> str:
        """A name, for an object or a column of one."""
        return f"{self.prefix}_{kind}_{next(self._numbers)}"

    def create_table(self, name: str, body: str) -> int:
        """Create a temporary table anew, so that its row ids count from 0.

        Args:
            name: of `new_name`.
            body: what stands behind the name, columns in brackets or AS and a query.

        Returns:
            its rows.
        """
        self._made[name] = self._drop_table
        rows = self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} {body}").fetchall()
        return int(rows[0][0]) if rows else 0

    def create_function(self, name: str, function: Callable[..., pa.Array], kind: str) -> None:
        """Make a function over Arrow arrays known, which is given NULLs too."""
        self._made[name] = self._connection.remove_function
        self._connection.create_function(
            name, function, None, kind, type=ARROW, null_handling=SPECIAL
        )

    def create_macro(self, name: str, definition: str) -> None:
        """Let a macro stand before the functions of its name, which nobody defined before.

        Args:
            name: of a function of DuckDB's own.
            definition: parameters in brackets, AS and an expression.
        """
        self._made[name] = self._drop_macro
        self._connection.execute(f"CREATE TEMP MACRO {name}{definition}").fetchall()

    def register(self, name: str, data: Any) -> None:
        """Make data known as a table; a second time in place of the first."""
        self._made[name] = self._connection.unregister
        self._connection.register(name, data)

    def drop(self, name: str) -> None:
        """Take one object off."""
        finish(self._connection, partial(self._made[name], name))
        del self._made[name]

    def clear(self) -> None:
        """Take everything off, and only then be interrupted."""
        interrupt: BaseException | None = None
        while self._made:
            try:
                name = next(reversed(self._made))
                finish(self._connection, partial(self._made[name], name))
                del self._made[name]
            except duckdb.Error:
                # It was never made, or a failed transaction takes it along.
                del self._made[name]
            except (KeyboardInterrupt, RuntimeError) as error:
                if isinstance(error, RuntimeError) and not is_masked_interrupt(error):
                    raise
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _drop_table(self, name: str) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS temp.main.{name}").fetchall()

    def _drop_macro(self, name: str) -> None:
        self._connection.execute(f"DROP MACRO IF EXISTS temp.main.{name}").fetchall()


def finish(connection: duckdb.DuckDBPyConnection, action: Callable[[], object]) -> None:
    """Do what must be done; where an interrupt stops it, once more, and then be interrupted.

    Args:
        connection: where it is done; what an interrupt left unfinished there is given up.
        action: may run twice.
    """
    try:
        connection.abort()
        action()
    except (KeyboardInterrupt, RuntimeError, duckdb.InterruptException) as error:
        if isinstance(error, RuntimeError) and not is_masked_interrupt(error):
            raise
        with suppress(duckdb.Error):
            # It may have been done just before it was interrupted.
            connection.abort()
            action()
        raise
