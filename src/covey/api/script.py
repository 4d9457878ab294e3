"""The statements of a text, one behind the other: checked, explained, refused, run."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from covey.api.explain import DONE, LATER, Explained
from covey.api.frontend import Frontend
from covey.api.parameters import Filled, Parameters
from covey.api.pipes import Copies
from covey.api.statement import Accept, RunState, Statement, make_statement
from covey.errors import BudgetError, InputError, QueryError
from covey.execution.budget import Budget, BudgetGuard
from covey.execution.report import Report, joined
from covey.sql.bind import Binder, has_function
from covey.sql.call_parser import find_calls
from covey.sql.edited_text import EditedText
from covey.sql.functions import Dialect
from covey.sql.rewritten import RewrittenSql
from covey.sql.statements import split_statements
from covey.sql.text import read_tokens

if TYPE_CHECKING:
    from covey.api.connection import Connection


class Script:
    """One or several statements; the result is the last one's.

    The first is checked by `check`. What stands behind it may depend on what it does, so the
    others are checked when they are about to run; only the spelling of their AI functions is
    checked at once.

    Args:
        connection: where they run; whoever holds its lock calls the methods.
        text: SQL.
        dialect: whose spelling of AI functions is accepted; None accepts both.
        budget: what they may take together.
        params: values for its `?`, `$1` or `$name`; see `covey.api.parameters`.

    Attributes:
        statements: their texts.
        reports: one a statement, once all have run.
        report: of the run under way or the last one, which may have stopped; None before.

    Raises:
        QueryError: the text cannot be read.
    """

    def __init__(
        self,
        connection: Connection,
        text: str,
        dialect: Dialect | None,
        budget: Budget,
        params: Parameters | None,
    ) -> None:
        self._connection = connection
        self._dialect = dialect
        self._budget = budget
        self._tokens = read_tokens(text)
        filled = Filled(self._tokens, params)
        spans = split_statements(self._tokens)
        self.statements = [RewrittenSql(filled.pieces(start, end)) for start, end in spans]
        self.reports: list[Report] = []
        self.report: Report | None = None
        self._forecasts: list[Explained] = []
        # Kept from `batches` to a run: nothing is asked twice.
        self._state = RunState()

    def check(self) -> None:
        """Copy the pipes that it reads, and check its first statement.

        Raises:
            QueryError: the text is wrong.
            InputError: its cost is limited and the device has no price.
        """
        # They go with the query.
        self._copies = Copies(self._connection.pipes)
        self.statements = [self._copies.read(statement) for statement in self.statements]
        self._guard()
        self._statement(0).check()
        if len(self.statements) > 1:
            self._check_spelling()

    def last(self) -> Statement:
        """The statement whose result is that of all."""
        return self._statement(len(self.statements) - 1)

    def explained(self, *, analyze: bool = False) -> list[tuple[Explained, Report | None]]:
        """What each statement is expected to take, and, after a run with `analyze`, what it did."""
        if analyze:
            return list(zip(self._forecasts, self.reports, strict=True))
        parts: list[tuple[Explained, Report | None]] = []
        for number in range(len(self.statements)):
            try:
                parts.append((self._statement(number).explained(), None))
            except QueryError:
                if self.reports:
                    # What it read is gone, perhaps by its own doing.
                    parts.append((DONE, None))
                elif len(self.statements) == 1:
                    raise
                else:
                    parts.append((LATER, None))
        return parts

    def forecast(self) -> None:
        """Forecast what has run without: its answers are not known any more, but come near."""
        if not self._forecasts:
            self._forecasts = [part for part, _ in self.explained()]

    def run(self, accept: Accept, *, forecast: bool = False) -> pa.Table:
        """Run all, and give the result.

        Args:
            accept: is given the columns of the last query before it asks anything.
            forecast: whether each is forecast just before it runs, for `explained`.

        Raises:
            QueryError: a statement no longer binds, or a later one is wrong.
            ModelError: the model cannot be loaded.
            RunError: the run failed.
        """
        self._state.guard = self._guard()
        reports: list[Report] = []
        forecasts: list[Explained] | None = [] if forecast else None
        for number in range(len(self.statements) - 1):
            self._run(number, reports, None, forecasts)
        table = self._run(len(self.statements) - 1, reports, accept, forecasts)
        self._forecasts = forecasts or self._forecasts
        self.reports = reports
        self.report = reports[0] if len(reports) == 1 else joined(reports)
        self._state = RunState()
        return table

    def batches(self, accept: Accept, *, early: bool) -> Generator[pa.RecordBatch, None, None]:
        """As `run`, as far as the rows of the result are read; `report` goes as far as they do."""
        self._state.guard = self._guard()
        reports: list[Report] = []
        for number in range(len(self.statements) - 1):
            self._run(number, reports)
        statement = self.last()
        self._refuse(statement)
        rows = statement.batches(self._state, accept, early=early)
        with self._stoppable(statement, reports), closing(rows):
            for batch in rows:
                self._report_so_far(statement, reports)
                yield batch
            self._report_so_far(statement, reports)

    def _run(
        self,
        number: int,
        reports: list[Report],
        accept: Accept | None = None,
        forecasts: list[Explained] | None = None,
    ) -> pa.Table:
        """Run a statement; its report, and its forecast where wanted, go to the lists."""
        statement = self._statement(number)
        if forecasts is not None:
            forecasts.append(statement.explained())
        self._refuse(statement, forecasts[-1] if forecasts else None)
        with self._stoppable(statement, reports):
            table = statement.run(self._state, accept)
        reports.append(statement.report or Report())
        return table

    def _report_so_far(self, statement: Statement, before: Sequence[Report]) -> None:
        if statement.report is not None:
            self.report = joined([*before, statement.report]) if before else statement.report

    @contextmanager
    def _stoppable(self, statement: Statement, before: Sequence[Report]) -> Iterator[None]:
        """Keep the report of a statement that stops before its end, behind those before it."""
        try:
            yield
        except BaseException:
            self._report_so_far(statement, before)
            raise

    def _statement(self, number: int) -> Statement:
        done = "The statements before it have run." if number else None
        frontend = Frontend(self._connection, self._dialect, done)
        return make_statement(frontend, self.statements[number])

    def _check_spelling(self) -> None:
        """Refuse what is no SQL, and AI functions that nobody has and the text does not define."""
        tokens = self._tokens
        connection = self._connection.duckdb
        Binder(connection, EditedText(tokens.text)).parse()
        words = [token.word.lower() for token in tokens]
        find_calls(
            tokens,
            lambda name: has_function(connection, name) or words.count(name) > 1,
            self._dialect,
        )

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
            known = connection.model.loaded is not None or connection.model.identity() is not None
            if known or connection.store is None:
                raise
            # Which answers are its own, this model says only when it is loaded.
            connection.model.engine()
            self._budget.refuse(statement.explained().forecast)

    def _guard(self) -> BudgetGuard | None:
        """What stops a run; None without a budget.

        Raises:
            InputError: money is limited and nothing has a price.
        """
        if not self._budget.limits:
            return None
        price = None if self._budget.max_cost is None else self._connection.hourly
        if self._budget.max_cost is not None and price is None:
            raise InputError(
                "max_cost needs a price, and this device has none that Covey knows. Give "
                "price_per_hour to covey.connect, in US dollars, or set COVEY_PRICE_PER_HOUR."
            )
        return BudgetGuard(self._budget, price)
