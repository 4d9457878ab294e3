"""The physical plan: data only, shared by the optimizer, execution and explain.

A plan is a list of steps and one final statement. Steps load sources and ask the
model ahead of time, in bulk; the final statement, run until none of its UDFs
lacks an answer, is what makes the result exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from covey.logical.calls import AICall
from covey.plan.join_graph import Condition, JoinGraph, Target

# Why a call runs on demand that stands in a CTE which no query reads: it is never asked.
UNREAD = "nothing reads it"


@dataclass(frozen=True, slots=True)
class Load:
    """Copy an entry of FROM, less the rows that no model is needed to reject.

    Attributes:
        table: name of the temporary table; created empty when the plan is made.
        alias: the name of the entry in the user's text.
        query: fills the table.
        pushed: conditions applied while loading, as the user wrote them.
        sources: tables of other load steps that `query` reads.
        calls: indices of the calls whose answers `query` looks up.
    """

    table: str
    alias: str
    query: str
    pushed: tuple[str, ...] = ()
    sources: frozenset[str] = frozenset()
    calls: frozenset[int] = frozenset()


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
class Stop:
    """When a row needs no more partners: EXISTS is decided by the first that matches.

    Attributes:
        keys: the first `keys` columns of the demand name the row that is decided.
        decided: query for the rows that are, in the same columns.
        target: in a `Pipeline`, the rows that are, once its condition is among the decided.
    """

    keys: int
    decided: str
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Put the rows that need it through the model, one call of the text.

    Attributes:
        call: index of the call.
        udf: index of the call whose UDF over row ids stands in its place; calls
            written alike share one.
        documents: where each argument's documents come from.
        keys: for each argument, the column of `demand` that holds its row id.
        demand: query whose columns are row ids of the loaded sources, distinct.
        condition: the call as the user wrote it.
        anchor: which argument comes first in the prompt.
        stop: when the partners of a row need not all be asked.
        target: in a `Pipeline`, the rows that need it, whatever was decided before.
    """

    call: int
    udf: int
    documents: tuple[DocumentColumn, ...]
    keys: tuple[int, ...]
    demand: str
    condition: str
    anchor: int = 0
    stop: Stop | None = None
    target: Target | None = None

    @property
    def anchor_documents(self) -> DocumentColumn | None:
        """The documents that come first in the prompts; None for a constant prompt."""
        return self.documents[self.anchor] if self.documents else None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a pipeline: a condition that needs the model, or an output.

    Attributes:
        asks: in order; the later ones depend on the answers to the others.
        passes: the condition, once its calls are answered; None of an output.
        selectivity: the user's hint, None where there is none.
        call: the AI.IF that is the whole condition, None where it is something else.
    """

    asks: tuple[Ask, ...]
    passes: Condition | None
    selectivity: float | None = None
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Ask several calls batch by batch, so that a batch passes from one to the next.

    The keys and values of a batch's documents stay with the model meanwhile, and where
    LIMIT has enough rows the rest is never asked. Operators that are conditions may be taken
    in any order: demands are written anew from `graph` for what is decided by then.

    Attributes:
        operators: conditions in the order of the plan, then outputs.
        graph: the sources, and what needs no model.
        source: the one that is cut into batches, as a position in `graph.relations`.
        column: the documents whose length counts; None where all rows are one batch.
        needed: rows that are enough, LIMIT plus OFFSET; None for all.
        found: the rows of the result, of which `needed` are counted in each batch; None where
            they are known only at the end.
        shown: the sources whose rows a DISTINCT shows: one match with the others is as
            good as many. None where every match counts.
    """

    operators: tuple[Operator, ...]
    graph: JoinGraph
    source: int
    column: DocumentColumn | None
    needed: int | None = None
    found: Target | None = None
    shown: frozenset[int] | None = None

    @property
    def table(self) -> str:
        """The loaded source that is cut into batches."""
        return self.graph.relations[self.source].table

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The asks of all operators, in order."""
        return tuple(ask for operator in self.operators for ask in operator.asks)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of the operators that are one."""
        return tuple(o.passes for o in self.operators if o.passes is not None)

    def row_by_row(self, ask: Ask) -> bool:
        """Whether one document decides what a row is answered, so that rows can go on alone."""
        return (
            self.found is None
            and ask.stop is None
            and len(ask.documents) == 1
            and ask.documents[0].table == self.table
        )


@dataclass(frozen=True, slots=True)
class Prune:
    """Drop the rows of a loaded source that LIMIT keeps out of the result.

    Attributes:
        table: the source.
        query: the row ids that stay.
        sources: tables of load steps that `query` reads.
    """

    table: str
    query: str
    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class Match:
    """Gather the pairs of rows that an AI.IF is TRUE for, so that the final statement joins them.

    Beside other joins DuckDB would look the call up once for each row that these make, which
    are as many as the rows of the result, and not once for each pair.

    Attributes:
        table: name of the temporary table with the row ids of either source; created empty
            when the plan is made.
        query: fills it, each pair once.
        condition: the call as the user wrote it.
    """

    table: str
    query: str
    condition: str


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """A statement that is confined to a stretch of rows.

    Attributes:
        before, after: its text around the condition that confines it.
        row_id: of the source whose rows they are.
    """

    before: str
    row_id: str
    after: str

    def query(self, first: int, last: int) -> str:
        """The statement for the rows with ids from `first` to `last`."""
        return f"{self.before}{self.row_id} BETWEEN {first} AND {last}{self.after}"


Step = Load | Ask | Pipeline | Prune | Match


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
            COPY …), without what leaves `traces`: it is run until every answer is there.
        on_demand: calls that run by fixpoint re-execution, with the reason.
        sources: tables of load steps that `final` reads.
        draws: whether `final` may give other rows each time it runs.
        traces: whether to evaluate something in the text leaves a trace: a sequence moves on.
        piece: `final` confined to some rows of the last pipeline's source; the result is such
            pieces one behind the other. None where it is not.
    """

    sql: str
    calls: list[AICall]
    steps: list[Step]
    final: str
    effects: bool = False
    rehearsal: str | None = None
    on_demand: dict[int, str] = field(default_factory=dict)
    sources: frozenset[str] = frozenset()
    draws: bool = False
    traces: bool = False
    piece: RangeQuery | None = None

    def asks(self) -> Iterator[Ask]:
        """Every ask, those inside other steps included."""
        for step in self.steps:
            if isinstance(step, Ask):
                yield step
            elif isinstance(step, Pipeline):
                yield from step.asks
