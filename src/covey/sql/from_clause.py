"""Read a FROM clause: its sources and how they join."""

from __future__ import annotations

from pathlib import PurePath

from sqlglot import TokenType

from covey.logical.calls import CallPlaces
from covey.logical.query_blocks import Expr, Join, JoinKind, TableRef
from covey.logical.text_span import TextSpan
from covey.sql.boolean import conjuncts
from covey.sql.text import JOIN_PREFIXES, QUERY_STARTS, TokenList


class NotPlanned(Exception):
    """A form that is left to fixpoint re-execution; the text says which."""


def read_from(
    tokens: TokenList, first: int, last: int, calls: CallPlaces
) -> tuple[tuple[TableRef, ...], tuple[Join, ...]]:
    """The sources and joins of what stands behind FROM.

    Raises:
        NotPlanned: a form that planning does not know.
    """
    return _FromReader(tokens, first, last, calls).read()


class _FromReader:
    """Reads `source {join source [ON … | USING …]}`."""

    def __init__(self, tokens: TokenList, first: int, last: int, calls: CallPlaces) -> None:
        self.tokens = tokens
        self.at = first
        self.last = last
        self.calls = calls

    def read(self) -> tuple[tuple[TableRef, ...], tuple[Join, ...]]:
        sources, joins = [self.source()], []
        while self.at < self.last:
            start = self.at
            kind, merges = self.join()
            words = None if self.tokens[start].kind is TokenType.COMMA else (start, self.at)
            if self.at >= self.last:
                break  # Behind a comma at the end, which DuckDB allows.
            sources.append(self.source())
            if self.word() == "USING":
                merges = True
                self.at += 1
                self.bracket()
            on = self.condition() if self.word() == "ON" else ()
            span = None if words is None else self.tokens.span(*words)
            joins.append(Join(kind, on, self.tokens[self.at - 1].end, merges, span))
        names = [source.alias.lower() for source in sources]
        if len(set(names)) < len(names):
            raise NotPlanned("two entries of FROM have one name")
        return tuple(sources), tuple(joins)

    def word(self, ahead: int = 0) -> str:
        i = self.at + ahead
        return self.tokens[i].word if i < self.last else ""

    def kind(self) -> TokenType | None:
        return self.tokens[self.at].kind if self.at < self.last else None

    def names(self) -> bool:
        return self.at < self.last and self.tokens[self.at].is_name

    def source(self) -> TableRef:
        start = self.at
        kind = self.kind()
        if kind is TokenType.L_PAREN:
            if self.word(1) not in QUERY_STARTS:
                raise NotPlanned("a join in brackets")
            self.bracket()
            name = None
        elif kind is TokenType.STRING:
            name = PurePath(self.tokens[start].text).name.partition(".")[0]
            self.at += 1
        elif self.names() and self.word() != "UNNEST":
            name = self.path()
        else:
            raise NotPlanned(f"{self.tokens.cut(self.tokens.span(start, start + 1))} …")
        span = self.tokens.span(start, self.at)
        alias = self.alias()
        names = None if alias is None else self.bracket()
        sample = self.sample()
        end = self.tokens[self.at - 1].end
        name = alias or name or "unnamed_subquery"
        return TableRef(span, end, name, alias is not None, sample, names)

    def sample(self) -> TextSpan | None:
        """TABLESAMPLE and all that belongs to it."""
        if self.word() != "TABLESAMPLE":
            return None
        start = self.at
        self.at += 1
        if self.names() and self.tokens.kind(self.at + 1) is TokenType.L_PAREN:
            self.at += 1
        if self.bracket() is None:
            self.at += 1
            if self.kind() is TokenType.MOD or self.word() in ("ROWS", "PERCENT"):
                self.at += 1
            self.bracket()
        if self.word() == "REPEATABLE":
            self.at += 1
            self.bracket()
        return self.tokens.span(start, self.at)

    def path(self) -> str:
        """`a.b.c`, perhaps with arguments behind it: a table or a table function."""
        name = self.tokens[self.at].text
        self.at += 1
        while self.kind() is TokenType.DOT:
            name = self.tokens[self.at + 1].text
            self.at += 2
        self.bracket()
        return name

    def alias(self) -> str | None:
        if self.word() == "AS":
            self.at += 1
        elif not self.names():
            return None
        alias = self.tokens[self.at].text
        self.at += 1
        return alias

    def bracket(self) -> TextSpan | None:
        """Read brackets and what they hold, if they stand here."""
        if self.kind() is not TokenType.L_PAREN:
            return None
        start = self.at
        self.at = self.tokens.partner[start] + 1
        return self.tokens.span(start, self.at)

    def joins_at(self, i: int) -> int | None:
        """Index behind JOIN when a join begins at token i."""
        while i < self.last and self.tokens[i].word in JOIN_PREFIXES:
            i += 1
        return i + 1 if i < self.last and self.tokens[i].word == "JOIN" else None

    def join(self) -> tuple[JoinKind, bool]:
        """Read a comma or `… JOIN`; return its kind and whether it is NATURAL."""
        if self.kind() is TokenType.COMMA:
            self.at += 1
            return JoinKind.INNER, False
        behind = self.joins_at(self.at)
        if behind is None:
            raise NotPlanned(f"{self.tokens[self.at].text} in FROM")
        words = {self.tokens[i].word for i in range(self.at, behind)}
        if words & {"POSITIONAL", "ASOF"}:
            raise NotPlanned("a positional or as-of join")
        self.at = behind
        outer = [kind for kind in JoinKind if kind.name in words]
        return (outer[0] if outer else JoinKind.INNER), "NATURAL" in words

    def condition(self) -> tuple[Expr, ...]:
        """Read ON and its condition, which ends where the next join begins."""
        start, places = self.at + 1, self.tokens.top_level(self.at + 1, self.last)
        joins = (i for i in places if self.tokens[i].kind is TokenType.COMMA or self.joins_at(i))
        self.at = next(joins, self.last)
        return conjuncts(self.tokens, start, self.at, self.calls)
