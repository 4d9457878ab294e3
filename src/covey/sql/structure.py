"""Find the query blocks of a text and the parts of each.

It reads tokens, not a grammar: brackets, clause keywords and the forms of a FROM
entry that planning knows. A form it does not know gives a block with a `reason`.
"""

from __future__ import annotations

from pathlib import PurePath

from sqlglot.tokens import TokenType

from covey.logical.blocks import Block, Expr, Source
from covey.logical.calls import AICall
from covey.sql.boolean import conjuncts
from covey.sql.text import Span, TokenList

_CLAUSES = (
    "WHERE",
    "GROUP BY",
    "HAVING",
    "QUALIFY",
    "WINDOW",
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "USING SAMPLE",
)
_SET_OPERATIONS = ("UNION", "INTERSECT", "EXCEPT")
_QUERY_STARTS = ("SELECT", "WITH", "FROM", "VALUES")
_JOIN_PREFIXES = (
    "NATURAL",
    "INNER",
    "CROSS",
    "LEFT",
    "RIGHT",
    "FULL",
    "OUTER",
    "SEMI",
    "ANTI",
    "ASOF",
    "POSITIONAL",
)
_NAME_KINDS = (TokenType.VAR, TokenType.IDENTIFIER)


class NotPlanned(Exception):
    """A form of FROM that is left to demand iteration; the text says which."""


def find_blocks(tokens: TokenList, calls: list[AICall]) -> list[Block]:
    """Every SELECT block of the text, inner blocks before those around them."""
    finder = _Finder(tokens, calls)
    finder.statement()
    return sorted(finder.blocks, key=lambda block: (block.span[1], -block.span[0]))


def is_query(tokens: TokenList) -> bool:
    """Whether the statement only reads: no CREATE, INSERT, UPDATE, DELETE, COPY …"""
    start = next((t for t in tokens if t.kind is not TokenType.L_PAREN), None)
    return start is not None and start.word in (*_QUERY_STARTS, "PIVOT", "UNPIVOT", "SUMMARIZE")


def query_span(tokens: TokenList) -> Span | None:
    """The query of a statement: all of it, or what stands behind CREATE TABLE … AS,
    INSERT INTO … or inside COPY (…); None where the statement holds no query.
    """
    if len(tokens) and tokens[0].word in ("UPDATE", "DELETE", "MERGE"):
        return None
    for i in tokens.top_level(0, len(tokens)):
        if tokens[i].word in _QUERY_STARTS:
            return tokens.span(i, len(tokens))
        if tokens.is_open(i) and i + 1 < tokens.partner[i] and tokens[0].word == "COPY":
            return tokens.span(i + 1, tokens.partner[i])
    return None


class _Finder:
    def __init__(self, tokens: TokenList, calls: list[AICall]) -> None:
        self.tokens = tokens
        self.calls = calls
        self.blocks: list[Block] = []

    def statement(self) -> None:
        """The query may stand behind CREATE TABLE … AS, INSERT INTO … or inside COPY (…)."""
        for i in self.tokens.top_level(0, len(self.tokens)):
            if self.tokens[i].word in _QUERY_STARTS:
                self.query(i, len(self.tokens), (), False)
                return
            if self.tokens.is_open(i):
                self.group(i, (), False)

    def group(self, opening: int, scope: tuple[Span, ...], recursive: bool) -> None:
        """A bracket: a query, or an expression that may hold queries deeper down."""
        closing = self.tokens.partner[opening]
        if opening + 1 < closing and self.tokens[opening + 1].word in _QUERY_STARTS:
            self.query(opening + 1, closing, scope, recursive)
        else:
            self.groups(opening + 1, closing, scope, recursive)

    def groups(self, first: int, last: int, scope: tuple[Span, ...], recursive: bool) -> None:
        for i in self.tokens.top_level(first, last):
            if self.tokens.is_open(i):
                self.group(i, scope, recursive)

    def query(self, first: int, last: int, scope: tuple[Span, ...], recursive: bool) -> None:
        if self.tokens[first].word == "WITH":
            first, scope, recursive = self.with_clause(first, last, scope, recursive)
        begin = first
        for i in [*self.tokens.top_level(first, last), last]:
            if i == last or self.tokens[i].word in _SET_OPERATIONS:
                self.operand(begin, i, scope, recursive)
                begin = i + 1

    def operand(self, first: int, last: int, scope: tuple[Span, ...], recursive: bool) -> None:
        while first < last and self.tokens[first].word in ("ALL", "DISTINCT", "BY", "NAME"):
            first += 1
        if first < last and self.tokens[first].word in ("SELECT", "FROM"):
            self.blocks.append(self.block(first, last, scope, recursive))
        if first < last:
            self.groups(first, last, scope, recursive)

    def with_clause(
        self, first: int, last: int, scope: tuple[Span, ...], recursive: bool
    ) -> tuple[int, tuple[Span, ...], bool]:
        """Read WITH; return where the query behind it begins and what it can see."""
        i = first + 1
        if self.tokens[i].word == "RECURSIVE":
            recursive, i = True, i + 1
        begin = i
        while i < last:
            if self.tokens.is_open(i):
                body = i > begin + 1 and self.tokens[i - 1].word in ("AS", "MATERIALIZED")
                if body:
                    self.group(i, scope, recursive)
                i = self.tokens.partner[i] + 1
                if body:
                    scope = (*scope, self.tokens.span(begin, i))
                    if i < last and self.tokens[i].kind is TokenType.COMMA:
                        begin = i = i + 1
                        continue
                    return i, scope, recursive
            else:
                i += 1
        return last, scope, recursive

    def block(self, first: int, last: int, scope: tuple[Span, ...], recursive: bool) -> Block:
        block = Block(self.tokens.span(first, last), scope, recursive)
        ranges = self.clauses(first, last)
        for word, (start, stop) in ranges.items():
            if start < stop:
                block.clauses[word] = self.tokens.span(start, stop)
        if "FROM" not in ranges or ranges["FROM"][0] >= ranges["FROM"][1]:
            block.reason = "it has no FROM clause"
            return block
        start, stop = ranges["FROM"]
        block.from_span = self.tokens.span(start, stop)
        try:
            reader = _FromReader(self.tokens, start, stop)
            block.sources = reader.sources()
        except NotPlanned as unplanned:
            block.reason = str(unplanned)
            return block
        block.inner = reader.inner
        conditions: list[Expr] = []
        for on in reader.conditions if reader.inner else []:
            conditions += conjuncts(self.tokens, *on, self.calls)
        if "WHERE" in ranges:
            conditions += conjuncts(self.tokens, *ranges["WHERE"], self.calls)
        block.conditions = tuple(conditions)
        return block

    def clauses(self, first: int, last: int) -> dict[str, tuple[int, int]]:
        """Token range behind each clause keyword of the block."""
        marks: list[tuple[str, int]] = []
        for i in self.tokens.top_level(first, last):
            word = self.tokens[i].word
            if i > first and self.tokens[i - 1].kind is TokenType.DOT:
                continue
            if word == "USING" and i + 1 < last and self.tokens[i + 1].word == "SAMPLE":
                word = "USING SAMPLE"
            if word == "SELECT" or (word == "FROM" and not self.distinct_from(i, first)):
                marks.append((word, i))
            elif word in _CLAUSES:
                marks.append((word, i))
        ends = [i for _, i in marks[1:]] + [last]
        return {word: (i + 1, end) for (word, i), end in zip(marks, ends, strict=True)}

    def distinct_from(self, i: int, first: int) -> bool:
        """Whether the FROM at i belongs to IS [NOT] DISTINCT FROM."""
        before = [self.tokens[j].word for j in range(max(first, i - 2), i)]
        return before[-1:] == ["DISTINCT"] and before[:1] in (["IS"], ["NOT"])


class _FromReader:
    """Reads `source {join source [ON … | USING …]}`."""

    def __init__(self, tokens: TokenList, first: int, last: int) -> None:
        self.tokens = tokens
        self.at = first
        self.last = last
        self.inner = True
        self.conditions: list[tuple[int, int]] = []

    def sources(self) -> tuple[Source, ...]:
        found = [self.source()]
        while self.at < self.last:
            self.join()
            found.append(self.source())
            self.condition()
        names = [source.alias.lower() for source in found]
        if len(set(names)) < len(names):
            raise NotPlanned("two entries of FROM have one name")
        return tuple(found)

    def word(self, ahead: int = 0) -> str:
        i = self.at + ahead
        return self.tokens[i].word if i < self.last else ""

    def kind(self) -> TokenType | None:
        return self.tokens[self.at].kind if self.at < self.last else None

    def source(self) -> Source:
        start = self.at
        kind = self.kind()
        if kind is TokenType.L_PAREN:
            if self.word(1) not in _QUERY_STARTS:
                raise NotPlanned("a join in brackets")
            self.at = self.tokens.partner[self.at] + 1
            name = None
        elif kind is TokenType.STRING:
            name = PurePath(self.tokens[start].text).name.partition(".")[0]
            self.at += 1
        elif kind in _NAME_KINDS and self.word() not in ("LATERAL", "VALUES", "UNNEST"):
            name = self.path()
        else:
            raise NotPlanned(f"{self.tokens.text[slice(*self.tokens.span(start, start + 1))]} …")
        span = self.tokens.span(start, self.at)
        alias = self.alias()
        return Source(span, alias or name or "unnamed_subquery", alias is not None)

    def path(self) -> str:
        """`a.b.c`, perhaps with arguments behind it: a table or a table function."""
        name = self.tokens[self.at].text
        self.at += 1
        while self.kind() is TokenType.DOT:
            name = self.tokens[self.at + 1].text
            self.at += 2
        if self.kind() is TokenType.L_PAREN:
            self.at = self.tokens.partner[self.at] + 1
        return name

    def alias(self) -> str | None:
        if self.word() == "AS":
            self.at += 1
        elif self.kind() not in _NAME_KINDS or self.joins_at(self.at) is not None:
            return None
        elif self.word() in ("ON", "USING", "TABLESAMPLE", "PIVOT", "UNPIVOT", "WITH"):
            return None
        alias = self.tokens[self.at].text
        self.at += 1
        if self.kind() is TokenType.L_PAREN:
            raise NotPlanned("column names behind an alias")
        return alias

    def joins_at(self, i: int) -> int | None:
        """Index behind JOIN when a join begins at token i."""
        while i < self.last and self.tokens[i].word in _JOIN_PREFIXES:
            i += 1
        return i + 1 if i < self.last and self.tokens[i].word == "JOIN" else None

    def join(self) -> None:
        if self.kind() is TokenType.COMMA:
            self.at += 1
            return
        behind = self.joins_at(self.at)
        if behind is None:
            raise NotPlanned(f"{self.tokens[self.at].text} in FROM")
        words = {self.tokens[i].word for i in range(self.at, behind)}
        if words & {"POSITIONAL", "ASOF"}:
            raise NotPlanned("a positional or as-of join")
        if words & {"LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "NATURAL"}:
            self.inner = False
        self.at = behind

    def condition(self) -> None:
        if self.word() == "USING":
            self.inner = False
            self.at = self.tokens.partner[self.at + 1] + 1
        elif self.word() == "ON":
            start = self.at + 1
            end = start
            for i in self.tokens.top_level(start, self.last):
                if self.tokens[i].kind is TokenType.COMMA or self.joins_at(i) is not None:
                    break
                end = self.tokens.partner[i] + 1 if self.tokens.is_open(i) else i + 1
            self.conditions.append((start, end))
            self.at = end
