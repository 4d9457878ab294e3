"""Run a plan over a sample of its rows, with answers that are drawn: what would be asked?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial

import duckdb

from covey.errors import RunError
from covey.estimate.dry_result import DryResult
from covey.estimate.forecast import LoadForecast
from covey.estimate.lengths import DocumentLengths
from covey.execution.answers import QueryAnswers
from covey.execution.bridge import Relations
from covey.execution.dry_asker import DryAsker, Stored
from covey.execution.ordering.chooser import OrderChooser
from covey.execution.pipeline import PipelineRunner
from covey.execution.source_samples import SourceSamples, interrupted_after
from covey.execution.steps import StepRunner
from covey.execution.udf import AnswerUDFs
from covey.plan.decisions import Decision
from covey.plan.nodes import UNREAD, Ask, Load, PhysicalPlan, Pipeline, Prune, Step
from covey.prompts.documents import DocumentStore
from covey.sql.bind import in_transaction
from covey.sql.temporary import TemporaryObjects

# Seconds that DuckDB may take to find the rows of calls that run on demand.
SECONDS_ON_DEMAND = 0.7


class DryRun:
    """Runs one plan any number of times; nothing is asked and nothing changed.

    Use it as a context: it owns the tables of its samples.

    Args:
        plan: what would run; its tables are filled with samples.
        connection: where the plan was made.
        objects: what was made there for it.
        udfs: registered there for its calls.
        answers: those the UDFs read; emptied before each run.
        documents: likewise.
        lengths: of the documents.
        room: see `DryAsker`.
        chooser: decides orders as it will in the run.
        stored: see `DryAsker`.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        connection: duckdb.DuckDBPyConnection,
        objects: TemporaryObjects,
        udfs: AnswerUDFs,
        answers: QueryAnswers,
        documents: DocumentStore,
        lengths: DocumentLengths,
        room: int | None,
        chooser: OrderChooser,
        stored: Stored | None = None,
    ) -> None:
        self._plan = plan
        self._connection = connection
        self._relations = Relations(connection, objects)
        self._samples = SourceSamples(plan, connection, objects, self._relations)
        self._udfs = udfs
        self._answers = answers
        self._documents = documents
        self._lengths = lengths
        self._room = room
        self._chooser = chooser
        self._stored = stored

    @property
    def loads(self) -> Mapping[str, LoadForecast]:
        """By table of a load step, what is known of it."""
        return self._samples.loads

    def __enter__(self) -> DryRun:
        """Look at the sources.

        Raises:
            RunError: to evaluate what the plan reads would leave a trace.
        """
        if self._plan.traces:
            raise RunError(
                "it calls functions with effects, such as nextval, which are left to the run"
            )
        try:
            self._samples.take()
        except duckdb.Error:
            self._samples.drop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._samples.drop()

    def run(self, selectivities: Mapping[int, float]) -> DryResult:
        """Run all steps once, calls being TRUE for given shares of what they are asked."""
        self._answers.clear()
        asker = DryAsker(self._answers, self._lengths, selectivities, self._room, self._stored)
        steps = StepRunner(self._plan.calls, self._relations, self._udfs, asker, self._documents)
        once = _Once(self._plan, self._samples, steps, asker, self._chooser)
        for step in self._plan.steps:
            once.step(step)
        unknown = self._on_demand(steps, once)
        asker.finish()
        once.mark_copies()
        return DryResult(asker.asked, asker.peak, unknown, tuple(once.decisions))

    def _on_demand(self, steps: StepRunner, once: _Once) -> dict[int, str]:
        """Let the final statement look for what runs on demand, where that changes nothing."""
        plan = self._plan
        late = [index for index, why in plan.on_demand.items() if why != UNREAD]
        query = plan.rehearsal if plan.effects else plan.final
        if not late:
            return {}
        if query is None:
            return dict.fromkeys(late, "the statement changes rows, and is tried only when it runs")
        if in_transaction(self._connection):
            # A mistake in a row would end the user's transaction.
            return dict.fromkeys(late, "a transaction is open")
        try:
            with interrupted_after(self._connection, SECONDS_ON_DEMAND):
                steps.complete(partial(self._relations.drain, query))
        except duckdb.InterruptException:
            return dict.fromkeys(late, "DuckDB did not find its rows in the time of an estimate")
        once.scale_late(plan.sources)
        return {}


class _Once:
    """One run over the samples: what each call asks, scaled to all rows."""

    def __init__(
        self,
        plan: PhysicalPlan,
        samples: SourceSamples,
        steps: StepRunner,
        asker: DryAsker,
        chooser: OrderChooser,
    ) -> None:
        self._plan = plan
        self._samples = samples
        self._steps = steps
        self._asker = asker
        self._chooser = chooser
        # What LIMIT lets through is as many rows of a sample as of the whole.
        self._whole = set[str]()
        self.decisions: list[Decision] = []

    def step(self, step: Step) -> None:
        if isinstance(step, Load):
            self._steps.load(self._samples.of(step))
        elif isinstance(step, Pipeline):
            pipeline = PipelineRunner(step, self._steps, self._asker, self._chooser)
            pipeline.run()
            self.decisions += pipeline.decisions
            for ask in step.asks:
                self._scale(ask)
            self._limit(step, pipeline.found)
        elif isinstance(step, Ask):
            for _ in self._steps.ask(step):
                pass
            self._scale(step)
        elif isinstance(step, Prune):
            self._steps.prune(step)
            # Calls that pick the rows are asked of all of them.
            self.scale_late(step.sources)
            self._whole.add(step.table)

    def scale_late(self, tables: Iterable[str]) -> None:
        """Scale what a query over samples of some tables asked on demand, once."""
        scale = self._samples.scale(table for table in tables if table not in self._whole)
        for index in self._plan.on_demand:
            asked = self._asker.asked.get(index)
            if asked is not None and asked.scale == 1.0:
                asked.scale = asked.prefix_scale = scale

    def mark_copies(self) -> None:
        """Count the calls that may ask each other's prompts, where answers say which do."""
        plan = self._plan
        names = [name for call in plan.calls for name in (call.row_udf, call.text_udf)]
        late = set(plan.on_demand)
        late |= {a.call for a in plan.asks() if any(name in a.demand for name in names)}
        for index, asked in self._asker.asked.items():
            question = plan.calls[index].question
            alike = [call for call in plan.calls if call.question == question]
            if any(call.index in late for call in alike):
                asked.copies = len({call.same_as for call in alike})

    def _scale(self, ask: Ask) -> None:
        asked = self._asker.asked.get(ask.call)
        if asked is None:
            return
        columns = (c for c in dict.fromkeys(ask.documents) if c.table not in self._whole)
        asked.scale = math.prod(self._samples.document_scale(column) for column in columns)
        anchor = ask.anchor_documents
        if anchor is not None and anchor.table not in self._whole:
            asked.prefix_scale = self._samples.document_scale(anchor)

    def _limit(self, step: Pipeline, found: int) -> None:
        """Of a pipeline that LIMIT ends, having found so many rows in the sample."""
        tables = [relation.table for relation in step.graph.relations]
        if step.needed is None or step.found is None or self._samples.scale(tables) <= 1.0:
            return
        # Enough in the sample: no more is asked. Else as much more as is lacking.
        lacking = max(step.needed / found, 1.0) if found else math.inf
        for ask in step.asks:
            asked = self._asker.asked.get(ask.call)
            if asked is not None:
                asked.scale = min(asked.scale, lacking)
                asked.prefix_scale = min(asked.prefix_scale, lacking)
                asked.limited = True
