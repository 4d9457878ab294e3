"""What DuckDB tells of a pipeline before its conditions are ordered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from covey.execution.steps import StepRunner
from covey.plan.join_graph import Target
from covey.plan.nodes import DocumentColumn, Pipeline

# Texts of a column that are measured.
MEASURED = 256
# Combinations of rows of which those that conditions let through are counted.
COUNTED = 50_000_000
# Every run draws the same rows.
SEED = 0


@dataclass(frozen=True, slots=True)
class Texts:
    """What is known of the documents of a column.

    Attributes:
        rows: rows of its source that have one.
        distinct: different documents among them.
        some: a few of them, to be measured.
    """

    rows: int
    distinct: int
    some: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """What is known of a pipeline once its sources are loaded.

    Attributes:
        rows: rows of each source.
        texts: by column of documents.
        join_selectivity: by sources, the share of their combinations that conditions without a
            model let through; 1 where it is missing.
    """

    rows: tuple[int, ...]
    texts: Mapping[DocumentColumn, Texts]
    join_selectivity: Mapping[frozenset[int], float]


def pipeline_facts(pipeline: Pipeline, runner: StepRunner) -> PipelineFacts:
    """What DuckDB knows of a pipeline whose sources are loaded."""
    rows = tuple(runner.rows_of(relation.table) for relation in pipeline.graph.relations)
    columns = dict.fromkeys(column for ask in pipeline.asks for column in ask.documents)
    texts = {column: _texts(column, runner) for column in columns}
    joined = {c.sources for c in pipeline.graph.conditions if len(c.sources) > 1}
    return PipelineFacts(
        rows,
        texts,
        {
            sources: _join_selectivity(pipeline, runner, rows, tuple(sorted(sources)))
            for sources in joined
            if all(rows[i] for i in sources)
        },
    )


def _join_selectivity(
    pipeline: Pipeline, runner: StepRunner, rows: tuple[int, ...], sources: tuple[int, ...]
) -> float:
    """The share of combinations that pass, by some rows of one source where there are many."""
    first, others = rows[sources[0]], math.prod(rows[i] for i in sources[1:])
    taken = min(first, max(COUNTED // others, 1))
    batch = None
    if taken < first:
        drawn = np.sort(np.random.default_rng(SEED).permutation(first)[:taken])
        batch = runner.relations.batch(sources[0], drawn)
    query = pipeline.graph.query(Target(sources), (), batch)
    return runner.count(f"SELECT count(*) FROM ({query})") / (taken * others)


def _texts(column: DocumentColumn, runner: StepRunner) -> Texts:
    rows, distinct = runner.relations.count_texts(column)
    chosen = np.random.default_rng(SEED).permutation(runner.rows_of(column.table))[:MEASURED]
    some = runner.relations.texts(column, np.sort(chosen)).drop_null()
    return Texts(rows, distinct, tuple(map(str, some.to_pylist())))
