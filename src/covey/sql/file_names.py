"""Where a text names the files that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import TokenType

from covey.sql.text import Token, TokenList

_BEFORE_SOURCE = ("FROM", "JOIN")
_READERS = ("read_", "parquet_", "sniff_csv")
# Table functions whose texts are values.
_OF_VALUES = frozenset(
    "glob json_each json_tree query query_table repeat repeat_row unnest".split()
)


@dataclass(frozen=True, slots=True)
class FileName:
    """A literal that may name a file.

    Attributes:
        token: the literal.
        alone: whether its name alone says in which form the file is: FROM 'a.csv'.
    """

    token: Token
    alone: bool


def file_names(tokens: TokenList) -> Iterator[FileName]:
    """The literals that stand for a table, or among the arguments of a function that is one."""
    readers: list[bool] = []
    copies = bool(tokens) and tokens[0].word == "COPY"
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else None
        if token.kind in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
            inside = bool(readers) and readers[-1] and not tokens.begins_query(i + 1)
            readers.append(inside or _opens_reader(tokens, i))
        elif token.kind in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE):
            readers.pop()
        elif token.kind in (TokenType.STRING, TokenType.IDENTIFIER):
            if before is not None and _ends_source(before):
                yield FileName(token, alone=not copies)
            elif readers and readers[-1] and token.kind is TokenType.STRING:
                yield FileName(token, alone=False)


def _ends_source(token: Token) -> bool:
    # A join is one word with its kind: LEFT JOIN.
    return token.word.rpartition(" ")[2] in _BEFORE_SOURCE


def _opens_reader(tokens: TokenList, i: int) -> bool:
    """Whether a bracket opens the arguments of a function that reads files."""
    if i == 0 or tokens[i].kind is not TokenType.L_PAREN:
        return False
    name = tokens[i - 1].text.lower()
    if name.startswith(_READERS):
        return True
    is_source = i > 1 and tokens[i - 1].is_name and _ends_source(tokens[i - 2])
    return is_source and name not in _OF_VALUES
