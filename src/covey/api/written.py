"""SQL text for the builder: names, values, and templates with named placeholders."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import TokenType

from covey.errors import InputError, QueryError
from covey.prompts.template import escape_braces
from covey.sql.dialect import Dialect, function_name
from covey.sql.functions import BY_SPELLING
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


@dataclass(frozen=True, slots=True)
class Template:
    """A question with named placeholders, taken apart.

    Attributes:
        pieces: literal texts, and numbers that point into `expressions`.
        expressions: the distinct SQL expressions of the placeholders.
    """

    pieces: tuple[str | int, ...]
    expressions: tuple[str, ...]

    def call(
        self, function: str, dialect: Dialect | None, labels: str, options: Mapping[str, Any]
    ) -> str:
        """An AI call of this question.

        Args:
            function: AI.IF, AI.SCORE, AI.MARGIN or AI.CLASSIFY.
            dialect: whose spelling; None is AI.IF(PROMPT(…)).
            labels: SQL of the labels, "" where the function has none.
            options: values of the call's options; None leaves one out.
        """
        arguments = [self._prompt(dialect), *([labels] if labels else [])]
        given = {name: value for name, value in options.items() if value is not None}
        arguments += [f"{name} => {sql_value(value)}" for name, value in given.items()]
        return f"{function_name(BY_SPELLING[function], dialect)}({', '.join(arguments)})"

    def _prompt(self, dialect: Dialect | None) -> str:
        if self.pieces == (0,):
            return self.expressions[0]
        if dialect is Dialect.BIGQUERY:
            fields = [
                quote_text(p) if isinstance(p, str) else self.expressions[p] for p in self.pieces
            ]
            return f"({', '.join(fields)})"
        text = "".join(escape_braces(p) if isinstance(p, str) else f"{{{p}}}" for p in self.pieces)
        return f"PROMPT({', '.join([quote_text(text), *self.expressions])})"


def read_template(text: str) -> Template:
    """Read a question: `{body}`, `{t.body}` or `{upper(t.body)}`; `{{` and `}}` are braces.

    Raises:
        InputError: a brace without its partner, or a placeholder that is no expression.
    """
    if not isinstance(text, str):
        raise InputError(f"A question is a text, not of type {type(text).__name__}.")
    pieces: list[str | int] = []
    expressions: list[str] = []
    literal: list[str] = []
    at = 0
    while at < len(text):
        pair = text[at : at + 2]
        if pair in ("{{", "}}"):
            literal.append(pair[0])
            at += 2
        elif text[at] == "{":
            end = _placeholder_end(text, at)
            if literal:
                pieces.append("".join(literal))
                literal.clear()
            expression = sql_expression(text[at + 1 : end], "A placeholder")
            if expression not in expressions:
                expressions.append(expression)
            pieces.append(expressions.index(expression))
            at = end + 1
        elif text[at] == "}":
            raise InputError(
                f"The brace at {at} of {text!r} opens nowhere. Write }}}} for a brace."
            )
        else:
            literal.append(text[at])
            at += 1
    if literal or not pieces:
        pieces.append("".join(literal))
    return Template(tuple(pieces), tuple(expressions))


def _placeholder_end(text: str, start: int) -> int:
    """Index of the brace that closes the placeholder at `start`; quoted braces are text."""
    quote, depth = "", 0
    for at in range(start, len(text)):
        character = text[at]
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if not depth:
                return at
    raise InputError(f"The brace at {start} of {text!r} is never closed. Write {{{{ for a brace.")
