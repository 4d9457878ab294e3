"""Outer join simplification: joins that add no rows, because WHERE is null-rejecting.

    t LEFT JOIN u ON AI.IF(… t, u) WHERE u.id = 3      u.id is NULL in a row without partner
    t FULL JOIN u ON … WHERE AI.IF(… t.a)              a NULL document gives NULL: rows of u alone
                                                       go, and those of t stay as of a LEFT JOIN

Who rejects NULL is known by trial: DuckDB evaluates the condition on a row of NULLs. Of
conditions over several tables only plain comparisons are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

from sqlglot import TokenType

from covey.logical.calls import AICall, OnError
from covey.logical.query_blocks import Expr, JoinKind, QueryBlock, TableRef
from covey.logical.text_span import TextSpan
from covey.optimizer.predicate_pushdown import OuterPredicate
from covey.optimizer.workspace import Workspace
from covey.sql.edited_text import Edits, Replacement
from covey.sql.text import COMPARISONS, quote_name

_OPERANDS = frozenset(
    {
        TokenType.DOT, TokenType.NUMBER, TokenType.STRING, TokenType.PLUS, TokenType.DASH,
        TokenType.STAR,
    }
)  # fmt: skip

_Condition = Expr | OuterPredicate


def simplify_outer_joins(
    block: QueryBlock, work: Workspace, around: Sequence[OuterPredicate] = ()
) -> None:
    """Let the joins of a block be of the kind that their rows show, in the text too."""
    outer = (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)

    @cache
    def rejected(condition: _Condition, source: int) -> bool:
        return _is_null_rejecting(condition, block.sources[source], block, work)

    changed = any(join.kind in outer for join in block.joins)
    while changed:
        changed = False
        for number, join in enumerate(block.joins):
            later = [j for j in block.joins[number + 1 :] if j.kind is JoinKind.INNER]
            conditions: list[_Condition] = [*block.where, *(c for j in later for c in j.on)]
            conditions += (o for o in around if not o.constant)
            kind = _kind(join.kind, number, conditions, rejected)
            if kind is not join.kind:
                changed, joined = True, replace(join, kind=kind)
                block.joins = (*block.joins[:number], joined, *block.joins[number + 1 :])
    names = {kind.name for kind in outer}
    for join in block.joins:
        # Planned once more, the block has its kinds, but no edit any more.
        written = set() if join.words is None else work.tokens.words(join.words) & names
        if join.words is not None and written and join.kind.name not in written:
            natural = "NATURAL " if "NATURAL" in work.tokens.words(join.words) else ""
            work.edited.replace(join.words, f"{natural}{join.kind.name} JOIN")


def _kind(
    kind: JoinKind,
    number: int,
    conditions: Sequence[_Condition],
    rejects: Callable[[_Condition, int], bool],
) -> JoinKind:
    """What join `number` is, given what must hold of its rows."""

    def rejected(source: int) -> bool:
        return any(rejects(condition, source) for condition in conditions)

    if kind in (JoinKind.RIGHT, JoinKind.FULL) and any(map(rejected, range(number + 1))):
        kind = JoinKind.INNER if kind is JoinKind.RIGHT else JoinKind.LEFT
    if kind in (JoinKind.LEFT, JoinKind.FULL) and rejected(number + 1):
        kind = JoinKind.INNER if kind is JoinKind.LEFT else JoinKind.RIGHT
    return kind


def _is_null_rejecting(
    condition: _Condition, source: TableRef, block: QueryBlock, work: Workspace
) -> bool:
    """Whether a condition is not TRUE of a row in which a source is NULL."""
    if isinstance(condition, OuterPredicate):
        relation = _nulls(source, block, work)
        return relation is not None and _is_not_true(condition.text, relation, block, work)
    if work.draws(condition.span, block):
        return False
    if source.alias.lower() in work.tokens.qualifiers(condition.span) and _compares(
        condition, work
    ):
        return True
    relation = _nulls(source, block, work)
    if relation is None or work.names_other(condition.span, source.alias, block.sources):
        return False
    prefix, nulls = work.with_clause(block), dict[TextSpan, Replacement]()
    for call in (work.calls[number] for number in condition.calls):
        if not _is_null(call, relation, prefix, work, nulls):
            return False
        nulls[call.span] = [f"CAST(NULL AS {call.sql_type})"]
    return _is_not_true(work.edited.render(condition.span, nulls), relation, block, work)


def _nulls(source: TableRef, block: QueryBlock, work: Workspace) -> str | None:
    """A row of a source in which all is NULL, as FROM has it.

    Where a join merges columns, a column of that name in two sources is left out: without
    an alias before it, it is neither's.
    """
    prefix, merged = work.with_clause(block), set[str]()

    def columns(each: TableRef) -> list[tuple[str, str]]:
        relation = work.relation(each)
        return work.binder.columns(f"{prefix}SELECT * FROM {relation}") or []

    if any(join.merges for join in block.joins):
        others = [s for s in block.sources if s is not source]
        merged = {name.lower() for other in others for name, _ in columns(other)}
    own = [(name, kind) for name, kind in columns(source) if name.lower() not in merged]
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quote_name(name)}" for name, kind in own)
    return f"(SELECT {nulls}) AS {quote_name(source.alias)}" if own else None


def _is_not_true(text: str, relation: str, block: QueryBlock, work: Workspace) -> bool:
    query = f"{work.with_clause(block)}SELECT ({text}) IS NOT TRUE FROM {relation}"
    return work.binder.first(query) is True


def _is_null(call: AICall, relation: str, prefix: str, work: Workspace, nulls: Edits) -> bool:
    """Whether a call is NULL because one of its documents is."""
    if call.options.on_error is OnError.VALUE:
        return False
    texts = [work.edited.render(span, nulls) for span in call.arguments]
    return any(
        work.binder.first(f"{prefix}SELECT ({text}) IS NULL FROM {relation}") is True
        for text in texts
    )


def _compares(condition: Expr, work: Workspace) -> bool:
    """Whether a condition is one comparison of columns and numbers: NULL in, NULL out."""
    tokens = work.tokens.inside(condition.span)
    if condition.calls or sum(token.kind in COMPARISONS for token in tokens) != 1:
        return False
    named = [token.is_name for token in tokens]
    if any(one and other for one, other in pairwise(named)):
        return False
    return all(
        token.kind in COMPARISONS or token.kind in _OPERANDS or token.is_name for token in tokens
    )
