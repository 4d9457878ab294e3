"""One query: checked when made, run once, read in any form."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.api.forecast import DONE, LATER, Estimate, Explained
from covey.api.parameters import Filled, Parameters
from covey.api.planning import Columns, Planning, Schema
from covey.api.results import ARROW, PANDAS, POLARS, ROWS, Form, to_pandas, to_polars, to_rows
from covey.api.statement import Statement, make_statement
from covey.errors import BudgetError, InputError, QueryError
from covey.execution.answers import QueryAnswers
from covey.execution.bridge import batches_of
from covey.execution.budget import NO_BUDGET, Budget, BudgetGuard
from covey.execution.report import Report, joined
from covey.prompts.documents import DocumentStore
from covey.sql.bind import Binder
from covey.sql.call_parser import find_calls
from covey.sql.dialect import Dialect
from covey.sql.edited_text import EditedText
from covey.sql.rewritten import RewrittenSql
from covey.sql.statements import split_statements
from covey.sql.text import TokenList, one_line, read_tokens

if TYPE_CHECKING:
    import pandas
    import polars

    from covey.api.connection import Connection


class Query:
    """One or several statements on a connection, made by `Connection.sql`.

    It runs once, whatever threads ask; what it knows of its run belongs to whoever has the turn.

    The first statement is checked when the query is made. What stands behind it may
    depend on what it does, so the others are checked when their turn comes; only the
    spelling of their AI functions is checked at once. The result is the last one's.

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
        self._dialect = dialect
        self._budget = budget
        self._explained: list[Explained] = []
        self._reports: list[Report] = []
        # Kept from `batches` to a run: nothing is asked twice.
        self._asked = QueryAnswers(), DocumentStore()
        self._result: pa.Table | None = None
        self._report: Report | None = None
        # What the result, or the last statement as it is planned, is known to fit.
        self._fits: set[Form] = set()
        tokens = read_tokens(text)
        filled = Filled(tokens, params)
        statements = [
            RewrittenSql(filled.pieces(start, end)) for start, end in split_statements(tokens)
        ]
        with connection.lock:
            # They go with the query.
            self._copies = connection.pipes.of_query()
            self._statements = [self._copies.read(statement) for statement in statements]
            self._watch()
            self._statement(0).check()
            if len(self._statements) > 1:
                self._check_spelling(tokens)

    def _statement(self, number: int) -> Statement:
        done = None
        if number:
            done = "The statements before it have run."
        planning = Planning(self._connection, self._dialect, done)
        return make_statement(planning, self._statements[number])

    def _check_spelling(self, tokens: TokenList) -> None:
        """Refuse what is no SQL, and AI functions that nobody has and the text does not define."""
        binder = Binder(self._connection.duckdb, EditedText(tokens.text))
        binder.parse()
        words = [token.word.lower() for token in tokens]
        find_calls(
            tokens,
            lambda name: binder.has_function(name) or words.count(name) > 1,
            self._dialect,
        )

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
            self._run_explained()
        with self._connection.lock:
            parts = self._parts(analyze)
        if format == "json":
            return json.dumps({"statements": [part.values(report) for part, report in parts]})
        texts = [part.text(report) for part, report in parts]
        if len(texts) == 1:
            return texts[0]
        lines = []
        for number, (text, rewritten) in enumerate(zip(texts, self._statements, strict=True)):
            lines.append(f"statement {number + 1} of {len(texts)}: {one_line(rewritten.text)}")
            lines.append(text)
        return "\n".join(lines)

    def estimate(self) -> Estimate:
        """What the query is expected to take: calls, tokens, seconds and money.

        A statement that does not bind before the others have run is left out.
        """
        with self._connection.lock:
            return Estimate.of([part.forecast for part, _ in self._parts(analyze=False)])

    def _parts(self, analyze: bool) -> list[tuple[Explained, Report | None]]:
        """What each statement is expected to take, and what it did."""
        if analyze:
            return list(zip(self._explained, self._reports, strict=True))
        parts: list[tuple[Explained, Report | None]] = []
        for number in range(len(self._statements)):
            try:
                parts.append((self._statement(number).explained(), None))
            except QueryError:
                if self._result is not None:
                    # What it read is gone, perhaps by its own doing.
                    parts.append((DONE, None))
                elif len(self._statements) == 1:
                    raise
                else:
                    parts.append((LATER, None))
        return parts

    def _run_explained(self) -> None:
        """Run with a forecast of each statement made just before it."""
        with self._connection.lock.running():
            if self._result is None:
                self._run(forecast=True)
            elif not self._explained:
                # What it found then is not known any more; what it finds now comes near.
                self._explained = [part for part, _ in self._parts(analyze=False)]

    @property
    def schema(self) -> Schema:
        """Name and SQL type of each column of the result; runs nothing.

        Raises:
            InputError: the last statement is no query.
            QueryError: it does not bind before the statements before it have run.
        """
        with self._connection.lock:
            return self._statement(len(self._statements) - 1).schema()

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

    def _run(self, forecast: bool = False, form: Form = ARROW) -> tuple[pa.Table, Report]:
        answers, documents = self._asked
        reports: list[Report] = []
        result = pa.table({})
        forecasts: list[Explained] = []
        watch = self._watch()
        last = len(self._statements) - 1
        for number in range(last + 1):
            statement = self._statement(number)
            if forecast:
                forecasts.append(statement.explained())
            self._refuse(statement, forecasts[-1] if forecast else None)
            with self._stoppable(statement, reports):
                accept = self._accepting(form) if number == last else None
                result, report = statement.run(answers, documents, watch, accept)
            reports.append(report)
        if forecast:
            self._explained = forecasts
        report = reports[0] if len(reports) == 1 else joined(reports)
        self._reports, self._report, self._result = reports, report, result
        self._asked = QueryAnswers(), DocumentStore()
        return result, report

    def _accepting(self, form: Form) -> Callable[[Columns], None]:
        """What refuses columns that have no place in a form, before anything is asked."""

        def accept(columns: Columns) -> None:
            form.check(columns)
            self._fits.add(form)

        return accept

    @contextmanager
    def _stoppable(self, statement: Statement, before: Sequence[Report]) -> Iterator[None]:
        """Keep the report of a statement that stops before its end, behind those before it."""
        try:
            yield
        except BaseException:
            if statement.report is not None:
                self._report = joined([*before, statement.report])
            raise

    def _refuse(self, statement: Statement, expected: Explained | None = None) -> None:
        """Refuse what cannot keep to the budget, answers of earlier runs not counted.

        Args:
            statement: is about to run.
            expected: what it is expected to take; None finds it out where there is a budget.
        """
        if not (self._budget.limits and statement.asks):
            return
        connection = self._connection
        try:
            self._budget.refuse((expected or statement.explained()).forecast)
        except BudgetError:
            known = connection.loaded is not None or connection.identity() is not None
            if known or connection.store is None:
                raise
            # Which answers are its own, this model says only when it is loaded.
            connection.engine()
            self._budget.refuse(statement.explained().forecast)

    def __repr__(self) -> str:
        if self._result is not None:
            state = f"{self._result.num_rows:,} rows"
        else:
            state = "not run yet" if self._report is None else "read in batches, or stopped"
        text = textwrap.shorten(self._statements[-1].text, 100, placeholder=" …")
        return f"<covey.Query: {text}; {state}>"

    def _watch(self) -> BudgetGuard | None:
        """What stops a run; None without a budget.

        Raises:
            InputError: money is limited and nothing has a price.
        """
        connection = self._connection
        if not self._budget.limits:
            return None
        if self._budget.max_cost is None:
            return BudgetGuard(self._budget, None)
        price = connection.hourly
        if price is None:
            raise InputError(
                "max_cost needs a price, and this device has none that Covey knows. Give "
                "price_per_hour to covey.connect, in US dollars, or set COVEY_PRICE_PER_HOUR."
            )
        return BudgetGuard(self._budget, price)

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
            read = yield from lock.reading(lambda: self._result is None and self._read(early))
        if self._result is not None and not read:
            yield from batches_of(self._result)

    def _read(self, early: bool) -> Generator[pa.RecordBatch, None, None]:
        """Run it as far as its rows are read."""
        last = len(self._statements) - 1
        answers, documents = self._asked
        watch = self._watch()
        reports: list[Report] = []
        for number in range(last):
            statement = self._statement(number)
            self._refuse(statement)
            with self._stoppable(statement, reports):
                reports.append(statement.run(answers, documents, watch)[1])
        statement = self._statement(last)
        self._refuse(statement)

        def tell(report: Report) -> None:
            self._report = joined([*reports, report]) if reports else report

        rows = statement.batches(
            answers, documents, watch, tell, self._accepting(ARROW), early=early
        )
        with self._stoppable(statement, reports), closing(rows):
            yield from rows

    @property
    def columns(self) -> list[str]:
        """Names of the result's columns; runs the query."""
        return list(self.arrow().column_names)

    @property
    def report(self) -> Report:
        """What the run did, also one that was stopped; runs a query that has not run yet."""
        if self._report is None:
            with self._connection.lock.running():
                if self._report is None:
                    return self._run()[1]
        return self._report

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
                result = self._run(form=form)[0] if self._result is None else self._result
        if form not in self._fits:
            form.check_table(result)
            self._fits.add(form)
        return result
