"""SQL text for the builder: names, values and expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlglot import TokenType

from covey.errors import InputError, QueryError
from covey.sql.text import TokenList, quote_name, quote_text

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sql_name(name: str, reserved: frozenset[str]) -> str:
    """A name as SQL, quoted only where it must be.

    Args:
        name: any name.
        reserved: words that DuckDB takes for something else, lower case.
    """
    if not _PLAIN.fullmatch(name) or name.lower() in reserved:
        return quote_name(name)
    return name if TokenList(name)[0].kind is TokenType.VAR else quote_name(name)


def sql_value(value: Any) -> str:
    """A Python value as an SQL constant.

    Raises:
        InputError: it is of no kind that an option can have.
    """
    try:
        return _constant(value)
    except RecursionError:
        raise InputError(
            "A value that holds itself cannot be written as an SQL constant."
        ) from None


def _constant(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, Mapping):
        fields = (f"{quote_text(str(k))}: {_constant(v)}" for k, v in value.items())
        return "{" + ", ".join(fields) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_constant, value)) + "]"
    raise InputError(f"{value!r} cannot be written as an SQL constant.")


def sql_labels(labels: Sequence[str] | Mapping[str, str | None]) -> str:
    """Labels as SQL; of a mapping the values describe the keys."""
    if isinstance(labels, str):
        raise InputError(f"labels is a list of texts, not the text {labels!r}.")
    if isinstance(labels, Mapping):
        return sql_value([{"label": text, "description": d} for text, d in labels.items()])
    if not isinstance(labels, Iterable):
        raise InputError(f"labels is a list of texts, not of type {type(labels).__name__}.")
    return sql_value(list(labels))


def sql_expression(text: str, what: str) -> str:
    """One SQL expression, without what could change the text around it.

    Args:
        text: as the user wrote it.
        what: names it in messages.

    Raises:
        InputError: it is empty, ends a statement, or its quotes and brackets do not match.
    """
    if not isinstance(text, str):
        raise InputError(f"{what} is an SQL text, not of type {type(text).__name__}.")
    try:
        tokens = TokenList(text)
    except QueryError as error:
        raise InputError(f"{what} {text!r} cannot be read: {error.reason}. {error.hint}") from None
    if not len(tokens):
        raise InputError(f"{what} is empty.")
    if any(token.kind is TokenType.SEMICOLON for token in tokens):
        raise InputError(f"{what} {text!r} holds a semicolon: it is one expression.")
    # From the first token to the last: a comment behind it would swallow what follows.
    begin, end = tokens.span(0, len(tokens))
    return text[begin:end]


def operand(condition: str) -> str:
    """A condition that may stand beside AND: in brackets where it holds an OR."""
    tokens = TokenList(condition)
    loose = any(tokens[i].word == "OR" for i in tokens.top_level(0, len(tokens)))
    return f"({condition})" if loose else condition


def inline(expression: str, columns: Mapping[str, str]) -> str:
    """An expression with the names of computed columns replaced by what computes them."""
    tokens = TokenList(expression)
    pieces, at = [], 0
    for i, token in enumerate(tokens):
        before = tokens[i - 1].kind if i else None
        after = tokens[i + 1].kind if i + 1 < len(tokens) else None
        bare = before is not TokenType.DOT and after not in (
            TokenType.DOT,
            TokenType.L_PAREN,
            TokenType.FARROW,
        )
        is_name = token.kind is TokenType.IDENTIFIER or bool(token.word)
        if bare and is_name and token.text.lower() in columns and before is not TokenType.ALIAS:
            pieces += [expression[at : token.start], columns[token.text.lower()]]
            at = token.end
    return "".join([*pieces, expression[at:]])


def all_of(conditions: Sequence[str], gap: str = "\n  ") -> str:
    """Conditions joined by AND."""
    if len(conditions) == 1:
        return conditions[0]
    return f"{gap}AND ".join(operand(condition) for condition in conditions)


def same_name(text: str, name: str) -> bool:
    """Whether an expression is just a name."""
    tokens = TokenList(text)
    return len(tokens) == 1 and tokens[0].text.lower() == name.lower() and "'" not in text
