"""Views that hold AI calls: DuckDB keeps a stand-in, Covey reads them as WITH clauses.

A UDF lives as long as its query, so DuckDB cannot keep it in a view. What it keeps
is a view of the same name and columns that refuses to be read, with the user's text in
its comment. DuckDB's catalogue thus decides everything about names, schemas, DROP,
transactions and database files, and a statement that reads such a view is rewritten:
the text stands in front of it as a common table expression.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb
from sqlglot import TokenType

from covey.errors import QueryError, UnsupportedError
from covey.logical.text_span import TextSpan
from covey.sql.rewritten import Fragment, RewrittenSql, SourceText
from covey.sql.scopes import definition_around, definitions, relation_names
from covey.sql.statements import ViewDefinition, query_start
from covey.sql.text import TokenList, quote_name, quote_text, read_tokens

_MARK = "covey_view"
Path = tuple[str, ...]
_NAMED = """
    SELECT database_name, schema_name, view_name, comment, true
        FROM system.main.duckdb_views()
        WHERE system.main.list_contains($names, system.main.lower(view_name))
    UNION ALL SELECT database_name, schema_name, table_name, NULL, false
        FROM system.main.duckdb_tables()
        WHERE system.main.list_contains($names, system.main.lower(table_name))"""


@dataclass(frozen=True, slots=True)
class View:
    """A view that Covey reads.

    Attributes:
        path: catalogue, schema and name: ("memory", "main", "v").
        columns: names of its columns as written, "(a, b)" or "".
        text: its query, as written.
    """

    path: Path
    columns: str
    text: str

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def key(self) -> Path:
        """The path as names are compared."""
        return _lower(self.path)


class Views:
    """The views of a connection, written into statements that read them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def expand(self, rewritten: RewrittenSql, inside: tuple[Path, ...] = ()) -> RewrittenSql:
        """The statement with the views that it names in front; itself where it names none.

        Args:
            rewritten: one statement.
            inside: the views whose texts it is part of.

        Raises:
            QueryError: views that read each other in a circle, or that have one name.
        """
        tokens = read_tokens(rewritten.text)
        names = relation_names(tokens)
        found = self._find([_path(tokens, *place) for place in names])
        start = query_start(tokens) if found else None
        if start is None:
            return rewritten
        used: dict[str, View] = {}
        edits: list[tuple[TextSpan, list[Fragment]]] = []
        taken = {each.name for each in definitions(tokens).get(start, ())}
        for first, last in names:
            path = _path(tokens, first, last)
            view = found.get(path)
            hidden = len(path) == 1 and definition_around(tokens, first) is not None
            if view is None or hidden:
                continue
            span = tokens.span(first, last)
            if view.key in inside:
                hint = "Create it again over other tables."
                raise tokens.error(f"The view {view.name} reads itself", span, hint)
            if path[-1] in taken or used.get(path[-1], view) != view:
                raise UnsupportedError(
                    f"{view.name} is the name of a view with AI calls and of something else here",
                    sql=tokens.text,
                    span=span,
                    hint="Give the other one another name.",
                )
            used[path[-1]] = view
            if len(path) > 1:
                edits.append((span, [Fragment(quote_name(view.name))]))
        if used:
            edits.append(self._with_clause(tokens, start, list(used.values()), inside))
        return rewritten.edited(edits)

    def keep(
        self, definition: ViewDefinition, text: str, columns: Sequence[tuple[str, str]]
    ) -> None:
        """Create the stand-in of a view.

        Args:
            definition: the user's CREATE VIEW.
            text: its query, as written.
            columns: names and types of what the query gives.

        Raises:
            duckdb.Error: DuckDB refuses the name.
        """
        path = self._full(definition)
        name = ".".join(quote_name(part) for part in path)
        nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quote_name(c)}" for c, kind in columns)
        refusal = quote_text(
            f"{path[-1]} is a view with AI calls: name it in the FROM of a query that Covey runs"
        )
        try:
            self._connection.execute(
                f"{definition.head} {name}{definition.columns} AS SELECT {nulls} "
                f"WHERE error({refusal})"
            ).fetchall()
        except duckdb.CatalogException:
            if definition.if_not_exists and self._is_view(definition.path):
                return
            raise
        comment = json.dumps({_MARK: 1, "columns": definition.columns, "query": text})
        self._connection.execute(f"COMMENT ON VIEW {name} IS {quote_text(comment)}").fetchall()

    def body(self, definition: ViewDefinition, query: RewrittenSql) -> RewrittenSql:
        """The query of a view that is being created, with the views that it names in front.

        Raises:
            QueryError: it reads itself, or see `expand`.
        """
        return self.expand(query, (_lower(self._full(definition)),))

    def _full(self, definition: ViewDefinition) -> Path:
        """The whole path of a new view; a temporary one may hide another of its name."""
        path = definition.path
        if len(path) > 1:
            return path
        return ("temp", "main", *path) if definition.temporary else (*self._here(), *path)

    def _here(self) -> tuple[str, str]:
        rows = self._connection.execute(
            "SELECT system.main.current_database(), system.main.current_schema()"
        ).fetchall()
        return rows[0][0], rows[0][1]

    def _is_view(self, path: Path) -> bool:
        wanted = _lower(path)
        rows = self._connection.execute(_NAMED, {"names": [wanted[-1]]}).fetchall()
        row = _resolve(wanted, rows, self._here())
        return row is not None and row[4]

    def _with_clause(
        self, tokens: TokenList, start: int, views: list[View], inside: tuple[Path, ...]
    ) -> tuple[TextSpan, list[Fragment]]:
        has_own = tokens[start].word == "WITH"
        fragments = [] if has_own else [Fragment("WITH ")]
        for number, view in enumerate(views):
            comma = ", " if number else ""
            fragments.append(Fragment(f"{comma}{quote_name(view.name)}{view.columns} AS ("))
            fragments += [*self._expand_view(view, inside).fragments, Fragment(")")]
        fragments.append(Fragment(", " if has_own else " "))
        if has_own:
            start += 2 if tokens[start + 1].word == "RECURSIVE" else 1
        place = tokens[start].start
        return TextSpan(place, place), fragments

    def _expand_view(self, view: View, inside: tuple[Path, ...]) -> RewrittenSql:
        body = RewrittenSql([Fragment(view.text, SourceText(view.text, view.name))])
        try:
            return self.expand(body, (*inside, view.key))
        except QueryError as error:
            raise body.locate(error) from None

    def _find(self, paths: list[Path]) -> dict[Path, View]:
        """The views among some names, each as DuckDB would resolve it."""
        names = sorted({path[-1] for path in paths})
        rows = self._connection.execute(_NAMED, {"names": names}).fetchall() if names else []
        if not any(_is_marked(row[3]) for row in rows):
            return {}
        here, found = self._here(), {}
        for path in set(paths):
            row = _resolve(path, rows, here)
            if row is not None and _is_marked(row[3]):
                kept = json.loads(row[3] or "")
                found[path] = View(row[:3], kept["columns"], kept["query"])
        return found


def _path(tokens: TokenList, first: int, last: int) -> Path:
    """A dotted name in lower case."""
    return _lower(t.text for t in tokens[first:last] if t.kind is not TokenType.DOT)


def _lower(path: Iterable[str]) -> Path:
    return tuple(part.lower() for part in path)


Row = tuple[str, str, str, str | None, bool]


def _resolve(path: Path, rows: list[Row], here: tuple[str, str]) -> Row | None:
    """The table or view that a name stands for: temporary ones first, then the current schema."""
    scopes = [("temp", "main"), here, (here[0], "main")]
    matching = [row for row in rows if row[2].lower() == path[-1]]
    if len(path) == 3:
        matching = [r for r in matching if (r[0].lower(), r[1].lower()) == path[:2]]
    elif len(path) == 2:
        matching = [r for r in matching if path[0] in (r[0].lower(), r[1].lower())]
    else:
        matching = [r for r in matching if (r[0], r[1]) in scopes]
    return min(matching, key=lambda r: [*scopes, r[:2]].index(r[:2]), default=None)


def _is_marked(comment: str | None) -> bool:
    return comment is not None and comment.startswith(f'{{"{_MARK}": 1')
