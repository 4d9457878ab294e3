"""Find the AI calls in a text: where they stand and where their arguments stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import TokenType

from covey.errors import QueryError, UnsupportedError
from covey.logical.text_span import TextSpan
from covey.sql.dialect import Dialect, nearest_function, style_of, supported
from covey.sql.functions import BY_SPELLING, AIFunction, is_foreign
from covey.sql.text import TokenList

_ARROWS = (TokenType.FARROW, TokenType.COLON_EQ)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as written; `first` and `last` are a token range, end exclusive."""

    name: str | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RawCall:
    """An AI call as written, not yet understood.

    Attributes:
        function: which function.
        spelling: how it was written, upper case.
        first, last: token range of the whole call, end exclusive.
        name_span: character span of the function's name.
        arguments: its arguments, in order.
    """

    function: AIFunction
    spelling: str
    first: int
    last: int
    name_span: TextSpan
    arguments: tuple[Argument, ...]


def find_calls(
    tokens: TokenList,
    known_to_duckdb: Callable[[str], bool],
    dialect: Dialect | None = None,
) -> list[RawCall]:
    """Every AI call, inner calls before the calls whose arguments they are.

    Args:
        tokens: the user's text.
        known_to_duckdb: says whether DuckDB has a function or macro of that name, so
            that a user's own `ai_something` is left to DuckDB.
        dialect: whose spelling messages use; None goes by the name that is refused.

    Raises:
        QueryError: an AI function that nobody has; names the nearest.
        UnsupportedError: an AI function of another vendor.
    """
    calls = []
    for i in range(len(tokens)):
        found = _name_at(tokens, i)
        if found is None or _is_definition(tokens, i, found[1]):
            continue
        spelling, opening = found
        span = TextSpan(tokens[i].start, tokens[opening - 1].end)
        function = BY_SPELLING.get(spelling)
        if function is None:
            if not known_to_duckdb(spelling.lower()):
                _refuse(spelling, span, tokens.text, dialect)
            continue
        closing = tokens.partner[opening]
        arguments = tuple(_arguments(tokens, opening + 1, closing))
        calls.append(RawCall(function, spelling, i, closing + 1, span, arguments))
    # A call that ends earlier is either apart from or inside one that ends later.
    return sorted(calls, key=lambda call: call.last)


def _name_at(tokens: TokenList, i: int) -> tuple[str, int] | None:
    """The AI function name that begins at token i, and the index of its bracket."""
    # Tools that write SQL put names in quotes: "AI"."IF"(…) is the function, too.
    word = tokens[i].name
    if i and tokens[i - 1].kind is TokenType.DOT:
        return None

    def opens(index: int) -> bool:
        return index < len(tokens) and tokens[index].kind is TokenType.L_PAREN

    if word == "AI" and i + 2 < len(tokens) and tokens[i + 1].kind is TokenType.DOT:
        name = tokens[i + 2].name
        return (f"AI.{name}", i + 3) if name and opens(i + 3) else None
    if opens(i + 1) and (word.startswith("AI_") or is_foreign(word)):
        return word, i + 1
    return None


# A name with a bracket behind it that stands behind one of these is defined or filled.
_DEFINE = (
    "MACRO",
    "FUNCTION",
    "TABLE",
    "EXISTS",
    "INTO",
    "REFERENCES",
    "COPY",
    "WITH",
    "RECURSIVE",
)


def _is_definition(tokens: TokenList, i: int, opening: int) -> bool:
    """Whether the name at i is that of a table, macro or common table expression."""
    before = tokens[i - 1].word if i else ""
    created = {token.word for token in tokens[:4]} if tokens[0].word == "CREATE" else set()
    if before in _DEFINE or (before == "ON" and "INDEX" in created):
        return True
    if before == "AS":
        # `AS name(…)` names columns, but for the body of a macro.
        return not created & {"MACRO", "FUNCTION"}
    after = tokens[tokens.partner[opening] + 1 : tokens.partner[opening] + 3]
    return [t.word for t in after[:1]] == ["AS"] and after[-1].kind is TokenType.L_PAREN


def _refuse(spelling: str, span: TextSpan, sql: str, dialect: Dialect | None) -> None:
    if is_foreign(spelling):
        raise UnsupportedError(
            f"{spelling} is not supported",
            sql=sql,
            span=span,
            hint=f"Covey has {supported(dialect or style_of(spelling))}.",
        )
    near = nearest_function(spelling, dialect)
    known = f"Covey has {supported(dialect or style_of(spelling))}."
    raise QueryError(
        f"There is no AI function {spelling}",
        sql=sql,
        span=span,
        hint=f"Did you mean {near}?" if near else known,
    )


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
            raise QueryError(
                "An argument is missing here",
                sql=tokens.text,
                span=tokens[last].span,
                hint="Write it, or remove the comma.",
            )
    return parts


def _arguments(tokens: TokenList, start: int, end: int) -> list[Argument]:
    arguments = []
    for first, last in split_arguments(tokens, start, end):
        named = last - first > 2 and tokens[first + 1].kind in _ARROWS
        if named:
            arguments.append(Argument(tokens[first].text.lower(), first + 2, last))
        else:
            arguments.append(Argument(None, first, last))
    return arguments
