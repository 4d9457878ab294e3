"""The shape of a statement as far as planning needs it: places only, no SQL text.

Everything is a span of the user's text. What cannot be given this shape is not
planned, which is always allowed: it runs by demand iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from covey.logical.text_span import TextSpan


class Kind(Enum):
    """How the parts of a boolean expression are combined."""

    AND = "and"
    OR = "or"
    NOT = "not"
    CASE = "case"
    CASE_OF = "case of"
    COALESCE = "coalesce"
    FILTER = "filter"
    COMPARE = "compare"
    LEAF = "leaf"


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression and the parts whose evaluation may be skipped.

    Attributes:
        kind: how `parts` are combined; a LEAF has none that may be skipped, but its
            parts (arguments of functions, operands) may themselves have some.
        span: its place.
        parts: operands of AND, OR, COALESCE; the operand of NOT; for CASE its
            conditions and values in turn, then the ELSE value if there is one (CASE_OF
            has the operand of `CASE x WHEN …` before them); for an
            aggregate with FILTER the condition, then its arguments; for the comparison of an
            AI call with a column the call, then the column.
        calls: indexes of the AI calls inside it.
    """

    kind: Kind
    span: TextSpan
    parts: tuple[Expr, ...] = ()
    calls: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FromItem:
    """One entry of a FROM clause.

    Attributes:
        span: the relation as written, without its alias.
        end: where the entry ends, its alias included.
        alias: the name its columns go by.
        has_alias: whether the alias is written behind it.
        sample: TABLESAMPLE and its arguments, behind the alias.
        names: of columns, in brackets behind the alias: `(i, j)`.
    """

    span: TextSpan
    end: int
    alias: str
    has_alias: bool
    sample: TextSpan | None = None
    names: TextSpan | None = None

    @property
    def whole(self) -> TextSpan:
        """The entry, its alias and sample included."""
        return TextSpan(self.span.start, self.end)


class JoinKind(Enum):
    """How a source joins those before it in FROM."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class Join:
    """A source of FROM after the first.

    Attributes:
        kind: CROSS and the comma count as INNER.
        on: conjuncts of its ON; empty for USING and NATURAL.
        end: where its text ends; the text of FROM up to here is a FROM of its own.
        merges: whether USING or NATURAL gives columns of both sides one name.
        words: LEFT JOIN and the like; None of a comma.
    """

    kind: JoinKind
    on: tuple[Expr, ...]
    end: int
    merges: bool
    words: TextSpan | None = None


@dataclass(slots=True)
class QueryBlock:
    """One SELECT and its clauses.

    Attributes:
        span: from SELECT (or FROM) to its end.
        scope: spans of the common table expressions it can see, outermost first.
        recursive: whether one of those WITH clauses is recursive.
        exists: whether it is the whole of an EXISTS: its first row decides.
        cte: the innermost common table expression it is in: name and span.
        alone: whether it is no operand of UNION, INTERSECT or EXCEPT.
        union: of an operand of UNION, all operands, where their columns go by place, they
            keep all rows and none reads the others; else None.
        top: whether its rows are the rows of the statement.
        sources: the entries of FROM, None where its form is not planned.
        joins: one for each source after the first.
        reason: why it is not planned.
        where: conjuncts of WHERE.
        items: the items of SELECT that hold a call.
        outputs: every expression of the other clauses that holds a call, by keyword.
        from_span: what stands behind FROM.
        clauses: span of what stands behind each clause keyword.
    """

    span: TextSpan
    scope: tuple[TextSpan, ...]
    recursive: bool
    alone: bool
    top: bool
    exists: bool = False
    cte: tuple[str, TextSpan] | None = None
    union: TextSpan | None = None
    sources: tuple[FromItem, ...] | None = None
    joins: tuple[Join, ...] = ()
    reason: str = ""
    where: tuple[Expr, ...] = ()
    outputs: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    items: list[TextSpan] = field(default_factory=list)
    from_span: TextSpan | None = None
    clauses: dict[str, TextSpan] = field(default_factory=dict)

    @property
    def inner(self) -> bool:
        """Whether all joins are inner joins that merge no columns."""
        return all(join.kind is JoinKind.INNER and not join.merges for join in self.joins)

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """The conjuncts that a row of FROM must pass: WHERE, and ON where `inner`."""
        on = [condition for join in self.joins for condition in join.on] if self.inner else []
        return (*on, *self.where)

    def keeps(self, number: int) -> bool:
        """Whether no join fills the columns of source `number` with NULL.

        Only then does a condition on that source alone commute with the joins.
        """
        joined_by = [join.kind for join in self.joins]
        own = joined_by[number - 1] if number else JoinKind.INNER
        later = joined_by[number:]
        return own in (JoinKind.INNER, JoinKind.RIGHT) and not (
            {JoinKind.RIGHT, JoinKind.FULL} & set(later)
        )
