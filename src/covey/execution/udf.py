"""The UDFs that stand in for AI calls: they look answers up.

A UDF over texts notes what it cannot find, for the next round of fixpoint re-execution
(`execution.steps.StepRunner.complete`). A UDF over row ids belongs to a planned call, whose rows
were asked ahead: a row that was not asked is not needed, and it gives NULL. A call that nothing
has begun to ask has no answers to give, and is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from covey.arrays import Int64, distinct_rows
from covey.errors import RunError
from covey.execution.answers import QueryAnswers
from covey.execution.sql_values import read_answers, true_of
from covey.logical.calls import AICall, OnError
from covey.prompts.documents import NULL_ID, DocumentStore
from covey.prompts.question import Question
from covey.sql.temporary import TemporaryObjects


@dataclass(frozen=True, slots=True)
class RowDocuments:
    """The documents of one argument of a planned call.

    Attributes:
        key: which of the UDF's row ids it depends on.
        ids: document id by row id; `NULL_ID` where the text is NULL or was never read.
    """

    key: int
    ids: Int64

    def of_rows(self, rows: Int64) -> Int64:
        """Document ids of some rows, `NULL_ID` for a negative row id."""
        if not len(self.ids):
            return np.full(len(rows), NULL_ID)
        return np.where(rows < 0, NULL_ID, self.ids[rows])


class AnswerUDFs:
    """Makes the UDFs of a query known on its connection.

    Args:
        objects: of the statement, where it will run.
        answers: where answers are found.
        documents: where texts get their ids.

    Attributes:
        read_again: whether texts were looked up that `take_missing` gave the last time.
    """

    def __init__(
        self, objects: TemporaryObjects, answers: QueryAnswers, documents: DocumentStore
    ) -> None:
        self._objects = objects
        self._answers = answers
        self._documents = documents
        self._missing: dict[int, list[Int64]] = {}
        # By question, the number of its answers before what was missing last was asked.
        self._known: dict[Question, int] = {}
        self.read_again = False
        self._rows: dict[int, tuple[RowDocuments, ...]] = {}
        self._running = False
        # DuckDB may call from several threads.
        self._lock = threading.Lock()

    def register(self, calls: list[AICall]) -> None:
        """Make both UDFs of every call known to DuckDB."""
        for call in calls:
            if call.shares == call.index:
                self._objects.create_function(call.text_udf, self._by_text(call), call.sql_type)
            self._objects.create_function(call.row_udf, self._by_row(call), call.sql_type)

    def expect_rows(self) -> None:
        """Say that the plan runs: from here on a planned call has been asked, or is an error."""
        self._running = True

    def begin(self, call: int, nothing: tuple[RowDocuments, ...]) -> None:
        """Say that a planned call is asked, for the rows that turn out to need it."""
        self._rows.setdefault(call, nothing)

    def set_rows(self, call: int, documents: tuple[RowDocuments, ...]) -> None:
        """Give the UDF of a planned call the documents of its arguments."""
        self._rows[call] = documents

    @property
    def lacks_answers(self) -> bool:
        """Whether `take_missing` has anything to give."""
        return bool(self._missing)

    def take_missing(self, calls: list[AICall]) -> Iterator[tuple[AICall, Int64]]:
        """Calls, and (n, arity) distinct ids of texts that lacked an answer since the last time."""
        missing, self._missing = self._missing, {}
        asked = {calls[index].question for index in missing}
        self._known = {question: len(self._answers.of(question)) for question in asked}
        self.read_again = False
        for index, parts in missing.items():
            yield calls[index], distinct_rows(np.concatenate(parts))[0]

    def count_true(self, call: AICall, documents: Int64) -> int:
        """How many of some documents, (n, arity), have an answer above the call's threshold."""
        _, scores = self._answers.of(call.question).find(documents)
        return int(true_of(call, scores).sum())

    def _by_text(self, call: AICall) -> Callable[..., pa.Array]:
        arity = call.question.arity

        def look_up(*texts: pa.Array) -> pa.Array:
            with self._lock:
                ids = np.empty((len(texts[0]), arity), np.int64)
                for i in range(arity):
                    ids[:, i] = self._documents.add(texts[i])
                return self._read(call, ids, note=True)

        return look_up

    def _by_row(self, call: AICall) -> Callable[..., pa.Array]:
        def look_up(*row_ids: pa.Array) -> pa.Array:
            with self._lock:
                places = self._rows.get(call.index)
                if places is None:
                    if self._running:
                        raise RunError(
                            f"{call.name} was planned and never asked: the plan is damaged."
                        )
                    # Not asked yet: this is DuckDB folding constants while it binds.
                    count = len(row_ids[0])
                    nothing = np.full((count, call.question.width), np.nan)
                    return read_answers(call, nothing, [None] * count)
                rows = [r.fill_null(-1).to_numpy(zero_copy_only=False) for r in row_ids]
                ids = np.empty((len(rows[0]), len(places)), np.int64)
                for i, place in enumerate(places):
                    ids[:, i] = place.of_rows(rows[place.key])
                return self._read(call, ids, note=False)

        return look_up

    def _read(self, call: AICall, ids: Int64, note: bool) -> pa.Array:
        present = (ids != NULL_ID).all(axis=1)
        table = self._answers.of(call.question)
        found, scores = self._answers.find(call, ids)
        scores[~present] = np.nan
        known = self._known.get(call.question) if note and not self.read_again else None
        if known is not None:
            self.read_again = table.any_since(known, ids[present & found])
        absent = present & ~found
        if note and absent.any():
            self._missing.setdefault(call.index, []).append(ids[absent])
        reasons: list[str | None] = []
        if call.options.on_error is OnError.VALUE:
            reasons = [r if p else None for r, p in zip(table.reasons(ids), present, strict=True)]
        return read_answers(call, scores, reasons)
