"""Whether a condition can pass while one of its calls has no answer.

Asking may stop early (LIMIT, EXISTS, semi joins) only under conditions that reject a row
whose calls are not all answered: their look-ups give NULL, and `AI.IF(…) IS NULL` would
take that for an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from covey.logical.calls import AICall
from covey.logical.query_blocks import Expr, Kind
from covey.sql.text import TokenList

# Words that make something else than NULL out of NULL.
_ACCEPTING = {"IS", "ISNULL", "NOTNULL", "CASE", "DISTINCT"}


def reject_unanswered(conditions: Iterable[Expr], calls: list[AICall], tokens: TokenList) -> bool:
    """Whether every condition, with a call that gives NULL, is TRUE only if it is anyway."""
    return all(_rejects(condition, calls, tokens) for condition in conditions)


def _rejects(expr: Expr, calls: list[AICall], tokens: TokenList) -> bool:
    if not expr.calls:
        return True
    if expr.kind in (Kind.AND, Kind.OR, Kind.NOT):
        return all(_rejects(part, calls, tokens) for part in expr.parts)
    if expr.kind not in (Kind.LEAF, Kind.COMPARE):
        return False
    # A call in a subquery does not stand open: EXISTS makes FALSE of what it does not find.
    words = tokens.words(expr.span)
    return not words & _ACCEPTING and all(_stands_open(expr, calls[i], tokens) for i in expr.calls)


def _stands_open(expr: Expr, call: AICall, tokens: TokenList) -> bool:
    """Whether a call is an operand of the leaf itself and no argument of a function in it."""
    first = tokens.index_at(expr.span[0])
    last = tokens.index_at(expr.span[1])
    return any(tokens[i].start == call.span[0] for i in tokens.top_level(first, last))
