"""The way in: connect, register tables, make queries."""

from __future__ import annotations

import itertools
import sys
import threading
from os import PathLike
from types import TracebackType
from typing import Any, Self

import duckdb

from covey.api.builder import Builder
from covey.api.models import model_source
from covey.api.query import Query
from covey.api.sources import register
from covey.api.tables import start
from covey.engine.base import Engine, ModelSource
from covey.errors import InputError
from covey.execution.progress import Progress, progress_for
from covey.execution.store.location import CacheOptions, cache_options
from covey.execution.store.store import AnswerStore
from covey.prompts.question import QuestionKind
from covey.sql.dialect import Dialect, read_dialect

__all__ = ["CacheOptions", "Connection", "connect"]


def connect(
    model: str | PathLike[str] | ModelSource | None = None,
    *,
    database: str | PathLike[str] = ":memory:",
    progress: bool | None = None,
    dialect: str | None = None,
    cache: bool | str | PathLike[str] | CacheOptions = True,
) -> Connection:
    """Open a connection; nothing is loaded yet.

    Args:
        model: a known name (`covey models` lists them), the path of a GGUF file or of a
            folder with safetensors, or a `covey.testing.PlantedModel`. None takes the
            default of this machine.
        database: a DuckDB database file; in memory unless given.
        progress: show how far a query is; None shows it on a terminal only.
        dialect: "snowflake" or "bigquery" accepts only that vendor's spelling of AI
            functions; None accepts both, also side by side. Other SQL is always DuckDB's.
        cache: whether answers are kept between runs, so that a query that ran before, or
            was stopped half-way, asks only what is new. True keeps them in the folder that
            `COVEY_CACHE` names or the platform's, a path in a folder of yours, and
            `covey.CacheOptions` also sets limits. See `covey cache`.

    Raises:
        InputError: the database cannot be opened, there is no such dialect, or the cache
            is no folder.
        ModelError: there is no such model.
    """
    options = cache_options(cache)
    store = None if options is None else AnswerStore(options)
    return Connection(model_source(model), database, progress, read_dialect(dialect), store)


class Connection:
    """A DuckDB database and a model that is loaded when it is first needed.

    Queries of one connection run one at a time, also from several threads.
    """

    def __init__(
        self,
        model: ModelSource,
        database: str | PathLike[str],
        progress: bool | None,
        dialect: Dialect | None = None,
        store: AnswerStore | None = None,
    ) -> None:
        try:
            self._duckdb = duckdb.connect(str(database))
        except duckdb.Error as error:
            raise InputError(f"The database {database} cannot be opened: {error}") from None
        self._duckdb.execute("SET errors_as_json = true")
        # Otherwise a table name could be read as a variable of Covey's own code.
        self._duckdb.execute("SET python_enable_replacements = false")
        self._closed = False
        self._model = model
        self._engine: Engine | None = None
        self._lookup_names = 0
        self._show_progress = progress
        self.dialect = dialect
        self.store = store
        self.lock = threading.RLock()
        self.table_names = itertools.count()

    @property
    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection underneath.

        Raises:
            InputError: the connection is closed.
        """
        if self._closed:
            raise InputError("The connection is closed: open another with covey.connect(…).")
        return self._duckdb

    @property
    def lookup_prefix(self) -> str:
        """What the names of look-ups begin with."""
        return f"covey{self._lookup_names or ''}"

    def change_lookup_prefix(self) -> None:
        """Begin the names of look-ups in another way: the present ones are lost."""
        self._lookup_names += 1

    @property
    def model_kinds(self) -> frozenset[QuestionKind]:
        """The kinds of question that the model can answer."""
        return self._model.kinds

    @property
    def model_name(self) -> str:
        return self._model.name

    def register(self, name: str, data: Any) -> None:
        """Make data known as a table; see `covey.api.sources.register`."""
        with self.lock:
            register(self.duckdb, name, data)

    def sql(self, text: str, *, dialect: str | None = None) -> Query:
        """A query; its text is checked now, it runs when a result is first asked for.

        Args:
            text: SQL, one statement or several.
            dialect: as for `connect`; None takes that of the connection.

        Raises:
            QueryError: the text is wrong; nothing was asked of the model.
            InputError: there is no such dialect.
        """
        return Query(self, text, read_dialect(dialect) or self.dialect)

    def table(self, *name: str) -> Builder:
        """The rows of a table or view, to build a query on; see `covey.api.builder`.

        Args:
            name: its exact name, with schema or catalogue before it where needed:
                `con.table("tickets")`, `con.table("main", "my tickets")`.

        Raises:
            InputError: there is no such table; names the nearest.
        """
        return start(self, name)

    def explain(self, text: str) -> str:
        """What running the query would do; see `Query.explain`."""
        return self.sql(text).explain()

    def run(self, text: str) -> Query:
        """Make a query and run it."""
        return self.sql(text).run()

    def engine(self) -> Engine:
        """The loaded model.

        Raises:
            ModelError: it cannot be loaded.
        """
        if self._engine is None:
            self._engine = self._model.open()
        return self._engine

    def new_progress(self) -> Progress:
        return progress_for(sys.stderr, self._show_progress)

    def close(self) -> None:
        """Close the database and let the model go."""
        self._engine = None
        self._closed = True
        self._duckdb.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
