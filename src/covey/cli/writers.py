"""A result in each form of a file, batch by batch; none of them holds the whole.

Imported when there is something to write: it loads DuckDB and Arrow.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import chain, islice
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

Batches = Iterable[pa.RecordBatch]


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


def _write_csv(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
    """With a header. DuckDB writes lists and structs as text; Arrow's own writer refuses them."""
    with temporary_space():
        folder = tempfile.TemporaryDirectory(dir=temporary_folder())
    with folder:
        target = Path(folder.name) / "result.csv"
        for number, batch in enumerate(batches):
            if not schema.names:
                continue
            with temporary_space():
                restored(pa.Table.from_batches([batch])).write_csv(str(target), header=not number)
            with target.open("rb") as source:
                shutil.copyfileobj(source, file)


def _write_json(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
    """An array of one object a row, one row a line; numbers that JSON lacks become null.

    A MAP is an object, a BLOB its hexadecimal digits; dates, times and intervals are the text that
    DuckDB writes.
    """
    before = b"[\n"
    for batch in batches:
        values = [_json_values(batch, place) for place in range(batch.num_columns)]
        for row in zip(*values, strict=True):
            record = dict(zip(schema.names, map(_json_value, row), strict=True))
            file.write(before + json.dumps(record, ensure_ascii=False).encode())
            before = b",\n"
    file.write(b"\n]\n" if before == b",\n" else b"[]\n")


def _write_parquet(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
    """In row groups of `ROWS_A_GROUP` and more; as text what Arrow cannot write.

    That is columns with an INTERVAL, a UNION or a BIGNUM in them.
    """
    from pyarrow import parquet

    fields = [f.with_type(pa.string()) if _is_unwritten(f.type) else f for f in schema]
    waiting: list[pa.RecordBatch] = []
    writer = parquet.ParquetWriter(file, pa.schema(fields))

    def write() -> None:
        if waiting:
            table = pa.Table.from_batches(waiting)
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            waiting.clear()

    try:
        for batch in batches:
            for place, field in enumerate(batch.schema):
                if _is_unwritten(field.type):
                    words = _in_words(batch, place)
                    named = field.with_type(words.type).remove_metadata()
                    batch = batch.set_column(place, named, words)
            waiting.append(batch)
            if sum(each.num_rows for each in waiting) >= ROWS_A_GROUP:
                write()
        write()
        writer.close()
    except BaseException:
        with suppress(OSError, ValueError):
            writer.close()
        raise


def _write_table(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
    """Aligned text of all rows; how wide a column is shows only behind the last of them."""
    layout = TableLayout(schema.names)

    def put(lines: Iterable[str]) -> None:
        file.writelines(line.encode() + b"\n" for line in lines)

    with temporary_space():
        rows = tempfile.TemporaryFile(prefix="covey-table-")  # noqa: SIM115
        spool = pa.ipc.new_stream(rows, schema)
    try:
        for batch in batches:
            layout.measure(_rows(batch))
            with temporary_space():
                spool.write_batch(batch)
        with temporary_space():
            spool.close()
            rows.seek(0)
        put(layout.head())
        for batch in pa.ipc.open_stream(rows):
            put(layout.line(row) for row in _rows(batch))
    finally:
        with suppress(OSError):
            rows.close()


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


WRITERS = {
    Format.TABLE: _write_table,
    Format.CSV: _write_csv,
    Format.JSON: _write_json,
    Format.PARQUET: _write_parquet,
}


def write_file(batches: Batches, format: Format, file: BinaryIO) -> None:
    """Write the rows of a result; none of them is held once it is written.

    Args:
        batches: its rows.
        format: the form.
        file: opened for writing, in binary.

    Raises:
        RunError: the query failed, or there is no room for temporary files.
        OSError: the file cannot be written.
    """
    rows = _of_query(batches)
    if format is not Format.TABLE:
        # A file cannot hold two columns of a name.
        rows = (batch.rename_columns(distinct_names(batch.schema.names)) for batch in rows)
    first = list(islice(rows, 1))
    schema = first[0].schema if first else pa.schema([])
    rows = chain(first, rows)
    del first  # so that it is let go once it is written
    WRITERS[format](rows, schema, file)


def _of_query(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The batches; what goes wrong while they are made is no error of writing them."""
    try:
        yield from batches
    except OSError as error:
        raise RunError(f"The query stopped: {error}.") from error


def head_as_text(batches: Batches, width: int | None) -> str:
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
