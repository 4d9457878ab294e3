"""Values for the places `?`, `$1` and `$name` of a text, written into it as constants.

The text is planned with the values in it, so that a parameter may be a question or a list of
labels too, which must be constants.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from sqlglot import TokenType

from covey.errors import InputError, QueryError
from covey.logical.text_span import TextSpan
from covey.sql.rewritten import Fragment, SourceText
from covey.sql.text import TokenList, quote_text

# DuckDB's types of integers, the first that holds a value being its own: from, and below.
_INTEGERS = (
    ("INTEGER", -(1 << 31), 1 << 31),
    ("BIGINT", -(1 << 63), 1 << 63),
    ("UBIGINT", 0, 1 << 64),
    ("HUGEINT", -(1 << 127), 1 << 127),
    ("UHUGEINT", 0, 1 << 128),
)
# Of a DECIMAL of SQL.
_MOST_DIGITS = 38

Parameters = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands, and which: by its number, or by its name in lower case."""

    span: TextSpan
    name: str

    @property
    def numbered(self) -> bool:
        return self.name.isdigit()


class Filled:
    """A text with its parameters filled in.

    Args:
        tokens: the text as written.
        values: a sequence for `?` and `$1` or `?1`, counted from 1, a mapping for `$name`, in
            which case means nothing; None leaves the places of a PREPARE, and gives no others.

    Raises:
        QueryError: a place has no value, or kinds of places are mixed.
        InputError: a value has no place, or is of no kind that SQL can write.
    """

    def __init__(self, tokens: TokenList, values: Parameters | None) -> None:
        self._written = SourceText(tokens.text)
        self._literals: dict[TextSpan, str] = {}
        if values is not None or not any(token.word == "PREPARE" for token in tokens):
            places = list(_places(tokens))
            self._literals.update(
                _literals(tokens.text, places, _named(() if values is None else values))
            )

    def pieces(self, start: int, end: int) -> list[Fragment]:
        """The characters [start, end) of the text, values in place."""
        pieces, at = [], start
        for (begin, stop), literal in self._literals.items():
            if start <= begin < end:
                value = Fragment(f" {literal} ", self._written, begin, stop)
                pieces += [self._piece(at, begin), value]
                at = stop
        return [*pieces, self._piece(at, end)]

    def _piece(self, start: int, end: int) -> Fragment:
        return Fragment(self._written.sql[start:end], self._written, start)


def _places(tokens: TokenList) -> Iterator[_Place]:
    highest = 0
    for token, following in zip_longest(tokens, tokens[1:]):
        number = following and following.kind is TokenType.NUMBER and following.text.isdigit()
        if token.kind is TokenType.PLACEHOLDER and token.text == "?":
            end, name = token.end, str(highest + 1)
        elif token.kind is TokenType.PARAMETER and token.text == "$":
            end, name = token.end, ""
        else:
            continue
        if following and (number or (not name and (following.word or following.text))):
            end, name = following.end, following.text.lower()
        place = _Place(TextSpan(token.start, end), str(int(name)) if name.isdigit() else name)
        if place.numbered:
            # A ? behind $3 is the fourth, as in DuckDB.
            highest = max(highest, int(name))
        yield place


def _named(values: Parameters) -> dict[str, Any]:
    """The values by the names of their places.

    Raises:
        InputError: they are neither a list nor a mapping, or two have one name.
    """
    if isinstance(values, Mapping):
        named: dict[str, Any] = {}
        for name, value in values.items():
            if str(name).lower() in named:
                raise InputError(f"Two values are named ${name}: case means nothing in SQL.")
            named[str(name).lower()] = value
        return named
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InputError(
            f"Parameters are a list of values, or a mapping of names to them, not {values!r:.60}."
        )
    return {str(number): value for number, value in enumerate(values, 1)}


def _literals(
    sql: str, places: Sequence[_Place], values: Mapping[str, Any]
) -> Iterator[tuple[TextSpan, str]]:
    if len({place.numbered for place in places}) > 1:
        raise QueryError(
            "A text has places with names or with numbers, not both",
            sql=sql,
            span=places[-1].span,
            hint="Number them all: $1, $2 …",
        )
    used: set[str] = set()
    for place in places:
        if place.name not in values:
            known = ", ".join(f"${each}" for each in values)
            given = f"Values are given for: {known}."
            none = "Write the value here, or give it beside the text: con.sql(text, [value])."
            raise QueryError(
                f"There is no value for {sql[slice(*place.span)]}",
                sql=sql,
                span=place.span,
                hint=given if known else none,
            )
        used.add(place.name)
        try:
            yield place.span, sql_literal(values[place.name])
        except RecursionError:
            raise InputError(
                f"The value of {sql[slice(*place.span)]} holds itself, or lists too deep in one "
                "another to be written in SQL."
            ) from None
    if left := [name for name in values if name not in used]:
        raise InputError(f"The value ${left[0]} has no place in the text.")


def sql_literal(value: Any) -> str:
    """A Python value as an SQL constant, of the type that DuckDB gives it as a parameter.

    Raises:
        InputError: it is of no kind that SQL can write.
    """
    if isinstance(value, str):
        return quote_text(value)
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    # Of what derives from a number, such as an IntEnum, the number counts and not its name.
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return _double(float(value))
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if hasattr(value, "ndim") and hasattr(value, "dtype"):
        return _of_numpy(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"unhex('{bytes(value).hex()}')"
    if isinstance(value, uuid.UUID):
        return f"UUID '{value}'"
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return _moment(value)
    if isinstance(value, Mapping):
        fields = (f"{quote_text(str(name))}: {sql_literal(v)}" for name, v in value.items())
        return "{" + ", ".join(fields) + "}" if value else "MAP {}"
    if isinstance(value, Sequence):
        return _list(value, _entry_form(value))
    raise InputError(
        f"A value of type {type(value).__name__} cannot be a parameter. Register it as a table, "
        "or give a number, text, date, list or mapping of such."
    )


def _in_brackets(text: str) -> str:
    # A minus behind another would begin a comment.
    return f"({text})" if text.startswith("-") else text


def _integer(value: int) -> str:
    for kind, least, end in _INTEGERS:
        if least <= value < end:
            # The digits of the least one, without its minus, are of the next type.
            plain = kind in ("INTEGER", "BIGINT") and value != least
            return _in_brackets(str(value)) if plain else f"CAST('{value}' AS {kind})"
    raise InputError(
        f"An integer of {value.bit_length()} bits cannot be a parameter: SQL's largest has 128."
    )


def _double(value: float) -> str:
    if not math.isfinite(value):
        return f"DOUBLE '{value}'"
    text = repr(value)
    # Without an exponent it would be a DECIMAL.
    return _in_brackets(text if "e" in text else f"{text}e0")


def _decimal(value: decimal.Decimal) -> str:
    digits, exponent = value.as_tuple()[1:]
    if not isinstance(exponent, int):
        return f"CAST('{float(value)}' AS FLOAT)"
    scale = max(-exponent, 0)
    width = max(len(digits) + max(exponent, 0), scale + 1)
    if width > _MOST_DIGITS:
        return _double(float(value))
    return f"CAST('{value:f}' AS DECIMAL({width}, {scale}))"


def _of_numpy(value: Any) -> str:
    if value.ndim:
        return sql_literal(list(value))
    if value.dtype.kind not in "mM":
        return sql_literal(value.item())
    if str(value) == "NaT":
        return "NULL"
    known = value.astype("<M8[us]" if value.dtype.kind == "M" else "<m8[us]")
    if known == value:
        # A day stays a day.
        return sql_literal(value.item() if value.dtype.str.endswith("[D]") else known.item())
    if value.dtype.kind == "M":
        return f"TIMESTAMP_NS '{value}'"
    raise InputError(f"The time {value!r} is finer than the microseconds of SQL's INTERVAL.")


def _leaves(value: Any) -> Iterable[Any]:
    """What a list holds, lists in it opened."""
    for each in value:
        if isinstance(each, Sequence) and not isinstance(each, str | bytes | bytearray):
            yield from _leaves(each)
        elif each is not None:
            yield each


def _entry_form(value: Sequence[Any]) -> Callable[[Any], str]:
    """How the entries of a list are written, so that all have the type that DuckDB gives them.

    Beside texts all become texts, and truth values beside fractions become numbers.

    Raises:
        InputError: some cannot become texts.
    """
    leaves = list(_leaves(value))
    others = [each for each in leaves if not isinstance(each, str)]
    if not others or len(others) == len(leaves):
        fractions = any(isinstance(each, float | decimal.Decimal) for each in leaves)
        return _number if fractions else sql_literal
    for each in others:
        if not isinstance(each, int | float | decimal.Decimal | datetime.date | datetime.time):
            raise InputError(
                f"A list of a parameter holds texts beside a value of type {type(each).__name__}. "
                "Give values of one type."
            )
    return _text


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else sql_literal(value)


def _text(value: Any) -> str:
    return f"CAST({sql_literal(value)} AS VARCHAR)"


def _list(value: Sequence[Any], form: Callable[[Any], str]) -> str:
    parts = []
    for each in value:
        if isinstance(each, Sequence) and not isinstance(each, str | bytes | bytearray):
            parts.append(_list(each, form))
        else:
            parts.append("NULL" if each is None else form(each))
    return "[" + ", ".join(parts) + "]"


def _moment(value: datetime.date | datetime.time | datetime.timedelta) -> str:
    if value != value:
        return "NULL"  # pandas.NaT
    if isinstance(value, datetime.datetime):
        return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} '{value.isoformat(' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, datetime.timedelta):
        return f"to_microseconds({value // datetime.timedelta(microseconds=1)})"
    return f"{'TIME' if value.tzinfo is None else 'TIMETZ'} '{value.isoformat()}'"
