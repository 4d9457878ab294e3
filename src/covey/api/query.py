"""One query: checked when made, run once, read in any form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from covey.api.planning import Planning, Schema
from covey.api.statement import Statement, make_statement
from covey.errors import InputError, QueryError, RunError
from covey.execution.answers import Answers
from covey.execution.report import Report, joined
from covey.prompts.documents import DocumentStore
from covey.sql.bind import Binder
from covey.sql.calls import find_calls
from covey.sql.derived import Derived, Piece, Written
from covey.sql.dialect import Dialect
from covey.sql.statements import split_statements
from covey.sql.text import EditedText, TokenList, read_tokens

if TYPE_CHECKING:
    import pandas
    import polars

    from covey.api.connection import Connection


class Query:
    """One or several statements on a connection, made by `Connection.sql`.

    The first statement is checked when the query is made. What stands behind it may
    depend on what it does, so the others are checked when their turn comes; only the
    spelling of their AI functions is checked at once. The result is the last one's.

    Args:
        connection: where it runs.
        text: SQL.
        dialect: whose spelling of AI functions is accepted; None accepts both.

    Raises:
        QueryError: the text is wrong.
        InputError: it is no text.
    """

    def __init__(self, connection: Connection, text: str, dialect: Dialect | None = None) -> None:
        if not isinstance(text, str):
            raise InputError(f"SQL is a text, not of type {type(text).__name__}.")
        self._connection = connection
        self._dialect = dialect
        self._result: pa.Table | None = None
        self._report: Report | None = None
        tokens = read_tokens(text)
        written = Written(text)
        self._statements = [
            Derived([Piece(text[start:end], written, start)])
            for start, end in split_statements(tokens)
        ]
        with connection.lock:
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

    def explain(self) -> str:
        """The plan as text, with what it is expected to cost. Nothing is asked.

        Of several statements, one that does not bind before the others have run is named
        without a plan.
        """
        with self._connection.lock:
            if len(self._statements) == 1:
                return self._statement(0).explain()
            count = len(self._statements)
            parts = []
            for number, derived in enumerate(self._statements):
                parts.append(f"statement {number + 1} of {count}: {_one_line(derived.text)}")
                try:
                    parts.append(self._statement(number).explain())
                except QueryError:
                    parts.append("planned when the statements before it have run")
            return "\n".join(parts)

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
        if self._result is None:
            with self._connection.lock:
                self._run()
        return self

    def _run(self) -> None:
        answers, documents = Answers(), DocumentStore()
        reports = []
        result: pa.Table | None = None
        for number in range(len(self._statements)):
            result, report = self._statement(number).run(answers, documents)
            reports.append(report)
        self._result = result
        self._report = reports[0] if len(reports) == 1 else joined(reports)

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
        if not self.columns:
            import pandas

            return pandas.DataFrame()
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
        # A statement such as CREATE has no result, which DuckDB takes for no table.
        return self._relation().fetchall() if self.columns else []

    def _relation(self) -> duckdb.DuckDBPyRelation:
        return duckdb.connect().from_arrow(self.arrow())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _needs(package: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise InputError(f"This form of the result needs {package}: pip install {package}")
