"""A result in each form of a file, batch by batch; none of them holds the whole.

Imported when there is something to write: it loads DuckDB and Arrow.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

import duckdb
import pyarrow as pa

from covey.cli.destination import Format
from covey.cli.table import SHOWN_ROWS, TableLayout, plain, render
from covey.errors import RunError, first_line
from covey.execution.arrow_types import arrow_parts, distinct_names, restored
from covey.hardware.paths import temporary_folder
from covey.sql.bind import read_error

# Rows that a row group of a Parquet file has at least, but for the last: a group a batch would
# make a large file of small ones.
ROWS_A_GROUP = 100_000
# What EXPLAIN gives, in the words of DuckDB.
_EXPLAINED = ("explain_key", "explain_value")


class Writer(ABC):
    """Writes a result to a file.

    Args:
        file: opened for writing, in binary.
        schema: of every batch.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self.file = file
        self.schema = schema

    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""

    @abstractmethod
    def end(self) -> None:
        """Write what stands behind the last row."""

    def drop(self) -> None:  # noqa: B027
        """Let go of a file that could not be written."""


@contextmanager
def temporary_space() -> Iterator[None]:
    """What uses temporary files in the block may find no room for them.

    Raises:
        RunError: there is none.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, duckdb.IOException) as error:
        if isinstance(error, duckdb.Error):
            reason = read_error(error)[0]
        else:
            reason = error.strerror or first_line(error)
        raise RunError(
            f"Temporary files cannot be written: {reason}. Make room in {tempfile.gettempdir()},"
            " or let TMPDIR name another folder. Answers are kept: the same command goes on."
        ) from None


class CsvWriter(Writer):
    """With a header. DuckDB writes lists and structs as text; Arrow's own writer refuses them."""

    _header = True

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(file, schema)
        with temporary_space():
            self._folder = tempfile.TemporaryDirectory(dir=temporary_folder())

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_columns:
            return
        target = Path(self._folder.name) / "result.csv"
        with temporary_space():
            restored(pa.Table.from_batches([batch])).write_csv(str(target), header=self._header)
        with target.open("rb") as source:
            shutil.copyfileobj(source, self.file)
        self._header = False

    def end(self) -> None:
        """A row is the last thing of a CSV file."""
        self.drop()

    def drop(self) -> None:
        self._folder.cleanup()


class JsonWriter(Writer):
    """An array of one object a row, one row a line; numbers that JSON lacks become null.

    A MAP is an object, a BLOB its hexadecimal digits; dates, times and intervals are the text that
    DuckDB writes.
    """

    _before = b"[\n"

    def add(self, batch: pa.RecordBatch) -> None:
        values = [_json_values(batch, place) for place in range(batch.num_columns)]
        for row in zip(*values, strict=True):
            record = dict(zip(self.schema.names, map(_json_value, row), strict=True))
            self.file.write(self._before + json.dumps(record, ensure_ascii=False).encode())
            self._before = b",\n"

    def end(self) -> None:
        self.file.write(b"\n]\n" if self._before == b",\n" else b"[]\n")


class ParquetWriter(Writer):
    """In row groups of `ROWS_A_GROUP` and more; as text what Arrow cannot write.

    That is columns with an INTERVAL, a UNION or a BIGNUM in them.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(file, schema)
        from pyarrow import parquet

        fields = [
            field.with_type(pa.string()) if _is_unwritten(field.type) else field for field in schema
        ]
        self._parquet = parquet.ParquetWriter(file, pa.schema(fields))
        self._waiting: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for place, field in enumerate(batch.schema):
            if _is_unwritten(field.type):
                words = _in_words(batch, place)
                named = field.with_type(words.type).remove_metadata()
                batch = batch.set_column(place, named, words)
        self._waiting.append(batch)
        if sum(waiting.num_rows for waiting in self._waiting) >= ROWS_A_GROUP:
            self._write()

    def end(self) -> None:
        self._write()
        self._parquet.close()

    def drop(self) -> None:
        with suppress(OSError, ValueError):
            self._parquet.close()

    def _write(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._parquet.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting.clear()


class TableWriter(Writer):
    """Aligned text of all rows; how wide a column is shows only behind the last of them."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(file, schema)
        self._layout = TableLayout(schema.names)
        with temporary_space():
            self._rows = tempfile.TemporaryFile(prefix="covey-table-")  # noqa: SIM115
            self._spool = pa.ipc.new_stream(self._rows, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        self._layout.measure(_rows(batch))
        with temporary_space():
            self._spool.write_batch(batch)

    def end(self) -> None:
        with temporary_space():
            self._spool.close()
            self._rows.seek(0)
        self._put(self._layout.head())
        with self._rows:
            for batch in pa.ipc.open_stream(self._rows):
                self._put(self._layout.line(row) for row in _rows(batch))

    def drop(self) -> None:
        with suppress(OSError):
            self._rows.close()

    def _put(self, lines: Iterable[str]) -> None:
        self.file.writelines(line.encode() + b"\n" for line in lines)


def _rows(batch: pa.RecordBatch | pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(_values(batch, i) for i in range(batch.num_columns)), strict=True))


def _values(rows: pa.RecordBatch | pa.Table, place: int) -> list[object]:
    """A column as Python values; as DuckDB's text where Python has not got one of them.

    Infinite dates are such, and times of other millennia.
    """
    try:
        values: list[object] = rows.column(place).to_pylist()
    except (OverflowError, ValueError, TypeError):
        values = _in_words(rows, place).to_pylist()
    return values


def _in_words(
    rows: pa.RecordBatch | pa.Table, place: int, words: str = "CAST(#1 AS VARCHAR)"
) -> pa.Array:
    """A column as the text that DuckDB makes of it."""
    column = pa.Table.from_arrays(
        [rows.column(place)], schema=pa.schema([rows.schema.field(place)])
    )
    texts = restored(column).project(f"{words} AS words").to_arrow_table()
    return texts.column(0).combine_chunks()


def _json_values(batch: pa.RecordBatch, place: int) -> list[object]:
    """A column as what JSON has; `_json_value` does the rest."""
    kind = batch.schema.field(place).type
    if _is_timely(kind):
        return list(_in_words(batch, place).to_pylist())
    if any(_is_timely(part) or pa.types.is_union(part) or _has_nested_keys(part)
           for part in arrow_parts(kind)):  # fmt: skip
        texts = _in_words(batch, place, "CAST(to_json(#1) AS VARCHAR)").to_pylist()
        return [None if text is None else json.loads(text) for text in texts]
    return list(batch.column(place).to_pylist(maps_as_pydicts="lossy"))


def _is_unwritten(kind: pa.DataType) -> bool:
    """Whether Arrow writes no Parquet of a type."""
    return any(
        pa.types.is_interval(part) or pa.types.is_union(part) or isinstance(part, pa.OpaqueType)
        for part in arrow_parts(kind)
    )


def _is_timely(kind: pa.DataType) -> bool:
    """Whether DuckDB has times of a type that Python has not: infinite, or of other millennia."""
    return bool(pa.types.is_interval(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _has_nested_keys(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind) and kind.key_type.num_fields)


def _json_value(value: object) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        # DuckDB sums integers to HUGEINT, which Arrow holds as a decimal without a fraction.
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [_json_value(x) for x in value]
    if isinstance(value, dict):
        return {str(k): _json_value(v) for k, v in value.items()}
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


WRITERS: dict[Format, type[Writer]] = {
    Format.TABLE: TableWriter,
    Format.CSV: CsvWriter,
    Format.JSON: JsonWriter,
    Format.PARQUET: ParquetWriter,
}


def write_file(batches: Iterable[pa.RecordBatch], format: Format, file: BinaryIO) -> None:
    """Write the rows of a result; none of them is held once it is written.

    Raises:
        RunError: the query failed, or there is no room for temporary files.
        OSError: the file cannot be written.
    """
    writer: Writer | None = None
    try:
        for batch in _of_query(batches):
            if format is not Format.TABLE:
                # A file cannot hold two columns of a name.
                batch = batch.rename_columns(distinct_names(batch.schema.names))
            writer = writer or WRITERS[format](file, batch.schema)
            writer.add(batch)
        writer = writer or WRITERS[format](file, pa.schema([]))
        writer.end()
    except BaseException:
        if writer is not None:
            writer.drop()
        raise


def _of_query(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; what goes wrong while they are made is no error of writing them."""
    try:
        yield from batches
    except OSError as error:
        raise RunError(f"The query stopped: {error}.") from error


def head_as_text(batches: Iterable[pa.RecordBatch], width: int | None) -> str:
    """The first rows of a result as aligned text, and how many there are; a plan as it is.

    Args:
        batches: all rows.
        width: see `render`.
    """
    shown: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        if not shown or total < SHOWN_ROWS:
            shown.append(batch.slice(0, SHOWN_ROWS - total))
        total += batch.num_rows
    table = pa.Table.from_batches(shown) if shown else pa.table({})
    if table.column_names == list(_EXPLAINED):
        return "\n".join(plain(text) for text in table.column(1).to_pylist())
    return render(table.column_names, _rows(table), total_rows=total, width=width)
