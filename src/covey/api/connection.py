"""The way in: connect, register tables, make queries."""

from __future__ import annotations

import difflib
import itertools
import secrets
import sys
import weakref
from collections.abc import Sequence
from os import PathLike
from typing import Any, NoReturn, Self

import duckdb

from covey.api.access import Access, leave_open, open_database, read_access
from covey.api.access_check import AccessCheck
from covey.api.builder import Builder, FromItem
from covey.api.calibration import Reliability, calibrate
from covey.api.connection_lock import ConnectionLock
from covey.api.estimates import read_price
from covey.api.model_source import model_source
from covey.api.parameters import Parameters
from covey.api.pipes import Pipes
from covey.api.query import Query
from covey.api.sources import register
from covey.api.sql_text import sql_name
from covey.engine.base import Engine, ModelSource
from covey.engine.lazy import LazyModel
from covey.errors import InputError, QueryError
from covey.execution.budget import NO_BUDGET, Budget
from covey.execution.progress import Progress, Shown, check_shown, progress_for
from covey.execution.store.location import CacheOptions, cache_options
from covey.execution.store.store import AnswerStore
from covey.hardware import forks
from covey.prompts.question import Calibration, Question
from covey.sql.functions import Dialect, read_dialect
from covey.sql.temporary import TemporaryObjects

__all__ = ["CacheOptions", "Connection", "connect"]


def connect(
    model: str | PathLike[str] | ModelSource | None = None,
    *,
    fast: str | Sequence[str] = (),
    database: str | PathLike[str] = ":memory:",
    progress: Shown = None,
    dialect: str | None = None,
    cache: bool | str | PathLike[str] | CacheOptions = True,
    allow: Sequence[str | PathLike[str]] | None = None,
    read_only: bool = False,
    extensions: bool = False,
    price_per_hour: float | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    max_seconds: float | None = None,
    max_cost: float | None = None,
) -> Connection:
    """Open a connection; nothing is loaded yet.

    Args:
        model: a known name (`covey models` lists them), the path of a GGUF file or of a
            folder with safetensors, or a `covey.testing.PlantedModel`. None takes the
            default of this machine.
        fast: "fp8-blocks", "fp8-attention" or a list: faster on a Hopper GPU, with other
            answers now and then, which are kept apart; see docs/performance.md.
        database: a DuckDB database file; in memory unless given.
        progress: show how far a query is; None does so on a terminal and in a notebook, True
            also elsewhere, in a line now and then, as "plain" always; "json" writes events.
        dialect: "snowflake" or "bigquery" accepts only that vendor's spelling of AI
            functions; None accepts both, also side by side. Other SQL is always DuckDB's.
        cache: whether answers are kept between runs, so that only what is new is asked:
            True in the folder that `COVEY_CACHE` names or the platform's, a path there, and
            `covey.CacheOptions` within limits. See `covey cache`.
        allow, read_only, extensions: what SQL may reach; see `covey.api.access.Access`.
        price_per_hour: US dollars an hour of the device; None takes the environment's
            COVEY_PRICE_PER_HOUR, else a usual price.
        max_calls, max_tokens, max_seconds, max_cost: the budget of every query: model
            calls, tokens computed, seconds of the run, US dollars. A query that must need
            more is refused before it runs, one that does is stopped.

    Raises:
        InputError: the database cannot be opened, `allow` names no file, there is no such
            dialect or `fast`, the cache is no folder, or a limit is no number.
        ModelError: there is no such model.
    """
    options = cache_options(cache)
    return Connection(
        model_source(model, fast),
        database,
        progress,
        read_dialect(dialect),
        None if options is None else AnswerStore(options),
        read_price(price_per_hour),
        Budget(max_calls, max_tokens, max_seconds, max_cost),
        read_access(allow, read_only, extensions),
    )


class Connection:
    """A DuckDB database and a model that is loaded when it is first needed.

    Queries of one connection run one at a time, also from several threads: whoever holds `lock`
    owns all that changes here.
    """

    def __init__(
        self,
        model: ModelSource,
        database: str | PathLike[str],
        progress: Shown,
        dialect: Dialect | None = None,
        store: AnswerStore | None = None,
        price: float | None = None,
        budget: Budget = NO_BUDGET,
        access: Access | None = None,
    ) -> None:
        access = access or Access()
        self._duckdb, folder = open_database(database, access)
        self._delete_files = weakref.finalize(self, folder.delete)
        forks.tell(self)
        self._database = database
        self.access_check = AccessCheck(self._duckdb, access)
        self.pipes = Pipes(folder.path, access)
        self._closed = False
        self.model = LazyModel(model)
        self._prefix = f"covey_{secrets.token_hex(4)}"
        self._prefixes = itertools.count()
        self._show_progress = check_shown(progress)
        self.dialect = dialect
        self.store = store
        self.price = price
        self.budget = budget
        self.lock = ConnectionLock()
        self.calibrations: dict[Question, Calibration] = {}

    @property
    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection underneath.

        Raises:
            InputError: the connection is closed, or another process's.
        """
        self.lock.check_process()
        if self._closed:
            raise InputError("The connection is closed: open another with covey.connect(…).")
        return self._duckdb

    def new_objects(self) -> TemporaryObjects:
        """What one statement puts on the connection, under names of its own.

        Several connections may share a database, and with it its functions.
        """
        return TemporaryObjects(self.duckdb, f"{self._prefix}_{next(self._prefixes)}")

    def register(self, name: str, data: Any) -> None:
        """Make data known as a table; see `covey.api.sources.register`."""
        with self.lock:
            if isinstance(data, str | PathLike):
                data = self.pipes.registered(data)
            register(self.duckdb, self.new_objects(), name, data)

    @property
    def hourly(self) -> float | None:
        """US dollars an hour: what the user gives, else the device's usual price."""
        if self.price is not None:
            return self.price
        device = self.model.source.profile().device
        return None if device is None else device.price

    def sql(
        self,
        text: str,
        params: Parameters | None = None,
        *,
        dialect: str | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        max_cost: float | None = None,
    ) -> Query:
        """A query; its text is checked now, it runs when a result is first asked for.

        Args:
            text: SQL, one statement or several.
            params: values for its places: a list for `?`, or `$1` and `?2`, a mapping for
                `$name`, whose case means nothing. They are written into the text as constants
                of the types that DuckDB gives its own parameters, so that a question or a list
                of labels may be one.
            dialect: as for `connect`; None takes that of the connection.
            max_calls, max_tokens, max_seconds, max_cost: as for `connect`; None takes that
                of the connection.

        Raises:
            QueryError: the text is wrong; nothing was asked of the model.
            InputError: there is no such dialect, a limit is no number, or a value has no
                place or no form in SQL.
        """
        budget = self.budget.override(Budget(max_calls, max_tokens, max_seconds, max_cost))
        return Query(self, text, read_dialect(dialect) or self.dialect, budget, params)

    def table(self, *name: str) -> Builder:
        """The rows of a table or view, to build a query on; see `covey.api.builder`.

        Args:
            name: its exact name, with schema or catalogue before it where needed:
                `con.table("tickets")`, `con.table("main", "my tickets")`.

        Raises:
            InputError: there is no such table; names the nearest.
        """
        if not name or not all(isinstance(part, str) and part for part in name):
            raise InputError("A table has a name: con.table('tickets').")
        rows = self.sql(
            "SELECT keyword_name FROM system.main.duckdb_keywords() "
            "WHERE keyword_category <> 'unreserved'"
        )
        reserved = frozenset(word for (word,) in rows.fetchall())
        relation = ".".join(sql_name(part, reserved) for part in name)
        builder = Builder(self, reserved, (FromItem(relation, name[-1]),))
        try:
            self.sql(f"FROM {relation}")
        except QueryError:
            raise InputError(self._no_table(name[-1])) from None
        return builder

    def _no_table(self, name: str) -> str:
        rows = self.sql(
            "SELECT table_name FROM system.main.duckdb_tables() UNION ALL "
            "SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal ORDER BY 1 ASC"
        )
        names = [known for (known,) in rows.fetchall()]
        if not names:
            return f"There is no table {name}. Make one known: con.register({name!r}, data)."
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        return f"There is no table {name}. Did you mean {near[0]}? con.register adds one."

    def calibrate(
        self, question: str, labelled: Any, *, label: str = "label", **options: Any
    ) -> Reliability:
        """Learn from labelled rows what a question's margins are worth.

        Afterwards the option calibration => 'labelled' of AI.IF, AI.SCORE and AI.MARGIN
        gives calibrated answers to the same question on this connection.

        Args:
            question: with columns in braces, "Is it a complaint? {body}".
            labelled: a table's name, or data as for `register`.
            label: SQL over its rows: the right answer, NULL where there is none.
            options: of AI.MARGIN; they are part of the question.

        Raises:
            InputError: too few rows of one label, or a name that is no column.
            QueryError: the label is no SQL condition.
        """
        with self.lock:
            return calibrate(self, question, labelled, label, options)

    def explain(self, text: str, format: str = "text", *, analyze: bool = False) -> str:
        """What running the query would do; see `Query.explain`."""
        return self.sql(text).explain(format, analyze=analyze)

    def run(self, text: str, params: Parameters | None = None) -> Query:
        """Make a query and run it; see `sql`."""
        return self.sql(text, params).run()

    def engine(self) -> Engine:
        """The model, loaded now if it was not; see `LazyModel.engine`."""
        return self.model.engine()

    def new_progress(self) -> Progress:
        return progress_for(sys.stderr, self._show_progress)

    def close(self) -> None:
        """Close the database and let the model go; what is closed may be closed again.

        A query that another thread runs is waited for, those that wait for it are
        refused then, and a result that is read in batches is closed. In a process that was
        forked from the connection's own, nothing happens.

        Raises:
            InputError: it is called from within a query that this thread runs.
        """
        if self.lock.foreign:
            return
        with self.lock.ending():
            self.model.loaded = None
            self._closed = True
            self._duckdb.close()
            self._delete_files()

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "A connection, and a query that is tied to it, cannot be pickled or copied: it holds "
            "an open database. Send what a query gives, df() or arrow(), and open another "
            "connection with covey.connect(…) where it is needed."
        )

    def inherited(self) -> None:
        """See `covey.hardware.forks`."""
        forks.keep_for_ever(self)
        if not self._closed:
            leave_open(self._database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
