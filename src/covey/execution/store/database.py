"""The file of the answer store, opened for one short piece of work at a time.

DuckDB lets one process have a file open for writing. Nobody holds it for longer than a
look-up or a batch takes: a lock file orders the processes, and the system frees the lock
of a process that is killed. What was committed is in the file or in its log, whatever
happens then.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from covey.errors import CoveyError, RunError, first_line
from covey.execution.store.keys import SALT_WORDS
from covey.hardware.forks import unforked
from covey.hardware.paths import is_utf_8
from covey.sql.text import quote_text

# Another process needs milliseconds; one that shrinks a large file, some seconds.
WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.005
_NAME = "answers.duckdb"
SCHEMA = """
CREATE TABLE salt (word UBIGINT);
CREATE TABLE questions (
    id INTEGER, digest VARCHAR, model VARCHAR, fingerprint VARCHAR, kind VARCHAR,
    template VARCHAR, labels VARCHAR[]
);
CREATE TABLE answers (
    question INTEGER, first UBIGINT, second UBIGINT,
    score DOUBLE, more DOUBLE[], written TIMESTAMP
);
"""
# DuckDB's own words for what no other cause has than a file that is damaged. An INTERNAL Error,
# say, has others: the next process may read the file as it is.
_DAMAGE = (
    "not a valid DuckDB database",
    "Corrupt database",
    "Corrupt WAL",
    "Could not read enough bytes",
)
_BUSY = "Could not set lock"
_TABLES = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"


# Device and number: what has a name now may be another file than what had it before.
File = tuple[int, int]


class StoreError(RunError):
    """The answer store cannot be used now; queries run without it."""


class DamagedError(StoreError):
    """The file of the answer store cannot be read.

    Attributes:
        file: which file that is; see `AnswerDatabase.file`.
    """

    file: File | None = None


class AnswerDatabase:
    """A folder with the file, its lock and nothing else; all private to the user.

    The threads of a process use it as other processes do: all that is written here is written
    by whoever holds the lock of the file, which one thread does at a time.

    Args:
        folder: the folder of caches; the store lies in `answers` inside.

    Attributes:
        notes: what was mended on the way, for people.
        salt: the words in the file that was opened last; None before. See `keys.prompt_keys`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "answers"
        self.path = self.folder / _NAME
        self.notes: list[str] = []
        self.salt: list[int] | None = None
        # The file whose tables were found to be ours.
        self._checked: File | None = None

    @property
    def size(self) -> int:
        """Bytes on disk, 0 before the first answer."""
        total = 0
        for path in (self.path, self.path.with_name(f"{_NAME}.wal")):
            with suppress(OSError):
                total += path.stat().st_size
        return total

    def exists(self) -> bool:
        """Whether there is a file.

        Raises:
            StoreError: its folder cannot be looked into.
        """
        return self.file() is not None

    def file(self) -> File | None:
        """Which file there is; None for none.

        Raises:
            StoreError: its folder cannot be looked into.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(
                f"the answer store {self.path} cannot be used: {error.strerror}"
            ) from None
        return found.st_dev, found.st_ino

    def delete(self) -> None:
        """Delete the file, whatever state it is in."""
        with self._locked():
            self._remove(self.path)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection | None]:
        """The open file, None where there is none yet; a read-only folder will do.

        Raises:
            StoreError: it cannot be opened.
        """
        if not self.exists():
            yield None
        elif os.access(self.folder, os.W_OK):
            with self.writing() as connection:
                yield connection
        else:
            # DuckDB would give a forked process its copy of the open file.
            with (
                unforked(),
                self._errors(),
                duckdb.connect(str(self.path), read_only=True) as connection,
            ):
                self._check(connection)
                yield connection

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The open file, made if need be; a damaged one is put aside first.

        Raises:
            StoreError: it cannot be opened, read or written.
        """
        with self._locked(), unforked():
            try:
                connection = self._connect()
            except DamagedError as error:
                self._put_aside(error)
                connection = self._connect()
            try:
                with self._errors():
                    yield connection
            finally:
                # A failed write may leave nothing that could be closed in good order.
                with suppress(duckdb.Error):
                    connection.close()

    def put_aside(self, error: DamagedError) -> None:
        """Begin anew beside a file that was found damaged while it was read."""
        with self._locked():
            self._put_aside(error)

    def replace(self, connection: duckdb.DuckDBPyConnection, condition: str) -> None:
        """Write the file anew with the answers that meet a condition: DuckDB keeps its size.

        Args:
            connection: from `writing`, which is closed.
        """
        # What is in the log only must not go with it.
        run(connection, "CHECKPOINT")
        fresh = self.path.with_name(f"{_NAME}.new")
        self._remove(fresh)
        run(connection, f"ATTACH {quote_text(str(fresh))} AS fresh")
        for table in ("salt", "questions", "answers"):
            where = f"WHERE {condition}" if table == "answers" else ""
            run(connection, f"CREATE TABLE fresh.{table} AS FROM {table} {where}")
        run(connection, "CHECKPOINT fresh")
        run(connection, "DETACH fresh")
        connection.close()
        fresh.chmod(0o600)
        self._remove(self.path.with_name(f"{_NAME}.wal"))
        fresh.replace(self.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # `import covey` must stay light.
        from filelock import FileLock, Timeout

        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise StoreError(f"the answer store {self.path} is read-only")
            lock = FileLock(self.folder / "lock", mode=0o600, poll_interval=_POLL_SECONDS)
            with lock.acquire(timeout=WAIT_SECONDS):
                yield
        except Timeout:
            raise StoreError(f"the answer store {self.path} is in use by another process") from None
        except (OSError, NotImplementedError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise StoreError(f"the answer store {self.path} cannot be used: {reason}") from None

    def _connect(self) -> duckdb.DuckDBPyConnection:
        with self._errors():
            if not self.exists():
                self._create()
            connection = duckdb.connect(str(self.path))
            try:
                self._check(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def _check(self, connection: duckdb.DuckDBPyConnection) -> None:
        """See that the tables are ours, once a file, and read its salt."""
        file = self.file()
        if file != self._checked:
            with duckdb.connect() as empty:
                run(empty, SCHEMA)
                if set(run(empty, _TABLES)) != set(run(connection, _TABLES)):
                    raise StoreError(
                        f"the answer store {self.path} was made by another version of Covey:"
                        " name another folder"
                    )
        words = [word for (word,) in run(connection, "SELECT word FROM salt ORDER BY rowid")]
        if len(words) != SALT_WORDS:
            raise StoreError(f"the answer store {self.path} is incomplete")
        self._checked, self.salt = file, words

    def _create(self) -> None:
        """Make the file under another name: it is there whole or not at all.

        One that takes the place of another has its salt, and so the names of its answers.
        """
        fresh = self.path.with_name(f"{_NAME}.new")
        self._remove(fresh)
        with duckdb.connect(str(fresh)) as connection:
            run(connection, SCHEMA)
            for word in self.salt or [secrets.randbits(64) for _ in range(SALT_WORDS)]:
                run(connection, "INSERT INTO salt VALUES (?)", [word])
            # Closing would not tell that the disk is full.
            run(connection, "CHECKPOINT")
        fresh.chmod(0o600)
        fresh.replace(self.path)

    def _put_aside(self, error: DamagedError) -> None:
        """Rename the file and its log; those that were put aside before stay."""
        if error.file is None or self.file() != error.file:
            return  # Another process has done so.
        numbers = itertools.count(1)
        aside = self.path.with_name("damaged.duckdb")
        while aside.exists():
            aside = self.path.with_name(f"damaged-{next(numbers)}.duckdb")
        for end in ("", ".wal"):
            with suppress(FileNotFoundError):
                self.path.with_name(f"{_NAME}{end}").replace(f"{aside}{end}")
        self.notes.append(f"{error}. It was put aside as {aside} and a new one begun.")

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Whatever goes wrong with the file as an error of the store's."""
        try:
            yield
        except CoveyError:
            raise
        except Exception as error:
            reason = first_line(error) or type(error).__name__
            if isinstance(error, RuntimeError) and not is_utf_8(str(self.path)):
                reason = "the name of its folder is no UTF-8, which DuckDB needs"
            if _BUSY in reason:
                raise StoreError(f"the answer store {self.path} is open elsewhere") from None
            if any(phrase in reason for phrase in _DAMAGE):
                damage = DamagedError(f"the answer store is damaged ({reason})")
                damage.file = self.file()
                raise damage from None
            raise StoreError(f"the answer store {self.path} cannot be used: {reason}") from None


def run(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """The rows of a statement, all of them: a result half read blocks the connection."""
    return connection.execute(query, list(parameters)).fetchall()
