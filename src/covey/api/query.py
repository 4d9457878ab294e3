"""One query: checked when made, run once, read in any form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from covey.errors import InputError, RunError
from covey.execution.answers import Answers
from covey.execution.ask import Asker
from covey.execution.bridge import Relations
from covey.execution.lookup import Lookups
from covey.execution.report import OperatorReport, Report
from covey.execution.run import Runner
from covey.optimizer.estimate import estimate
from covey.optimizer.planner import make_plan
from covey.plan.explain import explain
from covey.plan.nodes import PhysicalPlan
from covey.prompts.documents import DocumentStore
from covey.sql.bind import read_error
from covey.sql.dialect import Dialect
from covey.sql.lift import lift

if TYPE_CHECKING:
    import pandas
    import polars

    from covey.api.connection import Connection


class Query:
    """A statement on a connection, made by `Connection.sql`.

    Args:
        connection: where it runs.
        text: one SQL statement.
        dialect: whose spelling of AI functions is accepted; None accepts both.

    Raises:
        QueryError: the text is wrong.
    """

    def __init__(self, connection: Connection, text: str, dialect: Dialect | None = None) -> None:
        self._connection = connection
        self._text = text
        self._dialect = dialect
        self._result: pa.Table | None = None
        self._report: Report | None = None
        with self._planned(Answers(), DocumentStore()):
            pass

    def explain(self) -> str:
        """The plan as text, with what it is expected to cost. Nothing is asked."""
        with self._planned(Answers(), DocumentStore()) as (plan, _):
            return explain(plan, estimate(plan, self._connection.duckdb))

    def run(self) -> Query:
        """Run the query if it has not run yet; return itself.

        Raises:
            QueryError: tables changed since the query was made and it no longer binds.
            ModelError: the model cannot be loaded.
            RunError: the run failed.
        """
        if self._result is None:
            self._result, self._report = self._run()
        return self

    def _run(self) -> tuple[pa.Table, Report]:
        answers, documents = Answers(), DocumentStore()
        connection = self._connection
        with self._planned(answers, documents) as (plan, lookups):
            report = Report(
                operators=[
                    OperatorReport(
                        self._text[slice(*call.span)], plan.on_demand.get(call.index, "planned")
                    )
                    for call in plan.calls
                ]
            )
            asker = Asker(connection.engine, documents, answers, report, connection.new_progress())
            relations = Relations(connection.duckdb)
            with asker:
                runner = Runner(plan, relations, lookups, asker, documents, report)
                try:
                    return runner.run(), report
                except duckdb.Error as error:
                    reason, hint, _ = read_error(error)
                    raise RunError(
                        f"DuckDB could not finish the query: {reason}."
                        + (f" {hint}" if hint else "")
                    ) from None

    @contextmanager
    def _planned(
        self, answers: Answers, documents: DocumentStore
    ) -> Iterator[tuple[PhysicalPlan, Lookups]]:
        """The plan, with its tables and look-ups in place until the block is left."""
        connection = self._connection
        with connection.lock:
            lookups = Lookups(connection.duckdb, answers, documents)
            plan: PhysicalPlan | None = None
            try:
                lifted = lift(self._text, connection.duckdb, self._dialect)
                lookups.register(lifted.calls)
                plan = make_plan(lifted, connection.table_names)
                yield plan, lookups
            finally:
                if plan is not None:
                    Relations(connection.duckdb).drop(plan.steps)
                lookups.close()

    @property
    def columns(self) -> list[str]:
        """Names of the result's columns; runs the query."""
        return list(self.arrow().column_names)

    @property
    def report(self) -> Report:
        """What the run did; runs the query."""
        self.run()
        if self._report is None:
            raise RunError("The query has no report.")
        return self._report

    def arrow(self) -> pa.Table:
        """The result as an Arrow table."""
        self.run()
        if self._result is None:
            raise RunError("The query has no result.")
        return self._result

    def df(self) -> pandas.DataFrame:
        """The result as a pandas frame, with DuckDB's conversions."""
        _needs("pandas")
        frame: pandas.DataFrame = self._relation().df()
        return frame

    def pl(self) -> polars.DataFrame:
        """The result as a polars frame."""
        _needs("polars")
        import polars

        frame = polars.from_arrow(self.arrow())
        return frame if isinstance(frame, polars.DataFrame) else frame.to_frame()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The result as Python tuples, with DuckDB's conversions."""
        return self._relation().fetchall()

    def _relation(self) -> duckdb.DuckDBPyRelation:
        return duckdb.connect().from_arrow(self.arrow())


def _needs(package: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise InputError(f"This form of the result needs {package}: pip install {package}")
