"""The shape of a statement as far as planning needs it: places only, no SQL text.

Everything is a span of the user's text. What cannot be given this shape is not
planned, which is always allowed: it runs by demand iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

Span = tuple[int, int]


class Kind(Enum):
    """How the parts of a boolean expression are combined."""

    AND = "and"
    OR = "or"
    NOT = "not"
    CASE = "case"
    COALESCE = "coalesce"
    LEAF = "leaf"


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression and the parts whose evaluation may be skipped.

    Attributes:
        kind: how `parts` are combined; a LEAF has none that may be skipped, but its
            parts (arguments of functions, operands) may themselves have some.
        span: its place.
        parts: operands of AND, OR, COALESCE; the operand of NOT; for CASE its
            conditions and values in turn, then the ELSE value if there is one.
        calls: indexes of the AI calls inside it.
    """

    kind: Kind
    span: Span
    parts: tuple[Expr, ...] = ()
    calls: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of a FROM clause.

    Attributes:
        span: the relation as written, without its alias.
        alias: the name its columns go by.
        has_alias: whether the alias is written behind it.
    """

    span: Span
    alias: str
    has_alias: bool


@dataclass(slots=True)
class Block:
    """One SELECT with its FROM and WHERE.

    Attributes:
        span: from SELECT (or FROM) to its end.
        scope: spans of the common table expressions it can see, outermost first.
        recursive: whether one of those WITH clauses is recursive.
        sources: the entries of FROM, None where its form is not planned.
        reason: why it is not planned.
        inner: all its joins are inner, cross or comma joins without NATURAL or USING.
        conditions: conjuncts of WHERE, and of ON where `inner`.
        from_span: what stands behind FROM.
        clauses: span of every other clause by its keyword.
    """

    span: Span
    scope: tuple[Span, ...]
    recursive: bool
    sources: tuple[Source, ...] | None = None
    reason: str = ""
    inner: bool = False
    conditions: tuple[Expr, ...] = ()
    from_span: Span | None = None
    clauses: dict[str, Span] = field(default_factory=dict)


def skippable(root: Expr) -> Iterator[Expr]:
    """`root` and every expression inside it, outer before inner."""
    yield root
    for part in root.parts:
        yield from skippable(part)
