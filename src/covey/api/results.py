"""The forms of a result, and what each of them cannot hold: known before anything is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from covey.api.frontend import Columns
from covey.errors import InputError, RunError, first_line
from covey.execution.arrow_types import (
    MOST_LEVELS,
    distinct_names,
    inner,
    leaves,
    restored,
    too_deep,
)
from covey.sql.bind import read_error

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True, slots=True)
class Form:
    """What a result may be read as.

    Attributes:
        name: for messages.
        lacks: gives the types in a column's that the form has none for.
        package: which it needs.
    """

    name: str
    lacks: Callable[[DuckDBPyType], Iterator[str]]
    package: str | None = None

    def check(self, columns: Columns) -> None:
        """Refuse columns that have no counterpart.

        Raises:
            InputError: names the column, its type and the mend.
        """
        for name, kind in columns:
            lacking = next(self.lacks(kind), None)
            if lacking is not None:
                shown = str(kind)
                whole = "" if shown == lacking or len(shown) > 200 else f" ({kind})"
                raise InputError(
                    f"The column {name!r} is of type {lacking}{whole}, which {self.name} cannot "
                    f'hold. Cast it in the query, to text for example: CAST("{name}" AS VARCHAR).'
                )

    def check_table(self, table: pa.Table) -> None:
        """As `check`, of a result that is there."""
        if table.num_columns:
            relation = restored(table.slice(0, 0))
            self.check(list(zip(relation.columns, relation.types, strict=True)))

    def check_package(self) -> None:
        """Refuse a form whose package is not installed.

        Raises:
            InputError: says how to install it.
        """
        if self.package is not None and find_spec(self.package) is None:
            raise InputError(
                f"This form of the result needs {self.package}: pip install {self.package}"
            )


def _nowhere(kind: DuckDBPyType) -> Iterator[str]:
    """Types that DuckDB's Python package hands on in no form."""
    if too_deep(kind):
        yield f"{str(kind)[:20]}… with more than {MOST_LEVELS} levels"
    yield from (str(part) for part in leaves(kind) if str(part) == "TYPE")


def _no_object(kind: DuckDBPyType) -> Iterator[str]:
    yield from _nowhere(kind)
    for part in leaves(kind):
        if part.id == "map":
            keys = leaves(inner(part)[0][1])
            yield from (str(key) for key in keys if key.id in ("bignum", "time_ns"))


def _no_array(kind: DuckDBPyType) -> Iterator[str]:
    yield from _no_object(kind)
    part = kind
    while part.id in ("list", "array"):
        part = inner(part)[0][1]
    if str(part) in ("UHUGEINT", "TIME WITH TIME ZONE", "BIGNUM"):
        yield str(part)


def _no_series(kind: DuckDBPyType) -> Iterator[str]:
    yield from _nowhere(kind)
    yield from (str(part) for part in leaves(kind) if part.id in ("interval", "union"))


ARROW = Form("a result", _nowhere)
ROWS = Form("a Python value", _no_object)
PANDAS = Form("a pandas frame", _no_array, "pandas")
POLARS = Form("a polars frame", _no_series, "polars")


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """A result as a pandas frame, as DuckDB makes it."""
    import pandas

    if not table.num_columns:
        return pandas.DataFrame()
    with _holding(PANDAS, duckdb.Error, pandas.errors.OutOfBoundsDatetime):
        frame: pandas.DataFrame = restored(table).df()
    return frame


def to_polars(table: pa.Table) -> polars.DataFrame:
    """A result as a polars frame, as DuckDB makes it."""
    from polars import DataFrame, exceptions, from_arrow

    named = table.rename_columns(distinct_names(table.column_names))
    with _holding(POLARS, exceptions.PolarsError, exceptions.PanicException):
        frame = from_arrow(named)
    return frame if isinstance(frame, DataFrame) else frame.to_frame()


def to_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """A result as Python tuples, as DuckDB makes them."""
    if not table.num_columns:
        # A statement such as CREATE has no result, which DuckDB takes for no table.
        return []
    with _holding(ROWS, duckdb.Error):
        return restored(table).fetchall()


@contextmanager
def _holding(form: Form, *errors: type[BaseException]) -> Iterator[None]:
    """What a library says of a value that its form cannot hold, which only the values show.

    Raises:
        RunError: in its words.
    """
    try:
        yield
    except errors as error:
        reason = read_error(error)[0] if isinstance(error, duckdb.Error) else first_line(error)
        raise RunError(
            f"A value of the result is none that {form.name} can hold: {reason}. The result is "
            "kept and nothing is asked again: read it with arrow(), or cast in the query."
        ) from None
