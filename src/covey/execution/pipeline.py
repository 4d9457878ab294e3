"""Rows on their way through the conditions of a block, a chunk's worth at a time.

All rows that fit are given to the engine with their first question, so that it sees every
shared opening. As its answers come in, the rows they decide go on: those a condition
rejects are released, the others are asked the next question while their keys and values
are resident.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from covey.arrays import Int64, without
from covey.errors import RunError
from covey.execution.anchors import BYTES_A_TOKEN, PipelineAnchors
from covey.execution.asking import Asking, Ticket, Tickets
from covey.execution.partners import first_match
from covey.execution.sample import SEED, Sampler, pipeline_facts
from covey.execution.steps import StepRunner
from covey.plan.choice import Chooser, Decision, OrderChoice
from covey.plan.join_graph import Target
from covey.plan.nodes import Ask, Pipeline

# Rows of the first batch while the engine's room is unknown, and under a LIMIT.
FIRST_BATCH = 256
FIRST_BATCH_OF_LIMIT = 16
# Rows of all sources together that the first batch of a LIMIT may make: they are looked through.
PAIRS_OF_LIMIT = 500_000
# Batches under way at once; the texts of the next are tokenised while one is asked.
IN_FLIGHT = 2
# A batch whose rows go on one by one need not fit the engine. It is as large as is good to
# tokenise before the first answer, and to look through for each chunk of answers.
BATCH_BYTES = 32_000_000


@dataclass(eq=False)
class _Batch:
    """Rows that are asked one thing.

    Attributes:
        rows: ascending row ids of the pipeline's source.
        decided: the operators they have passed, in that order.
        operator, ask: what they are asked, or will be asked first; no operator before it is chosen.
        whole: whether it was cut from the source, and not from another batch.
        waited: tickets under way.
        steps: asks on; gives the tickets to wait for each time.
    """

    rows: Int64
    decided: tuple[int, ...] = ()
    operator: int | None = None
    ask: int = 0
    whole: bool = False
    waited: Tickets = frozenset()
    steps: Iterator[Tickets] = field(init=False)


class PipelineRunner:
    """Runs one `Pipeline` step.

    Args:
        step: the step.
        runner: asks one call for the rows of a query.
        asker: the engine's side.
        chooser: decides the order of conditions; None keeps that of the plan.
        early: whether the first rows are wanted early: then the first batches are small.

    Attributes:
        decisions: what was decided, in order.
    """

    def __init__(
        self,
        step: Pipeline,
        runner: StepRunner,
        asker: Asking,
        chooser: Chooser | None = None,
        early: bool = False,
    ) -> None:
        self._early = early
        self._step = step
        self._runner = runner
        self._asker = asker
        self._next_row = 0
        self._total = 0
        self._batches: list[_Batch] = []
        self._order = list(range(len(step.operators)))
        self._chooser = chooser
        self._choice: OrderChoice | None = None
        self._through = 0
        self._found = 0
        # Random rows that go through before the others, to see whether the order holds.
        self._tried: Int64 = np.empty(0, np.int64)
        self._trying = False
        self._anchors = PipelineAnchors(step, runner, asker)

    def run(self) -> None:
        """Ask until every row is through, or enough are found."""
        for _ in self.through():
            pass

    def through(self) -> Iterator[int]:
        """Ask on; give, each time it grows, the row id of the source before which all are through.

        Rows that are through have all the answers that they need.
        """
        done = 0
        self._runner.begin(self._step.asks)
        self._total = 0 if self._step.needed == 0 else self._runner.rows_of(self._step.table)
        self._choose()
        while self._batches or self._next_row < self._total:
            if self._trying and not self._batches:
                self._trying = False
                self._review(at_once=True)
            while self._next_row < self._total and self._whole_batches() < self._in_flight():
                first, self._next_row = self._next_row, self._end_of_next_batch()
                if self._step.found is None:
                    self._asker.reached(self._next_row / self._total)
                rows = without(np.arange(first, self._next_row), self._tried)
                self._add(_Batch(rows, whole=True))
            if self._advance():
                if self._enough():
                    # The statement would look for its rows among the others too.
                    self._runner.keep_first(self._step.table, self._next_row)
                    break
            elif self._batches:
                answered = self._asker.wait()
                if answered is not None:
                    self._observe(*answered)
                    if self._step.found is None:
                        self._go_on(*answered)
            self._review()
            end = min([self._next_row, *(int(b.rows[0]) for b in self._batches if len(b.rows))])
            if end > done:
                yield (done := end)
        self._anchors.end()

    @property
    def found(self) -> int:
        """Rows of the result in the batches that are through, under a LIMIT."""
        return self._found

    @property
    def decisions(self) -> Sequence[Decision]:
        return () if self._choice is None else self._choice.decisions

    def _choose(self) -> None:
        """Choose the order of the conditions, asking about a sample where that is worth it."""
        conditions = [operator for operator in self._step.operators if operator.passes is not None]
        if self._chooser is None or len(conditions) < 2 or not self._total:
            return
        facts = pipeline_facts(self._step, self._runner)
        choice = self._choice = self._chooser.open(self._step, facts)
        self._reorder()
        if self._step.needed is not None:
            return
        if Sampler(self._step, self._runner, self._asker, choice).run():
            self._review(at_once=True)
            return
        # After a sample no trial is needed; without, the order is tried.
        shuffled = np.random.default_rng(SEED).permutation(self._total)
        chosen = shuffled[: choice.trial(self._total)]
        if len(chosen):
            self._tried = np.sort(chosen)
            self._trying = True
            self._asker.reached(len(chosen) / self._total)
            self._add(_Batch(self._tried, whole=True))

    def _reorder(self) -> None:
        if self._choice is not None:
            order = self._choice.order()
            self._order = [*order, *(i for i in range(len(self._step.operators)) if i not in order)]

    def _review(self, at_once: bool = False) -> None:
        if self._choice is not None and self._choice.review(self._through, at_once):
            self._reorder()

    def _observe(self, ticket: Ticket, answered: Int64) -> None:
        """Learn from answers; of the source's own rows it shows when they are rejected."""
        if self._choice is None:
            return
        operators = {
            b.operator for b in self._batches if ticket in b.waited and b.operator is not None
        }
        for number in operators:
            operator = self._step.operators[number]
            if operator.call is not None and not self._decides_rows(number):
                true = self._runner.count_true(operator.call, answered)
                self._choice.observed(number, (), len(answered), true)

    def _whole_batches(self) -> int:
        return sum(batch.whole for batch in self._batches)

    def _in_flight(self) -> int:
        if self._trying:
            return 0
        # With a LIMIT the next batch may never be needed.
        return 1 if self._step.found is not None else IN_FLIGHT

    def _end_of_next_batch(self) -> int:
        end = self._end_of_full_batch()
        if self._early:
            end = min(end, self._next_row + max(self._next_row, FIRST_BATCH))
        return end

    def _end_of_full_batch(self) -> int:
        step, first = self._step, self._next_row
        if step.needed is not None:
            # Each batch as large as all before it: at most twice too many are asked.
            partners = math.prod(
                max(self._runner.rows_of(relation.table), 1)
                for i, relation in enumerate(step.rows.relations[: step.rows.outer])
                if i != step.source
            )
            most = max(PAIRS_OF_LIMIT // partners, 1)
            return min(
                self._total, max(2 * first, min(max(step.needed, FIRST_BATCH_OF_LIMIT), most))
            )
        if step.column is None:
            return self._total
        asks = step.operators[self._order[0]].asks
        if asks and self._row_by_row(asks[0]):
            return self._runner.rows_within(step.column, first, BATCH_BYTES)
        capacity = self._asker.capacity()
        if capacity is None:
            return min(self._total, first + FIRST_BATCH)
        room = int(capacity / IN_FLIGHT * BYTES_A_TOKEN)
        return self._runner.rows_within(step.column, first, room)

    def _row_by_row(self, ask: Ask) -> bool:
        """Whether one document decides what a row is answered, so that rows can go on alone."""
        return (
            self._step.found is None
            and ask.stop is None
            and len(ask.documents) == 1
            and ask.documents[0].table == self._step.table
        )

    def _add(self, batch: _Batch) -> None:
        batch.steps = self._steps(batch)
        self._batches.append(batch)

    def _steps(self, batch: _Batch) -> Iterator[Tickets]:
        """Ask call after call for the rows of a batch; give the tickets to wait for each time."""
        while len(batch.rows):
            if batch.operator is None:
                batch.operator = next((i for i in self._order if i not in batch.decided), None)
            if batch.operator is None:
                break
            asks = self._step.operators[batch.operator].asks
            while batch.ask < len(asks) and len(batch.rows):
                yield from self._ask(batch, asks[batch.ask])
                batch.ask += 1
            batch.decided = (*batch.decided, batch.operator)
            self._reject(batch, batch.operator)
            batch.operator, batch.ask = None, 0
        self._through += len(batch.rows)
        self._found += self._found_in(batch)
        self._anchors.release(batch.rows, batch.rows[:0])

    def _ask(self, batch: _Batch, ask: Ask) -> Iterator[Tickets]:
        later = [a for i in self._order if i not in batch.decided for a in self._asks(i)]
        later = later[later.index(ask) + 1 :]
        reads = float(sum(_shares(ask, other) for other in later))
        if self._returns(ask, batch):
            self._anchors.keep(ask)
            reads += 1.0
        # Under a LIMIT the last call stops within a batch too: a row of the source may
        # have thousands of partners.
        piece = None if later else self._step.needed
        for waited in self._runner.ask(self._written(ask, batch), reads, piece):
            yield waited
            if not len(batch.rows) or (piece is not None and self._enough(batch)):
                return
            # Queries of the ask that are still to come read the batch that is there then.
            self._runner.batch(self._step.source, batch.rows)

    def _returns(self, ask: Ask, batch: _Batch) -> bool:
        """Whether other batches will read the same anchors: those that are not the source's own."""
        others = any(b is not batch and batch.operator not in b.decided for b in self._batches)
        return (others or self._next_row < self._total) and self._anchors.may_stay(ask)

    def _asks(self, operator: int) -> tuple[Ask, ...]:
        return self._step.operators[operator].asks

    def _written(self, ask: Ask, batch: _Batch) -> Ask:
        """An ask for the rows of the batch that pass what is decided."""
        if ask.target is None:
            raise RunError("An ask of a pipeline names no rows: the plan is damaged.")
        left = [self._step.operators[i] for i in self._order if i not in batch.decided]
        stop = ask.stop or first_match(self._step, ask, left)
        if stop is not None and stop.target is not None:
            stop = replace(stop, decided=self._query(stop.target, batch))
        return replace(ask, demand=self._query(ask.target, batch), stop=stop)

    def _query(self, target: Target, batch: _Batch, new: int | None = None) -> str:
        """The row ids of a target in rows of the batch that pass the operators that are decided.

        Args:
            new: the operator of which rows that it rejects are still in the batch.
        """
        passed = [
            self._step.operators[i].passes for i in batch.decided if i == new or self._joins(i)
        ]
        conditions = [condition for condition in passed if condition is not None]
        confined = self._runner.batch(self._step.source, batch.rows)
        return self._step.rows.query(target, conditions, confined)

    def _joins(self, operator: int) -> bool:
        """Whether an operator decides more than rows of the source: those it rejects are gone."""
        passes = self._step.operators[operator].passes
        return passes is not None and not passes.sources <= {self._step.source}

    def _reject(self, batch: _Batch, operator: int) -> None:
        """Take the rows out of a batch that an operator rejects."""
        if self._step.operators[operator].passes is None or not len(batch.rows):
            return
        alive = self._query(Target((self._step.source,)), batch, operator)
        left = np.sort(self._runner.columns(alive)[0])
        if self._choice is not None and self._decides_rows(operator):
            before = tuple(i for i in batch.decided if i != operator)
            self._choice.observed(operator, before, len(batch.rows), len(left))
        self._anchors.release(without(batch.rows, left), left)
        self._through += len(batch.rows) - len(left)
        batch.rows = left

    def _decides_rows(self, operator: int) -> bool:
        """Whether a condition is about rows of the pipeline's source alone."""
        targets = [ask.target for ask in self._asks(operator)]
        return all(t is not None and t.sources == (self._step.source,) for t in targets)

    def _advance(self) -> bool:
        """Take every batch as far as it goes; say whether one is through."""
        through = False
        for batch in list(self._batches):
            while self._asker.done(batch.waited):
                try:
                    batch.waited = next(batch.steps)
                except StopIteration:
                    self._batches.remove(batch)
                    through = True
                    break
        return through

    def _go_on(self, ticket: Ticket, answered: Int64) -> None:
        """Let the rows go on that have their answers while the rest of their batch waits."""
        ready: dict[tuple[tuple[int, ...], int, int], list[Int64]] = {}
        for batch in self._batches:
            if (
                ticket not in batch.waited
                or self._asker.done(batch.waited)
                or batch.operator is None
            ):
                continue
            ask = self._asks(batch.operator)[batch.ask]
            if not self._row_by_row(ask) or self._is_last(batch):
                continue
            documents = self._runner.documents_of(ask.documents[0], batch.rows)
            decided = np.isin(documents, answered[:, 0])
            place = (batch.decided, batch.operator, batch.ask + 1)
            ready.setdefault(place, []).append(batch.rows[decided])
            batch.rows = batch.rows[~decided]
        for (passed, operator, number), parts in ready.items():
            rows = np.sort(np.concatenate(parts))
            if len(rows):
                self._add(_Batch(rows, passed, operator, number))

    def _is_last(self, batch: _Batch) -> bool:
        """Whether nothing is asked of its rows after what they wait for."""
        number = batch.operator
        return batch.ask == len(self._asks(number or 0)) - 1 and all(
            i in batch.decided or i == number for i in self._order
        )

    def _enough(self, batch: _Batch | None = None) -> bool:
        """Whether LIMIT has its rows in the batches that are through, and one under way."""
        needed = self._step.needed
        if needed is None or self._step.found is None:
            return False
        found = self._found if batch is None else self._found + self._found_in(batch)
        return found >= needed

    def _found_in(self, batch: _Batch) -> int:
        """Rows of the result that a batch gives, at most as many as LIMIT needs."""
        if self._step.found is None or not len(batch.rows):
            return 0
        # While the last condition is asked, only its answers say which rows are found.
        passes = [
            operator.passes for operator in self._step.operators if operator.passes is not None
        ]
        confined = self._runner.batch(self._step.source, batch.rows)
        query = self._step.rows.query(self._step.found, passes, confined)
        return self._runner.count(f"SELECT count(*) FROM ({query} LIMIT {self._step.needed})")


def _shares(ask: Ask, other: Ask) -> bool:
    """Whether both read the same documents first."""
    return ask.anchor_documents is not None and ask.anchor_documents == other.anchor_documents
