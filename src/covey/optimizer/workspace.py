"""What planning one statement keeps while block after block is planned."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from covey.logical.blocks import Block, Source
from covey.logical.calls import AICall, CallPlaces
from covey.plan.nodes import DocumentColumn, Load, Match, Prune, Step
from covey.sql.bind import MISTAKES
from covey.sql.columns import named_columns
from covey.sql.from_clause import NotPlanned
from covey.sql.lift import LiftedText
from covey.sql.temporary import TemporaryObjects
from covey.sql.text import Span, quote_name
from covey.sql.volatile import Changes


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """A source of FROM and the temporary table that stands in for it.

    Attributes:
        columns: SQL type by name, lower case.
        nullable: whether a join fills its columns with NULL.
    """

    source: Source
    load: Load
    columns: Mapping[str, str] = field(hash=False)
    nullable: bool

    @property
    def alias(self) -> str:
        return quote_name(self.source.alias)

    @property
    def row_id(self) -> str:
        return f"{self.alias}.rowid"


@dataclass(frozen=True, slots=True)
class Mark:
    """A state of the workspace to go back to."""

    edits: int
    steps: int
    planned: frozenset[int]
    loaded: dict[Span, LoadedSource]


class Workspace:
    """The text with its edits, and the plan so far.

    Args:
        lifted: the statement.
        blocks: its blocks, inner ones first.
        objects: the temporary tables that planning makes.

    Attributes:
        steps: the steps so far.
        planned: calls that are asked ahead.
        on_demand: reasons for calls that are not.
        owner: the innermost block around each call.
    """

    def __init__(self, lifted: LiftedText, blocks: list[Block], objects: TemporaryObjects) -> None:
        self.tokens = lifted.tokens
        self.calls = lifted.calls
        self.places = CallPlaces(lifted.calls)
        self.edited = lifted.edited
        self.binder = lifted.binder
        self.blocks = blocks
        self.steps: list[Step] = []
        self.planned: frozenset[int] = frozenset()
        self.on_demand: dict[int, str] = {}
        self.owner = {call.index: self.innermost(call.span) for call in self.calls}
        self._objects = objects
        self._named = named_columns(lifted.tokens, blocks)
        self._loaded: dict[Span, LoadedSource] = {}
        self._row_lookups: dict[Hashable, int] = {}

    def innermost(self, span: Span) -> Block | None:
        """The innermost block around a span."""
        around = [b for b in self.blocks if b.span[0] <= span[0] and span[1] <= b.span[1]]
        return min(around, key=lambda b: b.span[1] - b.span[0], default=None)

    def direct(self, block: Block) -> frozenset[int]:
        """The calls of a block that are in no block inside it."""
        return frozenset(i for i, owner in self.owner.items() if owner is block)

    def mark(self) -> Mark:
        return Mark(self.edited.snapshot(), len(self.steps), self.planned, dict(self._loaded))

    def revert(self, mark: Mark) -> None:
        """Go back to a mark; the tables of sources that were loaded since are dropped."""
        self.edited.revert(mark.edits)
        for step in self.steps[mark.steps :]:
            if isinstance(step, Load | Match):
                self._objects.drop(step.table)
        del self.steps[mark.steps :]
        self.planned = mark.planned
        self._loaded = dict(mark.loaded)

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

    def row_lookup(
        self, call: AICall, documents: tuple[DocumentColumn, ...], keys: tuple[int, ...]
    ) -> int:
        """Index of the call whose look-up by row ids a call uses: of one alike, or its own."""
        return self._row_lookups.setdefault((call.shares, documents, keys), call.index)

    def prunes(self, mark: Mark) -> bool:
        """Whether a step since the mark drops rows."""
        return any(isinstance(step, Prune) for step in self.steps[mark.steps :])

    def _kept(self, columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The columns of a source that the statement may read."""
        if self._named is None:
            return columns
        kept = [column for column in columns if column[0].lower() in self._named]
        # A source of which only the number of rows matters keeps one.
        return kept or columns[:1]

    def tables_of(self, block: Block) -> list[str]:
        """The temporary tables of the sources of a block that are loaded."""
        spans = [source.span for source in block.sources or ()]
        return [self._loaded[span].load.table for span in spans if span in self._loaded]

    def names_other(self, span: Span, alias: str, sources: tuple[Source, ...]) -> bool:
        """Whether a text names the alias of another source: a quick no, before binding."""
        others = {source.alias.lower() for source in sources} - {alias.lower()}
        return bool(others & self.tokens.qualifiers(span))

    def with_clause(self, block: Block) -> str:
        """The WITH clause that makes visible what the block can see."""
        if not block.scope:
            return ""
        word = "WITH RECURSIVE" if block.recursive else "WITH"
        return f"{word} {', '.join(self.edited.render(span) for span in block.scope)} "

    def changes(self, span: Span, block: Block) -> Changes:
        """How a text of a block changes from one evaluation to the next.

        The documents of calls are left out: they are read once, with their rows.
        """
        calls = [call.span for call in self.calls]
        spans = [span, *self._tables_read(span, block)]
        return max(self.binder.volatile.within(self.tokens, each, calls) for each in spans)

    def shares_draw(self, span: Span, block: Block) -> bool:
        """Whether a text reads a table of WITH that changes, and that others read too."""
        return any(
            len(self.tokens.tables_named(self._name_of(table), table)) > 1
            and self.changes(table, block) is Changes.WITH_ROW
            for table in self._tables_read(span, block)
        )

    def _tables_read(self, span: Span, block: Block) -> list[Span]:
        """The tables of WITH that a text of a block reads, through others too."""
        found: list[Span] = []
        spans = [span]
        for reading in spans:
            names = {token.text.lower() for token in self.tokens.inside(reading)}
            for table in block.scope:
                if table not in spans and self._name_of(table).lower() in names:
                    spans.append(table)
                    found.append(table)
        return found

    def _name_of(self, table: Span) -> str:
        return self.tokens[self.tokens.index_at(table[0])].text

    def _applied(self, *spans: Span) -> set[Span]:
        """The edits that show in what is rendered of some spans."""
        return set[Span]().union(*(self.edited.applied(span) for span in spans))

    def load(self, block: Block, number: int, conditions: list[Span]) -> LoadedSource:
        """Add a step that loads source `number` of a block, less what `conditions` reject.

        A condition that the source alone can decide is applied and becomes TRUE in the
        statement; it is taken out of the list.

        Raises:
            NotPlanned: the source depends on what stands outside it.
        """
        if block.sources is None:
            raise NotPlanned(block.reason)
        source = block.sources[number]
        if source.span in self._loaded:
            return self._loaded[source.span]
        if self.shares_draw(source.span, block):
            raise NotPlanned(f"{source.alias} draws other values each time, and others read it too")
        alias = quote_name(source.alias)
        relation = f"{self.edited.render(source.span)} AS {alias}"
        query = f"{self.with_clause(block)}SELECT * FROM {relation}"
        columns = self.binder.columns(query)
        if columns is None:
            raise NotPlanned(f"{source.alias} depends on what stands outside it")
        if any(name.lower() == "rowid" for name, _ in columns):
            raise NotPlanned(f"{source.alias} has a column named rowid")
        if len({name.lower() for name, _ in columns}) < len(columns):
            raise NotPlanned(f"{source.alias} has two columns of one name")
        kept = self._kept(columns)
        names = ", ".join(quote_name(name) for name, _ in kept)
        query = f"{self.with_clause(block)}SELECT {names} FROM {relation}"
        pushed = []
        read = self._applied(source.span, *block.scope)
        for span in list(conditions):
            if self.names_other(span, source.alias, block.sources):
                continue
            text = self.edited.render(span)
            if self.binder.columns(f"{query} WHERE ({text})") is not None:
                pushed.append(text)
                read |= self._applied(span)
                conditions.remove(span)
                self.edited.replace(span, "TRUE")
        if pushed:
            query += f" WHERE {' AND '.join(f'({text})' for text in pushed)}"
        table = self.new_name("source")
        if not self.create_empty(table, kept):
            raise NotPlanned(f"{source.alias} has a column that no table can have")
        load = Load(
            table,
            source.alias,
            query,
            tuple(pushed),
            frozenset(known.load.table for span, known in self._loaded.items() if span in read),
            frozenset(call.index for call in self.calls if call.span in read),
        )
        self.steps.append(load)
        self.edited.replace(source.span, table if source.has_alias else f"{table} AS {alias}")
        types = {name.lower(): kind for name, kind in kept}
        self._loaded[source.span] = LoadedSource(source, load, types, not block.keeps(number))
        return self._loaded[source.span]
