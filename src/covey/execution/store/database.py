"""The file of the answer store, opened for one short piece of work at a time.

DuckDB lets one process have a file open for writing. Nobody holds it for longer than a
look-up or a batch takes: a lock file orders the processes, and the system frees the lock
of a process that is killed. What was committed is in the file or in its log, whatever
happens then.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from covey.errors import RunError
from covey.execution.store.keys import SALT_WORDS
from covey.sql.text import quote_text

# Another process needs milliseconds; one that shrinks a large file, some seconds.
WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.005
_NAME = "answers.duckdb"
_SCHEMA = """
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
# DuckDB's own words, in errors that have no type of their own.
_DAMAGE = (
    "not a valid DuckDB database",
    "Corrupt database",
    "Could not read enough bytes",
    "INTERNAL Error",
    "Failed to deserialize",
    "does not exist!",
)
_BUSY = "Could not set lock"


class StoreError(RunError):
    """The answer store cannot be used now; queries run without it."""


class DamagedError(StoreError):
    """The file of the answer store cannot be read."""


class AnswerDatabase:
    """A folder with the file, its lock and nothing else; all private to the user.

    Args:
        folder: the folder of caches; the store lies in `answers` inside.

    Attributes:
        notes: what was mended on the way, for people.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "answers"
        self.path = self.folder / _NAME
        self.notes: list[str] = []

    @property
    def size(self) -> int:
        """Bytes on disk, 0 before the first answer."""
        total = 0
        for path in (self.path, self.path.with_name(f"{_NAME}.wal")):
            with suppress(OSError):
                total += path.stat().st_size
        return total

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection | None]:
        """The open file, None where there is none yet; a read-only folder will do.

        Raises:
            StoreError: it cannot be opened.
        """
        if not self.path.exists():
            yield None
        elif os.access(self.folder, os.W_OK):
            with self.writing() as connection:
                yield connection
        else:
            with self._errors(), duckdb.connect(str(self.path), read_only=True) as connection:
                yield connection

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The open file, made if need be; a damaged one is put aside first.

        Raises:
            StoreError: it cannot be opened, read or written.
        """
        with self._locked():
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

    def put_aside(self, error: StoreError) -> None:
        """Begin anew beside a file that was found damaged while it was read."""
        with self._locked():
            self._put_aside(error)

    def replace(self, connection: duckdb.DuckDBPyConnection, condition: str) -> None:
        """Write the file anew with the answers that meet a condition: DuckDB keeps its size.

        Args:
            connection: from `writing`, which is closed.
        """
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
            if not self.path.exists():
                self._create()
            connection = duckdb.connect(str(self.path))
            try:
                run(connection, "SELECT word FROM salt")
            except duckdb.Error:
                connection.close()
                raise
            return connection

    def _create(self) -> None:
        """Make the file under another name: it is there whole or not at all."""
        fresh = self.path.with_name(f"{_NAME}.new")
        self._remove(fresh)
        with duckdb.connect(str(fresh)) as connection:
            run(connection, _SCHEMA)
            for _ in range(SALT_WORDS):
                run(connection, "INSERT INTO salt VALUES (?)", [secrets.randbits(64)])
            # Closing would not tell that the disk is full.
            run(connection, "CHECKPOINT")
        fresh.chmod(0o600)
        fresh.replace(self.path)

    def _put_aside(self, error: StoreError) -> None:
        aside = self.path.with_name("damaged.duckdb")
        with suppress(FileNotFoundError):
            self.path.replace(aside)
        self._remove(self.path.with_name(f"{_NAME}.wal"))
        self.notes.append(f"{error}. It was put aside as {aside} and a new one begun.")

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """DuckDB's errors as the store's."""
        try:
            yield
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            if _BUSY in reason:
                raise StoreError(f"the answer store {self.path} is open elsewhere") from None
            if any(phrase in reason for phrase in _DAMAGE):
                raise DamagedError(f"the answer store is damaged ({reason})") from None
            raise StoreError(f"the answer store {self.path} cannot be used: {reason}") from None


def run(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """The rows of a statement, all of them: a result half read blocks the connection."""
    return connection.execute(query, list(parameters)).fetchall()
