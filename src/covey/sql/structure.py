"""Find the query blocks of a text and the parts of each.

It reads tokens, not a grammar: brackets, clause keywords and the forms of a FROM
entry that planning knows. A form it does not know gives a block with a `reason`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import TokenType

from covey.logical.calls import AICall, CallPlaces
from covey.logical.query_blocks import Expr, QueryBlock
from covey.logical.text_span import TextSpan
from covey.sql.boolean import conjuncts, read_expression
from covey.sql.from_clause import NotPlanned, read_from
from covey.sql.text import QUERY_STARTS, TokenList, read_tokens

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
_CHANGES = ("UPDATE", "DELETE", "MERGE", "INSERT")


def find_blocks(tokens: TokenList, calls: list[AICall]) -> list[QueryBlock]:
    """Every SELECT block of the text, inner blocks before those around them."""
    finder = _Finder(tokens, calls)
    finder.statement()
    return sorted(finder.blocks, key=lambda block: (block.span[1], -block.span[0]))


def is_query(tokens: TokenList) -> bool:
    """Whether the statement only reads: no CREATE, INSERT, UPDATE, DELETE, COPY …"""
    start = next((t for t in tokens if t.kind is not TokenType.L_PAREN), None)
    if start is None or changes_rows(tokens):
        return False
    return start.word in (*QUERY_STARTS, "PIVOT", "UNPIVOT", "SUMMARIZE")


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
    if not len(tokens) or tokens[0].word not in (*_CHANGES, "WITH"):
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
            return tokens.span(i, _query_end(tokens, i))
        if tokens.is_open(i) and i + 1 < tokens.partner[i] and tokens[0].word == "COPY":
            return tokens.span(i + 1, tokens.partner[i])
    return None


def _query_end(tokens: TokenList, start: int) -> int:
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
    if i >= len(tokens):
        return False
    behind = tokens.partner[i] + 1 if tokens.is_open(i) else i
    return behind < len(tokens) and tokens[behind].word in ("DO", "WHERE")


@dataclass(frozen=True, slots=True)
class _Query:
    """A query that is to be read: a token range, end exclusive, and what it can see.

    Attributes:
        scope, recursive, cte: see `QueryBlock`.
    """

    first: int
    last: int
    scope: tuple[TextSpan, ...] = ()
    recursive: bool = False
    cte: tuple[str, TextSpan] | None = None


class _Finder:
    """Reads query after query; those inside wait in `todo`, however deep they are nested."""

    def __init__(self, tokens: TokenList, calls: list[AICall]) -> None:
        self.tokens = tokens
        self.calls = CallPlaces(calls)
        self.blocks: list[QueryBlock] = []
        self.todo: list[_Query] = []

    def statement(self) -> None:
        """The query may stand behind CREATE TABLE … AS, INSERT INTO … or inside COPY (…).

        The FROM of a statement that changes rows names the table it changes: that one
        must not be replaced.
        """
        top = None
        if changes_rows(self.tokens) and self.tokens[0].word != "INSERT":
            self.inside(0, len(self.tokens), _Query(0, 0))
        else:
            for i in self.tokens.top_level(0, len(self.tokens)):
                if self.tokens[i].word in QUERY_STARTS:
                    top = _Query(i, _query_end(self.tokens, i))
                    self.todo.append(top)
                    break
                if self.tokens.is_open(i):
                    self.inside(i, self.tokens.partner[i], _Query(0, 0))
        while self.todo:
            query = self.todo.pop()
            self.query(query, query is top)

    def inside(self, first: int, last: int, around: _Query) -> None:
        """Find the queries in brackets among some tokens, which see what `around` sees."""
        i = first
        while i < last:
            if self.tokens.is_open(i):
                closing = self.tokens.partner[i]
                if i + 1 < closing and self.tokens[i + 1].word in QUERY_STARTS:
                    self.todo.append(replace(around, first=i + 1, last=closing))
                    i = closing
            i += 1

    def query(self, query: _Query, top: bool) -> None:
        if self.tokens[query.first].word == "WITH":
            query = self.with_clause(query)
        first, last = query.first, query.last
        cuts = [
            i for i in self.tokens.top_level(first, last) if self.tokens[i].word in _SET_OPERATIONS
        ]
        union = None if query.recursive else self.union(first, cuts, last)
        for begin, end in zip([first, *(i + 1 for i in cuts)], [*cuts, last], strict=True):
            if begin < end:
                self.operand(replace(query, first=begin, last=end), not cuts, top, union)

    def union(self, first: int, cuts: list[int], last: int) -> TextSpan | None:
        """The whole of a query that is a UNION of all rows by place, None for another."""
        if not cuts or any(self.tokens[i].word != "UNION" for i in cuts):
            return None
        behind = {self.tokens[j].word for i in cuts for j in (i + 1, i + 2) if j < last}
        # What stands at the end of the last operand is about all of them.
        ends = {self.tokens[i].word for i in self.tokens.top_level(cuts[-1], last)}
        if "BY" in behind or ends & {"LIMIT", "OFFSET", "FETCH", "SAMPLE", "USING"}:
            return None
        return self.tokens.span(first, last)

    def operand(self, query: _Query, alone: bool, top: bool, union: TextSpan | None) -> None:
        first, last = query.first, query.last
        while first < last and self.tokens[first].word in ("ALL", "DISTINCT", "BY", "NAME"):
            first += 1
        if first < last and self.tokens[first].word in ("SELECT", "FROM"):
            span = self.tokens.span(first, last)
            block = QueryBlock(span, query.scope, query.recursive, alone, top and alone)
            before = self.tokens[first - 2].word if first > 1 else ""
            block.exists = alone and before == "EXISTS" and self.tokens.is_open(first - 1)
            block.cte, block.union = query.cte, union
            self.read(block, first, last)
            self.blocks.append(block)
        self.inside(first, last, query)

    def with_clause(self, query: _Query) -> _Query:
        """Read WITH; return the query behind it, with what it can see."""
        i, last = query.first + 1, query.last
        if self.tokens[i].word == "RECURSIVE":
            query, i = replace(query, recursive=True), i + 1
        begin = i
        while i < last:
            if not self.tokens.is_open(i):
                i += 1
                continue
            closing = self.tokens.partner[i]
            body = i > begin + 1 and self.tokens[i - 1].word in ("AS", "MATERIALIZED")
            if body:
                span = self.tokens.span(begin, closing + 1)
                self.inside(i, closing + 1, replace(query, cte=(self.tokens[begin].text, span)))
                query = replace(query, scope=(*query.scope, span))
            i = closing + 1
            if body and (i >= last or self.tokens[i].kind is not TokenType.COMMA):
                return replace(query, first=i)
            if body:
                begin = i = i + 1
        return replace(query, first=last)

    def read(self, block: QueryBlock, first: int, last: int) -> None:
        """Fill in the clauses of a block."""
        ranges = {word: r for word, r in self.clauses(first, last).items() if r[0] < r[1]}
        block.clauses = {word: self.tokens.span(*r) for word, r in ranges.items()}
        for word, (start, stop) in ranges.items():
            if word == "WHERE":
                block.where = tuple(conjuncts(self.tokens, start, stop, self.calls))
            elif word != "FROM":
                block.outputs[word] = self.expressions(start, stop)
            if word == "SELECT":
                block.items = self.items(start, stop)
        if "FROM" not in ranges:
            block.reason = "it has no FROM clause"
            return
        start, stop = ranges["FROM"]
        block.from_span = self.tokens.span(start, stop)
        try:
            block.sources, block.joins = read_from(self.tokens, start, stop, self.calls)
        except NotPlanned as unplanned:
            block.reason = str(unplanned)

    def expressions(self, first: int, last: int) -> tuple[Expr, ...]:
        """The comma-separated expressions of a clause that hold a call."""
        if first < last and self.tokens[first].word == "DISTINCT":
            first += 1
        found = []
        for start, stop in self.tokens.split(first, last, TokenType.COMMA):
            for i in self.tokens.top_level(start, stop):
                if i > start and self.tokens[i].word == "AS":
                    stop = i
                    break
            if start < stop:
                expr = read_expression(self.tokens, start, stop, self.calls)
                if expr.calls:
                    found.append(expr)
        return tuple(found)

    def items(self, first: int, last: int) -> list[TextSpan]:
        """The items of SELECT that hold a call."""
        tokens = self.tokens
        if first + 1 < last and tokens[first].word == "DISTINCT":
            first += 1
            if tokens[first].word == "ON" and tokens.is_open(first + 1):
                first = tokens.partner[first + 1] + 1
        # Nothing stands behind a comma at the end, which DuckDB allows.
        ranges = [each for each in tokens.split(first, last, TokenType.COMMA) if each[0] < each[1]]
        spans = [tokens.span(*each) for each in ranges]
        return [span for span in spans if self.calls.inside(span)]

    def clauses(self, first: int, last: int) -> dict[str, tuple[int, int]]:
        """Token range behind each clause keyword of the block."""
        marks: list[tuple[str, int]] = []
        for i in self.tokens.top_level(first, last):
            word = self.tokens[i].word
            if i > first and self.tokens[i - 1].kind is TokenType.DOT:
                continue
            if word == "USING" and i + 1 < last and self.tokens[i + 1].word == "SAMPLE":
                word = "USING SAMPLE"
            starts = word == "FROM" and not self.distinct_from(i, first)
            if starts or word == "SELECT" or word in _CLAUSES:
                marks.append((word, i))
        ends = [i for _, i in marks[1:]] + [last]
        return {word: (i + 1, end) for (word, i), end in zip(marks, ends, strict=True)}

    def distinct_from(self, i: int, first: int) -> bool:
        """Whether the FROM at i belongs to IS [NOT] DISTINCT FROM."""
        before = [self.tokens[j].word for j in range(max(first, i - 2), i)]
        return before[-1:] == ["DISTINCT"] and before[:1] in (["IS"], ["NOT"])
