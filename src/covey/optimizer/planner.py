"""Turn a lifted text into a physical plan.

For each block with AI calls in its WHERE (or in the ON of an inner join) the entries
of FROM are loaded into temporary tables, less what conditions without a model reject;
the calls are then keyed by row ids instead of texts and asked in bulk, cheapest
condition first, each only for the rows that the conditions before it let through.
Whatever does not fit that form keeps its look-up over texts and runs by demand
iteration. Every generated query is bound before it is used: one that DuckDB refuses
(a correlated block, say) sends its block to demand iteration too.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from covey.errors import QueryError
from covey.logical.blocks import Block, Expr, Kind, Source
from covey.logical.calls import AICall
from covey.optimizer.order import ask_order
from covey.plan.nodes import Ask, DocumentColumn, Load, PhysicalPlan, Step
from covey.sql.guards import Context, Guards
from covey.sql.hints import with_column_hint
from covey.sql.lift import LiftedText
from covey.sql.structure import NotPlanned, find_blocks, is_query, query_span
from covey.sql.text import Span, quote_name


def make_plan(lifted: LiftedText, table_names: itertools.count[int]) -> PhysicalPlan:
    """Plan one statement; creates empty temporary tables on its connection.

    Args:
        lifted: the statement; its edits become those of the final statement.
        table_names: numbers for temporary tables, unique on the connection.

    Raises:
        QueryError: DuckDB refuses the statement, or a document is a BLOB.
    """
    return _Planner(lifted, table_names).plan()


@dataclass(slots=True)
class _LoadedSource:
    source: Source
    load: Load
    columns: dict[str, str]


class _Planner:
    def __init__(self, lifted: LiftedText, table_names: itertools.count[int]) -> None:
        self.lifted = lifted
        self.calls = lifted.calls
        self.edited = lifted.edited
        self.binder = lifted.binder
        self.table_names = table_names
        self.steps: list[Step] = []
        self.on_demand: dict[int, str] = {}
        self.planned: set[int] = set()
        self.blocks = find_blocks(lifted.tokens, self.calls)
        self.owner = {call.index: self._owner(call.span) for call in self.calls}

    def plan(self) -> PhysicalPlan:
        try:
            self.binder.check()
        except QueryError as error:
            raise with_column_hint(error, self.blocks, self.binder) from None
        for block in self.blocks:
            direct = frozenset(i for i, owner in self.owner.items() if owner is block)
            if direct:
                self._plan_block(block, direct)
        for call in self.calls:
            if self.owner[call.index] is None:
                self.on_demand[call.index] = "it stands outside a SELECT"
        span = query_span(self.lifted.tokens)
        effects = not is_query(self.lifted.tokens)
        return PhysicalPlan(
            sql=self.lifted.tokens.text,
            calls=self.calls,
            steps=self.steps,
            final=self.edited.render(),
            effects=effects,
            rehearsal=self.edited.render(span) if effects and span is not None else None,
            on_demand=self.on_demand,
        )

    def _owner(self, span: Span) -> Block | None:
        """The innermost block around a span."""
        around = [b for b in self.blocks if b.span[0] <= span[0] and span[1] <= b.span[1]]
        return min(around, key=lambda b: b.span[1] - b.span[0], default=None)

    def _plan_block(self, block: Block, direct: frozenset[int]) -> None:
        guards = Guards(self.calls, direct, lambda e: ask_order(e, self.calls), self.edited)
        edits, steps = self.edited.snapshot(), len(self.steps)
        planned: frozenset[int] = frozenset()
        reason = "it is not in a condition of WHERE or of an inner join"
        try:
            planned = _BlockPlanner(self, block, direct, guards).plan()
        except NotPlanned as unplanned:
            reason = str(unplanned)
            self.edited.revert(edits)
            del self.steps[steps:]
        self.planned |= planned
        self._guard(block, direct - planned, guards)
        for call in sorted(direct - planned):
            self.on_demand[call] = reason

    def _guard(self, block: Block, calls: frozenset[int], guards: Guards) -> None:
        """Wrap look-ups that run on demand so that they are read only where they matter."""
        kept = self.edited.snapshot()
        where = Expr(
            Kind.AND,
            block.span,
            block.conditions,
            frozenset[int]().union(*(c.calls for c in block.conditions)),
        )
        lookups = guards.wrap(where, Context.TRUTH)
        for call, lookup in lookups.items():
            if call in calls:
                self.edited.replace(self.calls[call].span, *lookup)
        try:
            self.binder.check()
        except QueryError:
            # The guards quote parts of the text in other places of it; where that does
            # not bind, asking more than needed is still exact.
            self.edited.revert(kept)


class _BlockPlanner:
    """Plans one block, or raises `NotPlanned` and leaves the undoing to its caller."""

    def __init__(
        self, planner: _Planner, block: Block, direct: frozenset[int], guards: Guards
    ) -> None:
        self.planner = planner
        self.calls = planner.calls
        self.edited = planner.edited
        self.binder = planner.binder
        self.block = block
        self.direct = direct
        self.guards = guards
        self.loaded: list[_LoadedSource] = []
        self.pushed: set[Span] = set()
        # What inner blocks have asked for already needs no model any more.
        self.free = [c for c in block.conditions if c.calls <= planner.planned]
        self.asked = [
            c for c in guards.in_order(block.conditions) if c.calls and c.calls <= direct
        ]

    def plan(self) -> frozenset[int]:
        """Plan the block's conditions; return the calls that are asked ahead."""
        planned = frozenset[int]().union(*(c.calls for c in self.asked))
        if self.block.sources is None:
            raise NotPlanned(self.block.reason)
        if not planned:
            raise NotPlanned("it is not in a condition of WHERE or of an inner join")
        self._refuse_calls_in_from(planned)
        for source in self.block.sources:
            self._load(source)
        done: list[Expr] = []
        for condition in self.asked:
            for call in self.guards.sequence(condition):
                self._ask(self.calls[call], condition, done)
            done.append(condition)
        self.binder.check()
        return planned

    def _refuse_calls_in_from(self, planned: frozenset[int]) -> None:
        span = self.block.from_span
        for call in self.direct - planned:
            inside = self.calls[call].span
            if span is not None and span[0] <= inside[0] and inside[1] <= span[1]:
                raise NotPlanned("it is in the ON of an outer join")

    def _with_clause(self) -> str:
        scope = self.block.scope
        if not scope:
            return ""
        word = "WITH RECURSIVE" if self.block.recursive else "WITH"
        return f"{word} {', '.join(self.edited.render(span) for span in scope)} "

    def _load(self, source: Source) -> None:
        alias = quote_name(source.alias)
        relation = f"{self.edited.render(source.span)} AS {alias}"
        base = f"{self._with_clause()}SELECT * FROM {relation}"
        columns = self.binder.columns(base)
        if columns is None:
            raise NotPlanned(f"{source.alias} depends on what stands outside it")
        if any(name.lower() == "rowid" for name, _ in columns):
            raise NotPlanned(f"{source.alias} has a column named rowid")
        pushed = self._push(source, base)
        texts = [self.edited.render(span) for span in pushed]
        query = base + (f" WHERE {' AND '.join(f'({text})' for text in texts)}" if texts else "")
        table = f"covey_source_{next(self.planner.table_names)}"
        self.binder.create_empty(table, query)
        load = Load(table, source.alias, query, tuple(texts))
        self.planner.steps.append(load)
        self.loaded.append(_LoadedSource(source, load, dict(columns)))
        for span in pushed:
            self.edited.replace(span, "TRUE")
        self.edited.replace(source.span, table if source.has_alias else f"{table} AS {alias}")

    def _push(self, source: Source, base: str) -> list[Span]:
        """Conditions without a model that this source alone can decide.

        Only below inner joins: under an outer join a condition of WHERE also sees the
        rows that the join fills with NULL.
        """
        if not self.block.inner and len(self.block.sources or ()) > 1:
            return []
        pushed = []
        for condition in self.free:
            if condition.span in self.pushed:
                continue
            text = self.edited.render(condition.span)
            if self.binder.columns(f"{base} WHERE ({text})") is not None:
                pushed.append(condition.span)
        self.pushed.update(pushed)
        return pushed

    def _ask(self, call: AICall, condition: Expr, done: list[Expr]) -> None:
        places = [self._locate(call, span) for span in call.arguments]
        tables = list(dict.fromkeys(place.table for place in places))
        names = {s.load.table: quote_name(s.source.alias) for s in self.loaded}
        # A prompt without documents still is asked only if some row needs it.
        row_ids = [f"{names[table]}.rowid" for table in tables] or ["0"]
        demand = self._demand(call, condition, done, row_ids)
        if self.binder.columns(demand) is None:
            raise NotPlanned("its rows depend on what stands outside its block")
        self.planner.steps.append(
            Ask(
                call.index,
                tuple(places),
                tuple(tables.index(place.table) for place in places),
                demand,
                self.edited.text[slice(*call.span)],
            )
        )
        self.edited.replace(call.span, f"{call.row_lookup}({', '.join(row_ids)})")

    def _demand(self, call: AICall, condition: Expr, done: list[Expr], row_ids: list[str]) -> str:
        free = [self.edited.render(c.span) for c in self.free if c.span not in self.pushed]
        earlier = [self.edited.render(c.span) for c in done]
        path = [
            self.guards.text(g) for g in self.guards.path(condition, call.index, Context.TRUTH)
        ]
        conditions = " AND ".join(f"({text})" for text in [*free, *earlier, *path])
        return (
            f"{self._with_clause()}SELECT DISTINCT {', '.join(row_ids)} FROM {self._relations()}"
            + (f" WHERE {conditions}" if conditions else "")
        )

    def _relations(self) -> str:
        """FROM without the conditions of its ON clauses that need answers."""
        kept = self.edited.snapshot()
        for condition in self.block.conditions:
            if condition not in self.free:
                self.edited.replace(condition.span, "TRUE")
        text = self.edited.render(self.block.from_span)
        self.edited.revert(kept)
        return text

    def _locate(self, call: AICall, span: Span) -> DocumentColumn:
        """The one source whose rows give this argument.

        Raises:
            QueryError: the argument is a BLOB.
        """
        text = self.edited.render(span)
        found = []
        for loaded in self.loaded:
            alias = quote_name(loaded.source.alias)
            query = f"SELECT ({text}) FROM {loaded.load.table} AS {alias}"
            columns = self.binder.columns(query)
            if columns is not None:
                found.append((loaded, columns[0][1]))
        if len(found) != 1:
            raise NotPlanned("one of its documents comes from several tables at once")
        loaded, kind = found[0]
        if kind == "BLOB":
            raise QueryError(
                "A BLOB is not a text",
                sql=self.edited.text,
                span=span,
                hint="Decode it: decode(column) reads UTF-8.",
            )
        if not self.block.inner and len(self.loaded) > 1 and not _plain_column(text):
            raise NotPlanned("a document under an outer join is not a plain column")
        return DocumentColumn(
            loaded.load.table, loaded.source.alias, f"CAST(({text}) AS VARCHAR)"
        )


def _plain_column(text: str) -> bool:
    """Whether the text is `column` or `alias.column`, which is NULL where its row is missing."""
    parts = text.strip().split(".")
    return 0 < len(parts) < 3 and all(
        part.isidentifier() or (part[:1] == '"' == part[-1:]) for part in parts
    )
