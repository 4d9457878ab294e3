"""What a text holds: its statements, of which kind they are, and where their queries stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import TokenType

from covey.errors import QueryError, UnsupportedError
from covey.logical.text_span import TextSpan
from covey.sql.call_parser import RawCall
from covey.sql.text import QUERY_STARTS, TokenList, read_tokens

_CHANGES = ("UPDATE", "DELETE", "MERGE", "INSERT")


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """CREATE VIEW, in parts, here `CREATE TEMP VIEW IF NOT EXISTS main.v (a, b) AS SELECT …`.

    Attributes:
        head: "CREATE TEMP VIEW".
        temporary: whether it says TEMP.
        if_not_exists: whether it says IF NOT EXISTS.
        path: ("main", "v").
        columns: "(a, b)"; "" where there are none.
        query: place of `SELECT …`.
    """

    head: str
    temporary: bool
    if_not_exists: bool
    path: tuple[str, ...]
    columns: str
    query: TextSpan


def split_statements(tokens: TokenList) -> list[TextSpan]:
    """The span of every statement of a text, without the semicolons between them.

    Raises:
        QueryError: the text holds no statement.
    """
    parts = tokens.split(0, len(tokens), TokenType.SEMICOLON)
    spans = [tokens.span(first, last) for first, last in parts if first < last]
    if not spans:
        raise QueryError("The text holds no SQL statement", hint="Write one, such as SELECT 1.")
    return spans


def behind(tokens: TokenList, *words: str) -> TextSpan | None:
    """What stands behind the first words of a statement that begins with `words`."""
    count = len(words)
    if len(tokens) <= count or tuple(tokens[i].word for i in range(count)) != words:
        return None
    return tokens.span(count, len(tokens))


def view_definition(tokens: TokenList) -> ViewDefinition | None:
    """Read CREATE VIEW; None for any other statement."""
    words = [tokens[i].word for i in range(min(5, len(tokens)))]
    if words[:1] != ["CREATE"] or "VIEW" not in words:
        return None
    i = words.index("VIEW") + 1
    options = set(words[1 : i - 1])
    if not options <= {"OR", "REPLACE", "TEMP", "TEMPORARY"}:
        return None
    head = " ".join(words[:i])
    if_not_exists = tokens.word(i) == "IF"
    start = end = i + 3 * if_not_exists
    while end < len(tokens) and not tokens.is_open(end) and tokens[end].word != "AS":
        end += 1
    path = tuple(t.text for t in tokens[start:end] if t.kind is not TokenType.DOT)
    columns, query = "", end
    if end < len(tokens) and tokens.is_open(end):
        query = tokens.partner[end] + 1
        columns = tokens.cut(tokens.span(end, query))
    if query + 1 >= len(tokens) or tokens[query].word != "AS" or not path:
        return None
    temporary = bool(options & {"TEMP", "TEMPORARY"})
    span = tokens.span(query + 1, len(tokens))
    return ViewDefinition(head, temporary, if_not_exists, path, columns, span)


def is_query(tokens: TokenList) -> bool:
    """Whether the statement only reads: no CREATE, INSERT, UPDATE, DELETE, COPY …"""
    start = next((t.word for t in tokens if t.kind is not TokenType.L_PAREN), "")
    starts = start in (*QUERY_STARTS, "PIVOT", "UNPIVOT", "SUMMARIZE")
    return starts and not changes_rows(tokens)


def only_reads(tokens: TokenList) -> bool:
    """Whether the statement is a query, or shows what there is: SHOW, DESCRIBE, EXPLAIN."""
    first = tokens[0].word
    if first == "EXPLAIN":
        # With ANALYZE it runs the statement, which then must be a query.
        if tokens[1].word in ("ANALYZE", "ANALYSE"):
            return len(tokens) > 2 and only_reads(read_tokens(tokens.text[tokens[2].start :]))
        return not tokens.is_open(1)
    return first in ("SHOW", "DESCRIBE", "DESC") or is_query(tokens)


def changes_rows(tokens: TokenList) -> bool:
    """Whether the statement is INSERT, UPDATE, DELETE or MERGE, perhaps behind WITH."""
    if tokens.word(0) not in (*_CHANGES, "WITH"):
        return False
    return any(tokens[i].word in _CHANGES for i in tokens.top_level(0, len(tokens)))


def query_span(tokens: TokenList) -> TextSpan | None:
    """The query of a statement: all of it, or what stands behind CREATE TABLE … AS,
    INSERT INTO … or inside COPY (…); None where the statement holds no query.
    """
    if changes_rows(tokens):
        return None
    for i in tokens.top_level(0, len(tokens)):
        if tokens[i].word in QUERY_STARTS:
            return tokens.span(i, query_end(tokens, i))
        if tokens.is_open(i) and i + 1 < tokens.partner[i] and tokens[0].word == "COPY":
            return tokens.span(i + 1, tokens.partner[i])
    return None


def query_end(tokens: TokenList, start: int) -> int:
    """Index behind the query that begins at `start`.

    RETURNING and ON CONFLICT belong to the INSERT around it, WITH [NO] DATA to CREATE TABLE.
    """
    end, changes = len(tokens), changes_rows(tokens)
    for i in tokens.top_level(start + 1, end):
        words = [token.word for token in tokens[i : i + 3]]
        if changes and words[0] == "RETURNING":
            return i
        if changes and words[:2] == ["ON", "CONFLICT"] and _does(tokens, i + 2):
            return i
        if words in (["WITH", "DATA"], ["WITH", "NO", "DATA"]) and i + len(words) == end:
            return i
    return end


def _does(tokens: TokenList, i: int) -> bool:
    """Whether what stands behind ON CONFLICT is an action, perhaps behind its columns."""
    opens = tokens.kind(i) is TokenType.L_PAREN
    return tokens.word(tokens.partner[i] + 1 if opens else i) in ("DO", "WHERE")


def query_start(tokens: TokenList) -> int | None:
    """The token at which a WITH clause of the statement stands or may be put."""
    if tokens[0].word in ("UPDATE", "DELETE", "MERGE", "PIVOT", "UNPIVOT"):
        return 0
    if tokens[0].kind is TokenType.L_PAREN:
        return 0
    for i in tokens.top_level(0, len(tokens)):
        place = i + 1 if tokens.is_open(i) else i
        if tokens.word(place) in QUERY_STARTS:
            return place
    return None


# Where a call would be kept by DuckDB's catalogue and outlive the query.
_KEEPS = ("CREATE", "ALTER", "PREPARE")
# What may stand between CREATE and what is created.
_MANNERS = (
    *("OR", "REPLACE", "TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "PERSISTENT", "UNLOGGED"),
    *("UNIQUE", "RECURSIVE"),
)


def refuse_kept_calls(tokens: TokenList, calls: Sequence[RawCall]) -> None:
    """Refuse calls in what DuckDB keeps: macros, defaults, prepared statements.

    Raises:
        UnsupportedError: a call in such a statement.
    """
    if not calls or tokens[0].word not in _KEEPS:
        return
    start = query_start(tokens)
    call = min(calls, key=lambda each: each.span)
    what = tokens[0].word
    if what == "CREATE":
        kind = next((token.word for token in tokens[1:] if token.word not in _MANNERS), "")
        if kind == "TABLE" and start is not None and tokens[start].start <= call.span.start:
            return
        what += f" {kind}"
    raise UnsupportedError(
        f"An AI function cannot be kept by {what}",
        sql=tokens.text,
        span=call.name_span,
        hint="Keep its answers instead, CREATE TABLE … AS SELECT …, or write CREATE VIEW.",
    )
