"""One query: checked when made, run once, read in any form."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.api.estimates import Estimate
from covey.api.frontend import Columns, Schema
from covey.api.parameters import Parameters
from covey.api.results import ARROW, PANDAS, POLARS, ROWS, Form, to_pandas, to_polars, to_rows
from covey.api.script import Script
from covey.api.statement import Accept
from covey.errors import InputError
from covey.execution.bridge import batches_of
from covey.execution.budget import NO_BUDGET, Budget
from covey.execution.report import Report
from covey.sql.functions import Dialect
from covey.sql.text import one_line

if TYPE_CHECKING:
    import pandas
    import polars

    from covey.api.connection import Connection


class Query:
    """One or several statements on a connection, made by `Connection.sql`.

    It runs once, whatever threads ask; what it knows of its run belongs to whoever holds the
    connection's lock. `covey.api.script` says what is checked when, and which result it has.

    Args:
        connection: where it runs.
        text: SQL.
        dialect: whose spelling of AI functions is accepted; None accepts both.
        budget: what it may take.
        params: values for its `?`, `$1` or `$name`; see `covey.api.parameters`.

    Raises:
        QueryError: the text is wrong.
        InputError: it is no text, or its cost is limited and the device has no price.
    """

    def __init__(
        self,
        connection: Connection,
        text: str,
        dialect: Dialect | None = None,
        budget: Budget = NO_BUDGET,
        params: Parameters | None = None,
    ) -> None:
        if not isinstance(text, str):
            raise InputError(f"SQL is a text, not of type {type(text).__name__}.")
        self._connection = connection
        self._script = Script(connection, text, dialect, budget, params)
        self._result: pa.Table | None = None
        # What the result, or the last statement as it is planned, is known to fit.
        self._fits: set[Form] = set()
        with connection.lock:
            self._script.check()

    def explain(self, format: str = "text", *, analyze: bool = False) -> str:
        """The plan, with what it is expected to take. Nothing is asked.

        Of several statements, one that does not bind before the others have run is named
        without a plan.

        Args:
            format: "text", or "json" for a JSON document with a list of statements.
            analyze: run the query, if it has not run, and print beside each figure what
                it came to.

        Raises:
            InputError: there is no such format.
        """
        if format not in ("text", "json"):
            raise InputError(f"A plan is shown as 'text' or 'json', not as {format!r}.")
        if analyze:
            with self._connection.lock.running():
                if self._result is None:
                    self._run(ARROW, forecast=True)
                else:
                    self._script.forecast()
        with self._connection.lock:
            parts = self._script.explained(analyze=analyze)
        if format == "json":
            return json.dumps({"statements": [part.values(report) for part, report in parts]})
        texts = [part.text(report) for part, report in parts]
        if len(texts) == 1:
            return texts[0]
        lines = []
        pairs = zip(self._script.statements, texts, strict=True)
        for number, (rewritten, text) in enumerate(pairs, 1):
            lines += [f"statement {number} of {len(texts)}: {one_line(rewritten.text)}", text]
        return "\n".join(lines)

    def estimate(self) -> Estimate:
        """What the query is expected to take: calls, tokens, seconds and money.

        A statement that does not bind before the others have run is left out.
        """
        with self._connection.lock:
            return Estimate.of([part.forecast for part, _ in self._script.explained()])

    @property
    def schema(self) -> Schema:
        """Name and SQL type of each column of the result; runs nothing.

        Raises:
            InputError: the last statement is no query.
            QueryError: it does not bind before the statements before it have run.
        """
        with self._connection.lock:
            return self._script.last().schema()

    def run(self) -> Query:
        """Run the query if it has not run yet; return itself.

        Raises:
            QueryError: tables changed since the query was made and it no longer binds, or
                a later statement is wrong.
            ModelError: the model cannot be loaded.
            RunError: the run failed.
        """
        self.arrow()
        return self

    def _run(self, form: Form, *, forecast: bool = False) -> pa.Table:
        self._result = self._script.run(self._accepting(form), forecast=forecast)
        return self._result

    def _accepting(self, form: Form) -> Accept:
        """What refuses columns that have no place in a form, before anything is asked."""

        def accept(columns: Columns) -> None:
            form.check(columns)
            self._fits.add(form)

        return accept

    def __repr__(self) -> str:
        if self._result is not None:
            state = f"{self._result.num_rows:,} rows"
        else:
            state = "not run yet" if self._script.report is None else "read in batches, or stopped"
        text = textwrap.shorten(self._script.statements[-1].text, 100, placeholder=" …")
        return f"<covey.Query: {text}; {state}>"

    def batches(self, *, early: bool = False) -> Generator[pa.RecordBatch, None, None]:
        """The rows of the result in Arrow batches, the whole of which is never held.

        A result without rows gives one batch, which shows its columns. `report` goes as far
        as the rows do. Until the last batch, or `close` of the iterator, the connection runs
        nothing else, and refuses what any thread asks; `close` stops the model, and keeps the
        answers so far. Any thread may read on, or close it; `Connection.close` does.

        Args:
            early: rows come while the model is still being asked, in the order of the table
                that gives the first documents. That is dearer: the first rows are asked in small
                batches, 256 rows, 256, 512 …, so that openings which rows share may be computed
                twice, and DuckDB runs the query for each piece of the rows. Without it
                everything is asked before the first batch, as it is in any case where a row may
                depend on later ones: a query of SELECT, FROM and WHERE alone gives rows early,
                with inner joins, AI functions in WHERE, ON or SELECT, and no subquery outside
                FROM; ORDER BY, GROUP BY and aggregates, DISTINCT, LIMIT, window functions, outer
                joins, UNION and EXISTS do not, nor a call of which `explain` says that it runs
                on demand.

        Raises:
            as `run`; while rows come early also later than with the first batch.
        """
        read = False
        if self._result is None:
            lock = self._connection.lock
            read = yield from lock.reading(
                lambda: (
                    self._result is None
                    and self._script.batches(self._accepting(ARROW), early=early)
                )
            )
        if self._result is not None and not read:
            yield from batches_of(self._result)

    @property
    def columns(self) -> list[str]:
        """Names of the result's columns; runs the query."""
        return list(self.arrow().column_names)

    @property
    def report(self) -> Report:
        """What the run did, also one that was stopped; runs a query that has not run yet."""
        if self._script.report is None:
            with self._connection.lock.running():
                if self._script.report is None:
                    self._run(ARROW)
        return self._script.report or Report()

    def arrow(self) -> pa.Table:
        """The result as an Arrow table.

        Of UHUGEINT, BIT and TIME WITH TIME ZONE, which Arrow does not have, it holds the text.

        Raises:
            InputError: a column is of DuckDB's TYPE, which has no form outside.
        """
        return self._table(ARROW)

    def df(self) -> pandas.DataFrame:
        """The result as a pandas frame, with DuckDB's conversions.

        Raises:
            InputError: pandas is not installed, or has no counterpart of a column's type;
                then nothing was asked.
        """
        return to_pandas(self._table(PANDAS))

    def pl(self) -> polars.DataFrame:
        """As `df`, a polars frame; names that repeat are numbered, as in DuckDB."""
        return to_polars(self._table(POLARS))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The result as Python tuples, with DuckDB's conversions.

        Raises:
            InputError: Python has no counterpart of a column's type; then nothing was asked.
        """
        return to_rows(self._table(ROWS))

    def _table(self, form: Form) -> pa.Table:
        """The result, which fits a form.

        Raises:
            InputError: it does not.
        """
        form.check_package()
        result = self._result
        if result is None:
            with self._connection.lock.running():  # another thread may have run it meanwhile
                result = self._run(form) if self._result is None else self._result
        if form not in self._fits:
            form.check_table(result)
            self._fits.add(form)
        return result
