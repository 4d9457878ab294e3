"""What DuckDB's complaint about a column leaves out: which columns there are."""

from __future__ import annotations

import difflib
import re

from covey.errors import QueryError
from covey.logical.blocks import Block
from covey.logical.calls import AICall
from covey.sql.bind import Binder
from covey.sql.text import quote_name

_NO_COLUMN = re.compile(r'.*"(?P<table>[^"]+)" does not have a column named "(?P<column>[^"]+)"')


_LOOKUP = re.compile(r'"?\bcovey_(?:rows_)?(?P<index>\d+)\b"?')


def with_written_names(error: QueryError, calls: list[AICall]) -> QueryError:
    """The same error, with AI functions called as the user wrote them."""

    def written(match: re.Match[str]) -> str:
        index = int(match["index"])
        if error.sql is None or index >= len(calls):
            return match[0]
        return error.sql[slice(*calls[index].name_span)]

    reason = _LOOKUP.sub(written, error.reason)
    if reason == error.reason:
        return error
    return type(error)(reason, sql=error.sql, span=error.span, hint=error.hint, done=error.done)


def with_column_hint(error: QueryError, blocks: list[Block], binder: Binder) -> QueryError:
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
