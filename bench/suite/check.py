"""The rows that DuckDB gives when the planted truth is a plain function."""

from __future__ import annotations

import hashlib

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from suite.oracle import Oracle
from suite.plan import Plan
from suite.sql import planted_call, to_sql

_DIGITS = 9  # scores are compared to so many decimals: log-odds and back is not exact


def reference_rows(plan: Plan, oracle: Oracle, tables: dict[str, pa.Table]) -> pa.Table:
    """A query's rows, without Covey."""
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    oracle.add_functions(connection)
    return connection.sql(to_sql(plan, planted_call)).to_arrow_table()


def canonical(rows: pa.Table, *, ordered: bool) -> pa.Table:
    """Rows in one form: strings of one type, rounded floats, sorted unless order counts."""
    columns = []
    for column in rows.columns:
        if pa.types.is_floating(column.type):
            column = pc.round(column.cast(pa.float64()), _DIGITS)
        elif pa.types.is_integer(column.type) or pa.types.is_decimal(column.type):
            column = column.cast(pa.int64())
        else:
            column = column.cast(pa.large_string())
        columns.append(column)
    # Names may repeat in different letters of case: places are safe.
    table = pa.table(columns, names=[f"{i}" for i in range(len(columns))])
    if ordered or not len(table):
        return table.combine_chunks()
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def same_rows(one: pa.Table, other: pa.Table, plan: Plan) -> bool:
    """Whether two results are equal, as multisets or, where the plan sorts, as lists."""
    ordered = bool(plan.tail.order)
    return canonical(one, ordered=ordered).equals(canonical(other, ordered=ordered))


def digest(rows: pa.Table, plan: Plan) -> str:
    """A short hash of a result, equal for equal results."""
    table = canonical(rows, ordered=bool(plan.tail.order))
    hashed = hashlib.sha256(str(len(table)).encode())
    for column in table.columns:
        for text in column.to_pylist():
            hashed.update(repr(text).encode())
    return hashed.hexdigest()[:16]
