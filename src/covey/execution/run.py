"""Run a physical plan: load, ask, and let DuckDB finish until nothing is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from covey.errors import RunError
from covey.execution.ask import Asker
from covey.execution.bridge import Relations
from covey.execution.lookup import Ints, Lookups, RowDocuments, distinct_rows
from covey.execution.partners import Partners
from covey.execution.report import Report
from covey.plan.nodes import Ask, DocumentColumn, Limit, Load, PhysicalPlan, Step
from covey.prompts.documents import NULL_ID, DocumentStore

# Each round answers all that the round before lacked, so that a statement settles after
# as many rounds as its calls depend on one another. Only a statement that draws other
# rows every time it runs does not.
MAX_ROUNDS = 1000

# Rows of the first batch under a LIMIT: fewer would leave a chunk almost empty.
SMALLEST_BATCH = 16

# Marks a row whose text has not been read.
_UNREAD = -2

Result = TypeVar("Result")


class Runner:
    """Runs one plan once.

    Args:
        plan: what to run.
        relations: DuckDB, on the connection that the plan was made on.
        lookups: registered there for the calls of the plan.
        asker: asks the model.
        documents: the documents of the query.
        report: is brought up to date.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        relations: Relations,
        lookups: Lookups,
        asker: Asker,
        documents: DocumentStore,
        report: Report,
    ) -> None:
        self._plan = plan
        self._relations = relations
        self._lookups = lookups
        self._asker = asker
        self._documents = documents
        self._report = report
        self._columns: dict[DocumentColumn, Ints] = {}
        self._rows: dict[str, int] = {}

    def run(self) -> pa.Table:
        """Run everything; return the result of the statement.

        Raises:
            RunError: DuckDB failed, or a limit of the query was passed.
        """
        started = time.perf_counter()
        for step in self._plan.steps:
            self._step(step)
        result = self._finish()
        self._report.rows = result.num_rows
        self._report.seconds = time.perf_counter() - started - self._report.load_seconds
        return result

    def _finish(self) -> pa.Table:
        plan = self._plan
        if not plan.effects:
            return self._complete(partial(self._relations.table, plan.final))
        if plan.rehearsal is not None:
            self._complete(partial(self._relations.table, plan.rehearsal))
            return self._relations.table(plan.final)
        while True:
            with self._relations.attempt() as attempt:
                result = self._relations.table(plan.final)
                missing = list(self._lookups.take_missing(plan.calls))
                if not missing:
                    attempt.keep()
                    return result
            for call, documents in missing:
                self._asker.ask(call, documents)

    def _complete(self, work: Callable[[], Result]) -> Result:
        """Repeat `work` until none of its look-ups lacks an answer."""
        for _ in range(MAX_ROUNDS):
            result = work()
            missing = list(self._lookups.take_missing(self._plan.calls))
            if not missing:
                return result
            for call, documents in missing:
                self._asker.ask(call, documents)
        raise RunError(
            f"The query still asks for new documents after {MAX_ROUNDS} rounds: it draws other "
            "rows every time it runs, by random() or a sample. Store that part first, "
            "CREATE TEMP TABLE … AS SELECT …, and query the table."
        )

    def _step(self, step: Step) -> None:
        if isinstance(step, Load):
            self._rows[step.table] = self._complete(partial(self._relations.fill, step))
        elif isinstance(step, Ask):
            self._ask(step)
        elif isinstance(step, Limit):
            self._ask_until_enough(step)
        else:
            kept = self._complete(partial(self._relations.row_ids, step.query))
            self._relations.prune(step, kept[0])

    def _ask_until_enough(self, step: Limit) -> None:
        """Ask for batches of rows, each as large as all before it."""
        total = self._rows[step.table]
        start = 0
        while start < total:
            end = total
            if step.enough is not None:
                end = min(total, max(2 * start, step.needed, SMALLEST_BATCH))
            self._relations.set_batch(start, end - 1)
            for ask in step.asks:
                self._ask(ask)
            if step.enough is not None and self._count(step.enough) >= step.needed:
                return
            start = end

    def _count(self, query: str) -> int:
        return int(self._complete(partial(self._relations.table, query)).column(0)[0].as_py())

    def _ask(self, step: Ask) -> None:
        rows = self._complete(partial(self._relations.row_ids, step.demand))
        if step.stop is None or not len(rows[0]):
            self._ask_rows(step, rows)
            return
        # The partners of a row are asked in rounds that double, so that at most twice as
        # many are asked as the first match needed.
        left = Partners(rows, step.stop.keys)
        size = 1
        while left.count:
            self._ask_rows(step, left.take(size))
            decided = self._complete(partial(self._relations.row_ids, step.stop.decided))
            left.drop(decided)
            size *= 2

    def _ask_rows(self, step: Ask, rows: list[Ints]) -> None:
        call = self._plan.calls[step.call]
        documents = np.empty((len(rows[0]), len(step.documents)), np.int64)
        places = []
        for i, (column, key) in enumerate(zip(step.documents, step.keys, strict=True)):
            place = RowDocuments(key, self._read_documents(column, rows[key]))
            documents[:, i] = place.of_rows(rows[key])
            places.append(place)
        documents = documents[(documents != NULL_ID).all(axis=1)]
        if len(documents):
            self._asker.ask(call, distinct_rows(documents))
        self._lookups.set_rows(call, tuple(places))

    def _read_documents(self, column: DocumentColumn, rows: Ints) -> Ints:
        """Document ids by row id of a source, with those of `rows` read."""
        known = self._columns.get(column)
        if known is None:
            known = self._columns[column] = np.full(self._rows[column.table], _UNREAD, np.int64)
        wanted = np.unique(rows[rows >= 0])
        wanted = wanted[known[wanted] == _UNREAD]
        if len(wanted):
            known[wanted] = self._documents.add(self._relations.texts(column, wanted))
        return np.where(known == _UNREAD, NULL_ID, known)
