"""Batches of rows on their way through the questions of a block, several at once.

While one batch waits for the answers to its first question, another asks its second:
the engine packs the prompts of both into its chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from covey.execution.ask import Asker
from covey.execution.steps import StepRunner
from covey.plan.nodes import Ask, Flow
from covey.prompts.documents import NULL_ID

# Rows of the first batch while the engine's room is unknown, and under a LIMIT.
FIRST_BATCH = 256
FIRST_BATCH_OF_LIMIT = 16
# Batches under way at once; their documents share the engine's room.
IN_FLIGHT = 2
# UTF-8 bytes of a token, on the low side: a batch had better fit.
BYTES_A_TOKEN = 3.0


class FlowRunner:
    """Runs one `Flow` step.

    Args:
        step: the step.
        runner: asks one call for the rows of a query.
        asker: the engine's side.
    """

    def __init__(self, step: Flow, runner: StepRunner, asker: Asker) -> None:
        self._step = step
        self._runner = runner
        self._asker = asker
        self._next_row = 0

    def run(self) -> None:
        """Ask until every row is through, or enough are found."""
        total = 0 if self._step.needed == 0 else self._runner.rows_of(self._step.table)
        batches: deque[_Batch] = deque()
        while batches or self._next_row < total:
            while self._next_row < total and len(batches) < self._in_flight():
                batches.append(self._start(total))
            if self._advance(batches):
                if self._enough():
                    return
            elif batches:
                self._asker.wait()

    def _in_flight(self) -> int:
        # With a LIMIT the next batch may never be needed.
        return 1 if self._step.found is not None else IN_FLIGHT

    def _start(self, total: int) -> _Batch:
        first = self._next_row
        self._next_row = end = self._end_of_batch(first, total)
        return _Batch(first, end - 1, self._ask_batch(first, end - 1))

    def _end_of_batch(self, first: int, total: int) -> int:
        step = self._step
        if step.needed is not None:
            # Each batch as large as all before it: at most twice too many are asked.
            return min(total, max(2 * first, step.needed, FIRST_BATCH_OF_LIMIT))
        capacity = self._asker.capacity()
        if step.column is None:
            return total
        if capacity is None:
            return min(total, first + FIRST_BATCH)
        room = int(capacity / IN_FLIGHT * BYTES_A_TOKEN)
        return self._runner.rows_within(step.column, first, room)

    def _ask_batch(self, first: int, last: int) -> Iterator[frozenset[int]]:
        """Ask call after call for one batch; give the tickets to wait for each time."""
        for number, ask in enumerate(self._step.asks):
            later = [other for other in self._step.asks[number + 1 :] if _shares(ask, other)]
            # Under a LIMIT the last call stops within a batch too: a row of the source may
            # have thousands of partners.
            last_call = number == len(self._step.asks) - 1
            piece = self._step.needed if last_call else None
            self._runner.set_batch(first, last)
            for waited in self._runner.ask(ask, float(len(later)), piece):
                yield waited
                if piece is not None and self._enough():
                    return
                self._runner.set_batch(first, last)

    def _advance(self, batches: deque[_Batch]) -> bool:
        """Take every batch as far as it goes; say whether one is through."""
        through = False
        for batch in list(batches):
            while self._asker.done(batch.waited):
                try:
                    batch.waited = next(batch.steps)
                except StopIteration:
                    batches.remove(batch)
                    self._release(batch)
                    through = True
                    break
        return through

    def _release(self, batch: _Batch) -> None:
        column = self._step.column
        if column is not None:
            documents = self._runner.documents_between(column, batch.first, batch.last)
            self._asker.release(documents[documents != NULL_ID])

    def _enough(self) -> bool:
        needed, found = self._step.needed, self._step.found
        return needed is not None and found is not None and self._runner.count(found) >= needed


class _Batch:
    """Rows `first` to `last` of a flow's source, and how far they are."""

    def __init__(self, first: int, last: int, steps: Iterator[frozenset[int]]) -> None:
        self.first = first
        self.last = last
        self.steps = steps
        self.waited: frozenset[int] = frozenset()


def _shares(ask: Ask, other: Ask) -> bool:
    """Whether both read the same documents first."""
    return ask.anchor_documents is not None and ask.anchor_documents == other.anchor_documents
