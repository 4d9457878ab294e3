"""Run a plan over samples of its sources, with answers that are drawn: what would be asked?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import duckdb

from covey.estimate.dry_result import DryResult
from covey.execution.dry_asker import DryAsker
from covey.execution.ordering.chooser import OrderChooser
from covey.execution.pipeline import PipelineRunner
from covey.execution.source_samples import SourceSamples
from covey.execution.steps import StepRunner
from covey.plan.decisions import Decision
from covey.plan.nodes import UNREAD, Ask, Load, PhysicalPlan, Pipeline, Prune, Step

# Seconds that DuckDB may take to find the rows of calls that run on demand.
SECONDS_ON_DEMAND = 0.7


class DryRun:
    """One run of a plan: what each call asks, scaled to all rows; nothing is changed.

    Args:
        plan: what would run; its tables are filled with samples.
        samples: of its sources.
        steps: runs its steps.
        asker: whom these ask.
        chooser: decides orders as it will in the run.
    """

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
        self._decisions: list[Decision] = []

    def run(self) -> DryResult:
        """Run all steps, once."""
        for step in self._plan.steps:
            self._step(step)
        unknown = self._on_demand()
        self._asker.finish()
        self._mark_copies()
        return DryResult(self._asker.asked, self._asker.peak, unknown, tuple(self._decisions))

    def _step(self, step: Step) -> None:
        if isinstance(step, Load):
            self._steps.load(self._samples.of(step))
        elif isinstance(step, Pipeline):
            pipeline = PipelineRunner(step, self._steps, self._asker, self._chooser)
            pipeline.run()
            self._decisions += pipeline.decisions
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
            self._scale_late(step.sources)
            self._whole.add(step.table)

    def _on_demand(self) -> dict[int, str]:
        """Let the final statement look for what runs on demand, where that changes nothing."""
        plan = self._plan
        late = [index for index, why in plan.on_demand.items() if why != UNREAD]
        query = plan.rehearsal if plan.effects else plan.final
        if not late:
            return {}
        if query is None:
            return dict.fromkeys(late, "the statement changes rows, and is tried only when it runs")
        if self._samples.in_transaction:
            # A mistake in a row would end the user's transaction.
            return dict.fromkeys(late, "a transaction is open")
        try:
            with self._samples.interrupted_after(SECONDS_ON_DEMAND):
                self._steps.complete(partial(self._samples.relations.drain, query))
        except duckdb.InterruptException:
            return dict.fromkeys(late, "DuckDB did not find its rows in the time of an estimate")
        self._scale_late(plan.sources)
        return {}

    def _scale_late(self, tables: Iterable[str]) -> None:
        """Scale what a query over samples of some tables asked on demand, once."""
        scale = self._samples.scale(table for table in tables if table not in self._whole)
        for index in self._plan.on_demand:
            asked = self._asker.asked.get(index)
            if asked is not None and asked.scale == 1.0:
                asked.scale = asked.prefix_scale = scale

    def _mark_copies(self) -> None:
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
