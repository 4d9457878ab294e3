"""Find the AI calls in a text, where their arguments stand, and whose spelling they are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import TokenType

from covey.errors import QueryError, UnsupportedError
from covey.logical.text_span import TextSpan
from covey.sql.functions import (
    BY_SPELLING,
    FUNCTIONS,
    AIFunction,
    Dialect,
    example,
    function_name,
    is_foreign,
    nearest_function,
    style_of,
    supported,
)
from covey.sql.text import TokenList

_ARROWS = (TokenType.FARROW, TokenType.COLON_EQ)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as written, here `labels => ['a']`.

    Attributes:
        name: "labels", None where it has none.
        first, last: the token range of its value, end exclusive.
        span: the place of its value.
    """

    name: str | None
    first: int
    last: int
    span: TextSpan


@dataclass(frozen=True, slots=True)
class RawCall:
    """An AI call as written, not yet understood, here `ai_filter(PROMPT('…', t.a))`.

    Attributes:
        function: AI.IF.
        spelling: "AI_FILTER".
        span: the whole call.
        name_span: `ai_filter`.
        arguments: `PROMPT('…', t.a)`.
    """

    function: AIFunction
    spelling: str
    span: TextSpan
    name_span: TextSpan
    arguments: tuple[Argument, ...]


def find_calls(
    tokens: TokenList, known_to_duckdb: Callable[[str], bool], dialect: Dialect | None = None
) -> tuple[RawCall, ...]:
    """Every AI call, inner calls before the calls whose arguments they are.

    Args:
        known_to_duckdb: says whether DuckDB has a function or macro of that name, so
            that a user's own `ai_something` is left to DuckDB.
        dialect: whose spelling messages use; None goes by the name that is refused.

    Raises:
        QueryError: an AI function that nobody has; names the nearest.
        UnsupportedError: an AI function of another vendor.
    """
    for spelling, _, span in _names(tokens):
        if spelling not in BY_SPELLING and not known_to_duckdb(spelling.lower()):
            _refuse(spelling, span, tokens.text, dialect)
    return _calls(tokens)


@lru_cache(maxsize=16)
def _calls(tokens: TokenList) -> tuple[RawCall, ...]:
    calls = []
    for spelling, opening, span in _names(tokens):
        if spelling in BY_SPELLING:
            closing = tokens.partner[opening]
            arguments = tuple(_arguments(tokens, opening + 1, closing))
            whole = TextSpan(span.start, tokens[closing].end)
            calls.append(RawCall(BY_SPELLING[spelling], spelling, whole, span, arguments))
    # A call that ends earlier is either apart from or inside one that ends later.
    return tuple(sorted(calls, key=lambda call: call.span.end))


@lru_cache(maxsize=16)
def _names(tokens: TokenList) -> list[tuple[str, int, TextSpan]]:
    """What is called as AI functions are: spelling, index of the bracket, place of the name."""
    named = ((i, _name_at(tokens, i)) for i in range(len(tokens)))
    return [
        (*found, TextSpan(tokens[i].start, tokens[found[1] - 1].end))
        for i, found in named
        if found is not None and not _is_definition(tokens, i, found[1])
    ]


def _name_at(tokens: TokenList, i: int) -> tuple[str, int] | None:
    """The AI function name that begins at token i, and the index of its bracket."""
    # Tools that write SQL put names in quotes: "AI"."IF"(…) is the function, too.
    spelling, opening = tokens[i].name, i + 1
    if tokens.kind(i - 1) is TokenType.DOT:
        return None
    if spelling == "AI" and tokens.kind(i + 1) is TokenType.DOT and i + 2 < len(tokens):
        spelling, opening = f"AI.{tokens[i + 2].name}", i + 3
    elif not spelling.startswith("AI_") and not is_foreign(spelling):
        return None
    opens = tokens.kind(opening) is TokenType.L_PAREN
    return (spelling, opening) if opens and spelling != "AI." else None


# A name with a bracket behind it that stands behind one of these is defined or filled.
_DEFINE = tuple("MACRO FUNCTION TABLE EXISTS INTO REFERENCES COPY WITH RECURSIVE".split())


def _is_definition(tokens: TokenList, i: int, opening: int) -> bool:
    """Whether the name at i is that of a table, macro or common table expression."""
    before = tokens.word(i - 1)
    created = {token.word for token in tokens[:4]} if tokens[0].word == "CREATE" else set()
    if before in _DEFINE or (before == "ON" and "INDEX" in created):
        return True
    if before == "AS":
        # `AS name(…)` names columns, but for the body of a macro.
        return not created & {"MACRO", "FUNCTION"}
    after = tokens[tokens.partner[opening] + 1 : tokens.partner[opening] + 3]
    return [t.word for t in after[:1]] == ["AS"] and after[-1].kind is TokenType.L_PAREN


def _refuse(spelling: str, span: TextSpan, sql: str, dialect: Dialect | None) -> None:
    known = f"Covey has {supported(dialect or style_of(spelling))}."
    if is_foreign(spelling):
        raise UnsupportedError(f"{spelling} is not supported", sql=sql, span=span, hint=known)
    near = nearest_function(spelling, dialect)
    hint = f"Did you mean {near}?" if near else known
    raise QueryError(f"There is no AI function {spelling}", sql=sql, span=span, hint=hint)


def split_arguments(tokens: TokenList, start: int, end: int) -> list[tuple[int, int]]:
    """The token ranges between the commas in [start, end).

    Raises:
        QueryError: nothing stands between two of them.
    """
    if start == end:
        return []
    parts = tokens.split(start, end, TokenType.COMMA)
    for first, last in parts:
        if first == last:
            raise tokens.error(
                "An argument is missing here", tokens[last].span, "Write it, or remove the comma."
            )
    return parts


def _arguments(tokens: TokenList, start: int, end: int) -> list[Argument]:
    arguments = []
    for first, last in split_arguments(tokens, start, end):
        named = last - first > 2 and tokens[first + 1].kind in _ARROWS
        name = tokens[first].text.lower() if named else None
        first += 2 * named
        arguments.append(Argument(name, first, last, tokens.span(first, last)))
    return arguments


# Spellings that say whose text it is. AI_IF, AI_SCORE and AI_MARGIN are Covey's own.
_SNOWFLAKE_NAMES = ("AI_FILTER", "AI_CLASSIFY", "AI_JOIN")


def detect(calls: Sequence[RawCall], tokens: TokenList) -> Dialect | None:
    """The dialect that the calls of a text are written in; None where they are of both."""
    found: set[Dialect] = set()
    for call in calls:
        if call.spelling in _SNOWFLAKE_NAMES:
            found.add(Dialect.SNOWFLAKE)
        if call.spelling.startswith("AI."):
            found.add(Dialect.BIGQUERY)
        for argument in call.arguments:
            if _begins_template(tokens, argument.first):
                found.add(Dialect.SNOWFLAKE)
            elif argument.name is not None or _is_tuple(argument, tokens):
                found.add(Dialect.BIGQUERY)
    return found.pop() if len(found) == 1 else None


def check(calls: Sequence[RawCall], tokens: TokenList, dialect: Dialect) -> None:
    """Refuse the other vendor's spellings.

    Raises:
        QueryError: names the spelling of `dialect`.
    """
    for call in calls:
        if call.spelling.startswith("AI.") is (dialect is Dialect.SNOWFLAKE):
            raise tokens.error(
                f"{call.spelling} is not written so in the dialect {dialect.value}",
                call.name_span,
                f"Write {function_name(call.function, dialect)}, or leave the dialect open.",
            )
        for argument in call.arguments:
            if dialect is Dialect.BIGQUERY and _begins_template(tokens, argument.first):
                raise tokens.error(
                    f"PROMPT is not written so in the dialect {dialect.value}",
                    tokens.span(argument.first, argument.first + 1),
                    "Write a tuple of texts and columns, "
                    f"{example(call.function, dialect)}, or leave the dialect open.",
                )


def check_templates(
    calls: Sequence[RawCall],
    tokens: TokenList,
    dialect: Dialect | None,
    known_to_duckdb: Callable[[str], bool],
) -> None:
    """Refuse PROMPT outside an AI function.

    Raises:
        QueryError: it stands elsewhere, and the user has no macro of that name.
    """
    places = {argument.first for call in calls for argument in call.arguments}
    for i in range(len(tokens)):
        if i in places or not _begins_template(tokens, i) or known_to_duckdb("prompt"):
            continue
        if tokens.word(i - 1) in ("MACRO", "FUNCTION", "TABLE", "INTO"):
            continue
        raise tokens.error(
            "PROMPT stands only in an AI function",
            tokens[i].span,
            f"Write {example(FUNCTIONS[0], dialect)}.",
        )


def _begins_template(tokens: TokenList, i: int) -> bool:
    return tokens[i].name == "PROMPT" and tokens.kind(i + 1) is TokenType.L_PAREN


def _is_tuple(argument: Argument, tokens: TokenList) -> bool:
    first, last = argument.first, argument.last
    if tokens[first].kind is not TokenType.L_PAREN or not tokens.in_brackets(first, last):
        return False
    is_query = tokens.begins_query(first + 1)
    return not is_query and len(tokens.split(first + 1, last - 1, TokenType.COMMA)) > 1
