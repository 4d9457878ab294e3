"""What planning one statement keeps while block after block is planned."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from covey.errors import QueryError
from covey.logical.calls import AICall
from covey.logical.query_blocks import QueryBlock, TableRef
from covey.logical.text_span import TextSpan
from covey.plan.nodes import DocumentColumn, Load, Match, Step
from covey.sql.bind import MISTAKES
from covey.sql.columns import named_columns
from covey.sql.extract import ExtractedCalls
from covey.sql.from_clause import NotPlanned
from covey.sql.temporary import TemporaryObjects
from covey.sql.text import quote_name
from covey.sql.volatile import Changes

# Conditions that are bound in one query.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """An entry of FROM, `t AS x`, and the temporary table that stands in for it.

    Attributes:
        load: the step that fills the table.
        columns: SQL type by name, lower case: `{"a": "VARCHAR"}`.
        nullable: whether a join fills its columns with NULL.
    """

    source: TableRef
    load: Load
    columns: Mapping[str, str] = field(hash=False)
    nullable: bool

    @property
    def alias(self) -> str:
        return quote_name(self.source.alias)

    @property
    def relation(self) -> str:
        """Its table by its alias, as FROM has it."""
        return f"{self.load.table} AS {self.alias}"

    @property
    def row_id(self) -> str:
        return f"{self.alias}.rowid"


@dataclass(frozen=True, slots=True)
class Mark:
    """A state of the workspace to go back to."""

    edits: int
    steps: int
    planned: frozenset[int]
    loaded: dict[TextSpan, LoadedSource]
    materialized: dict[TextSpan, str]


class Workspace:
    """The text with its edits, and the plan so far.

    Attributes:
        blocks: of the statement, inner ones first.
        steps: the steps so far.
        planned: calls that are asked ahead.
        on_demand: reasons for calls that are not.
        owner: the innermost block around each call.
        materialized: parts of the text that are evaluated once, and the table in their place.
    """

    def __init__(
        self, extracted: ExtractedCalls, blocks: list[QueryBlock], objects: TemporaryObjects
    ) -> None:
        self.tokens = extracted.tokens
        self.calls = extracted.calls
        self.edited = extracted.edited
        self.binder = extracted.binder
        self.blocks = blocks
        self.steps: list[Step] = []
        self.planned: frozenset[int] = frozenset()
        self.on_demand: dict[int, str] = {}
        self.materialized: dict[TextSpan, str] = {}
        self.owner = {call.index: self.innermost(call.span) for call in self.calls}
        self._objects = objects
        self._named = named_columns(extracted.tokens, blocks)
        self._loaded: dict[TextSpan, LoadedSource] = {}
        self._row_udfs: dict[Hashable, int] = {}

    def innermost(self, span: TextSpan) -> QueryBlock | None:
        """The innermost block around a span."""
        # Inner blocks come before those around them.
        return next((block for block in self.blocks if block.span.holds(span)), None)

    def direct(self, block: QueryBlock) -> frozenset[int]:
        """The calls of a block that are in no block inside it."""
        return frozenset(i for i, owner in self.owner.items() if owner is block)

    def mark(self) -> Mark:
        edits, steps = self.edited.snapshot(), len(self.steps)
        return Mark(edits, steps, self.planned, dict(self._loaded), dict(self.materialized))

    def revert(self, mark: Mark) -> None:
        """Go back to a mark; the tables of sources that were loaded since are dropped."""
        self.edited.revert(mark.edits)
        for step in self.steps[mark.steps :]:
            if isinstance(step, Load | Match):
                self._objects.drop(step.table)
        del self.steps[mark.steps :]
        self.planned = mark.planned
        self._loaded = dict(mark.loaded)
        self.materialized = dict(mark.materialized)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Go back to where a block began if it is not planned or does not bind."""
        mark = self.mark()
        try:
            yield
        except (NotPlanned, QueryError):
            self.revert(mark)
            raise

    def new_name(self, kind: str) -> str:
        """A name for a temporary table."""
        return self._objects.new_name(kind)

    def create_empty(self, table: str, columns: list[tuple[str, str]]) -> bool:
        """Create a temporary table of some columns, given by name and type, and no rows.

        Returns:
            False where a column has a type that no table can have.
        """
        given = ", ".join(f"{quote_name(name)} {kind}" for name, kind in columns)
        try:
            self._objects.create_table(table, f"({given})")
        except MISTAKES:
            return False
        return True

    def row_udf(
        self, call: AICall, documents: tuple[DocumentColumn, ...], keys: tuple[int, ...]
    ) -> int:
        """Index of the call whose UDF by row ids a call uses: of one alike, or its own."""
        return self._row_udfs.setdefault((call.shares, documents, keys), call.index)

    def tables_of(self, block: QueryBlock) -> list[str]:
        """The temporary tables of the sources of a block that are loaded."""
        loaded = (self._loaded.get(source.span) for source in block.sources)
        return [each.load.table for each in loaded if each is not None]

    def names_other(self, span: TextSpan, alias: str, sources: tuple[TableRef, ...]) -> bool:
        """Whether a text names the alias of another source: a quick no, before binding."""
        others = {source.alias.lower() for source in sources} - {alias.lower()}
        return bool(others & self.tokens.qualifiers(span))

    def columns(self, block: QueryBlock, query: str) -> list[tuple[str, str]] | None:
        """Names and types of a query that sees what a block does; None where it does not bind."""
        return self.binder.columns(self.with_clause(block) + query)

    def check_rows(self, query: str) -> None:
        """Let DuckDB bind a query for the rows of a block.

        Raises:
            NotPlanned: DuckDB refuses it.
        """
        if not self.binder.binds(query):
            raise NotPlanned("its rows depend on what stands outside its block")

    def with_clause(self, block: QueryBlock) -> str:
        """The WITH clause that makes visible what the block can see."""
        return self.with_tables(block.scope, block.recursive)

    def with_tables(self, scope: Sequence[TextSpan], recursive: bool) -> str:
        """A WITH clause of some common table expressions, or ""."""
        if not scope:
            return ""
        word = "WITH RECURSIVE" if recursive else "WITH"
        return f"{word} {', '.join(self.edited.render(span) for span in scope)} "

    def draws(self, span: TextSpan, block: QueryBlock) -> bool:
        """Whether a text of a block has another value each time it is evaluated.

        The documents of calls are left out: they are read once, with their rows; and what
        is `materialized`. What holds for a statement holds for all that it becomes.
        """
        return self.changes(span, block.scope) >= Changes.WITH_ROW

    def changes(
        self, span: TextSpan, scope: Sequence[TextSpan], without: Sequence[TextSpan] = ()
    ) -> Changes:
        """How a text changes that can see some tables of WITH; see `draws`."""
        left_out = [*(call.span for call in self.calls), *self.materialized, *without]
        spans = [span, *self.tables_read(span, scope)]
        return max(self.binder.volatile.within(self.tokens, each, left_out) for each in spans)

    def document_draws(self, span: TextSpan, block: QueryBlock | None) -> bool:
        """Whether an argument of a call is another text each time it is read."""
        scope = () if block is None else block.scope
        inside = [c.span for c in self.calls if span.holds(c.span)]
        found = self.binder.volatile.within(self.tokens, span, [*inside, *self.materialized])
        found = max([found, *(self.changes(t, scope) for t in self.tables_read(span, scope))])
        return found >= Changes.WITH_ROW

    def shares_draw(self, span: TextSpan, block: QueryBlock) -> bool:
        """Whether a text reads a table of WITH that draws, and that others read too."""
        return any(
            self.readers(table) > 1 and self.draws(table, block)
            for table in self.tables_read(span, block.scope)
        )

    def readers(self, table: TextSpan) -> int:
        """How many places may read a table of WITH."""
        return len(self.tokens.tables_named(self._name_of(table), table))

    def tables_read(self, span: TextSpan, scope: Sequence[TextSpan]) -> list[TextSpan]:
        """The tables of WITH that a text reads, through others too."""
        found: list[TextSpan] = []
        spans = [span]
        for reading in spans:
            outside = (t for t in self.tokens.inside(reading) if not self._is_materialized(t.start))
            names = {token.text.lower() for token in outside}
            for table in scope:
                if table not in spans and self._name_of(table).lower() in names:
                    spans.append(table)
                    found.append(table)
        return found

    def _name_of(self, table: TextSpan) -> str:
        return self.tokens[self.tokens.index_at(table.start)].text

    def applied(self, *spans: TextSpan) -> set[TextSpan]:
        """The edits that show in what is rendered of some spans."""
        return set[TextSpan]().union(*(self.edited.applied(span) for span in spans))

    def tables_in(self, applied: set[TextSpan]) -> frozenset[str]:
        """The tables that stand in a text by the edits that show in it."""
        return frozenset(table for span, table in self.materialized.items() if span in applied)

    def relation(self, source: TableRef) -> str:
        """An entry of FROM with the names that it and its columns go by, without its sample."""
        names = "" if source.names is None else self.edited.render(source.names)
        return f"{self.edited.render(source.span)} AS {quote_name(source.alias)}{names}"

    def load(self, block: QueryBlock, number: int, conditions: list[TextSpan]) -> LoadedSource:
        """Add a step that loads source `number` of a block, less what `conditions` reject.

        A condition that the source alone can decide is applied and becomes TRUE in the
        statement; it is taken out of the list.

        Raises:
            NotPlanned: the source depends on what stands outside it.
        """
        source = block.sources[number]
        if source.span in self._loaded:
            return self._loaded[source.span]
        if self.shares_draw(source.span, block):
            raise NotPlanned(f"{source.alias} draws other values each time, and others read it too")
        relation = self.relation(source)
        if source.sample is not None:
            relation += f" {self.edited.render(source.sample)}"
        kept = self._columns(block, source, relation)
        names = ", ".join(quote_name(name) for name, _ in kept)
        query = f"{self.with_clause(block)}SELECT {names} FROM {relation}"
        pushed = self._decided_by(block, source, query, conditions)
        texts = tuple(self.edited.render(span) for span in pushed)
        if pushed:
            query += f" WHERE {' AND '.join(f'({text})' for text in texts)}"
        sample = self._sample(block)
        if sample is not None:
            # It is drawn before the conditions are applied, wherever it stands.
            query += f" {self.edited.render(sample)}"
        read = [source.span, *block.scope, *pushed]
        load = self.add_load(source.alias, query, kept, read, texts)
        alias = "" if source.has_alias else f" AS {quote_name(source.alias)}"
        self.materialize(source.span, load.table, f"{load.table}{alias}")
        for drawn in filter(None, (source.sample, sample)):
            self.materialize(drawn, load.table, "")
        for span in pushed:
            self.edited.replace(span, "TRUE")
        decided = set(pushed)
        conditions[:] = [span for span in conditions if span not in decided]
        types = {name.lower(): kind for name, kind in kept}
        self._loaded[source.span] = LoadedSource(source, load, types, not block.keeps(number))
        return self._loaded[source.span]

    def _decided_by(
        self, block: QueryBlock, source: TableRef, query: str, conditions: list[TextSpan]
    ) -> list[TextSpan]:
        """The conditions that a source alone can decide; `query` gives its columns."""
        near = [s for s in conditions if not self.names_other(s, source.alias, block.sources)]
        found: list[TextSpan] = []
        # Most can be decided: they are bound together, and halves where one of them cannot.
        open_ones = [near[i : i + _AT_ONCE] for i in range(0, len(near), _AT_ONCE)][::-1]
        while open_ones:
            some = open_ones.pop()
            texts = (f"({self.edited.render(span)})" for span in some)
            if self.binder.binds(f"{query} WHERE {' AND '.join(texts)}"):
                found += some
            elif len(some) > 1:
                half = len(some) // 2
                open_ones += [some[half:], some[:half]]
        return found

    def materialize(self, span: TextSpan, table: str, new: str) -> None:
        """Let a text stand in the place of a part that was evaluated once, into a table."""
        self.edited.replace(span, new)
        self.materialized[span] = table

    def add_load(
        self,
        alias: str,
        query: str,
        columns: list[tuple[str, str]],
        read: Sequence[TextSpan],
        pushed: tuple[str, ...] = (),
    ) -> Load:
        """Add a step that fills a table of some columns by a query.

        Args:
            alias: what it is called in the text.
            query: see `Load`.
            columns: names and types.
            read: the parts of the text that the query is made of.
            pushed: see `Load`.

        Raises:
            NotPlanned: no table can have such columns.
        """
        table = self.new_name("source")
        if not self.create_empty(table, columns):
            raise NotPlanned(f"{alias} has a column that no table can have")
        applied = self.applied(*read)
        sources = self.tables_in(applied)
        calls = frozenset(call.index for call in self.calls if call.span in applied)
        load = Load(table, alias, query, pushed, sources, calls)
        self.steps.append(load)
        return load

    def samples(self, block: QueryBlock) -> bool:
        """Whether USING SAMPLE of a block is still to be drawn."""
        span = block.clauses.get("USING SAMPLE")
        return span is not None and not self._is_materialized(span.start)

    def _is_materialized(self, place: int) -> bool:
        return any(span.start <= place < span.end for span in self.materialized)

    def _sample(self, block: QueryBlock) -> TextSpan | None:
        """USING SAMPLE of a block with one source, keywords included, until it is drawn."""
        span = block.clauses.get("USING SAMPLE")
        if span is None or len(block.sources) > 1:
            return None
        return self.tokens.span(self.tokens.index_at(span[0]) - 1, self.tokens.index_at(span[1]))

    def _columns(self, block: QueryBlock, source: TableRef, relation: str) -> list[tuple[str, str]]:
        """Names and types of the columns of a source that the statement may read."""
        columns = self.columns(block, f"SELECT * FROM {relation}")
        if columns is None:
            raise NotPlanned(f"{source.alias} depends on what stands outside it")
        if any(name.lower() == "rowid" for name, _ in columns):
            raise NotPlanned(f"{source.alias} has a column named rowid")
        if len({name.lower() for name, _ in columns}) < len(columns):
            raise NotPlanned(f"{source.alias} has two columns of one name")
        named = self._named
        kept = [column for column in columns if named is None or column[0].lower() in named]
        # A source of which only the number of rows matters keeps one.
        return kept or columns[:1]
