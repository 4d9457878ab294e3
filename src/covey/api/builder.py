"""Queries without writing SQL: a builder that writes it.

    tickets = con.table("tickets").alias("t")
    refunds = tickets.where("t.created >= DATE '2026-01-01'").ai_filter("A refund? {t.body}")
    refunds.group_by("product").agg(n="count(*)").order_by("n DESC").df()

What is built is SQL text, shown by `sql()`. A step applies to the result of the steps
before it: where one SELECT cannot say that, the steps so far become a subquery.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.api.estimates import Estimate
from covey.api.placeholders import NamedColumn, Placeholders
from covey.api.query import Query
from covey.api.sql_text import all_of, inline, same_name, sql_expression, sql_labels, sql_name
from covey.errors import InputError
from covey.execution.report import Report

if TYPE_CHECKING:
    import pandas
    import polars

    from covey.api.connection import Connection

_JOINS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "cross": "CROSS JOIN",
    "semi": "SEMI JOIN",
    "anti": "ANTI JOIN",
}
_AI_JOINS = ("inner", "left", "semi", "anti")


@dataclass(frozen=True)
class FromItem:
    """An entry of FROM.

    Attributes:
        relation: a table name or a subquery in brackets, as SQL.
        alias: the name its columns go by.
        head: what stands before it: "", JOIN, LEFT JOIN …
        on: conditions of its ON.
    """

    relation: str
    alias: str
    head: str = ""
    on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Builder:
    """A query being built; made by `Connection.table`, changed by none of its methods.

    Conditions, expressions and the insides of placeholders are SQL, with names as SQL
    writes them. Options of AI functions are keyword arguments (`selectivity=0.2`).
    """

    connection: Connection
    reserved: frozenset[str]
    sources: tuple[FromItem, ...]
    conditions: tuple[str, ...] = ()
    computed: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    aggregates: tuple[str, ...] = ()
    group_conditions: tuple[str, ...] = ()
    is_distinct: bool = False
    order: tuple[str, ...] = ()
    count: int | None = None

    def alias(self, name: str) -> Builder:
        """Give the rows a name, by which their columns are called: `t.body`."""
        if not isinstance(name, str) or not name:
            raise InputError("An alias is a name.")
        if self._is_plain():
            return replace(self, sources=(replace(self.sources[0], alias=name),))
        return self._nested(name)

    def where(self, condition: str) -> Builder:
        """Keep the rows for which an SQL condition is TRUE."""
        base = self._rows()
        text = inline(sql_expression(condition, "The condition"), base._computed)
        return replace(base, conditions=(*base.conditions, text))

    def ai_filter(self, question: str, **options: Any) -> Builder:
        """Keep the rows for which the model says TRUE.

        Args:
            question: a text with placeholders: "Is {body} about refunds?".
            options: of AI.IF.

        Raises:
            InputError: a placeholder is no column or expression of these rows.
        """
        base = self._rows()
        call = base.placeholders().call("AI.IF", question, "", options)
        return replace(base, conditions=(*base.conditions, call))

    def ai_classify(
        self,
        text: str,
        labels: Sequence[str] | Mapping[str, str | None],
        *,
        name: str = "label",
        **options: Any,
    ) -> Builder:
        """Add a column with the label that the model chooses.

        Args:
            text: what is classified: "{body}", or a text with placeholders.
            labels: two or more texts; of a mapping the values describe the keys.
            name: of the column.
            options: of AI.CLASSIFY.
        """
        return self._compute("AI.CLASSIFY", text, sql_labels(labels), name, options)

    def ai_score(self, question: str, *, name: str = "score", **options: Any) -> Builder:
        """Add a column with P(TRUE) / (P(TRUE) + P(FALSE)); arguments as for `ai_filter`."""
        return self._compute("AI.SCORE", question, "", name, options)

    def join(self, other: Builder, on: str | None = None, *, how: str = "inner") -> Builder:
        """Join with other rows on an SQL condition.

        Args:
            other: the rows; `alias` gives them a name.
            on: the condition; none for how="cross".
            how: inner, left, right, full, cross, semi or anti.
        """
        if how not in _JOINS:
            raise InputError(f"how is one of {', '.join(_JOINS)}, not {how!r}.")
        if (on is None) != (how == "cross"):
            raise InputError(f"A join with how={how!r} needs {'no' if on else 'a'} condition on=.")
        base = self._rows()
        conditions = () if on is None else (sql_expression(on, "The condition"),)
        return base._joined(other, _JOINS[how], conditions)

    def ai_join(
        self,
        other: Builder,
        question: str,
        *,
        on: str | None = None,
        how: str = "inner",
        **options: Any,
    ) -> Builder:
        """Join with the rows for which the model says TRUE of the pair.

        Args:
            other: the rows; `alias` gives them a name.
            question: with placeholders of both sides: "Does {t.body} match {p.text}?".
            on: an SQL condition that pairs must fulfil to be asked about.
            how: inner; left keeps rows without a partner; semi keeps the rows that have
                a partner, anti those that have none, both without its columns.
            options: of AI.IF.
        """
        if how not in _AI_JOINS:
            raise InputError(f"how is one of {', '.join(_AI_JOINS)}, not {how!r}.")
        base = self._rows()
        conditions: tuple[str, ...] = ()
        if on is not None:
            conditions = (inline(sql_expression(on, "The condition"), base._computed),)
        both = base._joined(other, "CROSS JOIN", ())
        conditions = (*conditions, both.placeholders().call("AI.IF", question, "", options))
        if how in ("inner", "left"):
            return base._joined(other, _JOINS[how], conditions)
        partner = base._source(both.sources[-1])
        exists = f"EXISTS (SELECT 1 FROM {partner} WHERE {all_of(conditions, ' ')})"
        return replace(
            base, conditions=(*base.conditions, exists if how == "semi" else f"NOT {exists}")
        )

    def select(self, *columns: str, **named: str) -> Builder:
        """Choose the columns of the result: SQL expressions, or name="expression"."""
        chosen = self._expressions(columns, named)
        if not chosen:
            raise InputError("select needs a column.")
        fits = self.columns is None and self.groups is None and not self.is_distinct
        return replace(self if fits else self._nested(), columns=chosen)

    def group_by(self, *keys: str) -> Builder:
        """Group rows by SQL expressions; `agg` says what is computed for each group."""
        if not keys:
            raise InputError("group_by needs a key; agg alone makes one group of all rows.")
        base = self._rows(ordered=False)
        return replace(base, groups=tuple(sql_expression(key, "A key") for key in keys))

    def agg(self, *aggregates: str, **named: str) -> Builder:
        """Compute aggregates for each group: SQL expressions, or name="count(*)"."""
        base = self if self.groups is not None and self._is_open() else self._rows(ordered=False)
        chosen = base._expressions(aggregates, named)
        if not chosen:
            raise InputError("agg needs an aggregate.")
        return replace(base, groups=base.groups or (), aggregates=(*base.aggregates, *chosen))

    def having(self, condition: str) -> Builder:
        """Keep the groups for which an SQL condition is TRUE."""
        if self.groups is None:
            raise InputError("having needs groups: group_by(…).agg(…).having(…).")
        text = sql_expression(condition, "The condition")
        if not self._is_open():
            return self.where(condition)
        return replace(self, group_conditions=(*self.group_conditions, text))

    def distinct(self) -> Builder:
        """Drop rows that are equal in all columns."""
        return replace(self._unlimited(), is_distinct=True)

    def order_by(self, *keys: str) -> Builder:
        """Sort the result by SQL expressions: "n DESC"."""
        if not keys:
            raise InputError("order_by needs a key.")
        order = tuple(sql_expression(key, "A key") for key in keys)
        return replace(self._unlimited(), order=order)

    def limit(self, count: int) -> Builder:
        """Keep the first rows."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"A limit is a whole number from 0 up, not {count!r}.")
        return replace(self._unlimited(), count=count)

    def sql(self) -> str:
        """The SQL text that this stands for."""
        lines = [f"SELECT {'DISTINCT ' * self.is_distinct}{', '.join(self._outputs())}"]
        for source in self.sources:
            on = f" ON {all_of(source.on, ' ')}" if source.on else ""
            lines.append(f"{source.head or 'FROM'} {self._source(source)}{on}")
        if self.conditions:
            lines.append(f"WHERE {all_of(self.conditions)}")
        if self.groups:
            lines.append(f"GROUP BY {', '.join(self._sorted_by(self.groups))}")
        if self.group_conditions:
            lines.append(f"HAVING {all_of(self._sorted_by(self.group_conditions))}")
        if self.order:
            lines.append(f"ORDER BY {', '.join(self._sorted_by(self.order))}")
        if self.count is not None:
            lines.append(f"LIMIT {self.count}")
        return "\n".join(lines)

    @cached_property
    def _query(self) -> Query:
        """The same one every time, so that it runs once."""
        return self.connection.sql(self.sql())

    def query(self) -> Query:
        """The query, checked.

        Raises:
            QueryError: an expression is wrong; shown in the text of `sql()`.
        """
        return self._query

    def explain(self, format: str = "text", *, analyze: bool = False) -> str:
        """See `Query.explain`."""
        return self._query.explain(format, analyze=analyze)

    def estimate(self) -> Estimate:
        """See `Query.estimate`."""
        return self._query.estimate()

    def df(self) -> pandas.DataFrame:
        """See `Query.df`."""
        return self._query.df()

    def pl(self) -> polars.DataFrame:
        """See `Query.pl`."""
        return self._query.pl()

    def arrow(self) -> pa.Table:
        """See `Query.arrow`."""
        return self._query.arrow()

    def batches(self, *, early: bool = False) -> Generator[pa.RecordBatch, None, None]:
        """See `Query.batches`."""
        return self._query.batches(early=early)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """See `Query.fetchall`."""
        return self._query.fetchall()

    @property
    def report(self) -> Report:
        """See `Query.report`."""
        return self._query.report

    @property
    def _computed(self) -> dict[str, str]:
        return {name.lower(): call for name, call in self.computed}

    def _is_open(self) -> bool:
        """Whether groups may still be changed."""
        return self.columns is None and not self.is_distinct and self.count is None

    def _rows(self, ordered: bool = True) -> Builder:
        """This, where conditions, joins and columns may be added; else a query over it."""
        flat = self._is_open() and self.groups is None and (ordered or not self.order)
        return self if flat else self._nested()

    def _unlimited(self) -> Builder:
        return self if self.count is None else self._nested()

    def _is_plain(self) -> bool:
        """Whether this is one table or subquery and nothing else."""
        return self == Builder(self.connection, self.reserved, self.sources[:1])

    def _nested(self, alias: str | None = None) -> Builder:
        name = alias or (self.sources[0].alias if len(self.sources) == 1 else "joined")
        source = FromItem(f"(\n{self.sql()}\n)", name)
        return Builder(self.connection, self.reserved, (source,))

    def _name(self, name: str) -> str:
        return sql_name(name, self.reserved)

    def _source(self, source: FromItem) -> str:
        alias = self._name(source.alias)
        return source.relation if source.relation == alias else f"{source.relation} AS {alias}"

    def _expressions(self, plain: Sequence[str], named: Mapping[str, str]) -> tuple[str, ...]:
        texts = [sql_expression(text, "A column") for text in plain]
        texts += [
            f"{sql_expression(text, 'A column')} AS {self._name(name)}"
            for name, text in named.items()
        ]
        return tuple(texts)

    def _outputs(self) -> list[str]:
        """The expressions of SELECT, computed columns under their names."""
        if self.groups is not None and self.columns is None:
            return [self._output(text) for text in (*self.groups, *self.aggregates)]
        if self.columns is not None:
            return [self._output(text) for text in self.columns]
        return ["*", *(f"{call} AS {self._name(name)}" for name, call in self.computed)]

    def _output(self, text: str) -> str:
        for name, call in self.computed:
            if same_name(text, name):
                return f"{call} AS {self._name(name)}"
        return inline(text, self._computed)

    def _sorted_by(self, texts: Sequence[str]) -> list[str]:
        """Expressions of GROUP BY, HAVING and ORDER BY, where names of the output hold."""
        chosen = self.columns or (None if self.groups is None else self.groups)
        hidden = {
            name.lower(): call
            for name, call in self.computed
            if chosen is not None and not any(same_name(text, name) for text in chosen)
        }
        return [inline(text, hidden) for text in texts]

    def _joined(self, other: Builder, head: str, on: tuple[str, ...]) -> Builder:
        if not isinstance(other, Builder) or other.connection is not self.connection:
            raise InputError("A join needs a table of the same connection: con.table(…).")
        source = (other if other._is_plain() else other._nested()).sources[0]
        if any(source.alias.lower() == own.alias.lower() for own in self.sources):
            raise InputError(
                f"Both sides of the join are called {source.alias}: "
                "give one another name with .alias(…)."
            )
        on = tuple(inline(condition, self._computed) for condition in on)
        return replace(self, sources=(*self.sources, replace(source, head=head, on=on)))

    def _compute(
        self, function: str, text: str, labels: str, name: str, options: Mapping[str, Any]
    ) -> Builder:
        base = self._rows()
        if not isinstance(name, str) or not name:
            raise InputError("A computed column needs a name.")
        taken = {self._name(name).lower()} & {c.sql.lower() for c in base._listed_columns()}
        if taken or name.lower() in base._computed:
            raise InputError(f"There is a column {name} already: give another name=.")
        call = base.placeholders().call(function, text, labels, options)
        return replace(base, computed=(*base.computed, (name, call)))

    def placeholders(self) -> Placeholders:
        """What the placeholders of a question may name here."""
        relations = ", ".join(self._source(source) for source in self._visible())
        return Placeholders(self.connection, relations, self._listed_columns, self._computed)

    def _listed_columns(self) -> list[NamedColumn]:
        """The columns of every source that can be named."""
        return [
            NamedColumn(self._name(source.alias), self._name(column), column)
            for source in self._visible()
            for column, _ in self.connection.sql(f"FROM {self._source(source)}").schema
        ]

    def _visible(self) -> list[FromItem]:
        return [s for s in self.sources if s.head not in (_JOINS["semi"], _JOINS["anti"])]
