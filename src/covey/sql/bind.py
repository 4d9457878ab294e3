"""Names and types as DuckDB sees them, and DuckDB's complaints at the user's place."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

import duckdb

from covey.errors import QueryError
from covey.logical.text_span import TextSpan
from covey.sql.columns import names_its_columns
from covey.sql.edited_text import NO_EDITS, EditedText, Edits, OffsetMap
from covey.sql.scopes import is_defined, shared_table
from covey.sql.text import QUERY_STARTS, read_tokens
from covey.sql.volatile import Changes, Volatile

# What a statement can be that DuckDB refuses before it runs: mistakes of the query.
MISTAKES = (
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.InvalidInputException,
    duckdb.ConversionException,
    duckdb.NotImplementedException,
    duckdb.OutOfRangeException,
    duckdb.IOException,
    duckdb.HTTPException,
    duckdb.PermissionException,
)
Refusals = tuple[type[duckdb.Error], ...]
_HINT_LINES = 4
_NAME = re.compile(r'(?:\w+|"(?:[^"]|"")+")(?:\.(?:\w+|"(?:[^"]|"")+"))+')
_DEPTH = re.compile(r"Max expression depth limit of (?P<levels>\d+) exceeded")
_FLATTER = (
    "Store a part of it first, CREATE TEMP TABLE … AS SELECT …, and query the table: a long chain "
    "of operators, casts or NOT is one level for each, and so is a view that reads another."
)
# What DuckDB's Python package puts before a message that it gives as plain text.
_KIND = re.compile(r"^[A-Z][A-Za-z ]* Error: ")


def in_transaction(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether a transaction is open that more than one statement belongs to."""
    # The function itself, and no macro of its name.
    query = "SELECT system.main.txid_current()"
    first, second = (connection.execute(query).fetchall() for _ in range(2))
    # Outside a transaction every statement is one of its own.
    return bool(first == second)


def statement_kinds(
    connection: duckdb.DuckDBPyConnection, text: str
) -> list[duckdb.StatementType | None]:
    """What DuckDB takes each statement of a text for, None for a kind that has no name in Python;
    nothing where it is no SQL."""
    try:
        return [_kind(statement) for statement in connection.extract_statements(text)]
    except duckdb.ParserException:
        return []


def _kind(statement: duckdb.Statement) -> duckdb.StatementType | None:
    try:
        return statement.type
    except ValueError:
        return None


def has_function(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Whether DuckDB knows a function or macro of that name, schema included."""
    schema, _, plain = name.rpartition(".")
    query = (
        "SELECT system.main.count(*) FROM system.main.duckdb_functions()"
        " WHERE system.main.lower(function_name) = system.main.lower(?)"
        " AND (? = '' OR system.main.lower(schema_name) = system.main.lower(?))"
    )
    rows = connection.execute(query, [plain, schema, schema]).fetchall()
    return bool(rows[0][0])


class Binder:
    """Binds spans of one text on a DuckDB connection.

    Args:
        connection: DuckDB, with `errors_as_json` set.
        edited: the user's text; what is bound is its edited form.

    Attributes:
        volatile: what has other values each time.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, edited: EditedText) -> None:
        self._connection = connection
        self.edited = edited
        self.volatile = Volatile(connection)
        self._tokens = read_tokens(edited.text)

    def in_transaction(self) -> bool:
        """See `in_transaction`."""
        return in_transaction(self._connection)

    def any_aggregate(self, span: TextSpan) -> bool:
        """Whether a text calls an aggregate function."""
        return self.volatile.aggregates(self._tokens, span)

    def constant(self, span: TextSpan) -> Any:
        """The value of a constant expression; None where it is not one.

        It may be a subquery over tables, which is how label lists come from a column.

        Raises:
            QueryError: it reads a table that the query defines.
        """
        self._refuse_shared(span)
        return self.first(f"SELECT ({self.edited.render(span)})", MISTAKES)

    def first(self, query: str, expected: Refusals = (duckdb.Error,)) -> Any:
        """The first value of a query that evaluates the user's text; None where it is refused."""
        try:
            rows = self._connection.execute(query).fetchall()
        except expected:
            return None
        return rows[0][0] if rows else None

    def rows(self, span: TextSpan) -> list[tuple[Any, ...]] | None:
        """The rows of a subquery in brackets or of a column of a table; None for all else.

        Raises:
            QueryError: it reads a name that the query defines, or DuckDB refuses it.
        """
        self._refuse_shared(span)
        text, offsets = self.edited.render_mapped(span)
        head, query = "SELECT * FROM ", f"SELECT * FROM {text}"
        if not text.startswith("("):
            table, dot, _ = text.rpartition(".")
            if not dot or not _NAME.fullmatch(text):
                return None
            place = self._tokens.index_at(span.start)
            if is_defined(self._tokens, place):
                raise self._defined(place)
            head, query = "SELECT ", f"SELECT {text} FROM {table}"
        try:
            return self._connection.execute(query).fetchall()
        except MISTAKES as error:
            if text.startswith("(") and read_tokens(text)[1].word not in QUERY_STARTS:
                return None
            refused = mistake(error, text, len(head), self.edited.text, offsets)
            inside = refused.span is not None and refused.span[1] <= span.end
            raise refused.replaced(span=refused.span if inside else span) from None

    def _refuse_shared(self, span: TextSpan) -> None:
        at = shared_table(self._tokens, span)
        if at is not None:
            raise self._defined(at)

    def _defined(self, at: int) -> QueryError:
        """An error about a name that would mean another table apart from its query."""
        tokens = self._tokens
        return tokens.error(
            f"{tokens[at].text} is defined by this query, and labels and options are read before",
            tokens.span(at, at + 1),
            "They come from no WITH clause and no alias of FROM: name a table, or a view "
            "without AI calls, or write the value.",
        )

    def is_unnamed(self, item: TextSpan) -> bool:
        """Whether an item of SELECT is an expression without an alias."""
        if names_its_columns(self._tokens, item):
            return False
        try:
            # Behind an alias there is no place for another.
            self._connection.extract_statements(f"SELECT {self.edited.render(item)} AS x")
        except duckdb.ParserException:
            return False
        return True

    def parse(self) -> None:
        """Let DuckDB parse the edited text, which may hold several statements.

        Raises:
            QueryError: it is no SQL; DuckDB's words, at the place in the user's text.
        """
        text, offsets = self.edited.render_mapped()
        try:
            self._connection.extract_statements(text)
        except duckdb.ParserException as error:
            raise mistake(error, text, 0, self.edited.text, offsets) from None

    def check(self, also: Edits = NO_EDITS) -> None:
        """Let DuckDB bind the edited text, with further edits that are not kept.

        Raises:
            QueryError: DuckDB refuses it; its words, at the place in the user's text.
        """
        text, offsets = self.edited.render_mapped(also=also)
        kinds = statement_kinds(self._connection, text)
        # A relation is only bound; EXPLAIN, which optimises too, takes six times as long.
        if kinds == [duckdb.StatementType.SELECT] and self.binds(text):
            return
        try:
            self._connection.execute(f"EXPLAIN {text}").fetchall()
        except MISTAKES as error:
            # SET, BEGIN, PRAGMA … can only be bound by running them.
            plain = not isinstance(error, duckdb.ParserException)
            if not kinds or (plain and kinds != [duckdb.StatementType.PRAGMA]):
                raise mistake(error, text, len("EXPLAIN "), self.edited.text, offsets) from None

    def tables(self, query: str, own: str) -> list[str]:
        """The names that a query over the catalogue gives, but for a prefix of Covey's own."""
        return [name for (name,) in self._connection.execute(query, [own]).fetchall()]

    def columns(self, query: str) -> list[tuple[str, str]] | None:
        """Names and types of the columns of a query; None where DuckDB refuses it."""
        try:
            if self.has_effects:
                # DuckDB's package runs what does more than read when it makes a relation of it.
                rows = self._connection.execute(f"DESCRIBE {query}").fetchall()
                return [(name, kind) for name, kind, *_ in rows]
            relation = self._connection.sql(query)
        except MISTAKES:
            return None
        return list(zip(relation.columns, map(str, relation.types), strict=True))

    def binds(self, query: str) -> bool:
        """Whether DuckDB takes a query."""
        return self.columns(query) is not None

    @cached_property
    def has_effects(self) -> bool:
        """Whether something in the text leaves a trace each time it is evaluated."""
        return self.volatile.within(self._tokens, self._tokens.whole) is Changes.WITH_EFFECT


def mistake(error: duckdb.Error, ran: str, shift: int, sql: str, offsets: OffsetMap) -> QueryError:
    """DuckDB's error as a `QueryError` at the place in the user's text.

    Args:
        error: what DuckDB raised, with `errors_as_json` set.
        ran: the text that ran, without what stood before it.
        shift: characters that stood before `ran`.
        sql: the user's text.
        offsets: from offsets in `ran` to offsets in `sql`.
    """
    reason, hint, place = read_error(error)
    span = None
    if place is not None and place[0] >= shift:
        # DuckDB counts UTF-8 bytes.
        raw = ran.encode()
        start = len(raw[: place[0] - shift].decode(errors="ignore"))
        length = len(raw[place[0] - shift : place[0] - shift + place[1]].decode(errors="ignore"))
        begin = offsets.original(start)
        span = (begin, max(begin, offsets.original(start + max(length, 1) - 1)) + 1)
        if begin >= len(sql):
            span = (max(0, len(sql) - 1), len(sql))
    return QueryError(reason, sql=sql, span=span, hint=hint)


def read_error(error: duckdb.Error) -> tuple[str, str | None, tuple[int, int] | None]:
    """Reason, hint and (offset, length) in bytes of an error of DuckDB."""
    message, fields = _message(error)
    reason, _, rest = message.partition("\n")
    deep = _DEPTH.match(reason)
    if deep is not None:
        reason = f"An expression is nested deeper than {deep['levels']} levels, DuckDB's limit"
        rest = _FLATTER
    place: tuple[int, int] | None = None
    if "location" in fields:
        offset, length = json.loads(fields["location"])
        place = (int(offset), max(1, int(length)))
    elif "position" in fields:
        place = (int(fields["position"]), 1)
    return reason.rstrip(".!"), _shortened(rest.strip()) or None, place


def _message(error: duckdb.Error) -> tuple[str, dict[str, Any]]:
    """What an error of DuckDB says, and the fields beside it where it has any.

    Of a write that others waited for the message holds the whole error again.
    """
    message, fields = _KIND.sub("", str(error)), dict[str, Any]()
    while (brace := message.find("{")) >= 0:
        try:
            inner = json.loads(message[brace:])
            message, fields = str(inner["exception_message"]), inner
        except (ValueError, KeyError):
            break
    return message, fields


def whole_error(error: duckdb.Error) -> str:
    """Reason and hints of an error of DuckDB, without the table of settings behind them."""
    lines = _message(error)[0].split("\n")
    # Those of a CSV file are set in, one a line.
    kept = (line.rstrip() for line in lines if not line.startswith("  "))
    return "\n".join(line for line in kept if line).rstrip(".")


def _shortened(hint: str) -> str:
    """A hint without the tail of a long list, of every overload of + for example."""
    lines = [line.strip() for line in hint.split("\n")]
    if len(lines) <= _HINT_LINES:
        return hint
    return "\n".join([*lines[:_HINT_LINES], f"and {len(lines) - _HINT_LINES} more"])


def shown(value: Any) -> str:
    """A constant's value in a message, as SQL writes it."""
    if value is None:
        return "NULL"
    return str(value).upper() if isinstance(value, bool) else repr(value)
