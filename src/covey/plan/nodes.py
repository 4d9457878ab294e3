"""The physical plan: data only, shared by the optimizer, execution and explain.

A plan is a list of steps and one final statement. Steps load sources and ask the
model ahead of time, in bulk; the final statement, run until none of its look-ups
lacks an answer, is what makes the result exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from covey.logical.calls import AICall


@dataclass(frozen=True, slots=True)
class Load:
    """Copy an entry of FROM, less the rows that no model is needed to reject.

    Attributes:
        table: name of the temporary table; created empty when the plan is made.
        alias: the name of the entry in the user's text.
        query: fills the table.
        pushed: conditions applied while loading, as the user wrote them.
    """

    table: str
    alias: str
    query: str
    pushed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentColumn:
    """The documents of one argument: a text expression over the rows of one table.

    Attributes:
        table, alias: the loaded source, and the name `expression` knows it by.
        expression: SQL of type VARCHAR.
    """

    table: str
    alias: str
    expression: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Put the rows that need it through the model, one call of the text.

    Attributes:
        call: index of the call.
        documents: where each argument's documents come from.
        keys: for each argument, the column of `demand` that holds its row id.
        demand: query whose columns are row ids of the loaded sources, distinct.
        condition: the call as the user wrote it.
    """

    call: int
    documents: tuple[DocumentColumn, ...]
    keys: tuple[int, ...]
    demand: str
    condition: str


Step = Load | Ask


@dataclass(slots=True)
class PhysicalPlan:
    """What will run.

    Attributes:
        sql: the user's text.
        calls: its AI calls.
        steps: in the order in which they run.
        final: the statement that gives the result.
        effects: whether `final` changes something.
        rehearsal: the query inside `final` where `final` has effects (CREATE, INSERT,
            COPY …): it is run in its place until every answer is there.
        on_demand: calls that run by demand iteration, with the reason.
    """

    sql: str
    calls: list[AICall]
    steps: list[Step]
    final: str
    effects: bool = False
    rehearsal: str | None = None
    on_demand: dict[int, str] = field(default_factory=dict)

    @property
    def asks(self) -> dict[int, Ask]:
        """The planned calls."""
        return {step.call: step for step in self.steps if isinstance(step, Ask)}
