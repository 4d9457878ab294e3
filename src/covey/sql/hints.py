"""What DuckDB's complaint about a column leaves out: which columns there are."""

from __future__ import annotations

import difflib
import re

from covey.errors import QueryError
from covey.logical.blocks import Block
from covey.sql.bind import Binder
from covey.sql.text import quote_name

_NO_COLUMN = re.compile(r'.*"(?P<table>[^"]+)" does not have a column named "(?P<column>[^"]+)"')


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
                hint += f" Did you mean {table}.{near[0]}?"
            reason = f'{table} has no column "{column}"'
            return QueryError(reason, sql=error.sql, span=error.span, hint=hint)
    return error
