"""The statements of a text: each checked, explained and run in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace

import pyarrow as pa

from covey.api.forecast import Explained, explained
from covey.api.planning import Columns, Planned, Planning, Schema, failures
from covey.errors import InputError, QueryError, UnsupportedError
from covey.estimate.forecast import Forecast
from covey.execution.answers import QueryAnswers
from covey.execution.ask import Asker
from covey.execution.bridge import Batches, Relations, batches_of, result
from covey.execution.budget import BudgetGuard
from covey.execution.report import OperatorReport, Report
from covey.execution.run import Runner
from covey.execution.stop import Interrupts
from covey.optimizer.choice import OrderChooser
from covey.plan.nodes import PhysicalPlan
from covey.prompts.documents import DocumentStore
from covey.sql.rewritten import RewrittenSql
from covey.sql.statements import ViewDefinition, behind, view_definition
from covey.sql.text import read_tokens

_TRANSACTION = ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT")
Outcome = tuple[pa.Table, Report]
# Refuses columns of a result that have no place where it is to go.
Accept = Callable[[Columns], None]


class Statement:
    """A statement that DuckDB runs, with its AI calls looked up.

    Args:
        planning: plans it.
        expanded: its text.

    Attributes:
        report: of the run under way or the last one, which may have stopped; None before.
    """

    # Whether a run puts anything to the model.
    asks = True

    def __init__(self, planning: Planning, expanded: RewrittenSql) -> None:
        self._planning = planning
        self._expanded = expanded
        self.report: Report | None = None

    def check(self) -> None:
        """Bind and plan it; nothing is asked.

        Raises:
            QueryError: it is wrong; at the place in the user's text.
        """
        with self._planned():
            pass

    def explained(self) -> Explained:
        """Its plan, and what that is expected to take; nothing is asked."""
        return explained(self._planning, self._expanded)

    def schema(self) -> Schema:
        """The columns of its result, without running it.

        Raises:
            InputError: it is no query.
        """
        with self._planned() as planned:
            if planned.plan.effects:
                raise InputError("Only a query has a schema before it runs.")
            return self._planning.schema(planned.plan)

    def run(
        self,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None = None,
        accept: Accept | None = None,
    ) -> Outcome:
        """Run it, asking only what `answers` lacks.

        Args:
            answers, documents: of the whole query.
            watch: stops it where it passes a budget.
            accept: is given the columns of a query's result before anything is asked.

        Raises:
            QueryError: it no longer binds.
            ModelError: the model cannot be loaded.
            RunError: the run failed.
        """
        planning = self._planning.planned(self._expanded, answers, documents)
        with planning as planned, failures():
            self._offer(planned.plan, accept)
            with self._asking(planned, answers, documents, watch) as (runner, report):
                return runner.run(), report

    def batches(
        self,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None,
        tell: Callable[[Report], None],
        accept: Accept,
        *,
        early: bool,
    ) -> Batches:
        """Run it, as `run`, and give its rows; there is one batch at least.

        What it holds is held until the iterator ends or is closed.

        Args:
            answers, documents, watch, accept: as for `run`.
            tell: is given the report, as far as it goes, before each batch and at the end.
            early: whether rows come while the model is asked, where they are final before
                the end.
        """
        planning = self._planning.planned(self._expanded, answers, documents)
        with planning as planned, failures():
            plan = planned.plan
            self._offer(plan, accept)
            with self._asking(planned, answers, documents, watch) as (runner, report):
                if early and plan.piece is not None:
                    yield from _telling(runner.pieces(plan.piece), report, tell)
                    return
                # What draws on demand is another result when it is read once more.
                whole = plan.effects or (plan.draws and bool(plan.on_demand))
                table = runner.run() if whole else None
                if table is None:
                    runner.prepare()
            rows = runner.batches() if table is None else batches_of(table)
            yield from _telling(rows, report, tell)

    def _offer(self, plan: PhysicalPlan, accept: Accept | None) -> None:
        """Let the columns of a query be refused; those of other statements show when it has run."""
        if accept is not None and not plan.effects:
            accept(self._planning.columns(plan))

    @contextmanager
    def _asking(
        self,
        planned: Planned,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None,
    ) -> Iterator[tuple[Runner, Report]]:
        """What runs the plan, and the report it writes; in the block the model may be asked."""
        connection, plan = self._planning.connection, planned.plan
        report = Report(
            operators=[
                OperatorReport(
                    plan.sql[slice(*call.span)], plan.on_demand.get(call.index, "planned")
                )
                for call in plan.calls
            ]
        )
        self.report = report
        with Interrupts(connection.duckdb.interrupt) as interrupts:
            asker = Asker(
                connection.engine,
                documents,
                answers,
                report,
                connection.new_progress(),
                interrupts,
                connection.store,
                connection.identity,
                watch,
            )
            with asker:
                relations = Relations(connection.duckdb, planned.objects)
                chooser = OrderChooser(plan.calls, connection.model_profile)
                lookups = planned.lookups
                runner = Runner(plan, relations, lookups, asker, documents, report, chooser)
                yield runner, report

    def _planned(self) -> AbstractContextManager[Planned]:
        """The plan alone: nothing is asked."""
        return self._planning.planned(self._expanded, QueryAnswers(), DocumentStore())


def _telling(rows: Batches, report: Report, tell: Callable[[Report], None]) -> Batches:
    with closing(rows):
        for batch in rows:
            tell(report)
            yield batch
    tell(report)


class WholeStatement(Statement):
    """A statement whose result is there at once, by `run`."""

    def batches(
        self,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None,
        tell: Callable[[Report], None],
        accept: Accept,
        *,
        early: bool,
    ) -> Batches:
        table, report = self.run(answers, documents, watch, accept)
        yield from _telling(batches_of(table), report, tell)


class TransactionStatement(WholeStatement):
    """BEGIN, COMMIT and ROLLBACK: they must also run where nothing else can be bound."""

    asks = False

    def check(self) -> None:
        """There is nothing to bind."""

    def explained(self) -> Explained:
        return Explained(PhysicalPlan(self._expanded.text, [], [], self._expanded.text), Forecast())

    def schema(self) -> Schema:
        raise InputError("Only a query has a schema before it runs.")

    def run(
        self,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None = None,
        accept: Accept | None = None,
    ) -> Outcome:
        with failures():
            table = result(self._planning.connection.duckdb, self._expanded.text)
            return table, Report()


class ExplainStatement(WholeStatement):
    """EXPLAIN of a statement with AI calls: Covey's plan as a result."""

    asks = False

    def run(
        self,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None = None,
        accept: Accept | None = None,
    ) -> Outcome:
        return _plan_table(self.explained().text()), Report(rows=1)

    def schema(self) -> Schema:
        return [("explain_key", "VARCHAR"), ("explain_value", "VARCHAR")]


class ExplainAnalyzeStatement(ExplainStatement):
    """EXPLAIN ANALYZE: the statement is run, and what it did stands beside the plan."""

    asks = True

    def run(
        self,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None = None,
        accept: Accept | None = None,
    ) -> Outcome:
        before = self.explained()
        _, report = Statement.run(self, answers, documents, watch)
        return _plan_table(before.text(report)), replace(report, rows=1)


class DescribeStatement(WholeStatement):
    """DESCRIBE of a query with AI calls: its columns, and nothing is asked."""

    asks = False

    def run(
        self,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None = None,
        accept: Accept | None = None,
    ) -> Outcome:
        with self._planned() as planned, failures():
            query = f"DESCRIBE {planned.plan.final}"
            table = result(self._planning.connection.duckdb, query)
            return table, Report(rows=table.num_rows)


class ViewStatement(WholeStatement):
    """CREATE VIEW of a query with AI calls, which Covey keeps.

    Args:
        planning: plans the query.
        expanded: the query, with the views that it reads in front.
        definition: the statement.
        text: the query as written.
    """

    asks = False

    def __init__(
        self, planning: Planning, expanded: RewrittenSql, definition: ViewDefinition, text: str
    ) -> None:
        super().__init__(planning, expanded)
        self._definition = definition
        self._text = text

    def explained(self) -> Explained:
        self.check()
        note = f"keep the view {self._definition.path[-1]}: its calls are asked when it is read"
        return Explained(PhysicalPlan(self._text, [], [], self._text), Forecast(), note=note)

    def schema(self) -> Schema:
        raise InputError("Only a query has a schema before it runs.")

    def run(
        self,
        answers: QueryAnswers,
        documents: DocumentStore,
        watch: BudgetGuard | None = None,
        accept: Accept | None = None,
    ) -> Outcome:
        with self._planned() as planned, failures():
            columns = self._planning.schema(planned.plan)
            self._planning.views.keep(self._definition, self._text, columns)
        return pa.table({}), Report()


def make_statement(planning: Planning, rewritten: RewrittenSql) -> Statement:
    """The statement that a text is.

    Args:
        planning: plans it.
        rewritten: one statement, as written.

    Raises:
        QueryError: it cannot be read, or it names an unknown AI function.
        UnsupportedError: EXPLAIN with options, of AI calls.
    """
    tokens = read_tokens(rewritten.text)
    if tokens[0].word in _TRANSACTION:
        return TransactionStatement(planning, rewritten)
    planning.admit(rewritten)
    definition = view_definition(tokens)
    if definition is not None:
        query = RewrittenSql(rewritten.part(*definition.query))
        body = planning.body(definition, query)
        if planning.holds_calls(body):
            return ViewStatement(planning, body, definition, query.text)
    for words, kind in _ABOUT:
        span = behind(tokens, *words)
        if span is None:
            continue
        inner = planning.expand(RewrittenSql(rewritten.part(*span)))
        if planning.holds_calls(inner):
            if tokens.is_open(1):
                raise rewritten.locate(_no_options(rewritten.text, tokens.span(0, 2)))
            return kind(planning, inner)
    return Statement(planning, planning.expand(rewritten))


# Statements about another one, by the words before it.
_ABOUT: tuple[tuple[tuple[str, ...], type[Statement]], ...] = (
    (("EXPLAIN", "ANALYZE"), ExplainAnalyzeStatement),
    (("EXPLAIN", "ANALYSE"), ExplainAnalyzeStatement),
    (("EXPLAIN",), ExplainStatement),
    (("DESCRIBE",), DescribeStatement),
)


def _plan_table(text: str) -> pa.Table:
    return pa.table({"explain_key": ["covey_plan"], "explain_value": [text]})


def _no_options(sql: str, span: tuple[int, int]) -> QueryError:
    return UnsupportedError(
        "EXPLAIN takes no options where AI functions are called",
        sql=sql,
        span=span,
        hint="Write EXPLAIN SELECT …, or EXPLAIN ANALYZE SELECT … to run it as well.",
    )
