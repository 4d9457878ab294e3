"""Where a result goes and in which form; decided, and refused, before any model work."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from covey.cli.atomic_file import atomic_file
from covey.cli.streams import check_output
from covey.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


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

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the result; a file appears whole or not at all, a pipe or device as it comes.

        Args:
            batches: its rows; none of them is held once it is written.

        Raises:
            InputError: the file cannot be opened; no batch was taken.
            BrokenPipeError: the reader of a pipe went away.
            RunError: it cannot be written.
        """
        from covey.cli import writers

        if self.path is not None:
            with atomic_file(self.path) as file:
                writers.write_file(batches, self.format, file)
        elif self.format is Format.TABLE:
            typer.echo(writers.head_as_text(batches, terminal_width()))
        else:
            with writers.temporary_space(), tempfile.TemporaryFile() as file:
                writers.write_file(batches, self.format, file)
                file.seek(0)
                shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.buffer.flush()


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
