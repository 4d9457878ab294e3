"""Values for the places `?`, `$1` and `$name` of a text, written into it as constants.

The text is planned with the values in it, so that a parameter may be a question or a list of
labels too, which must be constants.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import TokenType

from covey.errors import InputError, QueryError
from covey.sql.derived import Piece, Written
from covey.sql.text import Span, TokenList, quote_text

Parameters = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands; `name` is None for a `?`."""

    span: Span
    name: str | None


class Filled:
    """A text with its parameters filled in.

    Args:
        tokens: the text as written.
        values: a sequence for `?` and `$1`, counted from 1, a mapping for `$name`; None
            leaves the text as it is.

    Raises:
        QueryError: a place has no value, or kinds of places are mixed.
        InputError: a value has no place, or is of no kind that SQL can write.
    """

    def __init__(self, tokens: TokenList, values: Parameters | None) -> None:
        self._written = Written(tokens.text)
        self._literals: dict[Span, str] = {}
        if values is not None:
            places = list(_places(tokens))
            self._literals.update(_literals(tokens.text, places, _named(values)))

    def pieces(self, start: int, end: int) -> list[Piece]:
        """The characters [start, end) of the text, values in place."""
        pieces, at = [], start
        for (begin, stop), literal in self._literals.items():
            if start <= begin < end:
                pieces += [self._piece(at, begin), Piece(f" {literal} ")]
                at = stop
        return [*pieces, self._piece(at, end)]

    def _piece(self, start: int, end: int) -> Piece:
        return Piece(self._written.sql[start:end], self._written, start)


def _places(tokens: TokenList) -> Iterator[_Place]:
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.kind is TokenType.PLACEHOLDER and token.text == "?":
            yield _Place((token.start, token.end), None)
        elif token.kind is TokenType.PARAMETER and following and following.start == token.end:
            yield _Place((token.start, following.end), following.text)


def _named(values: Parameters) -> dict[str, Any]:
    """The values by what their places say; a `?` is known by its number."""
    if isinstance(values, Mapping):
        return {str(name): value for name, value in values.items()}
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InputError(
            f"Parameters are a list of values, or a mapping of names to them, not {values!r:.60}."
        )
    return {str(number): value for number, value in enumerate(values, 1)}


def _literals(
    sql: str, places: Sequence[_Place], values: Mapping[str, Any]
) -> Iterator[tuple[Span, str]]:
    if len({place.name is None for place in places}) > 1:
        raise QueryError(
            "A text has places ? or places $, not both",
            sql=sql,
            span=places[-1].span,
            hint="Number them all: $1, $2 …",
        )
    used: set[str] = set()
    for number, place in enumerate(places, 1):
        name = str(number) if place.name is None else place.name
        if name not in values:
            known = ", ".join(f"${each}" for each in values) or "none"
            raise QueryError(
                f"There is no value for {sql[slice(*place.span)]}",
                sql=sql,
                span=place.span,
                hint=f"Values are given for: {known}.",
            )
        used.add(name)
        yield place.span, sql_literal(values[name])
    if left := [name for name in values if name not in used]:
        raise InputError(f"The value ${left[0]} has no place in the text.")


def sql_literal(value: Any) -> str:
    """A Python value as an SQL constant.

    Raises:
        InputError: it is of no kind that SQL can write.
    """
    if isinstance(value, str):
        return quote_text(value)
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()  # a scalar of NumPy
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, int | float | decimal.Decimal):
        return _number(value)
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')"
    if isinstance(value, uuid.UUID):
        return f"UUID '{value}'"
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return _moment(value)
    if isinstance(value, Mapping):
        fields = (f"{quote_text(str(name))}: {sql_literal(v)}" for name, v in value.items())
        return "{" + ", ".join(fields) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(sql_literal, value)) + "]"
    raise InputError(
        f"A value of type {type(value).__name__} cannot be a parameter. Register it as a table, "
        "or give a number, text, date, list or mapping of such."
    )


def _number(value: float | decimal.Decimal) -> str:
    if not math.isfinite(value):
        return f"DOUBLE '{float(value)}'"
    text = format(value, "f") if isinstance(value, decimal.Decimal) else repr(value)
    # A minus behind another would begin a comment.
    return f"({text})" if text.startswith("-") else text


def _moment(value: datetime.date | datetime.time | datetime.timedelta) -> str:
    if isinstance(value, datetime.datetime):
        return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} '{value.isoformat(' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value}'"
    if isinstance(value, datetime.timedelta):
        return f"to_microseconds({value // datetime.timedelta(microseconds=1)})"
    return f"{'TIME' if value.tzinfo is None else 'TIMETZ'} '{value}'"
