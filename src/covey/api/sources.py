"""What a user may register under a name, made known to DuckDB."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from covey.errors import InputError
from covey.sql.bind import read_error
from covey.sql.text import quote_name, quote_text


def register(connection: duckdb.DuckDBPyConnection, name: str, data: Any) -> None:
    """Make `data` a table of that name.

    Args:
        connection: where it is made known.
        name: any name; one that is taken is replaced.
        data: a pandas or polars frame, an Arrow table, batch, reader or dataset, a
            path that DuckDB can read, or a DuckDB relation.

    Raises:
        InputError: the data is of no such kind, or its file cannot be read.
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"A registered table needs a name, which {name!r} is not.")
    try:
        connection.execute(f"DROP VIEW IF EXISTS temp.{quote_name(name)}")
        _register(connection, name, data)
    except duckdb.Error as error:
        reason, _, _ = read_error(error)
        raise InputError(f"{name!r} cannot be registered: {reason}.") from None


def unregister(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Forget a table that `register` made.

    Raises:
        duckdb.Error: the transaction has failed.
    """
    connection.unregister(name)
    connection.execute(f"DROP VIEW IF EXISTS temp.{quote_name(name)}").fetchall()


def _register(connection: duckdb.DuckDBPyConnection, name: str, data: Any) -> None:
    if isinstance(data, str | PathLike):
        _register_path(connection, name, Path(data))
    elif isinstance(data, duckdb.DuckDBPyRelation):
        connection.register(name, data.to_arrow_table())
    elif isinstance(data, pa.RecordBatch):
        connection.register(name, pa.Table.from_batches([data]))
    elif isinstance(data, pa.RecordBatchReader):
        # A reader can be read once; a query may scan its sources several times.
        connection.register(name, data.read_all())
    elif isinstance(data, pa.Table) or _is_dataset(data):
        connection.register(name, data)
    elif type(data).__module__.startswith("polars"):
        frame = data.collect() if hasattr(data, "collect") else data
        connection.register(name, frame.to_arrow())
    elif type(data).__module__.startswith("pandas"):
        connection.register(name, data)
    else:
        raise InputError(
            f"Covey cannot read data of type {type(data).__name__} as table {name!r}. "
            "It reads pandas and polars frames, Arrow tables and datasets, paths and DuckDB "
            "relations."
        )


def _is_dataset(data: Any) -> bool:
    # Importing pyarrow.dataset takes a third of a second, and only its users need it.
    return type(data).__module__ == "pyarrow._dataset"


def _register_path(connection: duckdb.DuckDBPyConnection, name: str, path: Path) -> None:
    try:
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {quote_name(name)} AS FROM {quote_text(str(path))}"
        )
    except duckdb.Error as error:
        reason, _, _ = read_error(error)
        raise InputError(f"The file {path} cannot be registered as {name!r}: {reason}.") from None
