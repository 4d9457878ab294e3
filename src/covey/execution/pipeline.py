"""Rows on their way through the operators of a pipeline, batch by batch.

All rows that fit are given to the engine with their first question, so that it sees every
shared prefix. As its answers come in, the rows they decide go on: those a condition
rejects are released, the others are asked the next question while their keys and values
are resident.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from covey.arrays import Int64, without
from covey.errors import RunError
from covey.execution.anchors import PipelineAnchors
from covey.execution.asking import Asking, Ticket, Tickets
from covey.execution.batch_size import BatchSizes
from covey.execution.ordering.chooser import OrderChoice, OrderChooser
from covey.execution.ordering.facts import SEED, pipeline_facts
from covey.execution.ordering.sample import Sampler
from covey.execution.partners import first_match
from covey.execution.steps import StepRunner
from covey.plan.decisions import Decision
from covey.plan.join_graph import Condition, Target
from covey.plan.nodes import Ask, Pipeline


@dataclass(eq=False)
class _Batch:
    """Rows that are asked one thing.

    Attributes:
        rows: ascending row ids of the pipeline's source.
        decided: the operators they have passed, in that order.
        operator, ask: what they are asked, or will be first; no operator before it is chosen.
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
        runner: asks one call for the rows of a query.
        chooser: decides the order of conditions.
        early: see `BatchSizes`.

    Attributes:
        found: rows of the result in the batches that are through, under a LIMIT.
    """

    def __init__(
        self,
        step: Pipeline,
        runner: StepRunner,
        asker: Asking,
        chooser: OrderChooser,
        early: bool = False,
    ) -> None:
        self._step = step
        self._runner = runner
        self._asker = asker
        self._sizes = BatchSizes(step, runner, asker, early)
        self._next_row = 0
        self._batches: list[_Batch] = []
        self._order = list(range(len(step.operators)))
        self._chooser = chooser
        self._choice: OrderChoice | None = None
        self._through = 0
        self.found = 0
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
        self._choose()
        while self._batches or self._next_row < self._sizes.rows:
            if self._trying and not self._batches:
                self._trying = False
                self._review(at_once=True)
            self._take_up_rows()
            if self._advance():
                if self._enough():
                    # The statement would look for its rows among the others too.
                    self._runner.relations.keep_first(self._step.table, self._next_row)
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
    def decisions(self) -> Sequence[Decision]:
        """What was decided, in order."""
        return () if self._choice is None else self._choice.decisions

    def _take_up_rows(self) -> None:
        """Cut batches from the source as long as more may be under way."""
        while (
            self._next_row < self._sizes.rows
            and not self._trying
            and sum(batch.whole for batch in self._batches) < self._sizes.in_flight
        ):
            first = self._next_row
            self._next_row = self._sizes.end(first, self._step.operators[self._order[0]])
            if self._step.found is None:
                self._asker.reached(self._next_row / self._sizes.rows)
            rows = without(np.arange(first, self._next_row), self._tried)
            self._add(_Batch(rows, whole=True))

    def _choose(self) -> None:
        """Choose the order of the conditions, asking about a sample where that is worth it."""
        total = self._sizes.rows
        if len(self._step.conditions) < 2 or not total:
            return
        facts = pipeline_facts(self._step, self._runner)
        choice = self._choice = self._chooser.open(self._step, facts)
        self._reorder(choice)
        if self._step.needed is not None:
            return
        if Sampler(self._step, self._runner, self._asker, choice).run():
            self._review(at_once=True)
            return
        # After a sample no trial is needed; without, the order is tried.
        chosen = np.random.default_rng(SEED).permutation(total)[: choice.trial(total)]
        if len(chosen):
            self._tried = np.sort(chosen)
            self._trying = True
            self._asker.reached(len(chosen) / total)
            self._add(_Batch(self._tried, whole=True))

    def _reorder(self, choice: OrderChoice) -> None:
        order = choice.order()
        self._order = [*order, *(i for i in range(len(self._step.operators)) if i not in order)]

    def _review(self, at_once: bool = False) -> None:
        if self._choice is not None and self._choice.review(self._through, at_once):
            self._reorder(self._choice)

    def _observe(self, ticket: Ticket, answered: Int64) -> None:
        """Learn from answers; of the source's own rows it shows when they are rejected."""
        if self._choice is None:
            return
        asked = {b.operator for b in self._batches if ticket in b.waited and b.operator is not None}
        for number in asked:
            call = self._step.operators[number].call
            if call is not None and not self._decides_rows(number):
                true = self._runner.count_true(call, answered)
                self._choice.observed(number, (), len(answered), true)

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
        self.found += self._found_in(batch)
        self._anchors.release(batch.rows)

    def _ask(self, batch: _Batch, ask: Ask) -> Iterator[Tickets]:
        left = [self._step.operators[i] for i in self._order if i not in batch.decided]
        later = [each for operator in left for each in operator.asks]
        later = later[later.index(ask) + 1 :]
        anchor = ask.anchor_documents
        reads = float(sum(anchor is not None and anchor == a.anchor_documents for a in later))
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
            self._runner.relations.batch(self._step.source, batch.rows)

    def _returns(self, ask: Ask, batch: _Batch) -> bool:
        """Whether other batches will read the same anchors: those that are not the source's own."""
        others = any(b is not batch and batch.operator not in b.decided for b in self._batches)
        return (others or self._next_row < self._sizes.rows) and self._anchors.may_stay(ask)

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

        Rows that `new` rejects are still in the batch.
        """
        decided = ((i, self._step.operators[i].passes) for i in batch.decided)
        # Of conditions on the source alone the rows that they reject are gone already.
        conditions = [
            passes
            for i, passes in decided
            if passes is not None and (i == new or not passes.sources <= {self._step.source})
        ]
        return self._confined(target, conditions, batch)

    def _confined(self, target: Target, decided: Sequence[Condition], batch: _Batch) -> str:
        """The row ids of a target in rows of the batch that pass some conditions."""
        rows = self._runner.relations.batch(self._step.source, batch.rows)
        return self._step.graph.query(target, decided, rows)

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
        targets = [ask.target for ask in self._step.operators[operator].asks]
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
            number = batch.operator
            if number is None or ticket not in batch.waited or self._asker.done(batch.waited):
                continue
            asks = self._step.operators[number].asks
            ask, is_last_ask = asks[batch.ask], batch.ask == len(asks) - 1
            is_last = is_last_ask and {*self._order} <= {*batch.decided, number}
            if is_last or not self._step.row_by_row(ask):
                continue
            documents = self._runner.documents_of(ask.documents[0], batch.rows)
            decided = np.isin(documents, answered[:, 0])
            place = (batch.decided, number, batch.ask + 1)
            ready.setdefault(place, []).append(batch.rows[decided])
            batch.rows = batch.rows[~decided]
        for place, parts in ready.items():
            rows = np.sort(np.concatenate(parts))
            if len(rows):
                self._add(_Batch(rows, *place))

    def _enough(self, batch: _Batch | None = None) -> bool:
        """Whether LIMIT has its rows in the batches that are through, and one under way."""
        needed = self._step.needed
        if needed is None or self._step.found is None:
            return False
        return self.found + (0 if batch is None else self._found_in(batch)) >= needed

    def _found_in(self, batch: _Batch) -> int:
        """Rows of the result that a batch gives, at most as many as LIMIT needs."""
        if self._step.found is None or not len(batch.rows):
            return 0
        # While the last condition is asked, only its answers say which rows are found.
        query = self._confined(self._step.found, self._step.conditions, batch)
        return self._runner.count(f"SELECT count(*) FROM ({query} LIMIT {self._step.needed})")
