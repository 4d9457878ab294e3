"""What DuckDB's complaints leave out: which columns there are, and which file is meant."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from covey.errors import QueryError
from covey.logical.calls import AICall
from covey.logical.query_blocks import QueryBlock
from covey.sql.bind import Binder
from covey.sql.names import with_name_hint
from covey.sql.text import quote_name, read_tokens

_NO_COLUMN = re.compile(r'.*"(?P<table>[^"]+)" does not have a column named "(?P<column>[^"]+)"')
_NO_TABLE = re.compile(r"Table with name (?P<path>.+) does not exist")
_NO_FILE = re.compile(r'No files found that match the pattern "(?P<path>.+)"')


def with_written_names(error: QueryError, calls: list[AICall]) -> QueryError:
    """The same error, with AI functions called as the user wrote them."""

    if not calls:
        return error
    lookup = re.compile(rf'"?\b{calls[0].prefix}_(?:rows_)?(?P<index>\d+)\b"?', re.IGNORECASE)

    def written(match: re.Match[str]) -> str:
        index = int(match["index"])
        if error.sql is None or index >= len(calls):
            return match[0]
        return error.sql[slice(*calls[index].name_span)]

    reason = lookup.sub(written, error.reason)
    if reason == error.reason:
        return error
    return type(error)(reason, sql=error.sql, span=error.span, hint=error.hint, done=error.done)


def with_hint(error: QueryError, blocks: list[QueryBlock], binder: Binder) -> QueryError:
    """The same error with what DuckDB leaves out."""
    error = with_name_hint(error, binder)
    return _with_pivot_hint(_with_file_hint(_with_column_hint(error, blocks, binder)))


def _with_pivot_hint(error: QueryError) -> QueryError:
    """The same error where a PIVOT leaves no column but those that answers name."""
    if error.sql is None or not error.reason.startswith("SELECT list is empty"):
        return error
    place = next((t for t in read_tokens(error.sql) if t.word == "PIVOT"), None)
    if place is None:
        return error
    return QueryError(
        "The columns of this PIVOT are known by the model's answers alone",
        sql=error.sql,
        span=place.span,
        hint="Say which there are, ON … IN ('billing', 'shipping'), or let another column stay.",
    )


def _with_file_hint(error: QueryError) -> QueryError:
    """The same error, naming the place of a missing file, or what to write for a folder."""
    found, hint = _NO_TABLE.fullmatch(error.reason), None
    if found is not None and Path(found["path"]).is_dir():
        hint = f"It is a folder. Name its files: '{found['path']}/*.parquet'."
    elif (found := _NO_FILE.fullmatch(error.reason)) is not None:
        hint = "Check its name; a relative path starts from the folder where Covey runs."
    if found is None or hint is None:
        return error
    span = error.span
    if span is None and error.sql is not None:
        start = error.sql.find(found["path"])
        span = (start, start + len(found["path"])) if start >= 0 else None
    return QueryError(error.reason, sql=error.sql, span=span, hint=hint, done=error.done)


def _with_column_hint(error: QueryError, blocks: list[QueryBlock], binder: Binder) -> QueryError:
    """The same error, naming the columns of the table that lacks one."""
    found = _NO_COLUMN.fullmatch(error.reason)
    if found is None:
        return error
    table, column = found["table"], found["column"]
    for block in blocks:
        for source in block.sources or ():
            if source.alias.lower() != table.lower():
                continue
            query = f"SELECT * FROM {binder.edited.render(source.span)} AS {quote_name(table)}"
            names = [name for name, _ in binder.columns(query) or []]
            if not names:
                continue
            near = difflib.get_close_matches(column, names, n=1)
            hint = f"Columns: {', '.join(names)}."
            if near:
                meant = near[0] if near[0].isidentifier() else quote_name(near[0])
                hint += f" Did you mean {table}.{meant}?"
            reason = f'{table} has no column "{column}"'
            return QueryError(reason, sql=error.sql, span=error.span, hint=hint)
    return error
