"""Where a result goes and in which form; decided, and refused, before any model work."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import typer

from covey.cli import table as text_table
from covey.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


# What EXPLAIN gives, in the words of DuckDB.
_EXPLAINED = ("explain_key", "explain_value")


class Format(Enum):
    """The forms of a result on the command line."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked place for a result.

    Attributes:
        format: the form.
        path: the file, or None for standard output.
    """

    format: Format
    path: Path | None

    def write(self, table: pa.Table) -> None:
        """Write the result; a file appears whole or not at all.

        Raises:
            InputError: the file cannot be written.
        """
        if self.path is None and self.format is Format.TABLE:
            typer.echo(as_text(table, terminal_width()))
            return
        if self.format is not Format.TABLE:
            table = table.rename_columns(distinct_names(table.column_names))
        if self.path is None:
            with tempfile.TemporaryFile() as file:
                WRITERS[self.format](table, file)
                file.seek(0)
                shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            return
        try:
            with _whole_file(self.path) as file:
                WRITERS[self.format](table, file)
        except OSError as error:
            raise InputError(
                f"cannot write {self.path}: {error.strerror}. Name another file with --output."
            ) from None


def destination(format: Format | None, path: Path | None) -> Destination:
    """Check what the user asked for.

    Without `format` the file's suffix decides, and standard output gets a table.

    Raises:
        InputError: an unknown suffix, a folder that does not exist, or Parquet to a
            terminal.
    """
    if path is None:
        if format is Format.PARQUET and sys.stdout.isatty():
            raise InputError(
                "Parquet is binary and would garble the terminal. Add --output FILE.parquet,"
                " or send standard output to a file or another program."
            )
        return Destination(format or Format.TABLE, None)
    if path.is_dir():
        raise InputError(f"--output {path} is a folder. Name a file in it.")
    if not path.absolute().parent.is_dir():
        raise InputError(
            f"--output {path}: the folder {path.parent} does not exist. Create it first,"
            " or name another."
        )
    return Destination(format or _format_of(path), path)


def _format_of(path: Path) -> Format:
    by_suffix = {".csv": Format.CSV, ".json": Format.JSON, ".parquet": Format.PARQUET,
                 ".txt": Format.TABLE}  # fmt: skip
    found = by_suffix.get(path.suffix.lower())
    if found is None:
        raise InputError(
            f"--output {path}: the form of the result is not clear from the name."
            " Add --format csv, json, parquet or table."
        )
    return found


@contextmanager
def _whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when all of it has been written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names with `_1`, `_2` … after repeated ones: a file cannot hold two of a name."""
    taken = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        new, number = name, 0
        while new in seen or (number and new in taken):
            number += 1
            new = f"{name}_{number}"
        seen.add(new)
        result.append(new)
    return result


def terminal_width() -> int | None:
    """The width of standard output in cells, None when it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def as_text(table: pa.Table, width: int | None) -> str:
    """The first rows of a result as aligned text; a plan as it was written."""
    if table.column_names == list(_EXPLAINED):
        return "\n".join(text_table.plain(text) for text in table.column(1).to_pylist())
    shown = table.slice(0, text_table.SHOWN_ROWS)
    columns = [column.to_pylist() for column in shown.columns]
    rows = list(zip(*columns, strict=True))
    return text_table.render(table.column_names, rows, total_rows=table.num_rows, width=width)


def _write_table(table: pa.Table, file: BinaryIO) -> None:
    columns = [column.to_pylist() for column in table.columns]
    rows = list(zip(*columns, strict=True))
    text = text_table.render(table.column_names, rows, total_rows=table.num_rows, width=None)
    file.write(text.encode() + b"\n")


def _write_csv(table: pa.Table, file: BinaryIO) -> None:
    # DuckDB writes lists and structs as text; Arrow's own writer refuses them.
    import duckdb

    from covey.sql.text import quote_text

    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        target = Path(folder) / "result.csv"
        database.register("result", table)
        place = quote_text(str(target))
        database.execute(f"COPY (FROM result) TO {place} (FORMAT csv, HEADER true)")
        with target.open("rb") as source:
            shutil.copyfileobj(source, file)


def _write_json(table: pa.Table, file: BinaryIO) -> None:
    """An array of one object a row, one row a line; numbers that JSON lacks become null."""
    names = table.column_names
    separator = b"[\n"
    for batch in table.to_batches(max_chunksize=4096):
        columns = [column.to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            record = dict(zip(names, map(_json_value, row), strict=True))
            file.write(separator + json.dumps(record, ensure_ascii=False).encode())
            separator = b",\n"
    file.write(b"\n]\n" if separator == b",\n" else b"[]\n")


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


def _write_parquet(table: pa.Table, file: BinaryIO) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, file)


WRITERS: dict[Format, Callable[[pa.Table, BinaryIO], None]] = {
    Format.TABLE: _write_table,
    Format.CSV: _write_csv,
    Format.JSON: _write_json,
    Format.PARQUET: _write_parquet,
}
