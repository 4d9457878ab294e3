"""Questions with named placeholders, `"Is {body} a refund?"`, over the rows of some relations."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType

from covey.api.written import Template, inline, read_template
from covey.errors import InputError, QueryError
from covey.sql.braces import without_format
from covey.sql.text import TokenList

if TYPE_CHECKING:
    from covey.api.connection import Connection


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
