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
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache

import duckdb
from sqlglot import TokenType

from covey.logical.text_span import TextSpan
from covey.sql.functions import BY_SPELLING
from covey.sql.temporary import TemporaryObjects
from covey.sql.text import Token, TokenList, quote_text

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
    SELECT system.main.lower(function_name), function_type, stability, macro_definition, internal
    FROM system.main.duckdb_functions()
    WHERE (stability = 'VOLATILE' AND function_name <> 'error') OR macro_definition IS NOT NULL
        OR (stability = 'CONSISTENT_WITHIN_QUERY' AND system.main.len(parameters) = 0
            AND function_name NOT IN ('current_database', 'current_schema'))
        OR function_type = 'aggregate'
"""
_VIEWS = (
    "SELECT system.main.lower(view_name), sql FROM system.main.duckdb_views() WHERE NOT internal"
)
# Words that stand in front of a bracket and that no function can have for a name.
NO_FUNCTIONS = frozenset(
    """
    ALL AND ANY AS DISTINCT ELSE EXCEPT EXISTS FROM HAVING IN INTERSECT LATERAL LIMIT NOT ON OR
    QUALIFY SELECT THEN UNION USING VALUES WHEN WHERE WITH
    """.split()
)
# The same in a definition, and how DuckDB writes a view of data that is registered.
_NO_CALLS = {word.lower() for word in NO_FUNCTIONS} | {
    "python_arrow_scan", "pandas_scan",
}  # fmt: skip


class Changes(IntEnum):
    """How long the value of an expression holds."""

    NEVER = 0
    WITH_STATEMENT = 1
    WITH_ROW = 2
    # Evaluated once more it leaves another trace: a sequence moves on.
    WITH_EFFECT = 3


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What the functions and views of a connection say of themselves.

    Attributes:
        functions: functions and macros that change, lower case.
        views: views that change, lower case.
        of_statement: the functions without arguments that have one value for a statement.
        own: the user's own macros and functions, which stand.
        aggregates: aggregate functions and macros that call them, lower case.
    """

    functions: Mapping[str, Changes]
    views: Mapping[str, Changes]
    of_statement: frozenset[str]
    own: frozenset[str]
    aggregates: frozenset[str]


class Volatile:
    """What changes among the functions and views of a connection, for one statement.

    To read DuckDB's list of functions takes as long as planning a small query: it is read where
    a text calls one, or reads a view, and once.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._read: dict[str, list[tuple[int, Changes]]] = {}

    @cached_property
    def catalogue(self) -> Catalogue:
        """The functions and views as they were when they were first needed."""
        functions = tuple(self._connection.execute(_FUNCTIONS).fetchall())
        return _classified(functions, self._views)

    @cached_property
    def _views(self) -> tuple[tuple[str, str], ...]:
        """Names and texts of the user's views."""
        return tuple(self._connection.execute(_VIEWS).fetchall())

    @cached_property
    def _may_change(self) -> frozenset[str]:
        """The views whose texts alone do not say that they stay the same."""
        return _calling(self._views)

    def aggregates(self, tokens: TokenList, span: TextSpan) -> bool:
        """Whether a text calls an aggregate function, through macros too."""
        first, last = tokens.indexes(span)
        called = {_name(tokens[i]) for i in range(first, last) if _calls(tokens, i)}
        return bool(called) and not self.catalogue.aggregates.isdisjoint(called)

    def within(
        self, tokens: TokenList, span: TextSpan, without: Iterable[TextSpan] = ()
    ) -> Changes:
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

    def effects(self, tokens: TokenList, span: TextSpan) -> list[TextSpan]:
        """The calls in a span whose evaluation leaves a trace, outermost first."""
        first, last = tokens.indexes(span)
        return [
            tokens.span(i, tokens.partner[i + 1] + 1)
            for i in range(first, last - 1)
            if tokens[i + 1].kind is TokenType.L_PAREN
            and self._of_token(tokens, i) is Changes.WITH_EFFECT
        ]

    def _of_token(self, tokens: TokenList, i: int) -> Changes:
        token = tokens[i]
        name = _name(token)
        sampled = token.word == "SAMPLE" and tokens.word(i - 1) == "USING"
        if token.word == "TABLESAMPLE" or sampled:
            return Changes.WITH_ROW
        if token.kind is TokenType.STRING:
            return Changes.NEVER
        found = _of_word(token.word.lower())
        if tokens.kind(i + 1) is not TokenType.DOT and name in self._may_change:
            found = max(found, self.catalogue.views.get(name, Changes.NEVER))
        if _calls(tokens, i):
            found = max(found, self.catalogue.functions.get(name, Changes.NEVER))
        return found

    def hold_time(
        self, connection: duckdb.DuckDBPyConnection, objects: TemporaryObjects, text: str
    ) -> None:
        """Let what holds for a statement hold until some objects are cleared.

        Args:
            connection: outside a transaction, within which the time stands still by itself.
            objects: of the statement.
            text: what current_query() gives.
        """
        names = sorted(self.catalogue.of_statement)
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
        for name in macros.keys() - self.catalogue.own:
            objects.create_macro(name, macros[name])


def _name(token: Token) -> str:
    return token.text.strip('"').lower()


def _calls(tokens: TokenList, i: int) -> bool:
    """Whether a token is the name of a function that is called, and none of Covey's."""
    token = tokens[i]
    if tokens.kind(i + 1) is not TokenType.L_PAREN:
        return False
    if not token.name or " " in token.word or token.word in NO_FUNCTIONS:
        return False
    in_call = token.name == "PROMPT" and tokens.kind(i - 1) is TokenType.L_PAREN
    return not _is_covey(tokens, i - 2 if in_call else i)


def _is_covey(tokens: TokenList, i: int) -> bool:
    """Whether the name of an AI function ends with a token."""
    if i > 1 and tokens.kind(i - 1) is TokenType.DOT:
        return f"{tokens[i - 2].name}.{tokens[i].name}" in BY_SPELLING
    return i >= 0 and tokens[i].name in BY_SPELLING


@lru_cache(maxsize=8)
def _classified(
    listed: tuple[tuple[str, str, str, str, bool], ...], defined: tuple[tuple[str, str], ...]
) -> Catalogue:
    """What follows from DuckDB's words on its functions for macros and views.

    Args:
        listed, defined: what `_FUNCTIONS` and `_VIEWS` give.
    """
    functions, views = {_READS_CLOCK: Changes.WITH_STATEMENT}, dict[str, Changes]()
    macros = [(name, text) for name, _, _, text, _ in listed if text is not None]
    own = frozenset(name for name, *_, internal in listed if not internal)
    aggregates = {name for name, kind, *_ in listed if kind == "aggregate"}
    for name, kind, stability, text, _ in listed:
        if text is None and kind != "aggregate":
            functions[name] = _of_function(name, stability)
    # Several may have one name, in other schemas.
    called: dict[str, set[str]] = {}
    for name, text in macros:
        called.setdefault(name, set()).update(_called(text))
    grown = True
    while grown:
        grown = False
        for known, definitions in ((functions, macros), (views, defined)):
            for name, definition in definitions:
                found = _of_definition(definition, functions, views)
                if found > known.get(name, Changes.NEVER):
                    known[name], grown = found, True
    one_value = {name for name, found in functions.items() if found is Changes.WITH_STATEMENT}
    of_statement = frozenset(one_value - called.keys() - own - {_READS_CLOCK})
    return Catalogue(functions, views, of_statement, own, _through(aggregates, called.items()))


def _called(definition: str) -> set[str]:
    """The names that stand in front of a bracket in a macro's text."""
    found = {word for word, bracket in _WORD.findall(definition.lower()) if bracket}
    return found - _NO_CALLS


def _calling(defined: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """The views whose texts call functions, draw or name the time, or read views that do."""
    found = {
        name
        for name, text in defined
        if _called(text) or _of_definition(text, {}, {}) is not Changes.NEVER
    }
    words = [(name, {word for word, _ in _WORD.findall(text.lower())}) for name, text in defined]
    return _through(found, words)


def _through(found: set[str], named: Collection[tuple[str, set[str]]]) -> frozenset[str]:
    """Some names, and those whose definitions name one of them, through others too."""
    while through := {name for name, words in named if words & found} - found:
        found = found | through
    return frozenset(found)


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
