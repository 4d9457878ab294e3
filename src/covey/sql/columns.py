"""Which columns a statement can read, so that no others are copied."""

from __future__ import annotations

from sqlglot import TokenType

from covey.logical.query_blocks import QueryBlock
from covey.logical.text_span import TextSpan
from covey.sql.text import TokenList

# Words whose columns are not written down one by one.
_ALL_COLUMNS = {"COLUMNS", "NATURAL", "PIVOT", "UNPIVOT", "SUMMARIZE", "DESCRIBE", "UNPACK"}

# What stands before a COLUMNS(…) whose columns become arguments of one call.
_UNPACKS = ([TokenType.L_PAREN, TokenType.STAR], [TokenType.COMMA, TokenType.STAR])


def named_columns(tokens: TokenList, blocks: list[QueryBlock]) -> frozenset[str] | None:
    """Every name in a statement, lower case: the columns that it reads are among them.

    None where it may read columns that it does not name: by a star, a whole row as one
    value, a natural join, or a SELECT that is left out.
    """
    aliases: set[str] = set()
    # Where a name is given, rather than used as a value.
    given: set[int] = set()
    for block in blocks:
        if not block.sources or "SELECT" not in block.clauses:
            return None
        given.update(span[0] for span in block.scope)
        for source in block.sources:
            aliases.add(source.alias.lower())
            end = source.end if source.names is None else source.names[0]
            given.add(tokens.inside(TextSpan(source.span.start, end))[-1].start)
    for i, token in enumerate(tokens):
        if token.word in _ALL_COLUMNS:
            return None
        if token.kind is TokenType.STAR and not _is_count_or_product(tokens, i):
            return None
        qualifies = tokens.kind(i + 1) is TokenType.DOT
        if token.text.lower() in aliases and not qualifies and token.start not in given:
            return None
    return frozenset(token.text.lower() for token in tokens)


def names_its_columns(tokens: TokenList, item: TextSpan) -> bool:
    """Whether an item of SELECT stands for columns with names of their own.

    `* REPLACE (…)`, `t.*` and `f(COLUMNS(…))` do, `f(*COLUMNS(…))` is one value.
    """
    inside = tokens.inside(item)
    for i, token in enumerate(inside):
        if token.kind is TokenType.STAR and (not i or inside[i - 1].kind is TokenType.DOT):
            return True
        if not token.is_name and token.kind is not TokenType.DOT:
            break
    return makes_columns(tokens, item)


def makes_columns(tokens: TokenList, span: TextSpan) -> bool:
    """Whether an expression holds a COLUMNS(…) that makes one of it for each of some columns."""
    inside = tokens.inside(span)
    return any(
        token.word == "COLUMNS"
        and inside[i + 1].kind is TokenType.L_PAREN
        and [each.kind for each in inside[max(0, i - 2) : i]] not in _UNPACKS
        for i, token in enumerate(inside[:-1])
    )


def _is_count_or_product(tokens: TokenList, i: int) -> bool:
    """Whether the star at token i is the one of count(*) or a multiplication."""
    before = tokens.kind(i - 1)
    if before is TokenType.L_PAREN:
        return tokens.word(i - 2) == "COUNT"
    literal = before in (TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET)
    return literal or (i > 0 and tokens[i - 1].is_name)
