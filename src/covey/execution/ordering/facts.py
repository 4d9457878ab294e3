"""What is known of a pipeline before its conditions are ordered: its rows, and what asks cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from covey.estimate.cost import Lengths
from covey.estimate.profile import Measure
from covey.execution.steps import StepRunner
from covey.logical.calls import AICall
from covey.plan.join_graph import Target
from covey.plan.nodes import Ask, DocumentColumn, Operator, Pipeline

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
    join_selectivity = {
        sources: _join_selectivity(pipeline, runner, rows, tuple(sorted(sources)))
        for sources in joined
        if all(rows[i] for i in sources)
    }
    return PipelineFacts(rows, texts, join_selectivity)


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


@dataclass(frozen=True, slots=True)
class AskCost:
    """What one ask costs a prompt.

    Attributes:
        prompt: what is asked of which texts; equal for asks that may share answers.
        anchor: what is computed once an anchor; equal for asks that share it, None for a
            constant prompt.
        source: of the anchor.
        sources: of all documents.
        distinct: share of the anchors' rows that differ.
        document: lengths of the anchor.
        instruction: tokens behind it, once an anchor and question.
        suffix: lengths of the rest.
        needed: share of the rows that the calls before it in its condition leave open.
    """

    prompt: object
    anchor: object
    source: int | None
    sources: frozenset[int]
    distinct: float
    document: Lengths
    instruction: float
    suffix: Lengths
    needed: float = 1.0


@dataclass(frozen=True, slots=True)
class ConditionCost:
    """A condition: the sources it needs and what it asks."""

    sources: frozenset[int]
    asks: tuple[AskCost, ...]


def condition_costs(
    pipeline: Pipeline,
    conditions: Sequence[Operator],
    facts: PipelineFacts,
    calls: Sequence[AICall],
    measure: Measure,
) -> list[ConditionCost]:
    """The costs of the conditions of a pipeline; `calls` are the statement's."""
    tables = [relation.table for relation in pipeline.graph.relations]
    # Numbers for what is compared often: prompts and anchors.
    numbers: dict[object, int] = {}

    @cache
    def length(column: DocumentColumn) -> Lengths:
        return Lengths.of(measure.documents(facts.texts[column].some))

    def number(each: object) -> int:
        return numbers.setdefault(each, len(numbers))

    def cost(ask: Ask) -> AskCost:
        question = calls[ask.call].question
        asked = measure.question(question)
        suffix = Lengths.fixed(float(asked.suffix))
        for place, column in enumerate(ask.documents):
            if place != ask.anchor:
                suffix = suffix + length(column)
        anchor = ask.anchor_documents
        if anchor is None:
            return AskCost(None, None, None, frozenset(), 1.0, suffix, 0.0, suffix)
        texts = facts.texts[anchor]
        # Columns that read alike are one: a table that is joined with itself.
        content = tuple(facts.texts[column] for column in ask.documents)
        return AskCost(
            prompt=number((question, content)),
            anchor=number(texts),
            source=tables.index(anchor.table),
            sources=frozenset(tables.index(column.table) for column in ask.documents),
            distinct=texts.distinct / texts.rows if texts.rows else 1.0,
            document=length(anchor),
            instruction=float(asked.instruction),
            suffix=suffix,
        )

    found = []
    for condition in conditions:
        asks = tuple(map(cost, condition.asks))
        own = condition.passes.sources if condition.passes is not None else frozenset[int]()
        found.append(ConditionCost(own.union(*(ask.sources for ask in asks)), asks))
    return found
