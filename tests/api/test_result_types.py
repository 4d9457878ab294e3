"""`fetchall` gives what DuckDB gives, whatever Arrow makes of a type on the way."""

from __future__ import annotations

import duckdb
import pytest

import covey
from covey.testing import PlantedModel

VALUES = [
    "340282366920938463463374607431768211455::UHUGEINT",
    "sum(3::INTEGER)",
    "170141183460469231731687303715884105727::HUGEINT",
    "99999999999999999999999999999999999999::DECIMAL(38, 0)",
    "'9f0c8a3e-0b1c-4a5e-8e0e-1d2f3a4b5c6d'::UUID",
    "TIMETZ '10:00:00+02'",
    "'101'::BIT",
    "TIME '10:00:00'",
    "TIMESTAMP '2026-01-02 03:04:05'",
    "'\\xAA'::BLOB",
    "[1, 2]",
    "MAP {'a': 1}",
]


@pytest.mark.parametrize("value", VALUES)
def test_fetchall_is_duckdbs(value: str) -> None:
    sql = f'SELECT {value} AS a, NULL AS a, 1 AS "b""c"'
    with covey.connect(model=PlantedModel(lambda question, documents: 0.5)) as con:
        query = con.sql(sql)
        assert query.fetchall() == duckdb.sql(sql).fetchall()
        assert query.arrow().column_names == ["a", "a", 'b"c']
        assert [b.schema.names for b in con.sql(sql).batches()] == [["a", "a", 'b"c']]
