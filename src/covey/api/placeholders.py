"""Questions with named placeholders, `"Is {body} a refund?"`, over the rows of some relations."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType

from covey.api.sql_text import inline, sql_expression, sql_value
from covey.errors import InputError, QueryError
from covey.prompts.question import escape_braces
from covey.sql.braces import without_format
from covey.sql.functions import BY_SPELLING, Dialect, function_name
from covey.sql.text import TokenList, quote_text

if TYPE_CHECKING:
    from covey.api.connection import Connection

_BRACE = re.compile(r"\{\{|\}\}|[{}]")


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
    literal, at = "", 0
    while found := _BRACE.search(text, at):
        literal += text[at : found.start()]
        at = found.end()
        if len(found[0]) == 2:
            literal += found[0][0]
            continue
        if found[0] == "}":
            raise InputError(
                f"The brace at {found.start()} of {text!r} opens nowhere. Write }}}} for a brace."
            )
        end = _placeholder_end(text, found.start())
        expression = sql_expression(text[at:end], "A placeholder")
        if expression not in expressions:
            expressions.append(expression)
        pieces += [literal, expressions.index(expression)]
        literal, at = "", end + 1
    pieces = [piece for piece in (*pieces, literal + text[at:]) if piece != ""]
    return Template(tuple(pieces or [""]), tuple(expressions))


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


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column that a placeholder may name: its table's alias and itself as SQL, and its name."""

    alias: str
    sql: str
    name: str


@dataclass(frozen=True, slots=True)
class Placeholders:
    """Writes AI calls whose placeholders are columns, or expressions of them.

    Attributes:
        connection: knows the relations.
        relations: what stands behind FROM.
        columns: lists what can be named; asked only for a message.
        computed: columns that are computed, lower case, and what computes them.
    """

    connection: Connection
    relations: str
    columns: Callable[[], list[NamedColumn]]
    computed: Mapping[str, str]

    def call(self, function: str, text: str, labels: str, options: Mapping[str, Any]) -> str:
        """An AI call; arguments as for `Template.call`.

        Raises:
            InputError: a placeholder names no column, or there is none.
        """
        template = read_template(text)
        if not template.expressions:
            raise self._constant(text)
        resolved = []
        for expression in template.expressions:
            whole = inline(expression, self.computed)
            self._check(expression, whole)
            resolved.append(whole)
        template = Template(template.pieces, tuple(resolved))
        return template.call(function, self.connection.dialect, labels, options)

    def _check(self, written: str, expression: str) -> None:
        try:
            query = self.connection.sql(f"SELECT ({expression}) FROM {self.relations}")
        except QueryError as error:
            raise InputError(self._no_column(written, error)) from None
        if len(query.schema) > 1:
            raise InputError(
                f"The placeholder {{{written}}} stands for {len(query.schema)} columns. "
                f"Give each its own: {self._listed(self.columns())}."
            )
        try:
            _ = self.connection.sql(f"SELECT ({expression})").schema
        except QueryError:
            return  # It needs a row.
        raise InputError(
            f"The placeholder {{{written}}} is the same for all rows: here it names a column, or "
            f"an expression of columns. Columns: {self._listed(self.columns())}. "
            "Write {{ and }} for braces."
        )

    def _no_column(self, written: str, error: QueryError) -> str:
        columns = self.columns()
        meant = self._meant(written, columns)
        hint = f" Did you mean {{{meant}}}?" if meant else ""
        tokens = TokenList(written)
        names = [t for t in tokens if t.kind is TokenType.IDENTIFIER or t.word]
        if len(names) * 2 - 1 != len(tokens):
            return f"The placeholder {{{written}}} cannot be read: {error.reason}.{hint}"
        bare = len(names) == 1
        known = [c.sql if bare else f"{c.alias}.{c.sql}" for c in columns]
        near = difflib.get_close_matches(written, known, n=1, cutoff=0.0)
        if not meant and near:
            hint = f" Did you mean {{{near[0]}}}?"
        return f"{{{written}}} is no column. Columns: {', '.join(dict.fromkeys(known))}.{hint}"

    @staticmethod
    def _meant(written: str, columns: list[NamedColumn]) -> str | None:
        """The column that braces name without its quotes, or with a format behind it."""
        for text in (written, without_format(written)):
            for column in columns:
                for prefix in ("", f"{column.alias}."):
                    name, sql = prefix + column.name, prefix + column.sql
                    if text.strip().lower() == name.lower() and sql != written:
                        return sql
        return None

    def _constant(self, text: str) -> InputError:
        """The error for a question that is the same for every row."""
        columns = self.columns()
        known = {each.lower(): each for c in columns for each in (c.sql, f"{c.alias}.{c.sql}")} | {
            c.name.lower(): c.sql for c in columns
        }
        near = known.get(text.strip().lower())
        close = difflib.get_close_matches(text, [c.sql for c in columns], n=1)
        hint = f"Did you mean {{{near or close[0]}}}?" if near or close else "Put one in braces."
        return InputError(
            f"The question {text!r} names no column of {self._listed(columns)}. {hint}"
        )

    @staticmethod
    def _listed(columns: list[NamedColumn]) -> str:
        return ", ".join(f"{{{name}}}" for name in dict.fromkeys(c.sql for c in columns))
