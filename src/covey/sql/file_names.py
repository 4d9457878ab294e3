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
        token: the literal, `'a.csv'`.
        alone: whether its name alone says in which form the file is: FROM 'a.csv', and not
            read_csv('a.csv').
    """

    token: Token
    alone: bool


def file_names(tokens: TokenList) -> Iterator[FileName]:
    """The literals that stand for a table, or among the arguments of a function that is one."""
    readers: list[bool] = []
    copies = bool(tokens) and tokens[0].word == "COPY"
    for i, token in enumerate(tokens):
        if tokens.is_open(i):
            inside = bool(readers) and readers[-1] and not tokens.begins_query(i + 1)
            readers.append(inside or _opens_reader(tokens, i))
        elif i in tokens.partner:
            readers.pop()
        elif token.kind in (TokenType.STRING, TokenType.IDENTIFIER):
            if _ends_source(tokens.word(i - 1)):
                yield FileName(token, alone=not copies)
            elif readers and readers[-1] and token.kind is TokenType.STRING:
                yield FileName(token, alone=False)


def _ends_source(word: str) -> bool:
    # A join is one word with its kind: LEFT JOIN.
    return word.rpartition(" ")[2] in _BEFORE_SOURCE


def _opens_reader(tokens: TokenList, i: int) -> bool:
    """Whether a bracket opens the arguments of a function that reads files."""
    if i == 0 or tokens[i].kind is not TokenType.L_PAREN:
        return False
    name, is_name = tokens[i - 1].text.lower(), tokens[i - 1].is_name
    is_source = is_name and _ends_source(tokens.word(i - 2)) and name not in _OF_VALUES
    return name.startswith(_READERS) or is_source
