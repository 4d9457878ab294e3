"""Which expressions may have another value the next time they are evaluated.

An expression of the user's that is evaluated earlier, elsewhere or twice must give the same
rows: random(), nextval('s') and functions of one's own with side effects do not, nor a macro
or a view over those. DuckDB is asked which functions these are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import duckdb
from sqlglot import TokenType

from covey.sql.text import Span, TokenList

_WORD = re.compile(r'"?(\w+)"?(\s*\()?')
_SAMPLED = re.compile(r"\b(tablesample|using sample)\b")
# With one argument it counts from today; DuckDB's list cannot tell that from two.
_READS_CLOCK = "age"
# Of functions that change with the statement those without arguments read the clock; others
# depend on settings, such as the time zone.
_FUNCTIONS = """
    SELECT lower(function_name), stability, macro_definition FROM duckdb_functions()
    WHERE stability = 'VOLATILE' OR macro_definition IS NOT NULL
        OR (stability = 'CONSISTENT_WITHIN_QUERY' AND len(parameters) = 0)
"""
_VIEWS = "SELECT lower(view_name), sql FROM duckdb_views() WHERE NOT internal"


class Changes(IntEnum):
    """How long the value of an expression holds."""

    NEVER = 0
    WITH_STATEMENT = 1
    WITH_ROW = 2


@dataclass(frozen=True, slots=True)
class Volatile:
    """The names of a connection whose values change.

    Attributes:
        functions: functions and macros, lower case.
        views: views, lower case.
    """

    functions: Mapping[str, Changes]
    views: Mapping[str, Changes]
    _read: dict[str, list[tuple[int, Changes]]] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def within(self, tokens: TokenList, span: Span, without: Iterable[Span] = ()) -> Changes:
        """How the text of a span changes, less the text of some spans inside it."""
        changing = self._changing(tokens)
        first, last = (bisect_left(changing, (place,)) for place in span)
        if first == last:
            return Changes.NEVER
        left_out = tuple(without)
        return max(
            Changes.NEVER if any(a <= place < b for a, b in left_out) else changes
            for place, changes in changing[first:last]
        )

    def _changing(self, tokens: TokenList) -> list[tuple[int, Changes]]:
        """Where the tokens of a text stand that change, in order."""
        known = self._read.get(tokens.text)
        if known is None:
            each = ((token.start, self._of_token(tokens, i)) for i, token in enumerate(tokens))
            known = self._read[tokens.text] = [(at, found) for at, found in each if found]
        return known

    def _of_token(self, tokens: TokenList, i: int) -> Changes:
        token = tokens[i]
        name = token.text.strip('"').lower()
        sampled = token.word == "SAMPLE" and i and tokens[i - 1].word == "USING"
        if token.word == "TABLESAMPLE" or sampled:
            return Changes.WITH_ROW
        if token.kind is TokenType.STRING:
            return Changes.NEVER
        behind = tokens[i + 1].kind if i + 1 < len(tokens) else None
        found = Changes.NEVER
        if behind is not TokenType.DOT:
            found = self.views.get(name, Changes.NEVER)
        if behind is TokenType.L_PAREN or token.word.startswith(("CURRENT_", "LOCALTIME")):
            found = max(found, self.functions.get(name, Changes.NEVER))
        return found


def read_volatile(connection: duckdb.DuckDBPyConnection) -> Volatile:
    """What DuckDB says of its functions, and what follows for macros and views."""
    functions = {_READS_CLOCK: Changes.WITH_STATEMENT}
    macros, views = list[tuple[str, str]](), dict[str, Changes]()
    for name, stability, definition in connection.execute(_FUNCTIONS).fetchall():
        if definition is not None:
            macros.append((name, definition))
        else:
            volatile = stability == "VOLATILE"
            functions[name] = Changes.WITH_ROW if volatile else Changes.WITH_STATEMENT
    defined = connection.execute(_VIEWS).fetchall()
    grown = True
    while grown:
        grown = False
        for known, definitions in ((functions, macros), (views, defined)):
            for name, definition in definitions:
                found = _of_definition(definition, functions, views)
                if found > known.get(name, Changes.NEVER):
                    known[name], grown = found, True
    return Volatile(functions, views)


def _of_definition(
    definition: str, functions: Mapping[str, Changes], views: Mapping[str, Changes]
) -> Changes:
    """How a macro or view changes, by the names in its text; a name too many does no harm."""
    text = definition.lower()
    found = Changes.WITH_ROW if _SAMPLED.search(text) else Changes.NEVER
    for word, bracket in _WORD.findall(text):
        found = max(found, views.get(word, Changes.NEVER))
        if bracket or word.startswith(("current_", "localtime")):
            found = max(found, functions.get(word, Changes.NEVER))
    return found
