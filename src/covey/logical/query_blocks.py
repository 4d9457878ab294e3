"""The shape of a statement as far as planning needs it: places only, no SQL text.

What cannot be given this shape is not planned, which is always allowed: its calls are answered
by running the statement again until no answer is missing (fixpoint re-execution).
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
        kind: how `parts` are combined. By kind they are
            AND, OR, COALESCE: the operands, `a AND b AND c`: a, b, c;
            NOT: the operand;
            CASE: conditions and values in turn, then the value of ELSE if there is one,
            `CASE WHEN a THEN b ELSE c END`: a, b, c;
            CASE_OF: the operand and then those of CASE, `CASE x WHEN a THEN b END`: x, a, b;
            FILTER: the condition, then the arguments, `sum(a) FILTER (WHERE b)`: b, a;
            COMPARE: an AI call, then the column, `t.a = AI.CLASSIFY(…)`: AI.CLASSIFY(…), t.a;
            LEAF: none that may be skipped, but arguments and operands may have such parts.
        span: its place.
        parts: see `kind`.
        calls: indexes of the AI calls inside it.
    """

    kind: Kind
    span: TextSpan
    parts: tuple[Expr, ...] = ()
    calls: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TableRef:
    """One entry of a FROM clause, here `FROM main.t AS x(i, j) TABLESAMPLE 10%`.

    Attributes:
        span: the relation as written, `main.t`.
        end: where the entry ends, behind `10%`.
        alias: the name its columns go by: `x`, and `t` where no alias is written.
        has_alias: whether the alias is written.
        sample: `TABLESAMPLE 10%`.
        names: of columns, with their brackets: `(i, j)`.
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
    """How an entry of FROM joins those before it."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class Join:
    """An entry of FROM after the first, here `FROM t LEFT JOIN u ON t.k = u.k AND u.b`.

    Attributes:
        kind: LEFT; CROSS and the comma count as INNER.
        on: the conjuncts `t.k = u.k` and `u.b`; empty for USING and NATURAL.
        end: where its text ends; the text of FROM up to here is a FROM of its own.
        merges: whether USING or NATURAL gives columns of both sides one name.
        words: `LEFT JOIN`; None of a comma.
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
        scope: the tables of WITH that it can see, outermost first, each from its name on:
            `a AS (SELECT 1)` of `WITH a AS (SELECT 1) SELECT * FROM a`.
        recursive: whether one of those WITH clauses is RECURSIVE.
        alone: whether it is no operand of UNION, INTERSECT or EXCEPT.
        top: whether its rows are the rows of the statement.
        exists: whether it is the whole of an EXISTS, so that its first row decides.
        cte: the innermost table of WITH that it is in, `SELECT 1` above: its name `a` and its
            place as in `scope`.
        union: of an operand of UNION, all of `SELECT 1 UNION ALL SELECT 2`, where columns go by
            place, all rows are kept and no operand reads the others; else None.
        sources: the entries of FROM; empty where its form is not planned.
        joins: one for each source after the first.
        reason: why it is not planned: "it has no FROM clause".
        where: conjuncts of WHERE, `a` and `b OR c` of `WHERE a AND (b OR c)`.
        having: conjuncts of HAVING.
        outputs: by keyword of the other clauses, their expressions that hold a call:
            `{"SELECT": (AI.SCORE(t.a),)}` of `SELECT id, AI.SCORE(t.a) AS s FROM t`.
        items: the items of SELECT that hold a call, `AI.SCORE(t.a) AS s`.
        clauses: what stands behind each keyword: `{"SELECT": "id", "LIMIT": "3", …}`.
    """

    span: TextSpan
    scope: tuple[TextSpan, ...]
    recursive: bool
    alone: bool
    top: bool
    exists: bool = False
    cte: tuple[str, TextSpan] | None = None
    union: TextSpan | None = None
    sources: tuple[TableRef, ...] = ()
    joins: tuple[Join, ...] = ()
    reason: str = ""
    where: tuple[Expr, ...] = ()
    having: tuple[Expr, ...] = ()
    outputs: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    items: list[TextSpan] = field(default_factory=list)
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
        own = self.joins[number - 1].kind if number else JoinKind.INNER
        later = {join.kind for join in self.joins[number:]}
        no_nulls = own in (JoinKind.INNER, JoinKind.RIGHT)
        return no_nulls and not later & {JoinKind.RIGHT, JoinKind.FULL}
