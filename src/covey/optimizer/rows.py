"""The rows of one block: its loaded sources, and what is known of them so far."""

from __future__ import annotations

from collections.abc import Sequence

from covey.logical.blocks import Block, Expr
from covey.optimizer.demand import Demand
from covey.optimizer.having import conditions_on_groups
from covey.optimizer.outside import conditions_from_outside
from covey.optimizer.workspace import LoadedSource, Workspace
from covey.sql.from_clause import NotPlanned
from covey.sql.guards import Context, Guards
from covey.sql.text import Span
from covey.sql.volatile import Changes

DRAWS = "a condition beside it has another value each time it is evaluated"


class BlockRows:
    """A block whose sources are being loaded and whose conditions are being asked.

    Args:
        work: the statement.
        block: the block.
        guards: guards of its calls.

    Attributes:
        loaded: the loaded sources, in the order of FROM.
        free: the conditions that need no model, or no more.
        asked: the conditions whose calls are all asked.
    """

    def __init__(self, work: Workspace, block: Block, guards: Guards) -> None:
        self.work = work
        self.block = block
        self.guards = guards
        self.loaded: list[LoadedSource] = []
        self.free = [c for c in block.conditions if c.calls <= work.planned]
        self.asked: list[Expr] = []
        self._pushed: set[Span] = set()
        self._outside: list[str] = []

    @property
    def wanted(self) -> list[Expr]:
        """The conditions that need the model, in the order in which they are asked."""
        return [c for c in self.guards.in_order(self.block.conditions) if c not in self.free]

    def drawn(self) -> list[Expr]:
        """The conditions with other values each time they are evaluated, those of joins too."""
        on = [c for join in self.block.joins for c in join.on]
        return [
            c for c in (*on, *self.block.where)
            if self.work.changes(c.span, self.block) is Changes.WITH_ROW
        ]  # fmt: skip

    def load(self) -> None:
        """Load the sources; apply what one source alone can decide.

        Only where no join fills the source with NULL: elsewhere a condition of WHERE
        also sees the rows that the join made. What has another value each time is
        evaluated once, while the one source is loaded, or the block is not planned: who
        is asked must be who the statement shows.

        Raises:
            NotPlanned: a source cannot be loaded by itself.
        """
        drawn = self.drawn()
        several = len(self.block.sources or ()) > 1
        if any(several or self.work.shares_draw(c.span, self.block) for c in drawn):
            raise NotPlanned(DRAWS)
        spans = [c.span for c in self.free]
        for number in range(len(self.block.sources or ())):
            conditions = spans if self.block.keeps(number) else []
            self.loaded.append(self.work.load(self.block, number, conditions))
        self._pushed = {c.span for c in self.free} - set(spans)
        if any(c.span not in self._pushed for c in drawn):
            raise NotPlanned(DRAWS)
        self._outside = conditions_from_outside(self.block, self.work, self.loaded)
        self._outside += conditions_on_groups(self.block, self.work, self.loaded)

    def render(self, expr: Expr) -> str:
        return self.work.edited.render(expr.span)

    def path(self, root: Expr, item: int | Expr, context: Context = Context.TRUTH) -> list[str]:
        """The guards on the way from an expression to something inside it, as SQL."""
        return [self.guards.text(guard) for guard in self.guards.path(root, item, context)]

    def conditions(self) -> list[str]:
        """What rows are known to need: the conditions that are free or asked, as SQL."""
        free = [self.render(c) for c in self.free if c.span not in self._pushed]
        return [*free, *self._outside, *(self.render(c) for c in self.asked)]

    def demand(self, texts: Sequence[str] = ()) -> Demand:
        """The rows that pass all conditions so far, and `texts`."""
        return Demand(self.work, self.block, self.relations(), [*self.conditions(), *texts])

    def relations(self) -> str:
        """FROM; where all its joins are inner, without the conditions that need answers."""
        if self.block.from_span is None:
            raise NotPlanned(self.block.reason)
        return self._without(self.wanted if self.block.inner else [], self.block.from_span)

    def relations_of(self, number: int) -> str:
        """FROM up to join `number`, as pairs that its ON may still reject.

        The join is written as a cross join: after a semi join the row ids of its source
        would be out of sight, and an outer join would add rows without a partner.
        """
        sources, span = self.block.sources, self.block.from_span
        if sources is None or span is None:
            raise NotPlanned(self.block.reason)
        before = self.block.joins[number - 1].end if number else sources[0].end
        source = sources[number + 1]
        left = self.work.edited.render((span[0], before))
        return f"{left} CROSS JOIN {self.work.edited.render((source.span[0], source.end))}"

    def _without(self, conditions: list[Expr], span: Span) -> str:
        mark = self.work.mark()
        for condition in conditions:
            self.work.edited.replace(condition.span, "TRUE")
        text = self.work.edited.render(span)
        self.work.revert(mark)
        return text
