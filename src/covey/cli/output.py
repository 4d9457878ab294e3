"""Where a result goes and in which form; decided, and refused, before any model work."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import typer

from covey.cli import table as text_table
from covey.cli.streams import check_output
from covey.cli.whole_file import whole_file
from covey.cli.writers import WRITERS, Format, Writer, temporary_space, values_of
from covey.errors import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa


# What EXPLAIN gives, in the words of DuckDB.
_EXPLAINED = ("explain_key", "explain_value")


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked place for a result.

    Attributes:
        format: the form.
        path: the file, or None for standard output.
    """

    format: Format
    path: Path | None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the result; a file appears whole or not at all, a pipe or device as it comes.

        Args:
            batches: its rows; none of them is held once it is written.

        Raises:
            InputError: the file cannot be opened; no batch was taken.
            BrokenPipeError: the reader of a pipe went away.
            RunError: it cannot be written.
        """
        if self.path is None and self.format is Format.TABLE:
            typer.echo(as_text(*_head(batches), terminal_width()))
        elif self.path is None:
            with temporary_space(), tempfile.TemporaryFile() as file:
                self._write(batches, file)
                file.seek(0)
                shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.buffer.flush()
        else:
            with whole_file(self.path) as file:
                self._write(batches, file)

    def _write(self, batches: Iterable[pa.RecordBatch], file: BinaryIO) -> None:
        import pyarrow as pa

        from covey.execution.arrow_types import distinct_names

        writer: Writer | None = None
        try:
            for batch in _of_query(batches):
                if self.format is not Format.TABLE:
                    # A file cannot hold two columns of a name.
                    batch = batch.rename_columns(distinct_names(batch.schema.names))
                writer = writer or WRITERS[self.format](file, batch.schema)
                writer.add(batch)
            writer = writer or WRITERS[self.format](file, pa.schema([]))
            writer.end()
        except BaseException:
            if writer is not None:
                writer.drop()
            raise


def destination(format: Format | None, path: Path | None) -> Destination:
    """Check what the user asked for.

    Without `format` the file's suffix decides, and standard output gets a table.

    Raises:
        InputError: an unknown suffix, a folder that does not exist, links that loop, standard
            output that is closed, or Parquet to a terminal.
    """
    if path is None:
        check_output()
        if format is Format.PARQUET and sys.stdout.isatty():
            raise InputError(
                "Parquet is binary and would garble the terminal. Add --output FILE.parquet,"
                " or send standard output to a file or another program."
            )
        return Destination(format or Format.TABLE, None)
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        is_folder = False
    except OSError as error:
        raise InputError(
            f"--output {path} cannot be opened: {error.strerror}. Name another file."
        ) from None
    if is_folder:
        raise InputError(f"--output {path} is a folder. Name a file in it.")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise InputError(
            f"--output {path}: the folder {folder} does not exist. Create it first,"
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


def terminal_width() -> int | None:
    """The width of standard output in cells, None when it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def as_text(table: pa.Table, total: int, width: int | None) -> str:
    """The first rows of a result as aligned text; a plan as it was written.

    Args:
        table: the first rows, `text_table.SHOWN_ROWS` at most.
        total: how many the result has.
        width: see `text_table.render`.
    """
    if table.column_names == list(_EXPLAINED):
        return "\n".join(text_table.plain(text) for text in table.column(1).to_pylist())
    columns = [values_of(table, place) for place in range(table.num_columns)]
    rows = list(zip(*columns, strict=True))
    return text_table.render(table.column_names, rows, total_rows=total, width=width)


def _of_query(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; what goes wrong while they are made is no error of writing them."""
    try:
        yield from batches
    except OSError as error:
        raise RunError(f"The query stopped: {error}.") from error


def _head(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Table, int]:
    """The first rows of a result, and how many there are."""
    import pyarrow as pa

    shown: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        if not shown or total < text_table.SHOWN_ROWS:
            shown.append(batch.slice(0, text_table.SHOWN_ROWS - total))
        total += batch.num_rows
    return (pa.Table.from_batches(shown) if shown else pa.table({})), total
