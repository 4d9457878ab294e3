"""What a block shows of its rows: whether each is a row of FROM, and whether one row with some
values is as good as many.

    SELECT DISTINCT t.id FROM …
    SELECT count(DISTINCT t.id) FROM …
    SELECT t.k, count(DISTINCT t.id) FROM … GROUP BY t.k

Of the matches of a row of t the first is enough. It must not be done beside anything that
counts or adds up matches, for windows, nor for what has another value each time.
"""

from __future__ import annotations

from sqlglot import TokenType

from covey.logical.query_blocks import QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.workspace import Workspace

# A row of FROM is a row of the result only without these.
_NOT_ROW_BY_ROW = {"GROUP BY", "HAVING", "QUALIFY", "WINDOW"}


def row_by_row(block: QueryBlock, work: Workspace) -> bool:
    """Whether every row of the result is a row of FROM, and LIMIT counts those."""
    return block.alone and made_of_rows(block, work)


def made_of_rows(block: QueryBlock, work: Workspace) -> bool:
    """Whether every row that a block gives is a row of FROM, as an operand of UNION too."""
    span = block.clauses.get("SELECT")
    if span is None or _NOT_ROW_BY_ROW & set(block.clauses) or work.samples(block):
        return False
    return "DISTINCT" not in work.tokens.words(span) and _is_plain(span, work)


# Clauses beside which DISTINCT shows rows of sources and nothing made of several.
_OF_DISTINCT = {"SELECT", "FROM", "WHERE"}
_OF_GROUPS = {*_OF_DISTINCT, "GROUP BY"}


def shown_once(block: QueryBlock, work: Workspace) -> str | None:
    """A SELECT list over FROM of all that the block shows; None where every row counts."""
    span = block.clauses.get("SELECT")
    group = block.clauses.get("GROUP BY")
    if any(work.draws(part, block) for part in (span, group) if part is not None):
        return None
    if span is None or not set(block.clauses) <= _OF_GROUPS or "*" in work.edited.render(span):
        return None
    inside = [token.word for token in work.tokens.inside(span)]
    if inside[:1] != ["DISTINCT"]:
        return _of_groups(block, span, work)
    if inside[1:2] == ["ON"] or not set(block.clauses) <= _OF_DISTINCT:
        return None
    return work.edited.render(span) if _is_plain(span, work) else None


def _of_groups(block: QueryBlock, select: TextSpan, work: Workspace) -> str | None:
    tokens, group, shown = work.tokens, block.clauses.get("GROUP BY"), []
    for begin, end in tokens.split(*tokens.indexes(select), TokenType.COMMA):
        counted = _distinct_argument(begin, end, work)
        if counted is None and group is None:
            return None
        span = counted or tokens.span(begin, end)
        if not _is_plain(span, work):
            return None
        shown.append(work.edited.render(span))
    if group is not None and [token.word for token in tokens.inside(group)] != ["ALL"]:
        shown.append(work.edited.render(group))
    return ", ".join(shown)


def _distinct_argument(first: int, last: int, work: Workspace) -> TextSpan | None:
    """What count(DISTINCT …) counts, where the item is that and perhaps an alias."""
    tokens = work.tokens
    if last - first < 5 or not tokens.is_open(first + 1):
        return None
    if (tokens[first].word, tokens[first + 2].word) != ("COUNT", "DISTINCT"):
        return None
    closing = tokens.partner[first + 1]
    alias = [token.word for token in tokens[closing + 1 : last]]
    is_alias = len(alias) < 2 or (len(alias) == 2 and alias[0] == "AS")
    return tokens.span(first + 3, closing) if is_alias and closing > first + 3 else None


def _is_plain(span: TextSpan, work: Workspace) -> bool:
    """Whether an expression is made of one row."""
    words = work.tokens.words(span)
    return not words & {"OVER", "UNNEST"} and not work.binder.any_aggregate(span)
