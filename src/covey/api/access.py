"""What the SQL of a connection may reach: files, the network, extensions, tables to change."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import duckdb

from covey.errors import InputError, RunError, first_line
from covey.hardware import forks
from covey.hardware.paths import Scratch, clear_scratch
from covey.sql.text import quote_text

# Of the memory of the machine, as DuckDB finds it: the model and its documents need the
# rest. What does not fit goes to a file.
MEMORY_SHARE = "50%"
# Of a surrogate pair; what a name's bytes hold that are no UTF-8 is such in Python, too.
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Access:
    """What SQL may reach.

    DuckDB opens no file that is not allowed; `covey.api.access_check` refuses the statements,
    functions and settings that would reach further, and those that nobody has looked at yet.
    Hard links cannot be told from the files themselves.

    Attributes:
        allow: the files and folders that it may read and write, besides what is registered
            as data; None is all of them.
        read_only: whether statements that change anything are refused. A database file is
            opened for reading only.
        extensions: whether DuckDB may fetch and load extensions. They can reach the network,
            which nothing else here does.
    """

    allow: tuple[Path, ...] | None = None
    read_only: bool = False
    extensions: bool = False


def read_access(
    allow: Sequence[str | PathLike[str]] | None, read_only: bool, extensions: bool
) -> Access:
    """What `connect` was given.

    Raises:
        InputError: a path that does not exist, or extensions beside `allow`.
    """
    if allow is None:
        return Access(None, read_only, extensions)
    if isinstance(allow, str | PathLike):
        raise InputError(f"allow is a list of files and folders: allow=[{str(allow)!r}].")
    if extensions:
        raise InputError("Extensions could reach more than allow names. Leave one of them out.")
    paths = tuple(Path(path).absolute() for path in allow)
    for path in paths:
        if not path.exists():
            raise InputError(f"allow names {path}, which does not exist.")
    return Access(paths, read_only, extensions)


# Databases that are open in the process that this one was forked from. DuckDB would give out its
# copy of them, whose threads and locks are that process's.
_left_open: set[str] = set()


def leave_open(database: str | PathLike[str]) -> None:
    """Open a database no more in this process."""
    if str(database) != ":memory:":
        _left_open.add(_place(str(database)))


def _place(file: str) -> str:
    """What DuckDB knows a database by."""
    return file if file.startswith(":memory:") else os.path.realpath(file)


def open_database(
    database: str | PathLike[str], access: Access
) -> tuple[duckdb.DuckDBPyConnection, Scratch]:
    """Open a database with what it may reach settled.

    Returns:
        the connection, and the folder of its temporary files, to be deleted after it.

    Raises:
        InputError: it cannot be opened.
        RunError: the process has no memory for it.
    """
    file = str(database)
    if "\0" in file or _HALF.search(file):
        raise InputError(f"The database {file!r} cannot be opened: that is no name of a file.")
    if _place(file) in _left_open:
        raise InputError(
            f"The database {database} is open in the process that this one was forked from, and "
            f"DuckDB would write to it from both. To use it in several processes, {forks.SPAWN}."
        )
    if not file.startswith(":memory:") and Path(file).exists() and not Path(file).is_file():
        # DuckDB would wait for somebody who writes to a pipe.
        raise InputError(f"The database {database} is no file. Name one, or a new one.")
    # DuckDB opens no database in memory for reading only; its statements are refused anyway.
    locked = access.read_only and not file.startswith(":memory:")
    try:
        connection = duckdb.connect(file, read_only=locked)
    except duckdb.OutOfMemoryException as error:
        raise RunError(
            f"The process has no memory left for a database ({first_line(error)}). Close what else "
            "uses memory, or raise its limit (ulimit -v)."
        ) from None
    except duckdb.Error as error:
        raise InputError(f"The database {database} cannot be opened: {error}") from None
    # Not in the folder that the process happens to run in.
    clear_scratch()
    try:
        folder = Scratch()
    except OSError as error:
        connection.close()
        raise InputError(
            f"There is no room for temporary files: {error.strerror or error}. Let TMPDIR name a "
            "folder that can be written."
        ) from None
    settings = {
        "errors_as_json": "true",
        # Otherwise a table name could be read as a variable of Covey's own code.
        "python_enable_replacements": "false",
        "temp_directory": quote_text(str(folder.path)),
        "memory_limit": quote_text(MEMORY_SHARE),
    }
    if not access.extensions:
        settings |= {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
        }
    if access.allow is not None:
        settings |= {
            "allowed_directories": _list(path for path in access.allow if path.is_dir()),
            "allowed_paths": _list(path for path in access.allow if not path.is_dir()),
            # From here on DuckDB lets no statement widen what is allowed.
            "enable_external_access": "false",
        }
    for name, value in settings.items():
        connection.execute(f"SET {name} = {value}").fetchall()
    return connection, folder


def _list(paths: Iterable[Path]) -> str:
    return f"[{', '.join(quote_text(str(path)) for path in paths)}]"
