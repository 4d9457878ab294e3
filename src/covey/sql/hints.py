"""What DuckDB's complaints leave out: which columns, tables and functions there are, and files.

DuckDB's own suggestion is the nearest of all it has, its system catalogue included.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from covey.errors import QueryError
from covey.logical.calls import AICall
from covey.logical.query_blocks import QueryBlock
from covey.sql.bind import Binder
from covey.sql.functions import BY_SPELLING
from covey.sql.scopes import defined_names
from covey.sql.text import TokenList, nearest, quote_name, read_tokens

_NO_COLUMN = re.compile(r'.*"(?P<table>[^"]+)" does not have a column named "(?P<column>[^"]+)"')
_NO_TABLE = re.compile(r"Table with name (?P<name>.+) does not exist")
_NO_FILE = re.compile(r'No files found that match the pattern "(?P<name>.+)"')


def with_written_names(error: QueryError, calls: list[AICall]) -> QueryError:
    """The same error, with AI functions called as the user wrote them."""
    if not calls:
        return error
    udf = re.compile(rf'"?\b{calls[0].prefix}_(?:rows_)?(?P<index>\d+)\b"?', re.IGNORECASE)

    def written(match: re.Match[str]) -> str:
        index = int(match["index"])
        if error.sql is None or index >= len(calls):
            return match[0]
        return error.sql[slice(*calls[index].name_span)]

    return error.replaced(reason=udf.sub(written, error.reason))


def with_hint(error: QueryError, blocks: list[QueryBlock], binder: Binder) -> QueryError:
    """The same error with what DuckDB leaves out."""
    error = _with_name_hint(error, binder)
    return _with_pivot_hint(_with_file_hint(_with_column_hint(error, blocks, binder)))


def _with_pivot_hint(error: QueryError) -> QueryError:
    """The same error where a PIVOT leaves no column but those that answers name."""
    if error.sql is None or not error.reason.startswith("SELECT list is empty"):
        return error
    place = next((t for t in read_tokens(error.sql) if t.word == "PIVOT"), None)
    if place is None:
        return error
    return error.replaced(
        reason="The columns of this PIVOT are known by the model's answers alone",
        span=place.span,
        hint="Say which there are, ON … IN ('billing', 'shipping'), or let another column stay.",
    )


def _with_file_hint(error: QueryError) -> QueryError:
    """The same error, naming the place of a missing file, or what to write for a folder."""
    found, hint = _NO_TABLE.fullmatch(error.reason), None
    if found is not None and Path(found["name"]).is_dir():
        hint = f"It is a folder. Name its files: '{found['name']}/*.parquet'."
    elif (found := _NO_FILE.fullmatch(error.reason)) is not None:
        hint = "Check its name; a relative path starts from the folder where Covey runs."
    if found is None or hint is None:
        return error
    span = error.span
    if span is None and error.sql is not None:
        start = error.sql.find(found["name"])
        span = (start, start + len(found["name"])) if start >= 0 else None
    return error.replaced(span=span, hint=hint)


def _with_column_hint(error: QueryError, blocks: list[QueryBlock], binder: Binder) -> QueryError:
    """The same error, naming the columns of the table that lacks one."""
    found = _NO_COLUMN.fullmatch(error.reason)
    if found is None:
        return error
    table, column = found["table"], found["column"]
    for source in (source for block in blocks for source in block.sources):
        if source.alias.lower() != table.lower():
            continue
        query = f"SELECT * FROM {binder.edited.render(source.span)} AS {quote_name(table)}"
        names = [name for name, _ in binder.columns(query) or []]
        if not names:
            continue
        near = nearest(column, names)
        hint = f"Columns: {', '.join(names)}."
        if near:
            meant = near if near.isidentifier() else quote_name(near)
            hint += f" Did you mean {table}.{meant}?"
        return error.replaced(reason=f'{table} has no column "{column}"', hint=hint)
    return error


_NO_FUNCTION = re.compile(r"Scalar Function with name (?P<name>.+) does not exist")
_OF_DUCKDB = re.compile(r'Did you mean "(?P<name>[^"]+)"')
# As near as two names are where one is a slip of the other.
_NEAR = 0.7
_TABLES = (
    "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND NOT starts_with(table_name, ?) "
    "UNION SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
)
_OWN = "covey_"
_MOST_LISTED = 8


def _with_name_hint(error: QueryError, binder: Binder) -> QueryError:
    """The same error with a table or an AI function that may be meant."""
    table, function = _NO_TABLE.fullmatch(error.reason), _NO_FUNCTION.fullmatch(error.reason)
    if error.sql is None or not (table or function):
        return error
    tokens = read_tokens(error.sql)
    if table is not None:
        name = table["name"]
        if not name.isidentifier():
            return error
        hint: str | None = _of_table(name, tokens, binder)
    else:
        name = function["name"] if function else ""
        hint = _of_function(name, error.hint)
    places = (t.span for t in tokens if t.is_name and t.text.lower() == name.lower())
    return error.replaced(span=error.span or next(places, None), hint=hint)


def _of_table(name: str, tokens: TokenList, binder: Binder) -> str:
    """A table that is nearly called so, or how a frame becomes one."""
    known = defined_names(tokens) | set(binder.tables(_TABLES, _OWN))
    near = nearest(name.lower(), sorted(known), _NEAR)
    if near:
        return f"Did you mean {near}?"
    listed = sorted(known)[:_MOST_LISTED]
    there = f"There is {', '.join(listed)}. " if listed else ""
    return f"{there}A frame of Python is made known first: con.register({name!r}, {name})."


def _of_function(name: str, hint: str | None) -> str | None:
    """An AI function, or PROMPT, that is nearly called so; else DuckDB's nearest if it is near."""
    spellings = {spelling.lower(): spelling for spelling in (*BY_SPELLING, "PROMPT")}
    plain = {spelling.rpartition(".")[2]: each for spelling, each in spellings.items()}
    for names in (spellings, {n: each for n, each in plain.items() if len(n) > 2}):
        near = nearest(name.lower(), names, _NEAR)
        if near:
            return f"Did you mean {names[near]}?"
    found = _OF_DUCKDB.search(hint or "")
    is_near = found and difflib.SequenceMatcher(None, name.lower(), found["name"]).ratio() >= _NEAR
    return hint if is_near or found is None else None
