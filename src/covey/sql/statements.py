"""What a text holds: its statements, and those that Covey itself carries out."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import TokenType

from covey.errors import QueryError, UnsupportedError
from covey.logical.text_span import TextSpan
from covey.sql.call_parser import RawCall
from covey.sql.text import TokenList

QUERY_STARTS = ("SELECT", "WITH", "FROM", "VALUES")


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """CREATE VIEW, in parts.

    Attributes:
        head: `CREATE`, or with `OR REPLACE`, `TEMP`; up to VIEW.
        temporary: whether it says TEMP.
        if_not_exists: whether it says IF NOT EXISTS.
        path: the name, with its catalogue and schema where given.
        columns: the column names as written, brackets included; "" where there are none.
        query: span of the query.
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
    if_not_exists = i < len(tokens) and tokens[i].word == "IF"
    start = end = i + 3 * if_not_exists
    while end < len(tokens) and not tokens.is_open(end) and tokens[end].word != "AS":
        end += 1
    path = tuple(t.text for t in tokens[start:end] if t.kind is not TokenType.DOT)
    columns, query = "", end
    if end < len(tokens) and tokens.is_open(end):
        query = tokens.partner[end] + 1
        columns = tokens.text[slice(*tokens.span(end, query))]
    if query + 1 >= len(tokens) or tokens[query].word != "AS" or not path:
        return None
    temporary = bool(options & {"TEMP", "TEMPORARY"})
    span = tokens.span(query + 1, len(tokens))
    return ViewDefinition(head, temporary, if_not_exists, path, columns, span)


def query_start(tokens: TokenList) -> int | None:
    """The token at which a WITH clause of the statement stands or may be put."""
    first = tokens[0]
    if first.word in ("UPDATE", "DELETE", "MERGE", "PIVOT", "UNPIVOT"):
        return 0
    if first.kind is TokenType.L_PAREN:
        return 0
    for i in tokens.top_level(0, len(tokens)):
        if tokens[i].word in QUERY_STARTS:
            return i
        if tokens.is_open(i) and tokens[i + 1].word in QUERY_STARTS:
            return i + 1
    return None


# Where a call would be kept by DuckDB's catalogue and outlive the query.
_KEEPS = ("CREATE", "ALTER", "PREPARE")
# What may stand between CREATE and what is created.
_MANNERS = (
    *("OR", "REPLACE", "TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "PERSISTENT", "UNLOGGED"),
    *("UNIQUE", "RECURSIVE"),
)


def refuse_kept_calls(tokens: TokenList, calls: list[RawCall]) -> None:
    """Refuse calls in what DuckDB keeps: macros, defaults, prepared statements.

    Raises:
        UnsupportedError: a call in such a statement.
    """
    if not calls or tokens[0].word not in _KEEPS:
        return
    start = query_start(tokens)
    call = min(calls, key=lambda each: each.first)
    what = tokens[0].word
    if what == "CREATE":
        kind = next((token.word for token in tokens[1:] if token.word not in _MANNERS), "")
        if kind == "TABLE" and start is not None and start <= call.first:
            return
        what += f" {kind}"
    raise UnsupportedError(
        f"An AI function cannot be kept by {what}",
        sql=tokens.text,
        span=call.name_span,
        hint="Keep its answers instead, CREATE TABLE … AS SELECT …, or write CREATE VIEW.",
    )
