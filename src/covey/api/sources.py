"""What a user may register under a name, made known to DuckDB.

Data is tried under a name of its own before it takes the name that it is given: what cannot be
read is refused with its column, and leaves what that name meant before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from covey.errors import InputError, first_line
from covey.execution.arrow_types import arrow_parts
from covey.prompts.documents import marked_texts
from covey.sql.bind import read_error, whole_error
from covey.sql.temporary import TemporaryObjects
from covey.sql.text import quote_name, quote_text

_CAST = "Cast it first, to text for example."


def register(
    connection: duckdb.DuckDBPyConnection,
    objects: TemporaryObjects,
    name: str,
    data: Any,
    title: str | None = None,
) -> None:
    """Make `data` a table of that name.

    A text with half a surrogate pair, which UTF-8 cannot hold, is shown with U+FFFD in its
    place, and fails the rows that ask about it: see `covey.prompts.documents`.

    Args:
        connection: where it is made known.
        objects: names what it is tried under; empty again afterwards.
        name: any name; one that is taken is replaced.
        data: a pandas or polars frame, an Arrow table, batch, reader or dataset, a
            path that DuckDB can read, or a DuckDB relation.
        title: what messages call it; None takes the name.

    Raises:
        InputError: the data is of no such kind, or cannot be read; what the name meant before
            it still means.
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"A registered table needs a name, which {name!r} is not.")
    title = title or name
    try:
        if isinstance(data, str | PathLike):
            source = _try_path(connection, title, fspath(data))
            _forget(connection, name)
            body = f"AS FROM {quote_text(source)}"
            connection.execute(f"CREATE OR REPLACE TEMP VIEW {quote_name(name)} {body}").fetchall()
        else:
            data = _Trial(connection, objects, title).readable(data)
            _forget(connection, name)
            connection.register(name, data)
    except duckdb.Error as error:
        raise InputError(f"{title!r} cannot be registered: {read_error(error)[0]}.") from None


def unregister(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Forget a table that `register` made.

    Raises:
        duckdb.Error: the transaction has failed.
    """
    connection.unregister(name)
    _forget(connection, name)


def _forget(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    connection.execute(f"DROP VIEW IF EXISTS temp.{quote_name(name)}").fetchall()


def _try_path(connection: duckdb.DuckDBPyConnection, name: str, path: str) -> str:
    """A path as DuckDB reads it: a file in any case, and no table of that name.

    Raises:
        InputError: in DuckDB's words, with its mend.
    """
    if "://" not in path and not Path(path).is_absolute():
        path = f"./{path}"
    failed = f"The file {path.removeprefix('./')} cannot be registered as {name!r}"
    if Path(path.replace("\0", "")).is_dir():
        raise InputError(f"{failed}: it is a folder. Name files in it: '{Path(path)}/*.parquet'.")
    try:
        _ = connection.sql(f"FROM {quote_text(path)}").columns
    except duckdb.CatalogException:
        raise InputError(f"{failed}: there is no such file.") from None
    except duckdb.Error as error:
        raise InputError(f"{failed}: {whole_error(error)}.") from None
    return path


class _Trial:
    """Reads data as a table would be read, before it becomes one."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, objects: TemporaryObjects, name: str
    ) -> None:
        self._connection = connection
        self._objects = objects
        self._name = name

    def readable(self, data: Any) -> Any:
        """The data as DuckDB can read it, again and again.

        Raises:
            InputError: it cannot; names the column where one is to blame.
        """
        module = _home(data)
        if isinstance(data, duckdb.DuckDBPyRelation):
            return data.to_arrow_table()
        if module == "pandas" and hasattr(data, "dtypes"):
            return self._pandas(data)
        # A reader can be read once, and what may be made of one: a scanner, a dataset in memory. A
        # query may read its sources often.
        if isinstance(data, pa.RecordBatchReader):
            data = self._read(data.read_all)
        elif module == "pyarrow._dataset" and (
            hasattr(data, "projected_schema") or type(data).__name__ == "InMemoryDataset"
        ):
            data = self._read(data.to_table)
        elif isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        elif module == "polars":
            data = self._polars(data)
        elif not isinstance(data, pa.Table) and module != "pyarrow._dataset":
            raise InputError(
                f"Covey cannot read data of type {type(data).__name__} as table {self._name!r}. "
                "It reads pandas and polars frames, Arrow tables and datasets, paths and DuckDB "
                "relations."
            )
        if isinstance(data, pa.Table):
            return self._arrow(data)
        self._check_types(data.schema)
        return self._whole(data)

    def _whole(self, data: Any, columns: tuple[int, ...] = ()) -> Any:
        """The data, if DuckDB can read it; some columns to the end.

        Raises:
            duckdb.Error: it cannot.
        """
        table = self._objects.new_name("data")
        try:
            self._objects.register(table, data)
            names = self._connection.sql(f"FROM {table}").columns
            if columns:
                counts = ", ".join(f"count({quote_name(names[place])})" for place in columns)
                self._connection.execute(f"SELECT {counts} FROM {table}").fetchall()
        finally:
            self._objects.clear()
        return data

    def _arrow(self, table: pa.Table) -> pa.Table:
        self._check_types(table.schema)
        for place, field in enumerate(table.schema):
            try:
                table.column(place).validate(full=True)
            except pa.ArrowInvalid as error:
                texts = marked_texts(table.column(place))
                if texts is None:
                    raise self._refused(field.name, field.type, first_line(error)) from None
                table = table.set_column(place, pa.field(field.name, texts.type), texts)
        parts = ((f.name, f.type, table.select([i])) for i, f in enumerate(table.schema))
        return self._checked(table, parts)

    def _check_types(self, schema: pa.Schema) -> None:
        """Refuse what DuckDB would misread: of texts in arrays of one size it takes the codes."""
        for field in schema:
            for kind in arrow_parts(field.type):
                if pa.types.is_fixed_size_list(kind) and any(
                    map(pa.types.is_dictionary, arrow_parts(kind))
                ):
                    raise self._refused(field.name, field.type, "DuckDB would read its codes")

    def _pandas(self, frame: Any) -> Any:
        """Columns of objects are read to the end: what they hold shows only then."""
        if not hasattr(frame, "columns"):
            return self._whole(frame, (0,))
        for place in (i for i, kind in enumerate(frame.dtypes) if str(kind) == "object"):
            series = frame.iloc[:, place]
            try:
                self._whole(frame.iloc[:, [place]], (0,))
            except duckdb.Error as error:
                texts = marked_texts(series)
                if texts is None:
                    reason = read_error(error)[0]
                    raise self._refused(frame.columns[place], series.dtype, reason) from None
                frame = frame.copy(deep=False)
                frame.isetitem(place, _pandas_texts(texts, frame.index))
        parts = (
            (frame.columns[i], kind, frame.iloc[:, [i]]) for i, kind in enumerate(frame.dtypes)
        )
        return self._checked(frame, parts)

    def _polars(self, data: Any) -> pa.Table:
        polars = sys.modules["polars"]
        failures = (polars.exceptions.PolarsError, polars.exceptions.PanicException)
        try:
            frame = data.collect() if hasattr(data, "collect") else data
        except (*failures, OSError) as error:
            raise InputError(f"{self._name!r} cannot be read: {first_line(error)}.") from error
        if not hasattr(frame, "get_columns"):
            frame = frame.to_frame("value")
        for column in frame.get_columns():
            if column.dtype == polars.Object:
                raise self._refused(column.name, column.dtype, "Arrow has no such type")
            try:
                column.head(1).to_arrow()
            except (*failures, pa.ArrowException) as error:
                reason = f"Arrow has no such type ({first_line(error)})"
                raise self._refused(column.name, column.dtype, reason) from None
        table: pa.Table = frame.to_arrow()
        return table

    def _read(self, read: Callable[[], pa.Table]) -> pa.Table:
        try:
            return read()
        except Exception as error:
            raise InputError(f"{self._name!r} cannot be read: {first_line(error)}.") from error

    def _checked(self, data: Any, parts: Iterator[tuple[Any, Any, Any]]) -> Any:
        """The data, if DuckDB knows its types; `parts` are name, type and data of its columns."""
        try:
            return self._whole(data)
        except duckdb.Error as whole:
            for name, kind, part in parts:
                try:
                    self._whole(part)
                except duckdb.Error as error:
                    raise self._refused(name, kind, read_error(error)[0]) from None
            raise whole

    def _refused(self, column: Any, kind: Any, reason: str) -> InputError:
        return InputError(
            f"The column {str(column)!r} of {self._name!r}, of type {kind}, cannot be read: "
            f"{reason}. {_CAST}"
        )


def _home(data: Any) -> str:
    """The module that a table's type, or one that it derives from, belongs to."""
    modules = [kind.__module__ for kind in type(data).__mro__]
    packages = [module.partition(".")[0] for module in modules]
    return next((name for name in packages if name in ("pandas", "polars")), modules[0])


def _pandas_texts(texts: pa.Array, index: Any) -> Any:
    pandas = sys.modules["pandas"]
    return pandas.Series(pandas.arrays.ArrowExtensionArray(texts), index=index)
