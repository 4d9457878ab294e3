"""What the conditions of a pipeline ask of the model, in the numbers that orders are priced by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from covey.estimate.cost import Lengths
from covey.estimate.profile import Measure
from covey.execution.ordering.facts import PipelineFacts
from covey.logical.calls import AICall
from covey.plan.nodes import Ask, DocumentColumn, Operator, Pipeline


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
    """The costs of the conditions of a pipeline.

    Args:
        facts: of the pipeline.
        calls: of the statement.
        measure: counts tokens.
    """
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
