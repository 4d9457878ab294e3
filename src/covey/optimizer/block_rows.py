"""The rows of one block: its loaded sources, and what is known of them so far."""

from __future__ import annotations

from collections.abc import Sequence

from covey.logical.query_blocks import Expr, JoinKind, QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.demand import Demand
from covey.optimizer.draws import materialize_rows
from covey.optimizer.having import conditions_on_groups
from covey.optimizer.predicate_pushdown import OuterPredicate
from covey.optimizer.workspace import LoadedSource, Workspace
from covey.sql.from_clause import NotPlanned
from covey.sql.guards import Context, Guards

DRAWS = "a condition beside it has another value each time it is evaluated"


class BlockRows:
    """A block whose sources are being loaded and whose conditions are being asked.

    Args:
        guards: guards of its calls.
        outer: what blocks around it want of its rows.

    Attributes:
        loaded: the loaded sources, in the order of FROM.
        free: the conditions that need no model, or no more.
        asked: the conditions whose calls are all asked.
        open: conditions that draw, and that only the final statement evaluates: whom they
            reject is not known before.
    """

    def __init__(
        self,
        work: Workspace,
        block: QueryBlock,
        guards: Guards,
        outer: Sequence[OuterPredicate] = (),
    ) -> None:
        self.work = work
        self.block = block
        self.guards = guards
        self.loaded: list[LoadedSource] = []
        self.free = [c for c in block.conditions if c.calls <= work.planned]
        self.asked: list[Expr] = []
        self.open: list[Expr] = []
        self._left: list[Expr] = []
        self._pushed: set[TextSpan] = set()
        self._outer = [predicate.text for predicate in outer]

    @property
    def wanted(self) -> list[Expr]:
        """The conditions that need the model, in the order in which they are asked."""
        ordered = self.guards.in_order(self.block.conditions)
        done = {c.span for c in [*self.free, *self._left]}
        later = {c.span for c in self.open}
        wanted = [c for c in ordered if c.span not in done]
        return sorted(wanted, key=lambda c: c.span in later)

    def draws(self, condition: Expr) -> bool:
        """Whether a condition has another value each time it is evaluated."""
        return self.work.draws(condition.span, self.block)

    def load(self) -> None:
        """Load the sources; apply what one source alone can decide.

        Only where no join fills the source with NULL: elsewhere a condition of WHERE
        also sees the rows that the join made. What has another value each time is
        evaluated once, with the rows of the one source or of the join: who is asked must
        be who the statement shows. Where that would make all combinations of sources
        that nothing connects, or needs answers, it is left to the final statement.

        Raises:
            NotPlanned: a source cannot be loaded by itself, or a join draws.
        """
        sources = self.block.sources
        offered = [c.span for c in self.free if len(sources) == 1 or not self.draws(c)]
        spans = list(offered)
        for number in range(len(sources)):
            conditions = spans if self.block.keeps(number) else []
            self.loaded.append(self.work.load(self.block, number, conditions))
        self._pushed = set(offered) - set(spans)
        self._draw()
        self._outer += conditions_on_groups(self.block, self.work, self.loaded)

    def _draw(self) -> None:
        """Draw the rows of the joins; see `load`."""
        for number, join in enumerate(self.block.joins if not self.block.inner else ()):
            if any(self.draws(c) for c in join.on) and not self._draw_join(number, join.on):
                raise NotPlanned(DRAWS)
        left = [c for c in self.free if c.span not in self._pushed]
        if self.block.inner and self._are_connected(left) and any(map(self.draws, left)):
            relations = ", ".join(source.relation for source in self.loaded)
            materialize_rows(self.work, self.block, self.loaded, relations, left)
        self.open = [
            c for c in self.block.conditions if c.span not in self._pushed and self.draws(c)
        ]
        self._left = [c for c in self.free if c in self.open]
        self.free = [c for c in self.free if c not in self.open]

    def _draw_join(self, number: int, on: tuple[Expr, ...]) -> bool:
        """Draw the pairs of an outer join."""
        done = [c for c in on if c.calls <= self.work.planned]
        if any(self.draws(c) for c in on if c not in done):
            return False
        relations = self.relations_of(number)
        return materialize_rows(self.work, self.block, self.loaded[: number + 2], relations, done)

    def _are_connected(self, conditions: list[Expr]) -> bool:
        """Whether conditions tie all sources together, or there are but two."""
        near = [
            {n for n, s in enumerate(self.loaded) if s.source.alias.lower() in names}
            for names in (self.work.tokens.qualifiers(c.span) for c in conditions)
        ]
        group = {0}
        for _ in self.loaded:
            group = group.union(*(each for each in near if each & group))
        return len(self.loaded) < 3 or len(group) == len(self.loaded)

    def render(self, expr: Expr) -> str:
        return self.work.edited.render(expr.span)

    def path(self, root: Expr, item: int | Expr, context: Context = Context.TRUTH) -> list[str]:
        """The guards on the way from an expression to something inside it, as SQL."""
        return [self.guards.text(guard) for guard in self.guards.path(root, item, context)]

    def conditions(self) -> list[str]:
        """What rows are known to need: the conditions that are free or asked, as SQL."""
        free = [self.render(c) for c in self.free if c.span not in self._pushed]
        return [*free, *self._outer, *(self.render(c) for c in self.asked)]

    def demand(self, texts: Sequence[str] = ()) -> Demand:
        """The rows that pass all conditions so far, and `texts`."""
        return Demand(self.work, self.block, self.relations(), [*self.conditions(), *texts])

    def relations(self) -> str:
        """FROM; where all its joins are inner, without the conditions that need answers."""
        if "FROM" not in self.block.clauses:
            raise NotPlanned(self.block.reason)
        later = {c.span: ["TRUE"] for c in (self.wanted if self.block.inner else ())}
        return self.work.edited.render(self.block.clauses["FROM"], later)

    def only_source(self, condition: str) -> int | None:
        """A source that no join fills with NULL and that alone decides a condition."""
        for number, source in enumerate(self.loaded):
            query = f"SELECT ({condition}) FROM {source.relation}"
            if self.block.keeps(number) and self.work.columns(self.block, query):
                return number
        return None

    def before_outer(self, number: int) -> str:
        """A source with those that joins without calls tie it to, as FROM has them."""
        joins = self.block.joins
        plain = next((i for i, j in enumerate(joins) if any(c.calls for c in j.on)), len(joins))
        # A LEFT or FULL join rejects no row.
        rejects = (JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI, JoinKind.ANTI)
        last = max((i + 1 for i in range(plain) if joins[i].kind in rejects), default=0)
        if not last or number > last:
            return self.loaded[number].relation
        return self._relations_to(joins[last - 1].end)

    def _relations_to(self, end: int) -> str:
        """FROM up to a place of the text."""
        return self.work.edited.render(TextSpan(self.block.clauses["FROM"].start, end))

    def relations_of(self, number: int) -> str:
        """FROM up to join `number`, as pairs that its ON may still reject.

        The join is written as a cross join: after a semi join the row ids of its source
        would be out of sight, and an outer join would add rows without a partner.
        """
        sources = self.block.sources
        before = self.block.joins[number - 1].end if number else sources[0].end
        source = sources[number + 1]
        return f"{self._relations_to(before)} CROSS JOIN {self.work.edited.render(source.whole)}"
