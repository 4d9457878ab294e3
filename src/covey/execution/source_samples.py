"""Samples of a plan's sources, for an estimate, and how many rows each of theirs stands for."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Self

import duckdb

from covey.errors import RunError
from covey.estimate.forecast import LoadForecast
from covey.execution.bridge import Relations
from covey.plan.nodes import DocumentColumn, Load, PhysicalPlan, Pipeline
from covey.sql.bind import in_transaction
from covey.sql.temporary import TemporaryObjects
from covey.sql.text import quote_name

# Rows of a source that a dry run takes, and pairs that its sources may make together.
SAMPLE_ROWS = 2000
SAMPLE_PAIRS = 200_000
SAMPLE_PAIRS_OF_LIMIT = 20_000
# As long as another source can be cut, so many rows of each are taken.
MIN_SAMPLE = 100
# Seconds after which the sources are not looked at any longer.
SECONDS_TO_SAMPLE = 20.0


class SourceSamples:
    """The samples of one plan's sources; a context, which owns their tables.

    Args:
        plan: whose load steps name the sources.
        connection: where the plan was made.
        objects: what was made there for it.

    Attributes:
        relations: runs the plan's queries.
        loads: by table of a load step, what is known of it.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        connection: duckdb.DuckDBPyConnection,
        objects: TemporaryObjects,
    ) -> None:
        self._plan = plan
        self._loads = {step.table: step for step in plan.steps if isinstance(step, Load)}
        # Under a LIMIT each pair is looked at many times over.
        limited = any(isinstance(s, Pipeline) and s.needed is not None for s in plan.steps)
        self._pairs = SAMPLE_PAIRS_OF_LIMIT if limited else SAMPLE_PAIRS
        self._connection = connection
        self._objects = objects
        self._samples: dict[str, str] = {}
        self._scales: dict[str, float] = {}
        self._document_scales: dict[DocumentColumn, float] = {}
        self.relations = Relations(connection, objects)
        self.loads: dict[str, LoadForecast] = {}

    def __enter__(self) -> Self:
        """Count the sources and sample the large ones.

        Raises:
            RunError: to evaluate what the plan reads would leave a trace.
            duckdb.Error: a source cannot be read, or not in `SECONDS_TO_SAMPLE`.
        """
        if self._plan.traces:
            raise RunError(
                "it calls functions with effects, such as nextval, which are left to the run"
            )
        try:
            self._take()
        except duckdb.Error:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for sample in self._samples.values():
            with suppress(duckdb.Error):
                self._objects.drop(sample)

    def _take(self) -> None:
        with self.interrupted_after(SECONDS_TO_SAMPLE):
            # Other sources depend on answers, or on a table that is not filled yet.
            counts = {
                load.table: self._number(f"SELECT count(*) FROM ({load.query})")
                for load in self._loads.values()
                if not load.calls and not load.sources
            }
            sizes = sample_sizes(counts, self._pairs)
            for table, load in self._loads.items():
                rows, taken = counts.get(table), sizes.get(table)
                if rows is None or taken is None:
                    self.loads[table] = LoadForecast(None)
                    self._scales[table] = self.scale(load.sources)
                    continue
                self.loads[table] = LoadForecast(rows, taken if taken < rows else None)
                self._scales[table] = rows / taken if taken else 1.0
                if taken < rows:
                    self._sample(load, taken)

    def of(self, load: Load) -> Load:
        """The step that fills a source's table with its sample, or with all there is."""
        sample = self._samples.get(load.table)
        return load if sample is None else replace(load, query=f"SELECT * FROM {sample}")

    def scale(self, tables: Iterable[str]) -> float:
        """How many rows each stands for that a query over samples of some tables gives."""
        return math.prod(self._scales.get(table, 1.0) for table in tables)

    def document_scale(self, column: DocumentColumn) -> float:
        """Distinct documents of a column in all rows, for one in the sample."""
        if column not in self._document_scales:
            self._document_scales[column] = self._document_scale(column)
        return self._document_scales[column]

    @property
    def in_transaction(self) -> bool:
        return in_transaction(self._connection)

    @contextmanager
    def interrupted_after(self, seconds: float) -> Iterator[None]:
        """Interrupt DuckDB where it works longer than some time."""
        timer = threading.Timer(seconds, self._connection.interrupt)
        try:
            timer.start()
            yield
        finally:
            timer.cancel()
            if timer.ident is not None:
                timer.join()  # one that rings now must not meet the next query

    def _document_scale(self, column: DocumentColumn) -> float:
        scale = self.scale([column.table])
        sample = self._samples.get(column.table)
        if sample is None:
            return scale
        alias = quote_name(column.alias)
        distinct = f"SELECT count(DISTINCT hash({self.relations.measured(column)})) FROM "
        here = self._number(f"{distinct} {sample} AS {alias}")
        everywhere = self._number(f"{distinct} ({self._loads[column.table].query}) AS {alias}")
        return everywhere / here if here else scale

    def _sample(self, load: Load, taken: int) -> None:
        sample = self._samples[load.table] = self._objects.new_name("sample")
        self._objects.create_table(
            sample,
            f"AS SELECT * FROM ({load.query}) USING SAMPLE reservoir({taken} ROWS) REPEATABLE (1)",
        )

    def _number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchall()[0][0])


def sample_sizes(counts: Mapping[str, int], pairs: int = SAMPLE_PAIRS) -> dict[str, int]:
    """Rows to take of each source, so that all their pairs together are not too many.

    The largest source is cut first: a row of it then finds the partners that it has.

    Args:
        counts: rows by table.
        pairs: the most that they may make.
    """
    sizes = {table: min(max(count, 1), SAMPLE_ROWS) for table, count in counts.items()}
    largest = sorted(counts, key=lambda table: -counts[table])
    for least in (MIN_SAMPLE, 1):
        for table in largest:
            while len(sizes) > 1 and math.prod(sizes.values()) > pairs and sizes[table] > least:
                sizes[table] = max(sizes[table] // 2, least)
    return {table: min(size, counts[table]) for table, size in sizes.items()}
