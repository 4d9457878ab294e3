"""Conditions of the block around a derived table or CTE that hold of its rows too.

    before  SELECT id FROM (SELECT id, s FROM t WHERE AI.IF(…)) q WHERE q.id < 3
    asked   for the rows of t with (SELECT (q.id < 3) FROM (SELECT id) AS q)

A row that the block around rejects in any case needs no answer. The statement itself stays
as it is. It must not be done where a row of the block is made of several rows or depends on
the others (GROUP BY, windows, LIMIT), where the block is read more than once, and where an
outer join around it would bring the rejected row back.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import TokenType

from covey.logical.blocks import Block, Expr, Span
from covey.optimizer.row_by_row import row_by_row
from covey.optimizer.workspace import LoadedSource, Workspace
from covey.sql.text import quote_name

# Their values differ from one evaluation to the next.
_VOLATILE = {"RANDOM", "UUID", "GEN_RANDOM_UUID", "NEXTVAL", "SETSEED", "NOW", "CLOCK_TIMESTAMP"}


def conditions_from_outside(
    block: Block, work: Workspace, loaded: Sequence[LoadedSource]
) -> list[str]:
    """Conditions on rows of FROM, as SQL over the loaded sources of the block."""
    span = block.clauses.get("SELECT")
    limited = {"LIMIT", "OFFSET"} & set(block.clauses)
    if span is None or limited or not row_by_row(block, work):
        return []
    if any(span[0] <= call.span[0] < span[1] for call in work.calls):
        return []
    found = []
    for around, number in _readers(block, work):
        if not around.keeps(number):
            continue
        alias = quote_name((around.sources or ())[number].alias)
        for condition in around.conditions:
            text = _inside(condition, span, alias, block, work, loaded)
            if text is not None:
                found.append(text)
    return found


def _readers(block: Block, work: Workspace) -> list[tuple[Block, int]]:
    """The one block that reads a block by FROM, and at which place; empty where there are more."""
    readers = []
    for around in work.blocks:
        for number, source in enumerate(around.sources or ()):
            if _is_body(block.span, source.span, 1, work):
                return (
                    []
                    if work.edited.text[source.span[1] : source.end].count("(")
                    else [(around, number)]
                )
            readers.append((around, number))
    if block.cte is None or block.recursive:
        return []
    name, span = block.cte
    inside = work.tokens.inside(span)
    if len(inside) < 5 or inside[1].word != "AS" or not _is_body(block.span, span, 3, work):
        return []
    named = [
        token.start for i, token in enumerate(work.tokens)
        if token.text.lower() == name.lower() and not span[0] <= token.start < span[1]
        and work.tokens[min(i + 1, len(work.tokens) - 1)].kind is not TokenType.DOT
    ]  # fmt: skip
    by_name = [
        (around, number) for around, number in readers
        if [(around.sources or ())[number].span[0]] == named
        and work.edited.text[slice(*(around.sources or ())[number].span)].lower() == name.lower()
    ]  # fmt: skip
    return by_name if len(by_name) == 1 else []


def _is_body(body: Span, span: Span, opening: int, work: Workspace) -> bool:
    """Whether `body` is all that stands in the brackets at the end of a span."""
    inside = work.tokens.inside(span)
    if len(inside) <= opening + 2 or inside[opening - 1].kind is not TokenType.L_PAREN:
        return False
    return (inside[opening].start, inside[-2].end) == body


def _inside(
    condition: Expr,
    select: Span,
    alias: str,
    block: Block,
    work: Workspace,
    loaded: Sequence[LoadedSource],
) -> str | None:
    """A condition on the rows of a block's output as one on its FROM; None where it is none."""
    tokens = work.tokens
    if condition.calls or tokens.words(condition.span) & _VOLATILE:
        return None
    names = {token.text.strip('"').lower() for token in tokens.inside(condition.span)}
    first, last = tokens.index_at(select[0]), tokens.index_at(select[1])
    items = []
    if last - first == 1 and tokens[first].text == "*" and len(loaded) == 1:
        items = [f"{loaded[0].alias}.{quote_name(c)}" for c in loaded[0].columns if c in names]
    else:
        for begin, end in tokens.split(first, last, TokenType.COMMA):
            if tokens[end - 1].text == "*":
                return None
            if tokens[end - 1].text.strip('"').lower() in names:
                items.append(work.edited.render((tokens[begin].start, tokens[end - 1].end)))
    if not items:
        return None
    written = work.edited.render(condition.span)
    relations = ", ".join(f"{source.load.table} AS {source.alias}" for source in loaded)
    alone = f"SELECT ({written}) FROM (SELECT {', '.join(items)} FROM {relations}) AS {alias}"
    text = f"(SELECT ({written}) FROM (SELECT {', '.join(items)}) AS {alias})"
    prefix = work.with_clause(block)
    for query in (alone, f"SELECT {text} FROM {relations}"):
        if work.binder.columns(prefix + query) is None:
            return None
    return text
