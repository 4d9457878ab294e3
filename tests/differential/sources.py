"""Strategies for FROM clauses: tables and files under aliases, joined in some way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import note
from hypothesis import strategies as st

from differential.expressions import Scope, pick, plain_conditions
from differential.tables import as_values, columns_of, some_tables, tables
from differential.tree import Sql, sql

ALIASES = "abcd"


@dataclass(slots=True)
class Files:
    """Writes Parquet files; a new name each time, as readers may cache by name."""

    folder: Path
    _count: itertools.count[int] = field(default_factory=itertools.count)

    def write(self, table: pa.Table) -> str:
        path = self.folder / f"f{next(self._count)}.parquet"
        pq.write_table(table, path)
        note(as_values(path.stem, table))
        return str(path)


@dataclass(slots=True)
class Source:
    """A FROM clause.

    Attributes:
        text: what follows FROM.
        tables: the registered tables in it.
        scopes: the columns of each alias, in order.
        conditions: join conditions that belong into WHERE (comma joins).
    """

    text: Sql
    tables: dict[str, pa.Table]
    scopes: list[Scope]
    conditions: list[Sql] = field(default_factory=list)

    @property
    def scope(self) -> Scope:
        return [column for scope in self.scopes for column in scope]


JOINS = ["inner", "comma", "left", "using", "cross"]


@st.composite
def single(draw: st.DrawFn, files: Files | None = None, at_most: int = 12) -> Source:
    """One table under an alias, registered or a Parquet file by its path."""
    table = draw(some_tables(at_most))
    if files is not None and draw(st.integers(0, 4)) == 4:
        return Source(sql(f"'{files.write(table)}' AS a"), {}, [columns_of("a")])
    return Source(sql("t0 AS a"), {"t0": table}, [columns_of("a")])


@st.composite
def joins(draw: st.DrawFn, kinds: list[str], at_most: int = 8, self_joins: bool = True) -> Source:
    """Two tables, or one table twice, joined by equality or not at all."""
    found = {"t0": draw(tables(at_most))}
    other = "t0"
    if not self_joins or draw(st.integers(0, 3)) < 3:
        other = "t1"
        found["t1"] = draw(tables(at_most))
    kind = draw(st.sampled_from(kinds))
    scopes = [columns_of("a"), columns_of("b")]
    key = draw(st.sampled_from(["a.k = b.k", "a.id = b.id", "a.s = b.u", "a.id < b.id"]))
    conditions: list[Sql] = []
    if kind == "comma":
        text = sql(f"t0 AS a, {other} AS b")
        if draw(st.booleans()):
            conditions.append(sql(key))
    elif kind == "cross":
        text = sql(f"t0 AS a CROSS JOIN {other} AS b")
    elif kind == "using":
        text = sql(f"t0 AS a JOIN {other} AS b USING (k)")
    else:
        on = sql(key)
        if draw(st.integers(0, 3)) == 3:
            on = sql(key, " AND ", draw(plain_conditions(scopes[0] + scopes[1])))
        text = sql(f"t0 AS a {kind.upper()} JOIN {other} AS b ON ", on)
    return Source(text, found, scopes, conditions)


def ids(source: Source) -> list[Sql]:
    """The columns that name a row of a source."""
    return [scope[0].sql for scope in source.scopes]


def items(draw: st.DrawFn, source: Source, at_most: int = 2) -> list[Sql]:
    """The ids and some more columns, for a SELECT list."""
    more = draw(st.integers(0, at_most))
    return ids(source) + [pick(draw, source.scope) for _ in range(more)]


MakeSource = Callable[[], st.SearchStrategy[Source]]
