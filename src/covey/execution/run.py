"""Run a physical plan: load, ask, and let DuckDB finish until nothing is missing."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import closing
from functools import partial

import pyarrow as pa

from covey.errors import RunError
from covey.execution import batch_size
from covey.execution.ask import Asker
from covey.execution.bridge import Batches, Relations
from covey.execution.ordering.chooser import OrderChooser
from covey.execution.pipeline import PipelineRunner
from covey.execution.report import Report
from covey.execution.steps import DRAWS_OTHERS, StepRunner
from covey.execution.udf import AnswerUDFs
from covey.plan.nodes import Ask, Load, Match, PhysicalPlan, Pipeline, RangeQuery, Step
from covey.prompts.documents import DocumentStore

# Rows of a source that are enough for a piece of the result.
MOST_OF_A_PIECE = 32_768


class Runner:
    """Runs one plan once.

    Args:
        relations, udfs, asker, documents: see `StepRunner`.
        report: is brought up to date.
        chooser: decides the order of conditions.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        relations: Relations,
        udfs: AnswerUDFs,
        asker: Asker,
        documents: DocumentStore,
        report: Report,
        chooser: OrderChooser,
    ) -> None:
        self._chooser = chooser
        self._plan = plan
        self._relations = relations
        self._udfs = udfs
        self._asker = asker
        self._report = report
        self._steps = StepRunner(plan.calls, relations, udfs, asker, documents)

    def run(self) -> pa.Table:
        """Run everything; return the result of the statement.

        Raises:
            RunError: DuckDB failed, or a limit of the query was passed.
        """
        started = time.perf_counter()
        self._take(self._plan.steps)
        result = self._finish()
        self._report.rows = result.num_rows
        self._report.seconds = time.perf_counter() - started - self._report.load_seconds
        return result

    def prepare(self) -> None:
        """Ask all that a query needs, so that `batches` asks nothing.

        Raises:
            RunError: as `run`.
        """
        started = time.perf_counter()
        self._take(self._plan.steps)
        if self._plan.on_demand:
            self._drain(self._plan.final)
        self._asker.check()
        self._report.seconds = time.perf_counter() - started - self._report.load_seconds

    def batches(self) -> Batches:
        """The rows of a prepared query, which are never held all at once.

        Raises:
            RunError: a row lacks an answer: the query draws others every time it runs.
        """
        began = time.perf_counter()
        with closing(self._read(self._plan.final)) as rows:
            for batch in rows:
                self._report.rows += batch.num_rows
                self._report.seconds += time.perf_counter() - began
                yield batch
                began = time.perf_counter()

    def pieces(self, piece: RangeQuery) -> Batches:
        """Ask, and give the rows that are final meanwhile; see `PhysicalPlan.piece`.

        Time that the reader takes is not counted, nor charged to a budget.

        Raises:
            RunError: as `run`.
        """
        started, waited, empty = time.perf_counter(), 0.0, None
        try:
            with closing(self._ask_and_read(piece)) as rows:
                for batch in rows:
                    if not batch.num_rows:
                        empty = batch
                        continue
                    self._report.rows += batch.num_rows
                    before = time.perf_counter()
                    try:
                        yield batch
                    finally:
                        pause = time.perf_counter() - before
                        self._asker.paused(pause)
                        waited += pause
            self._asker.check()
        finally:
            seconds = time.perf_counter() - started - waited
            self._report.seconds = seconds - self._report.load_seconds
        if not self._report.rows and empty is not None:
            yield empty

    def _ask_and_read(self, piece: RangeQuery) -> Batches:
        *before, last = self._plan.steps
        self._take(before)
        if not isinstance(last, Pipeline):
            raise RunError("A result in pieces comes from no pipeline: the plan is damaged.")
        done, total = 0, self._steps.rows_of(last.table)
        with closing(self._pipeline(last, early=True)) as ends:
            for end in ends if total else [0]:
                # Each piece joins the other sources anew, so that they are no smaller than
                # an eighth of what came before, while that is not too long to wait.
                least = min(max(batch_size.FIRST_BATCH, done // 8), MOST_OF_A_PIECE)
                if end == total or end - done >= least:
                    yield from self._read(piece.query(done, end - 1))
                    done = end

    def _pipeline(self, step: Pipeline, *, early: bool = False) -> Generator[int, None, None]:
        """Run a pipeline; see `PipelineRunner.through`."""
        pipeline = PipelineRunner(step, self._steps, self._asker, self._chooser, early)
        try:
            yield from pipeline.through()
        finally:
            self._report.decisions += pipeline.decisions

    def _read(self, query: str) -> Batches:
        with closing(self._relations.batches(query)) as rows:
            for batch in rows:
                # What a UDF notes it has noted before its rows are here.
                if self._udfs.lacks_answers:
                    raise RunError(
                        f"The query wants answers that it did not ask for: {DRAWS_OTHERS}"
                    )
                yield batch

    def _take(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, Load | Match):
                self._steps.load(step)
            elif isinstance(step, Pipeline):
                for _ in self._pipeline(step):
                    pass
            elif isinstance(step, Ask):
                for tickets in self._steps.ask(step):
                    while not self._asker.done(tickets):
                        self._asker.wait()
            else:
                self._steps.prune(step)

    def _finish(self) -> pa.Table:
        plan = self._plan
        if not plan.calls:
            # Some statements must not run inside a transaction.
            return self._relations.result(plan.final)
        if plan.rehearsal is not None:
            self._drain(plan.rehearsal)
        elif plan.effects:
            return self._steps.complete(self._attempt)
        if plan.effects:
            self._asker.check()
            return self._relations.result(plan.final)
        table = self._steps.complete(partial(self._relations.result, plan.final))
        self._asker.check()
        return table

    def _drain(self, query: str) -> None:
        """Ask all that a query wants."""
        self._steps.complete(partial(self._relations.drain, query))

    def _attempt(self) -> pa.Table:
        """Run a statement that has effects, and undo them where it lacks an answer."""
        with self._relations.attempt(lambda: not self._udfs.lacks_answers):
            result = self._relations.result(self._plan.final)
            if not self._udfs.lacks_answers:
                self._asker.check()
        return result
