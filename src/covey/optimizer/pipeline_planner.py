"""Plan the calls of a block as a pipeline, whose batches pass from one operator to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from covey.logical.calls import AICall, Reading
from covey.logical.query_blocks import Expr, Kind
from covey.optimizer.block_rows import BlockRows
from covey.optimizer.demand import Demand, locate
from covey.optimizer.limit import enough_rows, reject_unanswered
from covey.optimizer.result_rows import shown_once
from covey.optimizer.workspace import LoadedSource
from covey.plan.join_graph import Condition, JoinGraph, Relation, Target
from covey.plan.nodes import Ask, Operator, Pipeline, Step
from covey.sql.from_clause import NotPlanned


class PipelinePlanner:
    """The operators of one block, opened before its calls are asked and closed behind them.

    Only where all joins of the block are inner: elsewhere a row may need partners of
    every batch. The batches are cut along the source that gives most anchors, since
    their keys and values are what a batch keeps.

    Args:
        rows: the block, its sources loaded.

    Attributes:
        operators: of the conditions so far, in order.
    """

    def __init__(self, rows: BlockRows) -> None:
        self._rows = rows
        self._first = self._taken = len(rows.work.steps)
        self.operators: list[Operator] = []
        self._sources = list(rows.loaded)
        self._needed = enough_rows(rows)
        self._prefix = rows.work.with_clause(rows.block)
        self._conditions: dict[tuple[str, tuple[int, ...]], Condition] = {}
        self._bound: set[Condition] = set()
        self._free = [self._condition(text) for text in rows.conditions()]

    @property
    def decided(self) -> list[Condition]:
        """The conditions that operators decide."""
        return [operator.passes for operator in self.operators if operator.passes is not None]

    @property
    def graph(self) -> JoinGraph:
        """The sources, and what needs no model."""
        relations = tuple(Relation(s.load.table, s.alias) for s in self._sources)
        return JoinGraph(self._prefix, relations, len(self._rows.loaded), tuple(self._free))

    def demand(self, texts: Sequence[str]) -> Demand:
        """The rows that pass all conditions so far, and `texts`."""
        return _PipelineDemand(self, [self._condition(text) for text in texts])

    def pairs(self, inner: BlockRows, texts: Sequence[str]) -> Demand:
        """The rows of the block with the rows of a subquery that may match them."""
        for source in inner.loaded:
            if source not in self._sources:
                self._sources.append(source)
        own = frozenset(self._sources.index(source) for source in inner.loaded)
        among = [*range(len(self._rows.loaded)), *sorted(own)]
        conditions = [self._condition(t, among) for t in (*inner.conditions(), *texts)]
        read = [self._condition(inner.render(c), among) for c in inner.block.conditions]
        touched = frozenset[int]().union(*(c.sources for c in (*conditions, *read))) - own
        decided = [s for i, s in enumerate(self._rows.loaded) if i in touched]
        return _PipelineDemand(self, conditions, own, decided or self._rows.loaded[:1])

    def output(self, texts: Sequence[str]) -> Demand:
        """The rows that pass all conditions, those on demand included, and `texts`."""
        rows = self._rows
        missing = [c for c in rows.wanted if c not in (*rows.asked, *rows.open)]
        return self.demand([*(self._rows.render(c) for c in missing), *texts])

    def add_operator(self, condition: Expr) -> None:
        """Let the asks since the last operator be one more, that of a condition.

        Raises:
            NotPlanned: the rows of the block alone do not decide it.
        """
        passes, calls = self._condition(self._rows.render(condition)), self._rows.work.calls
        hint, call = selectivity_hint(condition, calls), whole_call(condition, calls)
        self.operators.append(Operator(self._take(), passes, hint, call))

    def close(self) -> None:
        """Gather the asks since the opening into one step."""
        rows, steps = self._rows, self._rows.work.steps
        outputs = self._take()
        if outputs:
            self.operators.append(Operator(outputs, None))
        asks = tuple(ask for operator in self.operators for ask in operator.asks)
        if not asks:
            return
        others: list[Step] = [s for s in steps[self._first :] if not isinstance(s, Ask)]
        found = None
        source = rows.loaded.index(_anchor_source(rows))
        # A condition that was left to fixpoint re-execution has its answers only at the end,
        # so that no batch can tell how many rows are found.
        if self._needed is not None and len(rows.asked) == len(rows.wanted):
            found = Target(tuple(range(len(rows.loaded))))
        needed = None if found is None else self._needed
        table = rows.loaded[source].load.table
        documents = (column for ask in asks for column in ask.documents)
        column = next((each for each in documents if each.table == table), None)
        shown = None if outputs else self._shown()
        pipeline = Pipeline(tuple(self.operators), self.graph, source, column, needed, found, shown)
        steps[self._first :] = [*others, pipeline]

    def _shown(self) -> frozenset[int] | None:
        """See `Pipeline.shown`."""
        rows, work = self._rows, self._rows.work
        shown = shown_once(rows.block, work)
        if shown is None or rows.open:
            return None
        # A pair that was not asked must not pass for one that was.
        if len(rows.asked) < len(rows.wanted) or not reject_unanswered(rows.wanted, work):
            return None
        return self._needed_by(f"SELECT {shown}", range(len(rows.loaded)))

    def rows_of(
        self,
        sources: Iterable[LoadedSource],
        conditions: Sequence[Condition],
        inner: frozenset[int],
    ) -> tuple[str, Target]:
        """The rows of some sources, as a query in the order of the plan and for any order.

        Raises:
            NotPlanned: DuckDB refuses the query.
        """
        places = tuple(self._sources.index(source) for source in sources)
        target = Target(places, tuple(conditions), inner)
        self._check(target)
        return self.graph.query(target, self.decided), target

    def _check(self, target: Target) -> None:
        """Let DuckDB bind what is new in the query of a target: the rest it has bound before.

        Raises:
            NotPlanned: DuckDB refuses it.
        """
        known, graph = self._bound, self.graph
        free, decided, own = (
            tuple(c for c in conditions if c not in known)
            for conditions in (graph.conditions, self.decided, target.conditions)
        )
        new = replace(graph, conditions=free)
        query = new.query(replace(target, conditions=own), decided)
        self._rows.work.check_rows(query)
        known.update(free, decided, own)

    def _take(self) -> tuple[Ask, ...]:
        """The asks since the last operator."""
        steps = self._rows.work.steps
        first, self._taken = self._taken, len(steps)
        return tuple(step for step in steps[first:] if isinstance(step, Ask))

    def _condition(self, text: str, among: Sequence[int] | None = None) -> Condition:
        """A condition with the sources that it does not bind without.

        Raises:
            NotPlanned: it does not bind with all of them.
        """
        sources = tuple(range(len(self._rows.loaded)) if among is None else among)
        known = self._conditions.get((text, sources))
        if known is None:
            query = f"SELECT ({text})"
            needed = self._needed_by(query, sources)
            # One that binds without a source was bound just then.
            if len(needed) == len(sources) and not self._binds(query, sources):
                raise NotPlanned("its rows depend on what stands outside its block")
            known = self._conditions[text, sources] = Condition(text, needed)
        return known

    def _needed_by(self, query: str, among: Sequence[int]) -> frozenset[int]:
        """The sources that a SELECT does not bind without."""
        written = query.lower()
        named = [i for i in among if self._sources[i].source.alias.lower() in written]
        # Its columns are mostly named with their sources, of which there may be many.
        known = len(named) < len(among) - 1 and self._binds(query, named)
        needed = named if known else list(among)
        for source in tuple(needed):
            if self._binds(query, [i for i in needed if i != source]):
                needed.remove(source)
        return frozenset(needed)

    def _binds(self, query: str, among: Iterable[int]) -> bool:
        """Whether DuckDB binds a SELECT over some sources."""
        sources = [self._sources[i] for i in among]
        relations = ", ".join(f"{s.load.table} AS {s.alias}" for s in sources)
        whole = f"{self._prefix}{query}" + (f" FROM {relations}" if sources else "")
        return self._rows.work.binder.binds(whole)


class _PipelineDemand(Demand):
    """A demand that is written anew for what is decided when it is asked.

    Args:
        conditions: what must hold beside the conditions of the block.
        inner: the sources of a subquery that belong to it.
        decided: see `Demand`.
    """

    def __init__(
        self,
        pipeline: PipelinePlanner,
        conditions: Sequence[Condition],
        inner: frozenset[int] = frozenset(),
        decided: Sequence[LoadedSource] = (),
    ) -> None:
        super().__init__(pipeline._rows.work, pipeline._rows.block, "", [], decided)
        self._pipeline = pipeline
        self._conditions = conditions
        self._inner = inner

    def rows_of(self, sources: Sequence[LoadedSource]) -> tuple[str, Target | None]:
        return self._pipeline.rows_of(sources, self._conditions, self._inner)


def ask_order(expr: Expr, calls: Sequence[AICall]) -> tuple[float, ...]:
    """Sort key of a condition before anything is known of its rows.

    A condition over one document touches each row once, one over a pair touches
    every pair, so arity comes first; then the selectivity hint; then as written.
    """
    inside = [calls[i] for i in expr.calls]
    arity = max((call.question.arity for call in inside), default=0)
    hint = inside[0].options.selectivity if len(inside) == 1 else None
    return (float(arity), 1.0 if hint is None else hint, float(expr.span[0]))


def whole_call(expr: Expr, calls: Sequence[AICall]) -> int | None:
    """The AI.IF that an expression is, None where it is something else or more."""
    if len(expr.calls) != 1:
        return None
    (number,) = expr.calls
    whole = calls[number].span == expr.span and calls[number].reading is Reading.TRUTH
    return number if whole else None


def selectivity_hint(expr: Expr, calls: Sequence[AICall]) -> float | None:
    """The selectivity by the hints of the calls, taken as independent; None where one lacks."""
    if expr.kind is Kind.LEAF:
        call = whole_call(expr, calls)
        return None if call is None else calls[call].options.selectivity
    if expr.kind not in (Kind.AND, Kind.OR, Kind.NOT):
        return None
    hints = (selectivity_hint(part, calls) for part in expr.parts)
    known = [hint for hint in hints if hint is not None]
    if len(known) < len(expr.parts):
        return None
    if expr.kind is Kind.AND:
        return math.prod(known)
    failing = math.prod(1.0 - hint for hint in known)
    return failing if expr.kind is Kind.NOT else 1.0 - failing


def _anchor_source(rows: BlockRows) -> LoadedSource:
    """The source that gives the anchor of most calls; the first among equals."""
    counts = dict.fromkeys(rows.loaded, 0)
    for number in frozenset[int]().union(*(c.calls for c in rows.wanted)):
        call = rows.work.calls[number]
        if not call.arguments:
            continue
        try:
            source, _ = locate(rows.work, call.arguments[call.question.anchor], rows.loaded)
        except NotPlanned:
            continue
        counts[source] += 1
    return max(rows.loaded, key=lambda source: counts[source])
