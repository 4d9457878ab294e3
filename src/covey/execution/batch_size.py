"""How many rows of its source a pipeline takes up at a time."""

from __future__ import annotations

import math

from covey.execution.asking import Asking
from covey.execution.steps import StepRunner
from covey.plan.nodes import Operator, Pipeline

# Rows of the first batch while the engine's room is unknown, and under a LIMIT.
FIRST_BATCH = 256
FIRST_BATCH_OF_LIMIT = 16
# Rows of all sources together that the first batch of a LIMIT may make: they are looked through.
PAIRS_OF_LIMIT = 500_000
# Batches under way at once; the texts of the next are tokenised while one is asked.
IN_FLIGHT = 2
# A batch whose rows go on one by one need not fit the engine. It is as large as is good to
# tokenise before the first answer, and to look through for each batch of answers.
BATCH_BYTES = 32_000_000
# UTF-8 bytes of a token, on the low side: what is to fit had better do.
BYTES_A_TOKEN = 3.0


class BatchSizes:
    """Cuts the source of a pipeline into batches.

    Args:
        early: whether the first rows are wanted early: then the first batches are small.

    Attributes:
        rows: of the source; 0 where none is needed.
        in_flight: whole batches under way at once.
    """

    def __init__(self, step: Pipeline, runner: StepRunner, asker: Asking, early: bool) -> None:
        self._step = step
        self._runner = runner
        self._asker = asker
        self._early = early
        self.rows = 0 if step.needed == 0 else runner.rows_of(step.table)
        # With a LIMIT the next batch may never be needed.
        self.in_flight = IN_FLIGHT if step.found is None else 1

    def end(self, first: int, operator: Operator) -> int:
        """Where the batch from row `first` on ends, which is asked `operator` first."""
        end = self._end(first, operator)
        return min(end, first + max(first, FIRST_BATCH)) if self._early else end

    def _end(self, first: int, operator: Operator) -> int:
        step, within = self._step, self._runner.relations.rows_within
        if step.needed is not None:
            # Each batch as large as all before it: at most twice too many are asked.
            least = min(max(step.needed, FIRST_BATCH_OF_LIMIT), self._most_of_limit())
            return min(self.rows, max(2 * first, least))
        if step.column is None:
            return self.rows
        if operator.asks and step.row_by_row(operator.asks[0]):
            return within(step.column, first, BATCH_BYTES)
        capacity = self._asker.capacity()
        if capacity is None:
            return min(self.rows, first + FIRST_BATCH)
        return within(step.column, first, int(capacity / IN_FLIGHT * BYTES_A_TOKEN))

    def _most_of_limit(self) -> int:
        """Rows of the source whose combinations with those of the others are not too many."""
        graph = self._step.graph
        others = [relation.table for relation in graph.relations[: graph.outer]]
        del others[self._step.source]
        partners = math.prod(max(self._runner.rows_of(table), 1) for table in others)
        return max(PAIRS_OF_LIMIT // partners, 1)
