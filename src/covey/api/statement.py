"""The statements of a text: each checked, explained and run in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from covey.api.estimates import explained
from covey.api.explain import Explained
from covey.api.frontend import Columns, Frontend, PreparedPlan, Schema, failures
from covey.errors import InputError, QueryError, UnsupportedError
from covey.execution.answers import QueryAnswers
from covey.execution.ask import Asker
from covey.execution.bridge import Batches, Relations, batches_of, result
from covey.execution.budget import BudgetGuard
from covey.execution.ordering.chooser import OrderChooser
from covey.execution.report import OperatorReport, Report
from covey.execution.run import Runner
from covey.execution.stop import Interrupts
from covey.prompts.documents import DocumentStore
from covey.sql.call_parser import RawCall
from covey.sql.rewritten import RewrittenSql
from covey.sql.statements import ViewDefinition, behind, view_definition
from covey.sql.text import read_tokens

_TRANSACTION = ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT")
# Refuses columns of a result that have no place where it is to go.
Accept = Callable[[Columns], None]


@dataclass(slots=True)
class RunState:
    """What the statements of a query share while they run.

    Attributes:
        answers, documents: only what `answers` lacks is asked.
        guard: stops a run that passes its budget; None without one.
    """

    answers: QueryAnswers = field(default_factory=QueryAnswers)
    documents: DocumentStore = field(default_factory=DocumentStore)
    guard: BudgetGuard | None = None


class Statement:
    """A statement that DuckDB runs, with its AI calls looked up.

    Args:
        frontend: plans it.
        expanded: its text, with the views that it reads in front.
        calls: the AI calls in it.

    Attributes:
        report: of the run under way or the last one, which may have stopped; None before.
    """

    # Whether a run puts anything to the model.
    asks = True

    def __init__(
        self, frontend: Frontend, expanded: RewrittenSql, calls: tuple[RawCall, ...]
    ) -> None:
        self._frontend = frontend
        self._expanded = expanded
        self._calls = calls
        self.report: Report | None = None

    def check(self) -> None:
        """Bind and plan it; nothing is asked.

        Raises:
            QueryError: it is wrong; at the place in the user's text.
        """
        with self._prepared(RunState()):
            pass

    def explained(self) -> Explained:
        """Its plan, and what that is expected to take; nothing is asked."""
        return explained(self._frontend, self._expanded, self._calls)

    def schema(self) -> Schema:
        """The columns of its result, without running it.

        Raises:
            InputError: it is no query.
        """
        with self._prepared(RunState()) as prepared:
            if prepared.plan.effects:
                raise InputError("Only a query has a schema before it runs.")
            return self._frontend.schema(prepared.plan)

    def run(self, state: RunState, accept: Accept | None = None) -> pa.Table:
        """Run it and give its result; `report` says what it did.

        Args:
            state: of the whole query.
            accept: is given the columns of a query's result before anything is asked.

        Raises:
            QueryError: it no longer binds.
            ModelError: the model cannot be loaded.
            RunError: the run failed.
        """
        with self._prepared(state, accept) as prepared, self._runner(prepared, state) as runner:
            return runner.run()

    def batches(self, state: RunState, accept: Accept, *, early: bool) -> Batches:
        """Run it, as `run`, and give its rows; there is one batch at least.

        What it holds is held until the iterator ends or is closed.

        Args:
            state, accept: as for `run`.
            early: whether rows come while the model is asked, where they are final before
                the end.
        """
        with self._prepared(state, accept) as prepared:
            plan = prepared.plan
            with self._runner(prepared, state) as runner:
                if early and plan.piece is not None:
                    yield from runner.pieces(plan.piece)
                    return
                # What draws on demand is another result when it is read once more.
                whole = plan.effects or (plan.draws and bool(plan.on_demand))
                table = runner.run() if whole else None
                if table is None:
                    runner.prepare()
            yield from runner.batches() if table is None else batches_of(table)

    @contextmanager
    def _prepared(self, state: RunState, accept: Accept | None = None) -> Iterator[PreparedPlan]:
        """The plan in place; the columns of a query, which it has before it runs, are accepted."""
        plan = self._frontend.prepare(self._expanded, self._calls, state.answers, state.documents)
        with plan as prepared, failures():
            if accept is not None and not prepared.plan.effects:
                accept(self._frontend.columns(prepared.plan))
            yield prepared

    @contextmanager
    def _runner(self, prepared: PreparedPlan, state: RunState) -> Iterator[Runner]:
        """What runs the plan, and writes `report`; in the block the model may be asked."""
        connection, plan = self._frontend.connection, prepared.plan
        how = [plan.on_demand.get(call.index, "planned") for call in plan.calls]
        texts = [plan.sql[slice(*call.span)] for call in plan.calls]
        self.report = report = Report(operators=list(map(OperatorReport, texts, how)))
        with (
            Interrupts(connection.duckdb.interrupt) as interrupts,
            Asker(
                connection.model,
                state.documents,
                state.answers,
                report,
                connection.new_progress(),
                interrupts,
                connection.store,
                state.guard,
            ) as asker,
        ):
            relations = Relations(connection.duckdb, prepared.objects)
            chooser = OrderChooser(plan.calls, connection.model.source.profile)
            yield Runner(plan, relations, prepared.lookups, asker, state.documents, report, chooser)


class WholeStatement(Statement):
    """A statement whose result is there at once, by `run`."""

    asks = False

    def batches(self, state: RunState, accept: Accept, *, early: bool) -> Batches:
        yield from batches_of(self.run(state, accept))


class TransactionStatement(WholeStatement):
    """BEGIN, COMMIT and ROLLBACK: they must also run where nothing else can be bound."""

    def check(self) -> None:
        """There is nothing to bind."""

    def explained(self) -> Explained:
        return Explained()

    def schema(self) -> Schema:
        raise InputError("Only a query has a schema before it runs.")

    def run(self, state: RunState, accept: Accept | None = None) -> pa.Table:
        with failures():
            table = result(self._frontend.connection.duckdb, self._expanded.text)
        self.report = Report()
        return table


class ExplainStatement(WholeStatement):
    """EXPLAIN of a statement with AI calls: Covey's plan as a result."""

    def run(self, state: RunState, accept: Accept | None = None) -> pa.Table:
        table = _plan_table(self.explained().text())
        self.report = Report(rows=1)
        return table

    def schema(self) -> Schema:
        return [("explain_key", "VARCHAR"), ("explain_value", "VARCHAR")]


class ExplainAnalyzeStatement(ExplainStatement):
    """EXPLAIN ANALYZE: the statement is run, and what it did stands beside the plan."""

    asks = True

    def run(self, state: RunState, accept: Accept | None = None) -> pa.Table:
        before = self.explained()
        Statement.run(self, state)
        table = _plan_table(before.text(self.report))
        if self.report is not None:
            self.report = replace(self.report, rows=1)
        return table


class DescribeStatement(WholeStatement):
    """DESCRIBE of a query with AI calls: its columns, and nothing is asked."""

    def run(self, state: RunState, accept: Accept | None = None) -> pa.Table:
        with self._prepared(RunState()) as prepared:
            query = f"DESCRIBE {prepared.plan.final}"
            table = result(self._frontend.connection.duckdb, query)
        self.report = Report(rows=table.num_rows)
        return table


class ViewStatement(WholeStatement):
    """CREATE VIEW of a query with AI calls, which Covey keeps.

    Args:
        frontend: plans the query.
        expanded: the query, with the views that it reads in front.
        calls: the AI calls in it.
        definition: the statement.
        text: the query as written.
    """

    def __init__(
        self,
        frontend: Frontend,
        expanded: RewrittenSql,
        calls: tuple[RawCall, ...],
        definition: ViewDefinition,
        text: str,
    ) -> None:
        super().__init__(frontend, expanded, calls)
        self._definition = definition
        self._text = text

    def explained(self) -> Explained:
        self.check()
        note = f"keep the view {self._definition.path[-1]}: its calls are asked when it is read"
        return Explained(note=note)

    def schema(self) -> Schema:
        raise InputError("Only a query has a schema before it runs.")

    def run(self, state: RunState, accept: Accept | None = None) -> pa.Table:
        with self._prepared(RunState()) as prepared:
            columns = self._frontend.schema(prepared.plan)
            self._frontend.views.keep(self._definition, self._text, columns)
        self.report = Report()
        return pa.table({})


def make_statement(frontend: Frontend, rewritten: RewrittenSql) -> Statement:
    """The statement that a text is.

    Args:
        frontend: plans it.
        rewritten: one statement, as written.

    Raises:
        QueryError: it cannot be read, or it names an unknown AI function.
        UnsupportedError: EXPLAIN with options, of AI calls.
    """
    tokens = read_tokens(rewritten.text)
    if tokens[0].word in _TRANSACTION:
        return TransactionStatement(frontend, rewritten, ())
    frontend.check_access(rewritten)
    definition = view_definition(tokens)
    if definition is not None:
        query = RewrittenSql(rewritten.part(*definition.query))
        body = frontend.expand_body(definition, query)
        if calls := frontend.find_calls(body):
            return ViewStatement(frontend, body, calls, definition, query.text)
    for words, kind in _ABOUT:
        span = behind(tokens, *words)
        if span is None:
            continue
        inner = frontend.expand_views(RewrittenSql(rewritten.part(*span)))
        if calls := frontend.find_calls(inner):
            if tokens.is_open(1):
                raise rewritten.locate(_no_options(rewritten.text, tokens.span(0, 2)))
            return kind(frontend, inner, calls)
    expanded = frontend.expand_views(rewritten)
    return Statement(frontend, expanded, frontend.find_calls(expanded))


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
