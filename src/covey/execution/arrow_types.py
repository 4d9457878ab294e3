"""DuckDB's types that Arrow has none for: how a result carries them, and gets them back.

A result is held in Arrow. UHUGEINT, BIT and TIME WITH TIME ZONE would arrive there damaged, and
go as text, also within lists, structs, maps and unions; so does an ENUM within an array. What a
column was stands in its field's metadata where it would come back as another type: HUGEINT is a
decimal in Arrow, UUID and JSON are texts, ENUM a dictionary and a tuple a struct.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from covey.hardware import forks
from covey.sql.text import quote_name, quote_text

_MARK = b"duckdb_type"
_AS_TEXT = ("UHUGEINT", "BIT", "TIME WITH TIME ZONE")
# By what DuckDB calls the kind of a type.
_RENAMED = ("hugeint", "uuid", "enum", "tuple")
# Arrow holds some more; the batch of rows is a level of its own.
MOST_LEVELS = 60
_NESTED = ("list", "array", "struct", "map", "union", "tuple")


class _Conversions:
    """An empty database for DuckDB's conversions: to open one takes longer than most of them.

    Whoever holds `_lock` owns it; each conversion has a cursor of its own, with own settings.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database: duckdb.DuckDBPyConnection | None = None
        forks.tell(self)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._database is None:
                self._database = duckdb.connect()
            return self._database.cursor()

    def inherited(self) -> None:
        """See `covey.hardware.forks`: a child opens its own."""
        self._lock = threading.Lock()
        if self._database is not None:
            forks.keep_for_ever(self._database)
            self._database = None


_conversions = _Conversions()


def arrow_parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """A type of Arrow's and what is in it, at whatever depth."""
    yield kind
    for place in range(kind.num_fields):
        yield from arrow_parts(kind.field(place).type)


def inner(kind: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    """Names and types that a type is made of; none of a plain one."""
    if kind.id not in _NESTED:
        return []
    parts = [(name, part) for name, part in kind.children if isinstance(part, DuckDBPyType)]
    # The first part of a union is the number of its member.
    return parts[1:] if kind.id == "union" else parts


def leaves(kind: DuckDBPyType) -> Iterator[DuckDBPyType]:
    """The type, and what is in it at whatever depth."""
    return (part for part, _ in _levels(kind))


def too_deep(kind: DuckDBPyType) -> bool:
    """Whether a type has more levels than Arrow takes."""
    return any(level > MOST_LEVELS for _, level in _levels(kind))


def _levels(kind: DuckDBPyType) -> Iterator[tuple[DuckDBPyType, int]]:
    """The type and all that is in it, with the level of each."""
    left = [(kind, 1)]
    while left:
        part, level = left.pop()
        yield part, level
        left += [(each, level + 1) for _, each in reversed(inner(part))]


def carried(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same rows; as text what Arrow would damage."""
    kinds = [_carried(kind) for kind in relation.types]
    if kinds == list(map(str, relation.types)):
        return relation
    return _cast(relation, kinds, list(map(str, relation.types)), relation.columns)


def marked(schema: pa.Schema, relation: duckdb.DuckDBPyRelation) -> pa.Schema:
    """The schema of a result, its fields marked with the types of the relation it came from."""
    for place, kind in enumerate(relation.types):
        if _carried(kind) != str(kind) or any(map(_is_renamed, leaves(kind))):
            field = schema.field(place)
            known = {**(field.metadata or {}), _MARK: _spelled(kind, _is_no_type).encode()}
            schema = schema.set(place, field.with_metadata(known))
    return schema


def _is_renamed(kind: DuckDBPyType) -> bool:
    return kind.id in _RENAMED or str(kind) == "JSON"


def restored(table: pa.Table) -> duckdb.DuckDBPyRelation:
    """A result as a relation whose columns have DuckDB's types and names again."""
    database = _conversions.cursor()
    zone = next(filter(None, map(_zone, table.schema.types)), None)
    if zone is not None:
        # Times are shown in the zone of the connection that they come from.
        database.execute(f"SET TimeZone = {quote_text(zone)}").fetchall()
    relation = database.from_arrow(table)
    known = list(map(str, relation.types))
    marks = [(field.metadata or {}).get(_MARK) for field in table.schema]
    kinds = [
        kind if mark is None else mark.decode() for kind, mark in zip(known, marks, strict=True)
    ]
    return _cast(relation, kinds, known, table.column_names)


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names, made distinct as DuckDB does it for frames and files: case means nothing there."""
    if len({name.lower() for name in names}) == len(names):
        return list(names)
    columns = ", ".join(f"NULL AS {quote_name(name)}" for name in names)
    with _conversions.cursor() as database:
        return list(database.sql(f"SELECT {columns} LIMIT 0").fetchnumpy())


def _carried(kind: DuckDBPyType) -> str:
    """The type as which Arrow gets a column, as SQL."""
    return _spelled(kind, _is_damaged)


def _is_damaged(kind: DuckDBPyType, in_array: bool) -> bool:
    return str(kind) in _AS_TEXT or (in_array and kind.id == "enum") or _is_no_type(kind)


def _is_no_type(kind: DuckDBPyType, in_array: bool = False) -> bool:
    """Of categories that are none pandas makes an ENUM that SQL cannot name; all in it is NULL."""
    return str(kind) == "ENUM()"


def _spelled(
    kind: DuckDBPyType, is_text: Callable[[DuckDBPyType, bool], bool], in_array: bool = False
) -> str:
    """A type as SQL, with VARCHAR for some parts of it."""
    if is_text(kind, in_array):
        return "VARCHAR"
    in_array = in_array or kind.id == "array"
    parts = [(name, _spelled(part, is_text, in_array)) for name, part in inner(kind)]
    if [part for _, part in parts] == [str(part) for _, part in inner(kind)]:
        return str(kind)
    if kind.id == "list":
        return f"{parts[0][1]}[]"
    if kind.id == "array":
        return f"{parts[0][1]}[{dict(kind.children)['size']}]"
    fields = (
        part if kind.id in ("map", "tuple") else f"{quote_name(name)} {part}"
        for name, part in parts
    )
    return f"{kind.id.upper()}({', '.join(fields)})"


def _cast(
    relation: duckdb.DuckDBPyRelation, kinds: list[str], known: list[str], names: list[str]
) -> duckdb.DuckDBPyRelation:
    """The columns of a relation as some types, under some names."""
    columns = [
        f"#{place}{'' if kind == before else f'::{kind}'} AS {quote_name(name)}"
        for place, (kind, before, name) in enumerate(zip(kinds, known, names, strict=True), 1)
    ]
    return relation.project(", ".join(columns))


def _zone(kind: pa.DataType) -> str | None:
    """The time zone of a type, or of one in it."""
    if pa.types.is_timestamp(kind):
        zone: str | None = kind.tz
        return zone
    fields = (kind.field(place) for place in range(kind.num_fields))
    return next(filter(None, (_zone(field.type) for field in fields)), None)
