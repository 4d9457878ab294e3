"""Small random tables: NULLs, blank strings, duplicates and awkward types.

Every table has the same columns, so names clash across the tables of a join and any
two tables may stand in a set operation. `id` is unique within a table.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from differential.tree import Sql, sql

TEXTS = ["a", "b", "refund", "", " ", "\n", "it's", "{0}", "}}", "NULL", "é", "A", "a b"]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int32()),
        ("s", pa.string()),
        ("u", pa.string()),
        ("d", pa.date32()),
        ("x", pa.float64()),
        ("l", pa.list_(pa.string())),
        ("Course Name", pa.string()),
    ]
)

texts = st.one_of(st.sampled_from(TEXTS), st.none())
dates = st.sampled_from([None, datetime.date(2026, 1, 1), datetime.date(1999, 12, 31)])
doubles = st.sampled_from([0.0, 2.5, -1.5, 1e20, 0.1, math.nan, None])
lists = st.one_of(st.none(), st.lists(texts, max_size=2))
rows = st.tuples(st.sampled_from([1, 0, 2, None]), texts, texts, dates, doubles, lists, texts)


@st.composite
def tables(draw: st.DrawFn, at_most: int = 12) -> pa.Table:
    """A table of no more than `at_most` rows."""
    return _table(draw(st.lists(rows, max_size=at_most)))


@st.composite
def long_tables(draw: st.DrawFn, at_most: int = 60) -> pa.Table:
    """A table with more rows than are asked at a time, most of its texts different.

    Drawn as a size and a seed: a failure shrinks by the number of rows alone.
    """
    random = Random(draw(st.integers(0, 999)))

    def text() -> str | None:
        form = random.randrange(8)
        return None if form == 0 else random.choice(TEXTS) + (str(form) if form > 1 else "")

    drawn = [
        (
            random.choice([0, 1, 2, None]),
            text(),
            text(),
            random.choice([None, datetime.date(2026, 1, 1)]),
            random.choice([0.0, 2.5, None]),
            None,
            text(),
        )
        for _ in range(draw(st.integers(0, at_most)))
    ]
    return _table(drawn)


def some_tables(at_most: int) -> st.SearchStrategy[pa.Table]:
    """Mostly a short table, now and then a long one."""
    short = tables(at_most)
    return st.one_of(short, short, short, short, long_tables())


def _table(drawn: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*drawn, strict=True) if drawn else [()] * (len(SCHEMA) - 1)
    arrays = [
        pa.array(values, field.type)
        for values, field in zip([range(len(drawn)), *columns], SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class Column:
    """A column in scope: how it is written, and whether a prompt may take it bare."""

    text: str
    type: str

    @property
    def sql(self) -> Sql:
        return sql(self.text)


COLUMN_TYPES = {
    "id": "int",
    "k": "int",
    "s": "text",
    "u": "text",
    "d": "date",
    "x": "double",
    "l": "list",
    '"Course Name"': "text",
}


def columns_of(alias: str) -> list[Column]:
    """The columns of a random table under an alias."""
    return [Column(f"{alias}.{name}", type_) for name, type_ in COLUMN_TYPES.items()]


def as_values(name: str, table: pa.Table) -> str:
    """The table as a statement, to be printed with a failure."""
    lines = [
        f"CREATE TABLE {name} (id BIGINT, k INT, s VARCHAR, u VARCHAR, d DATE, x DOUBLE, "
        'l VARCHAR[], "Course Name" VARCHAR);'
    ]
    for row in table.to_pylist():
        shown = ", ".join(_literal(value) for value in row.values())
        lines.append(f"INSERT INTO {name} VALUES ({shown});")
    return "\n".join(lines)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"[{', '.join(_literal(item) for item in value)}]"
    if isinstance(value, str | datetime.date):
        return "'" + str(value).replace("'", "''") + "'"
    return f"'{value}'" if isinstance(value, float) else repr(value)
