"""Find the query blocks of a text and the parts of each.

It reads tokens, not a grammar: brackets, clause keywords and the forms of a FROM entry that
planning knows (docs/decisions/0012-structure-from-tokens.md). A form it does not know gives
a block with a `reason`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import TokenType

from covey.logical.calls import AICall, CallPlaces
from covey.logical.query_blocks import Expr, QueryBlock
from covey.logical.text_span import TextSpan
from covey.sql.boolean import conjuncts, read_expression
from covey.sql.from_clause import NotPlanned, read_from
from covey.sql.scopes import definitions
from covey.sql.statements import changes_rows, query_end
from covey.sql.text import CLAUSES, QUERY_STARTS, SET_OPERATIONS, TokenList


def find_blocks(tokens: TokenList, calls: list[AICall]) -> list[QueryBlock]:
    """Every SELECT block of the text, inner blocks before those around them."""
    finder = _Finder(tokens, calls)
    finder.statement()
    return sorted(finder.blocks, key=lambda block: (block.span.end, -block.span.start))


@dataclass(frozen=True, slots=True)
class _PendingQuery:
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
        self.todo: list[_PendingQuery] = []

    def statement(self) -> None:
        """The query may stand behind CREATE TABLE … AS, INSERT INTO … or inside COPY (…).

        The FROM of a statement that changes rows names the table it changes: that one
        must not be replaced.
        """
        tokens, top, start = self.tokens, None, len(self.tokens)
        if tokens.word(0) == "INSERT" or not changes_rows(tokens):
            start = next(tokens.words_at(0, start, QUERY_STARTS), start)
        self.inside(0, start, _PendingQuery(0, 0))
        if start < len(tokens):
            top = _PendingQuery(start, query_end(tokens, start))
            self.todo.append(top)
        while self.todo:
            query = self.todo.pop()
            self.query(query, query is top)

    def inside(self, first: int, last: int, around: _PendingQuery) -> None:
        """Find the queries in brackets among some tokens, which see what `around` sees."""
        i = first
        while i < last:
            if self.tokens.is_open(i) and self.tokens.word(i + 1) in QUERY_STARTS:
                closing = self.tokens.partner[i]
                self.todo.append(replace(around, first=i + 1, last=closing))
                i = closing
            i += 1

    def query(self, query: _PendingQuery, top: bool) -> None:
        if self.tokens[query.first].word == "WITH":
            query = self.with_clause(query)
        first, last = query.first, query.last
        cuts = list(self.tokens.words_at(first, last, SET_OPERATIONS))
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

    def operand(self, query: _PendingQuery, alone: bool, top: bool, union: TextSpan | None) -> None:
        first, last = query.first, query.last
        while first < last and self.tokens[first].word in ("ALL", "DISTINCT", "BY", "NAME"):
            first += 1
        if first < last and self.tokens[first].word in ("SELECT", "FROM"):
            span = self.tokens.span(first, last)
            block = QueryBlock(span, query.scope, query.recursive, alone, top and alone)
            block.exists = (
                alone and self.tokens.word(first - 2) == "EXISTS" and self.tokens.is_open(first - 1)
            )
            block.cte, block.union = query.cte, union
            self.read(block, first, last)
            self.blocks.append(block)
        self.inside(first, last, query)

    def with_clause(self, query: _PendingQuery) -> _PendingQuery:
        """Read WITH; return the query behind it, with what it can see."""
        tokens, behind = self.tokens, query.last
        if tokens.word(query.first + 1) == "RECURSIVE":
            query = replace(query, recursive=True)
        for each in definitions(tokens).get(query.first, ()):
            span, behind = tokens.span(each.start, each.closing + 1), each.closing + 1
            table = replace(query, cte=(tokens[each.start].text, span))
            self.inside(each.opening, behind, table)
            query = replace(query, scope=(*query.scope, span))
        return replace(query, first=behind)

    def read(self, block: QueryBlock, first: int, last: int) -> None:
        """Fill in the clauses of a block."""
        ranges = {word: r for word, r in self.clauses(first, last).items() if r[0] < r[1]}
        block.clauses = {word: self.tokens.span(*r) for word, r in ranges.items()}
        for word, (start, stop) in ranges.items():
            if word == "WHERE":
                block.where = conjuncts(self.tokens, start, stop, self.calls)
            elif word != "FROM":
                block.outputs[word] = self.expressions(start, stop)
            if word == "HAVING":
                block.having = conjuncts(self.tokens, start, stop, self.calls)
            if word == "SELECT":
                block.items = self.items(start, stop)
        if "FROM" not in ranges:
            block.reason = "it has no FROM clause"
            return
        try:
            block.sources, block.joins = read_from(self.tokens, *ranges["FROM"], self.calls)
        except NotPlanned as unplanned:
            block.reason = str(unplanned)

    def expressions(self, first: int, last: int) -> tuple[Expr, ...]:
        """The comma-separated expressions of a clause that hold a call."""
        if first < last and self.tokens[first].word == "DISTINCT":
            first += 1
        found = []
        for start, stop in self.tokens.split(first, last, TokenType.COMMA):
            stop = next(self.tokens.words_at(start, stop, ("AS",)), stop)
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
        tokens, marks = self.tokens, list[tuple[str, int]]()
        for i in tokens.top_level(first, last):
            word = tokens[i].word
            if i > first and tokens[i - 1].kind is TokenType.DOT:
                continue
            if word == "USING" and tokens.word(i + 1) == "SAMPLE":
                word = "USING SAMPLE"
            # The FROM of IS [NOT] DISTINCT FROM begins nothing.
            compares = tokens.word(i - 1) == "DISTINCT" and tokens.word(i - 2) in ("IS", "NOT")
            starts = word == "FROM" and not compares
            if starts or word in ("SELECT", "USING SAMPLE", *CLAUSES):
                marks.append((word, i))
        ends = [i for _, i in marks[1:]] + [last]
        return {word: (i + 1, end) for (word, i), end in zip(marks, ends, strict=True)}
