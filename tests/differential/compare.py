"""Two results compared: ordered or as multisets, doubles to 1e-9."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]

TOLERANCE = 1e-9


def rows_of(table: pa.Table) -> list[Row]:
    """The rows; columns may share a name."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def difference(
    got: pa.Table, expected: pa.Table, *, ordered: bool, limit: int | None = None
) -> str | None:
    """What differs, or None.

    Args:
        got: Covey's result.
        expected: the oracle's; all rows, where `limit` is given.
        ordered: the query has a total order.
        limit: any so many of the expected rows are right.
    """
    if len(got.schema) != len(expected.schema):
        return f"columns {got.schema.names}, expected {expected.schema.names}"
    if got.schema.names != expected.schema.names:
        return f"column names {got.schema.names}, expected {expected.schema.names}"
    if got.schema.types != expected.schema.types:
        return f"column types {got.schema.types}, expected {expected.schema.types}"
    ours, theirs = rows_of(got), rows_of(expected)
    if limit is not None:
        return _not_some_of(ours, theirs, limit)
    if not ordered:
        ours, theirs = sorted(ours, key=_key), sorted(theirs, key=_key)
    if len(ours) != len(theirs) or not all(map(_same, ours, theirs)):
        return f"rows {ours}\nexpected {theirs}"
    return None


def _not_some_of(ours: list[Row], theirs: list[Row], limit: int) -> str | None:
    if len(ours) != min(limit, len(theirs)):
        return f"{len(ours)} rows, expected {min(limit, len(theirs))}"
    extra = Counter(map(_key, ours)) - Counter(map(_key, theirs))
    return f"rows {ours}\nare not among {theirs}" if extra else None


def _key(value: Any) -> str:
    return repr(_rounded(value))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 7) if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return tuple(_rounded(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _rounded(item)) for key, item in value.items())
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(_same, one.values(), other.values()))
    return type(one) is type(other) and bool(one == other)
