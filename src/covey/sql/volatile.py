"""Which expressions may have another value the next time they are evaluated.

An expression of the user's that is evaluated earlier, elsewhere or twice must give the same
rows: random(), nextval('s') and functions of one's own with side effects do not, nor a macro
or a view over those. DuckDB is asked which functions these are.

What holds for a statement, the time above all, is another for each of the statements that a
query becomes. While it is planned and run, temporary macros of the same names stand before
those functions and give the values of one moment, in views, macros and defaults too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

import duckdb
from sqlglot import TokenType

from covey.sql.temporary import TemporaryObjects
from covey.sql.text import Span, TokenList, quote_text

_WORD = re.compile(r'"?(\w+)"?(\s*\()?')
_SAMPLED = re.compile(r"\b(tablesample|using sample)\b")
# With one argument it counts from today; DuckDB's list cannot tell that from two.
_READS_CLOCK = "age"
# Without brackets they stand for functions of other names.
_CLOCK_WORDS = {
    "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp",
}  # fmt: skip
# Volatile by DuckDB's list, and one for all rows of a statement.
_OF_STATEMENT = {
    "current_query", "current_query_id", "current_transaction_id", "current_connection_id",
}  # fmt: skip
# Volatile functions that leave no trace: to evaluate them once more is no harm in itself.
_HARMLESS = {
    "random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "currval", "sleep_ms", "stats",
    "vector_type",
}  # fmt: skip
# Of functions that change with the statement those without arguments read the clock; others
# depend on settings, such as the time zone, and so do the current database and schema.
_FUNCTIONS = """
    SELECT system.main.lower(function_name), stability, macro_definition, internal
    FROM system.main.duckdb_functions()
    WHERE (stability = 'VOLATILE' AND function_name <> 'error') OR macro_definition IS NOT NULL
        OR (stability = 'CONSISTENT_WITHIN_QUERY' AND system.main.len(parameters) = 0
            AND function_name NOT IN ('current_database', 'current_schema'))
"""
_VIEWS = (
    "SELECT system.main.lower(view_name), sql FROM system.main.duckdb_views() WHERE NOT internal"
)


class Changes(IntEnum):
    """How long the value of an expression holds."""

    NEVER = 0
    WITH_STATEMENT = 1
    WITH_ROW = 2
    # Evaluated once more it leaves another trace: a sequence moves on.
    WITH_EFFECT = 3


@dataclass(frozen=True, slots=True)
class Volatile:
    """The names of a connection whose values change.

    Attributes:
        functions: functions and macros, lower case.
        views: views, lower case.
        of_statement: the functions without arguments that have one value for a statement.
        own: the user's own macros and functions, which stand.
    """

    functions: Mapping[str, Changes]
    views: Mapping[str, Changes]
    of_statement: frozenset[str]
    own: frozenset[str]
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

    def effects(self, tokens: TokenList, span: Span) -> list[Span]:
        """The calls in a span whose evaluation leaves a trace, outermost first."""
        first, last = tokens.index_at(span[0]), tokens.index_at(span[1])
        return [
            tokens.span(i, tokens.partner[i + 1] + 1)
            for i in range(first, last - 1)
            if tokens[i + 1].kind is TokenType.L_PAREN
            and self._of_token(tokens, i) is Changes.WITH_EFFECT
        ]

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
        if behind is TokenType.L_PAREN:
            found = max(found, self.functions.get(name, Changes.NEVER))
        return max(found, _of_word(token.word.lower()))

    def hold_time(
        self, connection: duckdb.DuckDBPyConnection, objects: TemporaryObjects, text: str
    ) -> None:
        """Let what holds for a statement hold until some objects are cleared.

        Args:
            connection: outside a transaction, within which the time stands still by itself.
            objects: of the statement.
            text: what current_query() gives.
        """
        names = sorted(self.of_statement)
        casts = ", ".join(f"typeof({name}()), CAST({name}() AS VARCHAR)" for name in names)
        found = connection.execute(f"SELECT {casts}").fetchall()[0]
        values = {
            name: f"CAST({quote_text(value)} AS {kind})"
            for name, kind, value in zip(names, found[::2], found[1::2], strict=True)
        }
        values["current_query"] = quote_text(text)
        macros = {name: f"() AS {value}" for name, value in values.items()}
        if "today" in values:
            age, midnight = f"system.main.{_READS_CLOCK}", f"CAST({values['today']} AS TIMESTAMP)"
            macros[_READS_CLOCK] = f"(a) AS {age}({midnight}, a), (a, b) AS {age}(a, b)"
        for name in macros.keys() - self.own:
            objects.create_macro(name, macros[name])


def read_volatile(connection: duckdb.DuckDBPyConnection) -> Volatile:
    """What DuckDB says of its functions, and what follows for macros and views."""
    found = (tuple(connection.execute(query).fetchall()) for query in (_FUNCTIONS, _VIEWS))
    return Volatile(*_closed(*found))


@lru_cache(maxsize=8)  # one statement after another finds the same
def _closed(
    listed: tuple[tuple[str, str, str | None, bool], ...], defined: tuple[tuple[str, str], ...]
) -> tuple[dict[str, Changes], dict[str, Changes], frozenset[str], frozenset[str]]:
    """The fields of `Volatile`, from the rows that DuckDB lists."""
    functions = {_READS_CLOCK: Changes.WITH_STATEMENT}
    macros, views = list[tuple[str, str]](), dict[str, Changes]()
    own = set[str]()
    for name, stability, definition, internal in listed:
        if not internal:
            own.add(name)
        if definition is not None:
            macros.append((name, definition))
        else:
            functions[name] = _of_function(name, stability)
    grown = True
    while grown:
        grown = False
        for known, definitions in ((functions, macros), (views, defined)):
            for name, definition in definitions:
                found = _of_definition(definition, functions, views)
                if found > known.get(name, Changes.NEVER):
                    known[name], grown = found, True
    one_value = {name for name, found in functions.items() if found is Changes.WITH_STATEMENT}
    named = {name for name, _ in macros}
    of_statement = frozenset(one_value - named - own - {_READS_CLOCK})
    return functions, views, of_statement, frozenset(own)


def _of_function(name: str, stability: str) -> Changes:
    if stability != "VOLATILE" or name in _OF_STATEMENT:
        return Changes.WITH_STATEMENT
    return Changes.WITH_ROW if name in _HARMLESS else Changes.WITH_EFFECT


def _of_definition(
    definition: str, functions: Mapping[str, Changes], views: Mapping[str, Changes]
) -> Changes:
    """How a macro or view changes, by the names in its text; a name too many does no harm."""
    text = definition.lower()
    found = Changes.WITH_ROW if _SAMPLED.search(text) else Changes.NEVER
    for word, bracket in _WORD.findall(text):
        found = max(found, views.get(word, Changes.NEVER))
        if bracket:
            found = max(found, functions.get(word, Changes.NEVER))
        found = max(found, _of_word(word))
    return found


def _of_word(word: str) -> Changes:
    return Changes.WITH_STATEMENT if word in _CLOCK_WORDS else Changes.NEVER
