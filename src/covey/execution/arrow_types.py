"""DuckDB's types that Arrow has none for: how a result carries them, and gets them back.

A result is held in Arrow. HUGEINT goes there as a decimal and UUID as text, which `fetchall`
would show; UHUGEINT, BIT and TIME WITH TIME ZONE would arrive damaged, and go as text. What each
column was stands in its field's metadata. Types within lists and structs are not looked at.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from covey.sql.text import quote_name

_MARK = b"duckdb_type"
_AS_TEXT = ("UHUGEINT", "BIT", "TIME WITH TIME ZONE")
_MARKED = ("HUGEINT", "UUID", *_AS_TEXT)


def carried(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same rows; as text what Arrow would damage."""
    kinds = [str(kind) for kind in relation.types]
    if not any(kind in _AS_TEXT for kind in kinds):
        return relation
    columns = [
        f"#{place}{'::VARCHAR' if kind in _AS_TEXT else ''} AS {quote_name(name)}"
        for place, (kind, name) in enumerate(zip(kinds, relation.columns, strict=True), 1)
    ]
    return relation.project(", ".join(columns))


def marked(schema: pa.Schema, relation: duckdb.DuckDBPyRelation) -> pa.Schema:
    """The schema of a result, its fields marked with the types of the relation it came from."""
    for place, kind in enumerate(map(str, relation.types)):
        if kind in _MARKED:
            field = schema.field(place).with_metadata({_MARK: kind.encode()})
            schema = schema.set(place, field)
    return schema


def restored(table: pa.Table) -> duckdb.DuckDBPyRelation:
    """A result as a relation whose columns have DuckDB's types again."""
    relation = duckdb.connect().from_arrow(table)
    kinds = [(field.metadata or {}).get(_MARK) for field in table.schema]
    if not any(kinds):
        return relation
    columns = [
        f"#{place}{'' if kind is None else f'::{kind.decode()}'} AS {quote_name(name)}"
        for place, (kind, name) in enumerate(zip(kinds, table.column_names, strict=True), 1)
    ]
    return relation.project(", ".join(columns))
