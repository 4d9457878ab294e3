"""Which dialect the AI calls of a text are written in, and what a fixed one refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import TokenType

from covey.errors import QueryError
from covey.sql.call_parser import Argument, RawCall
from covey.sql.dialect import Dialect, example, function_name
from covey.sql.functions import FUNCTIONS
from covey.sql.text import TokenList

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
            if _is_template(argument, tokens):
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
            raise QueryError(
                f"{call.spelling} is not written so in the dialect {dialect.value}",
                sql=tokens.text,
                span=call.name_span,
                hint=f"Write {function_name(call.function, dialect)}, or leave the dialect open.",
            )
        for argument in call.arguments:
            if dialect is Dialect.BIGQUERY and _is_template(argument, tokens):
                raise QueryError(
                    f"PROMPT is not written so in the dialect {dialect.value}",
                    sql=tokens.text,
                    span=tokens.span(argument.first, argument.first + 1),
                    hint="Write a tuple of texts and columns, "
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
    for i in range(len(tokens) - 1):
        opens = tokens[i + 1].kind is TokenType.L_PAREN
        if i in places or not opens or tokens[i].name != "PROMPT" or known_to_duckdb("prompt"):
            continue
        if i and tokens[i - 1].word in ("MACRO", "FUNCTION", "TABLE", "INTO"):
            continue
        raise QueryError(
            "PROMPT stands only in an AI function",
            sql=tokens.text,
            span=tokens[i].span,
            hint=f"Write {example(FUNCTIONS[0], dialect)}.",
        )


def _is_template(argument: Argument, tokens: TokenList) -> bool:
    first = argument.first
    return (
        first + 1 < argument.last
        and tokens[first].name == "PROMPT"
        and tokens[first + 1].kind is TokenType.L_PAREN
    )


def _is_tuple(argument: Argument, tokens: TokenList) -> bool:
    first = argument.first
    if tokens[first].kind is not TokenType.L_PAREN or tokens.partner[first] != argument.last - 1:
        return False
    if tokens.begins_query(first + 1):
        return False
    return len(tokens.split(first + 1, argument.last - 1, TokenType.COMMA)) > 1
