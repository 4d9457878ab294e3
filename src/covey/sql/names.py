"""What a name that DuckDB does not know may mean: tables, and the AI functions.

DuckDB's own suggestion is the nearest of all it has, its system catalogue included.
"""

from __future__ import annotations

import difflib
import re

from covey.errors import QueryError
from covey.logical.text_span import TextSpan
from covey.sql.bind import Binder
from covey.sql.functions import BY_SPELLING
from covey.sql.scopes import definitions
from covey.sql.text import TokenList, read_tokens

_NO_TABLE = re.compile(r"Table with name (?P<name>.+) does not exist")
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


def with_name_hint(error: QueryError, binder: Binder) -> QueryError:
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
    span = error.span or _place(name, tokens)
    return QueryError(error.reason, sql=error.sql, span=span, hint=hint, done=error.done)


def _of_table(name: str, tokens: TokenList, binder: Binder) -> str:
    """A table that is nearly called so, or how a frame becomes one."""
    known = {each.name for each in definitions(tokens)} | set(binder.tables(_TABLES, _OWN))
    near = difflib.get_close_matches(name.lower(), sorted(known), n=1, cutoff=_NEAR)
    if near:
        return f"Did you mean {near[0]}?"
    listed = sorted(known)[:_MOST_LISTED]
    there = f"There is {', '.join(listed)}. " if listed else ""
    return f"{there}A frame of Python is made known first: con.register({name!r}, {name})."


def _of_function(name: str, hint: str | None) -> str | None:
    """An AI function, or PROMPT, that is nearly called so; else DuckDB's nearest if it is near."""
    spellings = {spelling.lower(): spelling for spelling in (*BY_SPELLING, "PROMPT")}
    plain = {spelling.rpartition(".")[2]: each for spelling, each in spellings.items()}
    for names in (spellings, {n: each for n, each in plain.items() if len(n) > 2}):
        near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=_NEAR)
        if near:
            return f"Did you mean {names[near[0]]}?"
    found = _OF_DUCKDB.search(hint or "")
    is_near = found and difflib.SequenceMatcher(None, name.lower(), found["name"]).ratio() >= _NEAR
    return hint if is_near or found is None else None


def _place(name: str, tokens: TokenList) -> TextSpan | None:
    return next(
        (token.span for token in tokens if token.is_name and token.text.lower() == name.lower()),
        None,
    )
