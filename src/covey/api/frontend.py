"""From the text of a statement to its plan, with its UDFs and tables in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import duckdb
from duckdb.sqltypes import DuckDBPyType

from covey.errors import QueryError, RunError, UnsupportedError
from covey.execution.answers import QueryAnswers
from covey.execution.udf import AnswerUDFs
from covey.logical.calls import AICall
from covey.optimizer.planner import make_plan
from covey.plan.nodes import PhysicalPlan
from covey.prompts.documents import DocumentStore
from covey.sql.bind import has_function, read_error
from covey.sql.call_parser import RawCall, find_calls
from covey.sql.extract import ExtractedCalls, extract_calls
from covey.sql.functions import Dialect
from covey.sql.hints import with_written_names
from covey.sql.rewritten import RewrittenSql
from covey.sql.statements import ViewDefinition
from covey.sql.temporary import TemporaryObjects
from covey.sql.text import read_tokens
from covey.sql.views import Views

if TYPE_CHECKING:
    from covey.api.connection import Connection

# (name, type) of each column of a result.
Schema = list[tuple[str, str]]
Columns = list[tuple[str, DuckDBPyType]]


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A planned statement, with all that its plan needs on the connection.

    Attributes:
        plan: of the statement.
        lookups: of its calls.
        objects: its tables and UDFs.
    """

    plan: PhysicalPlan
    lookups: AnswerUDFs
    objects: TemporaryObjects


@dataclass(frozen=True, slots=True)
class Frontend:
    """Reads, checks and plans statements on one connection.

    Attributes:
        connection: where they run.
        dialect: whose spelling of AI functions is accepted; None accepts both.
        done: what has happened when they are planned, for messages; None is nothing.
    """

    connection: Connection
    dialect: Dialect | None
    done: str | None = None

    @property
    def views(self) -> Views:
        return Views(self.connection.duckdb)

    def check_access(self, rewritten: RewrittenSql) -> None:
        """Refuse a statement that reaches past what the connection may.

        Raises:
            QueryError: at the place in the user's text.
        """
        with self._located(rewritten):
            self.connection.access_check.check(read_tokens(rewritten.text))

    def expand_views(self, rewritten: RewrittenSql) -> RewrittenSql:
        """The statement with the views that it reads in front.

        Raises:
            QueryError: at the place in the user's text.
        """
        with self._located(rewritten):
            expanded = self.views.expand(rewritten)
        if expanded is not rewritten:
            with self._located(expanded):
                self.connection.access_check.check_names(read_tokens(expanded.text))
        return expanded

    def expand_body(self, definition: ViewDefinition, query: RewrittenSql) -> RewrittenSql:
        """The query of a view that is being created, as `expand_views`."""
        with self._located(query):
            body = self.views.body(definition, query)
        with self._located(body):
            self.connection.access_check.check_names(read_tokens(body.text))
        return body

    def find_calls(self, expanded: RewrittenSql) -> tuple[RawCall, ...]:
        """The AI calls of a statement, for `prepare`.

        Raises:
            QueryError: there is one that nobody knows.
        """
        with self._located(expanded):
            known = partial(has_function, self.connection.duckdb)
            return find_calls(read_tokens(expanded.text), known, self.dialect)

    @contextmanager
    def prepare(
        self,
        expanded: RewrittenSql,
        found: tuple[RawCall, ...],
        answers: QueryAnswers,
        documents: DocumentStore,
    ) -> Iterator[PreparedPlan]:
        """The plan, with its tables and UDFs in place until the block is left.

        Args:
            expanded: the statement, with the views that it reads in front.
            found: its calls.
            answers, documents: what the UDFs read.

        Raises:
            QueryError: the statement is wrong; at the place in the user's text.
        """
        connection = self.connection
        objects = connection.new_objects()
        lookups = AnswerUDFs(objects, answers, documents)
        try:
            with self._located(expanded):
                extracted = extract_calls(
                    expanded.text, found, connection.duckdb, self.dialect, objects.prefix
                )
                self._check_model(extracted.calls, expanded.text)
                extracted.calls = self._calibrated(extracted.calls, expanded.text)
                self._hold_time(extracted, expanded.text, objects)
                lookups.register(extracted.calls)
                try:
                    plan = make_plan(extracted, objects)
                except QueryError as error:
                    raise with_written_names(error, extracted.calls) from None
            yield PreparedPlan(plan, lookups, objects)
        finally:
            objects.clear()

    def _hold_time(self, extracted: ExtractedCalls, text: str, objects: TemporaryObjects) -> None:
        """Let a statement with AI calls have one time, where something in it changes."""
        binder, tokens = extracted.binder, extracted.tokens
        changes = extracted.calls and binder.volatile.within(tokens, tokens.whole)
        if changes and not binder.in_transaction():
            binder.volatile.hold_time(self.connection.duckdb, objects, text)

    def _check_model(self, calls: list[AICall], sql: str) -> None:
        """Refuse what the model cannot answer, before it is loaded."""
        for call in calls:
            if call.question.kind not in self.connection.model.source.kinds:
                raise UnsupportedError(
                    f"{call.name} does not run on {self.connection.model.source.name} yet",
                    sql=sql,
                    span=call.name_span,
                    hint="Use another model; `covey models` lists those that it knows.",
                )

    def _calibrated(self, calls: list[AICall], sql: str) -> list[AICall]:
        """The calls, those that want it with what was learned from labelled rows."""
        known = self.connection.calibrations
        for call in calls:
            if call.options.labelled and call.question not in known:
                raise QueryError(
                    "This question was not calibrated on this connection",
                    sql=sql,
                    span=call.name_span,
                    hint="First con.calibrate('… {column}', labelled_table) with the same words "
                    "and options.",
                )
        return [
            replace(call, question=replace(call.question, calibration=known[call.question]))
            if call.options.labelled
            else call
            for call in calls
        ]

    def schema(self, plan: PhysicalPlan) -> Schema:
        """The columns of a query's result, while it is planned."""
        return [(name, str(kind)) for name, kind in self.columns(plan)]

    def columns(self, plan: PhysicalPlan) -> Columns:
        """As `schema`, with DuckDB's types."""
        connection = self.connection.duckdb
        if plan.traces:
            # To make a relation of it would run it.
            found = connection.execute(f"DESCRIBE {plan.final}").fetchall()
            return [(name, connection.type(kind)) for name, kind, *_ in found]
        relation = connection.sql(plan.final)
        return list(zip(relation.columns, relation.types, strict=True))

    @contextmanager
    def _located(self, rewritten: RewrittenSql) -> Iterator[None]:
        try:
            yield
        except QueryError as error:
            raise rewritten.locate(error, self.done) from None
        except (duckdb.Error, MemoryError) as error:
            raise run_error(error) from None
        except RecursionError:
            raise rewritten.locate(_too_deep(rewritten.text), self.done) from None


def _too_deep(sql: str) -> QueryError:
    """What is nested so deep that reading it takes more of Python's stack than is left."""
    return QueryError(
        "This statement is nested too deep",
        sql=sql,
        hint="Store a part of it first, CREATE TEMP TABLE … AS SELECT …, and query the table.",
    )


@contextmanager
def failures() -> Iterator[None]:
    """DuckDB's errors while a statement runs, and a lack of memory, as Covey's.

    Raises:
        RunError: in DuckDB's words.
    """
    try:
        yield
    except (duckdb.Error, MemoryError) as error:
        raise run_error(error) from None


def run_error(error: duckdb.Error | MemoryError) -> RunError:
    """An error of DuckDB that is no mistake in the text, or a lack of memory."""
    if isinstance(error, MemoryError):
        return RunError(
            "The process has no memory left for the query. Close what else uses memory, raise its "
            "limit (ulimit -v), or ask about fewer rows at once. Stored answers are kept."
        )
    reason, hint, _ = read_error(error)
    return RunError(f"DuckDB could not finish the query: {reason}." + (f" {hint}" if hint else ""))
