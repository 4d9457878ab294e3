"""Ask only where the answer can still matter: SQL's three-valued logic as guards.

A UDF call inside `a OR (b AND ai)` is needed only where `a` is not TRUE and `b` is not
FALSE. Each UDF call is wrapped in CASE WHEN guard THEN call END for every sibling
that is evaluated before it; DuckDB evaluates CASE lazily. Where a guard fails, the
value of the UDF call cannot change the value of the whole expression, so NULL will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from covey.logical.calls import AICall
from covey.logical.query_blocks import Expr, Kind
from covey.logical.text_span import TextSpan
from covey.sql.boolean import DEEPEST_PART
from covey.sql.edited_text import EditedText, Replacement


class Context(Enum):
    """Which values of an expression its surroundings can tell apart."""

    TRUTH = "TRUE from the rest"
    FALSITY = "FALSE from the rest"
    VALUE = "all"

    def negated(self) -> Context:
        swap = {Context.TRUTH: Context.FALSITY, Context.FALSITY: Context.TRUTH}
        return swap.get(self, Context.VALUE)


@dataclass(frozen=True, slots=True)
class Guard:
    """Siblings that are evaluated first, and what must hold of them: `(a OR b) IS NOT TRUE`.

    Attributes:
        exprs: the siblings, mostly one: a, b.
        test: the predicate behind them, "IS NOT TRUE".
        operand: x, where the predicate is on `(x = a)`, as in `CASE x WHEN a …`.
        word: "OR", between several.
    """

    exprs: tuple[Expr, ...]
    test: str
    operand: Expr | None = None
    word: str = ""


_Key = tuple[Kind, TextSpan, Context]


class Guards:
    """Guards of the calls of one block.

    Args:
        calls: all calls of the statement.
        direct: the calls that belong to the block. A call inside a subquery is never
            guarded from outside it: names could change their meaning.
        order: sorts siblings that hold calls by the order in which they are asked.
        edited: holds the bare UDF call of every call as the edit of its span.
        holds: whether an expression has one value however often it is evaluated; another
            is no guard, which is a second evaluation.
    """

    def __init__(
        self,
        calls: list[AICall],
        direct: frozenset[int],
        order: Callable[[Expr], tuple[float, ...]],
        edited: EditedText,
        holds: Callable[[Expr], bool],
    ) -> None:
        self._calls = calls
        self._direct = direct
        self._order = order
        self._edited = edited
        self._holds = holds
        self._lasting: dict[TextSpan, bool] = {}
        self._parts: dict[_Key, list[tuple[Expr, list[Guard], Context]]] = {}
        self._wrapped: dict[_Key, tuple[tuple[int, ...], dict[int, Replacement]]] = {}
        self._texts: dict[TextSpan, tuple[tuple[int, ...], str]] = {}

    def for_calls(self, direct: frozenset[int]) -> Guards:
        """The guards of another block's calls, in the same text and order."""
        return Guards(self._calls, direct, self._order, self._edited, self._holds)

    def of_parts(self, expr: Expr, context: Context) -> list[tuple[Expr, list[Guard], Context]]:
        """Each part with the guards its siblings put on it and its own context."""
        key = (expr.kind, expr.span, context)
        known = self._parts.get(key)
        if known is None:
            known = self._parts[key] = [
                (part, list(filter(None, map(self._lasting_part, guards))), inner)
                for part, guards, inner in self._of_parts(expr, context)
            ]
        return known

    def _lasting_part(self, guard: Guard) -> Guard | None:
        """A guard of the siblings that have one value; None where there are none."""
        if guard.operand is not None and not self._lasts(guard.operand):
            return None
        lasting = tuple(expr for expr in guard.exprs if self._lasts(expr))
        return replace(guard, exprs=lasting) if lasting else None

    def _lasts(self, expr: Expr) -> bool:
        if expr.span not in self._lasting:
            self._lasting[expr.span] = self._holds(expr)
        return self._lasting[expr.span]

    def _of_parts(
        self, expr: Expr, context: Context
    ) -> Iterable[tuple[Expr, list[Guard], Context]]:
        parts = expr.parts
        if expr.kind in (Kind.AND, Kind.OR):
            yield from self._of_operands(expr, context)
        elif expr.kind is Kind.NOT:
            yield parts[0], [], context.negated()
        elif expr.kind is Kind.CASE:
            yield from _of_case(parts, context, None)
        elif expr.kind is Kind.CASE_OF:
            yield parts[0], [], Context.VALUE
            yield from _of_case(parts[1:], context, parts[0])
        elif expr.kind is Kind.COALESCE:
            for i, part in enumerate(parts):
                yield part, [Guard((p,), "IS NULL") for p in parts[:i]], Context.VALUE
        elif expr.kind is Kind.FILTER:
            yield parts[0], [], Context.TRUTH
            for part in parts[1:]:
                yield part, [Guard((parts[0],), "IS TRUE")], Context.VALUE
        elif expr.kind is Kind.COMPARE:
            # Compared with NULL, anything is NULL.
            yield parts[0], [Guard((parts[1],), "IS NOT NULL")], Context.VALUE
        else:
            for part in parts:
                yield part, [], Context.VALUE

    def _of_operands(
        self, expr: Expr, context: Context
    ) -> Iterable[tuple[Expr, list[Guard], Context]]:
        if expr.kind is Kind.AND:
            test = "IS TRUE" if context is Context.TRUTH else "IS NOT FALSE"
        else:
            test = "IS FALSE" if context is Context.FALSITY else "IS NOT TRUE"
        ordered = self.in_order(expr.parts)
        free = sum(not part.calls for part in ordered)
        # Guards are nested: of many siblings some share a level.
        size = -(-free // DEEPEST_PART)
        before = [
            Guard(tuple(ordered[i : min(i + size, free)]), test, word=expr.kind.name)
            for i in range(0, free, size or 1)
        ]
        yield from ((part, [], context) for part in ordered[:free])
        for part in ordered[free:]:
            yield part, list(before), context
            before.append(Guard((part,), test))

    def in_order(self, parts: Iterable[Expr]) -> list[Expr]:
        """Parts without calls first, as written, then the others as they are asked."""
        parts = list(parts)
        free = [part for part in parts if not part.calls]
        return free + sorted((part for part in parts if part.calls), key=self._order)

    def sequence(self, expr: Expr) -> list[int | Expr]:
        """What must be asked inside `expr`, in order: direct calls, and leaves with subqueries."""
        items: list[int | Expr] = []
        seen: set[int] = set()
        for part, _, _ in self.of_parts(expr, Context.VALUE):
            if part.calls:
                items += self.sequence(part)
                seen |= part.calls
        left = expr.calls - seen
        items += sorted(left & self._direct)
        return [*items, expr] if left - self._direct else items

    def path(self, root: Expr, item: int | Expr, context: Context) -> list[Guard]:
        """All guards between `root` and something inside it, outermost first."""
        for part, guards, inner in self.of_parts(root, context):
            if part is item or (
                item in part.calls if isinstance(item, int) else _holds(part, item)
            ):
                return guards + self.path(part, item, inner)
        return []

    def wrap(self, expr: Expr, context: Context) -> dict[int, Replacement]:
        """The UDF call of each direct call inside `expr`, under the guards inside `expr`."""
        key, version = (expr.kind, expr.span, context), self._edited.version(expr.span)
        known = self._wrapped.get(key)
        if known is not None and known[0] == version:
            return known[1]
        wrapped: dict[int, Replacement] = {}
        for part, guards, inner in self.of_parts(expr, context):
            direct = part.calls & self._direct
            if not direct:
                continue
            udf_calls = self.wrap(part, inner)
            texts = [self.text(guard) for guard in guards]
            for call in direct:
                bare = udf_calls.get(call) or self._edited.replacement(self._calls[call].span)
                wrapped[call] = nest(texts, bare)
        self._wrapped[key] = version, wrapped
        return wrapped

    def text(self, guard: Guard) -> str:
        """A guard as SQL; the calls inside it carry their own guards."""
        text = f" {guard.word} ".join(f"({self._render(expr)})" for expr in guard.exprs)
        if len(guard.exprs) > 1:
            text = f"({text})"
        if guard.operand is not None:
            text = f"(({self._render(guard.operand)}) = {text})"
        return f"{text} {guard.test}"

    def _render(self, expr: Expr) -> str:
        version = self._edited.version(expr.span)
        known = self._texts.get(expr.span)
        if known is None or known[0] != version:
            udf_calls = self.wrap(expr, Context.VALUE)
            guarded = {self._calls[call].span: udf_call for call, udf_call in udf_calls.items()}
            known = self._texts[expr.span] = version, self._edited.render(expr.span, guarded)
        return known[1]


def _holds(expr: Expr, item: Expr) -> bool:
    return any(part is item or _holds(part, item) for part in expr.parts)


def nest(guards: list[str], udf_call: Replacement) -> Replacement:
    """`udf_call` where every guard holds, else NULL; a guard is read only if those before hold."""
    opening = "".join(f"CASE WHEN {guard} THEN " for guard in guards)
    return (opening, *udf_call, " END" * len(guards))


def _of_case(
    parts: tuple[Expr, ...], context: Context, operand: Expr | None
) -> Iterable[tuple[Expr, list[Guard], Context]]:
    """CASE evaluates condition after condition, then one value."""
    failed: list[Guard] = []
    inner = Context.TRUTH if operand is None else Context.VALUE
    for condition, value in zip(parts[0::2], parts[1::2], strict=False):
        yield condition, list(failed), inner
        yield value, [*failed, Guard((condition,), "IS TRUE", operand)], context
        failed.append(Guard((condition,), "IS NOT TRUE", operand))
    if len(parts) % 2:
        yield parts[-1], failed, context
