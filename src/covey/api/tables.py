"""Where a builder begins: a table or view by its name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from covey.api.builder import Builder, Source
from covey.api.written import sql_name
from covey.errors import InputError, QueryError

if TYPE_CHECKING:
    from covey.api.connection import Connection


def start(connection: Connection, name: tuple[str, ...]) -> Builder:
    """The rows of a table or view; see `Connection.table`."""
    if not name or not all(isinstance(part, str) and part for part in name):
        raise InputError("A table has a name: con.table('tickets').")
    rows = connection.sql(
        "SELECT keyword_name FROM system.main.duckdb_keywords() "
        "WHERE keyword_category <> 'unreserved'"
    )
    reserved = frozenset(word for (word,) in rows.fetchall())
    relation = ".".join(sql_name(part, reserved) for part in name)
    builder = Builder(connection, reserved, (Source(relation, name[-1]),))
    try:
        connection.sql(f"FROM {relation}")
    except QueryError:
        raise InputError(_no_table(connection, name[-1])) from None
    return builder


def _no_table(connection: Connection, name: str) -> str:
    rows = connection.sql(
        "SELECT table_name FROM system.main.duckdb_tables() UNION ALL "
        "SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal ORDER BY 1 ASC"
    )
    names = [known for (known,) in rows.fetchall()]
    if not names:
        return f"There is no table {name}. Make one known: con.register({name!r}, data)."
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    return f"There is no table {name}. Did you mean {near[0]}? con.register adds one."
