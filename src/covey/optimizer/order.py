"""The order in which AI conditions are asked."""

from __future__ import annotations

from covey.logical.blocks import Expr
from covey.logical.calls import AICall


def ask_order(expr: Expr, calls: list[AICall]) -> tuple[float, ...]:
    """Sort key of a condition that holds calls: cheapest first, then as written.

    A condition over one document touches each row once, one over a pair touches
    every pair, so arity comes first. Without measured pass rates nothing more is
    known of two conditions of one arity than what the user says.
    """
    inside = [calls[i] for i in expr.calls]
    arity = max((call.question.arity for call in inside), default=0)
    given = [call.options.selectivity for call in inside]
    pass_rate = given[0] if len(given) == 1 and given[0] is not None else 1.0
    return (float(arity), pass_rate, float(expr.span[0]))
