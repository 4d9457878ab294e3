"""Names that a query defines itself: those of WITH clauses, and of the entries of FROM.

What is evaluated apart from its query (labels, options) must read none of them: DuckDB
would know a table of the same name, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

from sqlglot import TokenType

from covey.logical.text_span import TextSpan
from covey.sql.text import TokenList

_ENDS = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.STRING)
# Where entries of FROM stand, and the table that a statement changes.
_IN_FROM = ("FROM", "JOIN", "ON", "USING", "UPDATE", "INTO")
_CLAUSES = (
    *_IN_FROM,
    "SELECT",
    "SET",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "QUALIFY",
    "WINDOW",
    "ORDER BY",
    "LIMIT",
)
_READERS = ("FROM", "JOIN", "TABLE", "PIVOT", "UNPIVOT", "SUMMARIZE", "DESCRIBE", "SHOW")
_SET_OPERATIONS = ("UNION", "INTERSECT", "EXCEPT")


def shared_table(tokens: TokenList, span: TextSpan) -> int | None:
    """The token of a table, read inside a span, that a WITH clause around it defines."""
    first, last = tokens.index_at(span[0]), tokens.index_at(span[1])
    shared = definitions(tokens)
    names = {each.name for each in shared}
    for i in range(first + 1, last) if shared else ():
        named = tokens[i].text.lower() in names and _is_table(tokens, i, first)
        if named and _is_shared(tokens, i, first, shared):
            return i
    return None


def is_defined(tokens: TokenList, i: int) -> bool:
    """Whether the query around token i, a table's name, defines that name itself."""
    name = tokens[i].text.lower()
    return _is_shared(tokens, i, i, definitions(tokens)) or _is_entry_around(tokens, name, i)


def _is_shared(tokens: TokenList, i: int, first: int, shared: Sequence[Defined]) -> bool:
    around = [each for each in shared if each.hides(tokens[i].text.lower(), i)]
    inmost = max(around, key=lambda each: each.clause, default=None)
    return inmost is not None and inmost.clause < first


def _is_table(tokens: TokenList, i: int, first: int) -> bool:
    """Whether token i, behind another of the same expression, names a table to be read."""
    if not (tokens[i].is_name or tokens[i].kind is TokenType.STRING):
        return False
    if i + 1 < len(tokens) and tokens[i + 1].kind in (TokenType.DOT, TokenType.L_PAREN):
        return False
    before = i - 1
    while before > first and tokens[before].kind is TokenType.L_PAREN:
        before -= 1
    if tokens[before].kind is TokenType.COLON:
        return True
    if tokens[before].kind is TokenType.COMMA:
        return _clause_before(tokens, before) in ("FROM", "JOIN")
    return tokens[before].word in _READERS


def _clause_before(tokens: TokenList, i: int) -> str:
    """The keyword that begins the clause in which token i stands, on its level of brackets."""
    i -= 1
    while i >= 0 and not tokens.is_open(i):
        if i in tokens.partner:
            i = tokens.partner[i]
        elif tokens[i].word in _CLAUSES:
            return tokens[i].word
        i -= 1
    return ""


def _is_entry_around(tokens: TokenList, name: str, place: int) -> bool:
    """Whether an entry of FROM that token `place` can see has a name of its own, `name`.

    A table that goes by its own name alone is none: it is the same one everywhere.
    """
    sees = True
    while True:
        opening = _bracket_around(tokens, place)
        if sees and _has_entry(tokens, name, place, opening):
            return True
        if opening is None:
            return False
        # What a WITH clause defines does not see the FROM behind it.
        sees = tokens[opening - 1].word not in ("AS", "MATERIALIZED")
        place = opening


def _bracket_around(tokens: TokenList, i: int) -> int | None:
    i -= 1
    while i >= 0:
        if tokens.is_open(i):
            return i
        i = tokens.partner.get(i, i) - 1
    return None


def _has_entry(tokens: TokenList, name: str, place: int, opening: int | None) -> bool:
    """Whether the SELECT on the level of `place` has an entry of that name in FROM."""
    first = 0 if opening is None else opening + 1
    last = len(tokens) if opening is None else tokens.partner[opening]
    clause = ""
    found = False
    for i in tokens.top_level(first, last):
        word = tokens[i].word
        if word.partition(" ")[0] in _SET_OPERATIONS:
            # The SELECT before it or, where `place` stands behind it, nothing so far.
            if i > place:
                break
            clause, found = "", False
        elif word in _CLAUSES:
            clause = word
        elif clause in _IN_FROM:
            found = found or _names_entry(tokens, name, i)
    return found


def _names_entry(tokens: TokenList, name: str, i: int) -> bool:
    """Whether token i, in FROM, gives an entry a name that is not a plain table's own."""
    token, before = tokens[i], tokens[i - 1]
    after = tokens[i + 1].kind if i + 1 < len(tokens) else None
    begins = before.word in ("FROM", "JOIN", "UPDATE", "INTO") or before.kind is TokenType.COMMA
    if token.kind is TokenType.STRING:
        return begins and PurePath(token.text).name.partition(".")[0].lower() == name
    if not token.is_name or token.text.lower() != name or after is TokenType.DOT:
        return False
    if begins:
        return after in (TokenType.L_PAREN, TokenType.COLON)
    behind = before.is_name or before.kind in _ENDS or before.word == "AS"
    return behind or before.kind is TokenType.DOT


@dataclass(frozen=True, slots=True)
class Defined:
    """A name of a WITH clause, and the tokens among which it hides tables and views.

    Attributes:
        name: lower case.
        clause: the token WITH.
        first, last: the tokens that see it, exclusive.
    """

    name: str
    clause: int
    first: int
    last: int

    def hides(self, name: str, place: int) -> bool:
        return name == self.name and self.first < place < self.last


@lru_cache(maxsize=16)
def definitions(tokens: TokenList) -> Sequence[Defined]:
    """What all WITH clauses of a statement define."""
    found = []
    around = [len(tokens)]
    for i in range(len(tokens)):
        if tokens.is_open(i):
            around.append(tokens.partner[i])
        elif i in tokens.partner:
            around.pop()
        elif tokens[i].word == "WITH" and i + 2 < len(tokens):
            found += _clause(tokens, i, around[-1])
    return found


def _clause(tokens: TokenList, clause: int, last: int) -> list[Defined]:
    recursive = tokens[clause + 1].word == "RECURSIVE"
    start = clause + 1 + recursive
    found = []
    for i in tokens.top_level(start, last):
        if not tokens.is_open(i) or tokens[i - 1].word not in ("AS", "MATERIALIZED"):
            continue
        end = tokens.partner[i]
        found.append(Defined(tokens[start].text.lower(), clause, i if recursive else end, last))
        start = end + 2
        if start >= last or tokens[end + 1].kind is not TokenType.COMMA:
            break
    return found
