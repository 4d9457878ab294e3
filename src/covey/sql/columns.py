"""Which columns a statement can read, so that no others are copied."""

from __future__ import annotations

from sqlglot import TokenType

from covey.logical.blocks import Block
from covey.sql.text import TokenList

# Words whose columns are not written down one by one.
_ALL_COLUMNS = {"COLUMNS", "NATURAL", "PIVOT", "UNPIVOT", "SUMMARIZE", "DESCRIBE", "UNPACK"}


def named_columns(tokens: TokenList, blocks: list[Block]) -> frozenset[str] | None:
    """Every name in a statement, lower case: the columns that it reads are among them.

    None where it may read columns that it does not name: by a star, a whole row as one
    value, a natural join, or a SELECT that is left out.
    """
    aliases: set[str] = set()
    # Where a name is given, rather than used as a value.
    given: set[int] = set()
    for block in blocks:
        if block.sources is None or "SELECT" not in block.clauses:
            return None
        given.update(span[0] for span in block.scope)
        for source in block.sources:
            aliases.add(source.alias.lower())
            given.add(tokens.inside((source.span[0], source.end))[-1].start)
    for i, token in enumerate(tokens):
        if token.word in _ALL_COLUMNS:
            return None
        if token.kind is TokenType.STAR and not _is_count_or_product(tokens, i):
            return None
        qualifies = i + 1 < len(tokens) and tokens[i + 1].kind is TokenType.DOT
        if token.text.lower() in aliases and not qualifies and token.start not in given:
            return None
    return frozenset(token.text.lower() for token in tokens)


def _is_count_or_product(tokens: TokenList, i: int) -> bool:
    """Whether the star at token i is the one of count(*) or a multiplication."""
    if not i:
        return False
    before = tokens[i - 1]
    if before.kind is TokenType.L_PAREN:
        return i > 1 and tokens[i - 2].word == "COUNT"
    literal = before.kind in (TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET)
    return literal or before.is_name
