"""Tables and views that a statement reads, and names that a query defines itself: those of WITH
clauses, and of the entries of FROM.

What is evaluated apart from its query (labels, options) must read none of the latter: DuckDB
would know a table of the same name, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import PurePath

from sqlglot import TokenType

from covey.logical.text_span import TextSpan
from covey.sql.text import CLAUSES, SET_OPERATIONS, TokenList

# Words that end what FROM began, at the same depth of brackets.
_ENDS = (*CLAUSES, *SET_OPERATIONS, "SELECT", "WITH", "VALUES", "SET", "RETURNING")
_PIVOTS = ("PIVOT", "UNPIVOT")
# Functions whose arguments are separated by FROM.
_FROM_FUNCTIONS = ("EXTRACT", "SUBSTRING", "TRIM", "OVERLAY")


@dataclass(slots=True)
class _Level:
    """What is known inside one bracket.

    Attributes:
        expects: whether a relation comes next.
        in_from: whether a comma is followed by one.
        plain: whether FROM is a clause here.
        using: whether USING is one, as in DELETE and MERGE.
    """

    expects: bool
    in_from: bool
    plain: bool
    using: bool = False


def relation_names(tokens: TokenList) -> list[tuple[int, int]]:
    """The token range of every table or view name that is read: `v`, `main.v`, `db.main.v`.

    Names that a WITH clause defines are among them; table functions are not.
    """
    found = []
    levels = [_Level(False, False, True)]
    i = 0
    while i < len(tokens):
        level, token = levels[-1], tokens[i]
        if tokens.is_open(i):
            plain = tokens.word(i - 1) not in _FROM_FUNCTIONS
            levels.append(_Level(level.expects, level.expects, plain))
            level.expects = False
        elif i in tokens.partner:
            levels.pop()
        elif token.kind is TokenType.COMMA:
            level.expects = level.in_from
        elif _starts_relation(tokens, i, level):
            level.expects = level.in_from = True
        elif token.word in (*_ENDS, *_PIVOTS):
            level.in_from = False
            level.expects = token.word in _PIVOTS
        elif level.expects and token.word != "LATERAL":
            end = _path_end(tokens, i)
            if end > i and (end == len(tokens) or not tokens.is_open(end)):
                found.append((i, end))
            level.expects = False
            i = max(i, end - 1)
        level.using = level.using or token.word in ("DELETE", "MERGE")
        i += 1
    return found


def _starts_relation(tokens: TokenList, i: int, level: _Level) -> bool:
    """Whether the word at i is a FROM, JOIN or USING with a relation behind it."""
    word = tokens[i].word
    if word == "FROM":
        return level.plain and tokens.word(i - 1) != "DISTINCT"
    if word == "JOIN":
        return level.in_from
    return word == "USING" and level.using and tokens.kind(i + 1) is not TokenType.L_PAREN


def _path_end(tokens: TokenList, i: int) -> int:
    """Index behind the dotted name at i; i itself where there is none."""

    def is_name(at: int) -> bool:
        return tokens.kind(at) is TokenType.IDENTIFIER or bool(tokens.word(at))

    if not is_name(i):
        return i
    while tokens.kind(i + 1) is TokenType.DOT and is_name(i + 2):
        i += 2
    return i + 1


_OPERANDS = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.STRING)
# Where entries of FROM stand, and the table that a statement changes.
_IN_FROM = ("FROM", "JOIN", "ON", "USING", "UPDATE", "INTO")
_STARTS = (*_IN_FROM, "SELECT", "SET", *CLAUSES)
_READERS = ("FROM", "JOIN", "TABLE", "PIVOT", "UNPIVOT", "SUMMARIZE", "DESCRIBE", "SHOW")


def shared_table(tokens: TokenList, span: TextSpan) -> int | None:
    """The token of a table, read inside a span, that a WITH clause around it defines."""
    first, last = tokens.indexes(span)
    names = defined_names(tokens)
    for i in range(first + 1, last) if names else ():
        named = tokens[i].text.lower() in names and _is_table(tokens, i, first)
        if named and _is_shared(tokens, i, first):
            return i
    return None


def defined_names(tokens: TokenList) -> set[str]:
    """What WITH clauses of a statement call their tables, lower case."""
    return {each.name for each in _all_definitions(tokens)}


def definition_around(tokens: TokenList, i: int) -> Definition | None:
    """The table of the innermost WITH clause that token i, a table's name, stands for."""
    name = tokens[i].text.lower()
    around = [d for d in _all_definitions(tokens) if d.name == name and d.first < i < d.last]
    return max(around, key=lambda each: each.clause, default=None)


def is_defined(tokens: TokenList, i: int) -> bool:
    """Whether the query around token i, a table's name, defines that name itself."""
    return _is_shared(tokens, i, i) or _is_entry_around(tokens, tokens[i].text.lower(), i)


def _is_shared(tokens: TokenList, i: int, first: int) -> bool:
    found = definition_around(tokens, i)
    return found is not None and found.clause < first


def _is_table(tokens: TokenList, i: int, first: int) -> bool:
    """Whether token i, behind another of the same expression, names a table to be read."""
    if not (tokens[i].is_name or tokens[i].kind is TokenType.STRING):
        return False
    if tokens.kind(i + 1) in (TokenType.DOT, TokenType.L_PAREN):
        return False
    before = i - 1
    while before > first and tokens[before].kind is TokenType.L_PAREN:
        before -= 1
    if tokens[before].kind is TokenType.COLON:
        return True
    if tokens[before].kind is TokenType.COMMA:
        return tokens.word_before(before, _STARTS) in ("FROM", "JOIN")
    return tokens[before].word in _READERS


def _is_entry_around(tokens: TokenList, name: str, place: int) -> bool:
    """Whether an entry of FROM that token `place` can see has a name of its own, `name`.

    A table that goes by its own name alone is none: it is the same one everywhere.
    """
    # What a WITH clause defines does not see the FROM behind it.
    sees = tokens.word(place - 1) not in ("AS", "MATERIALIZED") or not tokens.is_open(place)
    if sees and _has_entry(tokens, name, place):
        return True
    opening = tokens.opening[place]
    return opening is not None and _is_entry_around(tokens, name, opening)


def _has_entry(tokens: TokenList, name: str, place: int) -> bool:
    """Whether the SELECT on the level of `place` has an entry of that name in FROM."""
    opening = tokens.opening[place]
    clause, found = "", False
    for i in tokens.top_level(0 if opening is None else opening + 1, tokens.level_end(place)):
        word = tokens[i].word
        if word.partition(" ")[0] in SET_OPERATIONS:
            # The SELECT before it or, where `place` stands behind it, nothing so far.
            if i > place:
                break
            clause, found = "", False
        elif word in _STARTS:
            clause = word
        elif clause in _IN_FROM:
            found = found or _names_entry(tokens, name, i)
    return found


def _names_entry(tokens: TokenList, name: str, i: int) -> bool:
    """Whether token i, in FROM, gives an entry a name that is not a plain table's own."""
    token, before, after = tokens[i], tokens[i - 1], tokens.kind(i + 1)
    begins = before.word in ("FROM", "JOIN", "UPDATE", "INTO") or before.kind is TokenType.COMMA
    if token.kind is TokenType.STRING:
        return begins and PurePath(token.text).name.partition(".")[0].lower() == name
    if not token.is_name or token.text.lower() != name or after is TokenType.DOT:
        return False
    if begins:
        return after in (TokenType.L_PAREN, TokenType.COLON)
    behind = before.is_name or before.kind in _OPERANDS or before.word == "AS"
    return behind or before.kind is TokenType.DOT


@dataclass(frozen=True, slots=True)
class Definition:
    """A table of a WITH clause, by the indexes of tokens.

        WITH a AS (SELECT 1) SELECT * FROM a

    Attributes:
        name: lower case, `a`.
        clause: of the word WITH.
        start: of the name.
        opening, closing: of the brackets around its query.
        first, last: among which its name hides tables and views, exclusive.
    """

    name: str
    clause: int
    start: int
    opening: int
    closing: int
    first: int
    last: int


@lru_cache(maxsize=16)
def definitions(tokens: TokenList) -> dict[int, list[Definition]]:
    """What each WITH clause of a statement defines, by the index of its WITH."""
    clauses = (i for i, token in enumerate(tokens[:-2]) if token.word == "WITH")
    return {i: _clause(tokens, i, tokens.level_end(i)) for i in clauses}


def _all_definitions(tokens: TokenList) -> Iterator[Definition]:
    return chain.from_iterable(definitions(tokens).values())


def _clause(tokens: TokenList, clause: int, last: int) -> list[Definition]:
    recursive = tokens[clause + 1].word == "RECURSIVE"
    start = clause + 1 + recursive
    found = []
    for i in tokens.top_level(start, last):
        if not tokens.is_open(i) or tokens[i - 1].word not in ("AS", "MATERIALIZED"):
            continue
        end = tokens.partner[i]
        first = i if recursive else end
        found.append(Definition(tokens[start].text.lower(), clause, start, i, end, first, last))
        start = end + 2
        if start >= last or tokens[end + 1].kind is not TokenType.COMMA:
            break
    return found
