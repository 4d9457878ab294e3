"""Run a plan over a sample of its rows, with answers that are drawn: what would be asked?"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import duckdb

from covey.errors import RunError
from covey.estimate.forecast import DryResult, LoadForecast
from covey.estimate.lengths import LengthBook
from covey.execution.answers import QueryAnswers
from covey.execution.bridge import Relations
from covey.execution.dry import DryAsker, Stored
from covey.execution.pipeline import PipelineRunner
from covey.execution.steps import StepRunner
from covey.execution.udf import AnswerUDFs
from covey.plan.choice import Chooser, Decision
from covey.plan.nodes import (
    UNREAD,
    Ask,
    DocumentColumn,
    Load,
    PhysicalPlan,
    Pipeline,
    Prune,
    Step,
)
from covey.prompts.documents import DocumentStore
from covey.sql.bind import in_transaction
from covey.sql.temporary import TemporaryObjects
from covey.sql.text import quote_name

# Rows of a source that a dry run takes, and pairs that its sources may make together.
SAMPLE_ROWS = 2000
SAMPLE_PAIRS = 200_000
SAMPLE_PAIRS_OF_LIMIT = 20_000
# As long as another source can be cut, so many rows of each are taken.
MIN_SAMPLE = 100
# Seconds that DuckDB may take to find the rows of calls that run on demand.
SECONDS_ON_DEMAND = 0.7
# Seconds after which the sources are not looked at any longer.
SECONDS_TO_SAMPLE = 20.0


class DryRun:
    """Runs one plan any number of times; nothing is asked and nothing changed.

    Use it as a context: it owns the tables of its samples.

    Args:
        plan: what would run; its tables are filled with samples.
        connection: where the plan was made.
        objects: what was made there for it.
        lookups: registered there for its calls.
        answers: those the look-ups read; emptied before each run.
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
        lookups: AnswerUDFs,
        answers: QueryAnswers,
        documents: DocumentStore,
        lengths: LengthBook,
        room: int | None,
        chooser: Chooser | None = None,
        stored: Stored | None = None,
    ) -> None:
        self._stored = stored
        self._chooser = chooser
        self._decisions: list[Decision] = []
        self._plan = plan
        self._connection = connection
        self._objects = objects
        self._relations = Relations(connection, objects)
        self._lookups = lookups
        self._answers = answers
        self._documents = documents
        self._lengths = lengths
        self._room = room
        self._scales: dict[DocumentColumn, float] = {}
        self._table_scales: dict[str, float] = {}
        self._samples: dict[str, str] = {}
        self.loads: dict[str, LoadForecast] = {}

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
            self._take_samples()
        except duckdb.Error:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the samples."""
        for sample in self._samples.values():
            with suppress(duckdb.Error):
                self._objects.drop(sample)

    def run(self, rates: Mapping[int, float]) -> DryResult:
        """Run all steps once, calls being TRUE at given rates."""
        self._answers.clear()
        self._decisions = []
        asker = DryAsker(self._answers, self._lengths, rates, self._room, self._stored)
        steps = StepRunner(self._plan.calls, self._relations, self._lookups, asker, self._documents)
        whole = set[str]()
        for step in self._plan.steps:
            self._step(step, steps, asker, whole)
        unknown = self._on_demand(steps, asker, whole)
        asker.finish()
        self._mark_copies(asker)
        return DryResult(asker.tallies, asker.peak, unknown, tuple(self._decisions))

    def _step(self, step: Step, steps: StepRunner, asker: DryAsker, whole: set[str]) -> None:
        if isinstance(step, Load):
            sample = self._samples.get(step.table)
            query = step.query if sample is None else f"SELECT * FROM {sample}"
            steps.load(replace(step, query=query))
        elif isinstance(step, Pipeline):
            pipeline = PipelineRunner(step, steps, asker, self._chooser)
            pipeline.run()
            self._decisions += pipeline.decisions
            for ask in step.asks:
                self._scale(ask, asker, whole)
            self._limit(step, pipeline.found, asker)
        elif isinstance(step, Ask):
            for _ in steps.ask(step):
                pass
            self._scale(step, asker, whole)
        elif isinstance(step, Prune):
            steps.prune(step)
            # Calls that pick the rows are asked of all of them.
            self._scale_late(step.query, asker, whole)
            # What LIMIT lets through is as many rows of a sample as of the whole.
            whole.add(step.table)

    def _limit(self, step: Pipeline, found: int, asker: DryAsker) -> None:
        """Of a pipeline that LIMIT ends, having found so many rows in the sample."""
        tables = [relation.table for relation in step.rows.relations]
        if step.needed is None or step.found is None:
            return
        if all(self._table_scales.get(table, 1.0) <= 1.0 for table in tables):
            return
        # Enough in the sample: no more is asked. Else as much more as is lacking.
        lacking = max(step.needed / found, 1.0) if found else math.inf
        for ask in step.asks:
            tally = asker.tallies.get(ask.call)
            if tally is not None:
                tally.scale = min(tally.scale, lacking)
                tally.prefix_scale = min(tally.prefix_scale, lacking)
                tally.limited = True

    def _scale(self, ask: Ask, asker: DryAsker, whole: set[str]) -> None:
        tally = asker.tallies.get(ask.call)
        if tally is None:
            return
        tally.scale = 1.0
        for column in dict.fromkeys(ask.documents):
            tally.scale *= 1.0 if column.table in whole else self._column_scale(column)
        anchor = ask.anchor_documents
        if anchor is not None and anchor.table not in whole:
            tally.prefix_scale = self._column_scale(anchor)

    def _mark_copies(self, asker: DryAsker) -> None:
        """Count the calls that may ask each other's prompts, where answers say which do."""
        plan = self._plan
        names = [name for call in plan.calls for name in (call.row_lookup, call.text_lookup)]
        late = set(plan.on_demand)
        late |= {a.call for a in plan.asks() if any(name in a.demand for name in names)}
        for index, tally in asker.tallies.items():
            question = plan.calls[index].question
            alike = [call for call in plan.calls if call.question == question]
            if any(call.index in late for call in alike):
                tally.copies = len({call.same_as for call in alike})

    def _take_samples(self) -> None:
        with _limited(self._connection, SECONDS_TO_SAMPLE):
            self._count_and_sample()

    def _count_and_sample(self) -> None:
        loads = [step for step in self._plan.steps if isinstance(step, Load)]
        counts: dict[str, int] = {}
        for load in loads:
            # Others depend on answers, or on a table that is not filled yet.
            if not load.calls and not load.sources:
                counts[load.table] = self._number(f"SELECT count(*) FROM ({load.query})")
        sizes = sample_sizes(counts, self._pairs())
        for load in loads:
            rows = counts.get(load.table)
            if rows is None:
                self.loads[load.table] = LoadForecast(None)
                self._table_scales[load.table] = self._scale_of(load.sources)
                continue
            taken = sizes[load.table]
            self.loads[load.table] = LoadForecast(rows, taken if taken < rows else None)
            self._table_scales[load.table] = rows / taken if taken else 1.0
            if taken < rows:
                self._sample(load, taken)

    def _pairs(self) -> int:
        """Pairs to look at: under a LIMIT each is looked at many times over."""
        limited = any(isinstance(s, Pipeline) and s.needed is not None for s in self._plan.steps)
        return SAMPLE_PAIRS_OF_LIMIT if limited else SAMPLE_PAIRS

    def _sample(self, load: Load, taken: int) -> None:
        sample = self._samples[load.table] = self._objects.new_name("sample")
        self._objects.create_table(
            sample,
            f"AS SELECT * FROM ({load.query}) USING SAMPLE reservoir({taken} ROWS) REPEATABLE (1)",
        )

    def _scale_of(self, tables: Set[str]) -> float:
        """How many times the rows that a query over samples of some tables gives stand for."""
        scale = 1.0
        for table in tables:
            scale *= self._table_scales.get(table, 1.0)
        return scale

    def _column_scale(self, column: DocumentColumn) -> float:
        """Distinct documents of a column in all rows, for one in the sample."""
        known = self._scales.get(column)
        if known is not None:
            return known
        sample = self._samples.get(column.table)
        scale = self._table_scales.get(column.table, 1.0)
        if sample is not None:
            load = next(
                s for s in self._plan.steps if isinstance(s, Load) and s.table == column.table
            )
            alias = quote_name(column.alias)
            text = self._relations.measured(column)
            distinct = f"SELECT count(DISTINCT hash({text})) FROM "
            here = self._number(f"{distinct} {sample} AS {alias}")
            everywhere = self._number(f"{distinct} ({load.query}) AS {alias}")
            scale = everywhere / here if here else scale
        self._scales[column] = scale
        return scale

    def _number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchall()[0][0])

    def _on_demand(self, steps: StepRunner, asker: DryAsker, whole: set[str]) -> dict[int, str]:
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
            with _limited(self._connection, SECONDS_ON_DEMAND):
                steps.complete(partial(self._relations.drain, query))
        except duckdb.InterruptException:
            return dict.fromkeys(late, "DuckDB did not find its rows in the time of an estimate")
        self._scale_late(query, asker, whole)
        return {}

    def _scale_late(self, query: str, asker: DryAsker, whole: set[str]) -> None:
        """Scale what a query over samples asked on demand, once."""
        read = {table for table in self._table_scales if re.search(rf"\b{table}\b", query)}
        scale = self._scale_of(read - whole)
        for index in self._plan.on_demand:
            tally = asker.tallies.get(index)
            if tally is not None and tally.scale == 1.0:
                tally.scale = tally.prefix_scale = scale


@contextmanager
def _limited(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """Interrupt DuckDB where it works longer than some time."""
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # one that rings now must not meet the next query


def sample_sizes(counts: Mapping[str, int], pairs: int = SAMPLE_PAIRS) -> dict[str, int]:
    """Rows to take of each source, so that all their pairs together are not too many.

    The largest source is cut first: a row of it then finds the partners that it has.

    Args:
        counts: rows by table.
        pairs: the most that they may make.
    """
    sizes = {table: min(count, SAMPLE_ROWS) for table, count in counts.items()}
    largest = sorted(counts, key=lambda table: -counts[table])
    for least in (MIN_SAMPLE, 1):
        for table in largest:
            while len(sizes) > 1 and _product(sizes) > pairs and sizes[table] > least:
                sizes[table] = max(sizes[table] // 2, least)
    return sizes


def _product(sizes: Mapping[str, int]) -> int:
    return math.prod(max(size, 1) for size in sizes.values())
