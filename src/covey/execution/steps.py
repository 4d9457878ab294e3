"""Ask one call of a plan for the rows that a query names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from covey.arrays import Int64, distinct, distinct_rows
from covey.errors import RunError
from covey.execution.asking import Asking, Tickets
from covey.execution.bridge import Relations
from covey.execution.partners import Partners
from covey.execution.udf import AnswerUDFs, RowDocuments
from covey.logical.calls import AICall
from covey.plan.nodes import Ask, DocumentColumn, Load, Match, Prune
from covey.prompts.documents import NULL_ID, DocumentStore

Result = TypeVar("Result")

# Each round answers all that the round before lacked, so that a statement settles after
# as many rounds as its calls depend on one another: a recursive one after as many as it has
# steps, which may be endless.
MAX_ROUNDS = 10_000
# What was asked for true answers is looked up again in the next round. Rounds in a row
# after which nothing is wanted that the round before asked for: the documents are drawn.
# DuckDB may change the order of conditions, so that it takes more than one.
DRAWN_ROUNDS = 3
DRAWS_OTHERS = (
    "it draws other rows every time it runs, by random() or a sample. Store that part first, "
    "CREATE TEMP TABLE … AS SELECT …, and query the table."
)

# Marks a row whose text has not been read.
_UNREAD = -2


class StepRunner:
    """Loads sources and asks calls; knows the documents of every row it has read.

    Args:
        relations: DuckDB, on the connection that the plan was made on.
        udfs: registered there for the calls.
    """

    def __init__(
        self,
        calls: list[AICall],
        relations: Relations,
        udfs: AnswerUDFs,
        asker: Asking,
        documents: DocumentStore,
    ) -> None:
        self._calls = calls
        self.relations = relations
        self._udfs = udfs
        self._asker = asker
        self._documents = documents
        udfs.expect_rows()
        self._columns: dict[DocumentColumn, Int64] = {}
        self._rows: dict[str, int] = {}

    def complete(self, work: Callable[[], Result]) -> Result:
        """Repeat `work` until none of its UDFs lacks an answer: fixpoint re-execution.

        Raises:
            RunError: it never settles, or the query passed its budget.
        """
        drawn = -1
        for _ in range(MAX_ROUNDS):
            self._asker.check_budget()
            result = work()
            drawn = 0 if self._udfs.read_again else drawn + 1
            missing = list(self._udfs.take_missing(self._calls))
            if not missing:
                return result
            if drawn == DRAWN_ROUNDS:
                raise RunError(f"The query wants other documents each time: {DRAWS_OTHERS}")
            for call, documents in missing:
                self._asker.ask(call, documents)
        raise RunError(
            f"The query still asks for new documents after {MAX_ROUNDS:,} rounds, each of which "
            "depends on the one before: a recursive query without an end? Bound its steps in its "
            "WHERE."
        )

    def load(self, step: Load | Match) -> None:
        """Fill the table of a step."""
        self._rows[step.table] = self.complete(partial(self.relations.fill, step))

    def prune(self, step: Prune) -> None:
        """Delete the rows that a prune step does not keep."""
        self.relations.prune(step, self.columns(step.query)[0])

    def rows_of(self, table: str) -> int:
        """Rows of a source, 0 where it is not loaded."""
        return self._rows.get(table, 0)

    def count(self, query: str) -> int:
        """The number that a query gives."""
        return int(self.complete(partial(self.relations.table, query)).column(0)[0].as_py())

    def begin(self, asks: Iterable[Ask]) -> None:
        """Say that some calls are asked from here on, for the rows that turn out to need it."""
        for ask in asks:
            nothing = tuple(RowDocuments(key, np.empty(0, np.int64)) for key in ask.keys)
            self._udfs.begin(ask.udf, nothing)

    def columns(self, query: str) -> list[Int64]:
        """The row ids that a query gives, one array for each of its columns."""
        return self.complete(partial(self.relations.row_ids, query))

    def count_true(self, call: int, documents: Int64) -> int:
        """How many of some answered documents, (n, arity), a call of AI.IF is TRUE for."""
        return self._udfs.count_true(self._calls[call], documents)

    def ask_about(self, step: Ask, rows: list[Int64], reads: float) -> Tickets:
        """Ask a call about given rows, columns as its demand has them; see `ask`."""
        call = self._calls[step.call]
        documents = np.empty((len(rows[0]), len(step.documents)), np.int64)
        places = []
        for i, (column, key) in enumerate(zip(step.documents, step.keys, strict=True)):
            place = RowDocuments(key, self._read_documents(column, rows[key]))
            documents[:, i] = place.of_rows(rows[key])
            places.append(place)
        self._udfs.set_rows(step.udf, tuple(places))
        documents = documents[(documents != NULL_ID).all(axis=1)]
        if not len(documents):
            return frozenset()
        return self._asker.submit(call, distinct_rows(documents)[0], reads)

    def documents_of(self, column: DocumentColumn, rows: Int64) -> Int64:
        """The documents of some rows; `NULL_ID` where the text is NULL or was never read."""
        known = self._columns.get(column)
        if known is None:
            return np.full(len(rows), NULL_ID)
        part = known[rows]
        return np.where(part == _UNREAD, NULL_ID, part)

    def ask(self, step: Ask, reads: float = 0.0, piece: int | None = None) -> Iterator[Tickets]:
        """Ask a call for the rows of its demand.

        Args:
            reads: see `PromptBatch.reads`.
            piece: rows of the first ticket, each later one being twice as large; None
                takes all rows at once.

        Yields:
            tickets of the asker; go on when they are done.
        """
        self.begin([step])
        rows = self.columns(step.demand)
        if step.stop is None or not len(rows[0]):
            count, start = len(rows[0]), 0
            size = max(count if piece is None else piece, 1)
            while start < count or not start:
                yield self.ask_about(step, [r[start : start + size] for r in rows], reads)
                start += size
                size *= 2
            return
        # The partners of a row are asked in rounds that double, so that at most twice as
        # many are asked as the first match needed.
        left = Partners(rows, step.stop.keys)
        size = 1
        while left.count:
            yield self.ask_about(step, left.take(size), reads + 1.0)
            left.drop(self.columns(step.stop.decided))
            size *= 2

    def _read_documents(self, column: DocumentColumn, rows: Int64) -> Int64:
        """Document ids by row id of a source, with those of `rows` read."""
        known = self._columns.get(column)
        if known is None:
            known = self._columns[column] = np.full(self._rows[column.table], _UNREAD, np.int64)
        wanted = distinct(rows[rows >= 0])
        wanted = wanted[known[wanted] == _UNREAD]
        if len(wanted):
            known[wanted] = self._documents.add(self.relations.texts(column, wanted))
        return np.where(known == _UNREAD, NULL_ID, known)
