"""A result in each form of a file, batch by batch; none of them holds the whole."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from covey.cli.table import Layout
from covey.errors import RunError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

# Rows that a row group of a Parquet file has at least, but for the last: a group a batch would
# make a large file of small ones.
ROWS_A_GROUP = 100_000


class Format(Enum):
    """The forms of a result on the command line."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


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
    import duckdb

    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, duckdb.IOException) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise RunError(
            f"Temporary files cannot be written: {reason}. Make room in {tempfile.gettempdir()},"
            " or let TMPDIR name another folder. Answers are kept: the same command goes on."
        ) from None


class CsvWriter(Writer):
    """With a header. DuckDB writes lists and structs as text; Arrow's own writer refuses them."""

    _header = "true"

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(file, schema)
        with temporary_space():
            self._folder = tempfile.TemporaryDirectory()

    def add(self, batch: pa.RecordBatch) -> None:
        import duckdb
        import pyarrow as pa

        from covey.sql.text import quote_text

        if not batch.num_columns:
            return
        target = Path(self._folder.name) / "result.csv"
        with temporary_space(), duckdb.connect() as database:
            database.register("result", pa.Table.from_batches([batch]))
            place = quote_text(str(target))
            database.execute(
                f"COPY (FROM result) TO {place} (FORMAT csv, HEADER {self._header})"
            ).fetchall()
        with target.open("rb") as source:
            shutil.copyfileobj(source, self.file)
        self._header = "false"

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
        columns = _in_words(batch, _is_timely).columns
        values = [column.to_pylist(maps_as_pydicts="lossy") for column in columns]
        for row in zip(*values, strict=True):
            record = dict(zip(self.schema.names, map(_json_value, row), strict=True))
            self.file.write(self._before + json.dumps(record, ensure_ascii=False).encode())
            self._before = b",\n"

    def end(self) -> None:
        self.file.write(b"\n]\n" if self._before == b",\n" else b"[]\n")


class ParquetWriter(Writer):
    """In row groups of `ROWS_A_GROUP` and more; intervals as text, for Arrow cannot write them."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(file, schema)
        import pyarrow.parquet

        empty = pyarrow.RecordBatch.from_pylist([], schema)
        known = _in_words(empty, _is_interval).schema
        self._parquet = pyarrow.parquet.ParquetWriter(file, known)
        self._waiting: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(_in_words(batch, _is_interval))
        if sum(waiting.num_rows for waiting in self._waiting) >= ROWS_A_GROUP:
            self._write()

    def end(self) -> None:
        self._write()
        self._parquet.close()

    def drop(self) -> None:
        with suppress(OSError, ValueError):
            self._parquet.close()

    def _write(self) -> None:
        import pyarrow as pa

        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._parquet.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting.clear()


class TableWriter(Writer):
    """Aligned text of all rows; how wide a column is shows only behind the last of them."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(file, schema)
        import pyarrow as pa

        self._layout = Layout(schema.names)
        with temporary_space():
            self._rows = tempfile.TemporaryFile(prefix="covey-table-")  # noqa: SIM115
            self._spool = pa.ipc.new_stream(self._rows, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        self._layout.measure(_rows(batch))
        with temporary_space():
            self._spool.write_batch(batch)

    def end(self) -> None:
        import pyarrow as pa

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


def _rows(batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _in_words(batch: pa.RecordBatch, wanted: Callable[[pa.DataType], bool]) -> pa.RecordBatch:
    """Columns of some types as the text that DuckDB writes; the others as they are."""
    import duckdb
    import pyarrow as pa

    chosen = [i for i, field in enumerate(batch.schema) if wanted(field.type)]
    if not chosen:
        return batch
    columns = [pa.table({"x": batch.column(i)}) for i in chosen]
    with duckdb.connect() as database:
        for i, column in zip(chosen, columns, strict=True):
            database.register("result", column)
            words = database.sql("SELECT x::VARCHAR AS x FROM result").to_arrow_table()
            place = pa.field(batch.schema.names[i], pa.string())
            batch = batch.set_column(i, place, words.column("x").combine_chunks())
    return batch


def _is_interval(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_interval(kind))


def _is_timely(kind: pa.DataType) -> bool:
    """Whether DuckDB has times of a type that Python has not: infinite, or of other millennia."""
    import pyarrow as pa

    return bool(
        pa.types.is_interval(kind)
        or pa.types.is_date(kind)
        or (pa.types.is_timestamp(kind) and kind.tz is None)
    )


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
