"""A value of every type of DuckDB, and ways to nest it."""

from __future__ import annotations

# A value of every type, as SQL.
VALUES = {
    "BOOLEAN": "true",
    "TINYINT": "(-1)::TINYINT",
    "SMALLINT": "1::SMALLINT",
    "INTEGER": "1",
    "BIGINT": "1::BIGINT",
    "HUGEINT": "170141183460469231731687303715884105727::HUGEINT",
    "UTINYINT": "255::UTINYINT",
    "USMALLINT": "1::USMALLINT",
    "UINTEGER": "1::UINTEGER",
    "UBIGINT": "18446744073709551615::UBIGINT",
    "UHUGEINT": "340282366920938463463374607431768211455::UHUGEINT",
    "BIGNUM": "'123456789012345678901234567890123456789012345'::BIGNUM",
    "FLOAT": "'inf'::FLOAT",
    "DOUBLE": "1.5::DOUBLE",
    "DECIMAL": "1.5::DECIMAL(38, 3)",
    "VARCHAR": "'a'",
    "BLOB": "'\\xAA'::BLOB",
    "BIT": "'101'::BIT",
    "UUID": "'9f0c8a3e-0b1c-4a5e-8e0e-1d2f3a4b5c6d'::UUID",
    "ENUM": "'b'::ENUM ('a', 'b', 'it''s')",
    "DATE": "DATE '2026-01-02'",
    "TIME": "TIME '10:00:00.000001'",
    "TIME_NS": "TIME '10:00:00.5'::TIME_NS",
    "TIME WITH TIME ZONE": "TIMETZ '10:00:00+02'",
    "TIMESTAMP": "TIMESTAMP '2026-01-02 03:04:05.6'",
    "TIMESTAMP_S": "'2026-01-02'::TIMESTAMP_S",
    "TIMESTAMP_MS": "'2026-01-02'::TIMESTAMP_MS",
    "TIMESTAMP_NS": "TIMESTAMP_NS '2026-01-02 00:00:00.123456789'",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ '2026-01-02 03:04:05+00'",
    "TIMESTAMPTZ_NS": "'2026-01-02'::TIMESTAMPTZ_NS",
    "INTERVAL": "INTERVAL '1 month 2 days 3 us'",
    "LIST": "[1, NULL]",
    "ARRAY": "array_value(1, 2)",
    "STRUCT": "{'a b': 1, 'c': 'x'}",
    "TUPLE": "row(1, 'a')",
    "MAP": "MAP {'a': 1}",
    "UNION": 'union_value(k := 1)::UNION(k INTEGER, "v w" VARCHAR)',
    "VARIANT": "{'a': [1, 2]}::VARIANT",
    "GEOMETRY": "'POINT(1 2)'::GEOMETRY",
    "NULL": "NULL",
    "TYPE": "get_type(1)",
}
# What Python's and Arrow's types for times do not reach.
FAR = {
    "a date of another age": "'200000-01-01'::DATE",
    "a date before year 1": "'0044-03-15 (BC)'::DATE",
    "an infinite time": "'-infinity'::TIMESTAMP",
    "an infinite time with a zone": "'infinity'::TIMESTAMPTZ",
    "a number that is none": "'nan'::DOUBLE",
    "an ENUM in an array": "array_value('a'::ENUM ('a', 'b'))",
    "a JSON": "'{\"a\": 1}'::JSON",
}
NESTINGS = {
    "alone": "{}",
    "list": "[{}, NULL]",
    "array": "array_value({})",
    "struct": "{{'x y': {}}}",
    "tuple": "row(1, {})",
    "map": "MAP {{'k': {}}}",
    "key": "MAP {{{}: 1}}",
    "union": "union_value(u := {})",
    "deep": "[{{'m': MAP {{'k': {}}}}}]",
}


def expressions(nesting: str) -> dict[str, str]:
    """A value of every type, so nested, by its title."""
    found = {title: NESTINGS[nesting].format(value) for title, value in {**VALUES, **FAR}.items()}
    if nesting == "key":
        # NULL is no key, and a NaN none that pandas compares.
        del found["NULL"], found["a number that is none"]
    if nesting == "union":
        # A frame of DuckDB's has None there, and NA behind Arrow.
        del found["NULL"]
    return found
