"""Read an expression into the parts whose evaluation SQL lets one skip.

AND, OR, NOT, CASE and COALESCE decide early; everything else needs all its operands.
Precedence: OR binds weakest, then AND, then NOT.
"""

from __future__ import annotations

from sqlglot import TokenType

from covey.logical.calls import CallPlaces
from covey.logical.query_blocks import Expr, Kind
from covey.logical.text_span import TextSpan
from covey.sql.text import QUERY_STARTS, TokenList

_COMPARISONS = frozenset(
    {
        TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE,
    }
)  # fmt: skip

# Levels of CASE, COALESCE, NOT, functions and AND in OR that are looked into. What is inside
# deeper ones is asked for every row that comes to them, which is exact.
MOST_LEVELS = 40

_LAZY = {"COALESCE": Kind.COALESCE, "IFNULL": Kind.COALESCE, "IF": Kind.CASE}


def conjuncts(tokens: TokenList, first: int, last: int, calls: CallPlaces) -> list[Expr]:
    """The conjuncts of a condition, brackets around conjunctions opened."""
    expr = _Reader(tokens, calls, of_rows=True).read(first, last)
    return list(expr.parts) if expr.kind is Kind.AND else [expr]


def read_expression(tokens: TokenList, first: int, last: int, calls: CallPlaces) -> Expr:
    """Read the token range [first, last), which must not be empty."""
    return _Reader(tokens, calls).read(first, last)


class _Reader:
    def __init__(
        self, tokens: TokenList, calls: CallPlaces, of_rows: bool = False, depth: int = 0
    ) -> None:
        self.tokens = tokens
        self.calls = calls
        self.depth = depth
        # Elsewhere a name may mean another output, and not the column of a row.
        self.of_rows = of_rows

    def read(self, first: int, last: int) -> Expr:
        first, last = self.opened(first, last)
        for word, kind in (("OR", Kind.OR), ("AND", Kind.AND)):
            parts = self.operands(first, last, word)
            if len(parts) > 1:
                return self.make(kind, first, last, [self.below(a, b) for a, b in parts])
        if self.tokens[first].word == "NOT" and last - first > 1:
            return self.make(Kind.NOT, first, last, [self.below(first + 1, last)])
        return self.primary(first, last)

    def below(self, first: int, last: int) -> Expr:
        """A part of what is read. What holds no call, or is nested too deep, is a leaf."""
        if self.depth >= MOST_LEVELS or not self.inside(self.tokens.span(first, last)):
            return self.make(Kind.LEAF, *self.opened(first, last), [])
        self.depth += 1
        try:
            return self.read(first, last)
        finally:
            self.depth -= 1

    def opened(self, first: int, last: int) -> tuple[int, int]:
        """An expression without the brackets around all of it, and without NOT NOT."""
        tokens = self.tokens
        while True:
            if tokens[first].kind is TokenType.L_PAREN and tokens.partner[first] == last - 1:
                is_value = (
                    last - first > 2
                    and tokens[first + 1].word not in QUERY_STARTS
                    and len(tokens.split(first + 1, last - 1, TokenType.COMMA)) == 1
                )
                if not is_value:
                    return first, last
                first, last = first + 1, last - 1
            elif (
                tokens[first].word == "NOT" and last - first > 2 and tokens[first + 1].word == "NOT"
            ):
                first += 2
            else:
                return first, last

    def operands(self, first: int, last: int, word: str) -> list[tuple[int, int]]:
        """The operands of AND or OR, those of operands too; one where there are none."""
        found, left = [], [(first, last)]
        while left:
            begin, end = left.pop()
            opened = self.opened(begin, end)
            parts = self.split(*opened, word)
            if len(parts) > 1 and all(a < b for a, b in parts):
                left += reversed(parts)
            else:
                found.append((begin, end))
        return found

    def primary(self, first: int, last: int) -> Expr:
        tokens = self.tokens
        if tokens[first].word == "CASE" and tokens[last - 1].word == "END":
            case = self.case(first, last)
            if case is not None:
                return case
        return self.lazy(first, last) or self.leaf(first, last)

    def lazy(self, first: int, last: int) -> Expr | None:
        """A function that DuckDB makes a CASE or COALESCE of, the whole of the range."""
        tokens, opening = self.tokens, first + 1
        if last - first <= 3 or tokens.partner.get(opening) != last - 1:
            return None
        kind = _LAZY.get(tokens[first].word)
        parts = tokens.split(opening + 1, last - 1, TokenType.COMMA)
        if kind is None or any(a >= b for a, b in parts):
            return None
        if kind is Kind.CASE and len(parts) != 3:
            return None
        return self.make(kind, first, last, [self.below(a, b) for a, b in parts])

    def leaf(self, first: int, last: int) -> Expr:
        """Operands of a leaf are read too: `CASE … END > 3` may still skip inside."""
        parts: list[Expr] = []
        span = self.tokens.span(first, last)
        special = self.filter(first, last) or self.comparison(first, last)
        if special is not None:
            return special
        if self.inside(span):
            for i in self.tokens.top_level(first, last):
                if not self.tokens.is_open(i) or self.is_call(i):
                    continue
                closing = self.tokens.partner[i]
                if i + 1 < closing and self.tokens[i + 1].word not in QUERY_STARTS:
                    # In an argument a name may be the parameter of a lambda.
                    inner = _Reader(self.tokens, self.calls, depth=self.depth)
                    for a, b in self.tokens.split(i + 1, closing, TokenType.COMMA):
                        if a < b and self.inside(self.tokens.span(a, b)):
                            parts.append(inner.below(a, b))
        return Expr(Kind.LEAF, span, tuple(parts), self.inside(span))

    def filter(self, first: int, last: int) -> Expr | None:
        """`aggregate(arguments) FILTER (WHERE condition)`, the whole of the range."""
        tokens = self.tokens
        word = next((i for i in tokens.top_level(first, last) if tokens[i].word == "FILTER"), None)
        if word is None or word - first < 3 or word + 1 >= last or not tokens.is_open(word + 1):
            return None
        closing = tokens.partner[word + 1]
        opening = tokens.partner.get(word - 1)
        if closing != last - 1 or opening != first + 1 or tokens[word + 2].word != "WHERE":
            return None
        arguments = tokens.split(opening + 1, word - 1, TokenType.COMMA)
        ranges = [(word + 3, closing), *arguments]
        if any(a >= b for a, b in ranges):
            return None
        return self.make(Kind.FILTER, first, last, [self.below(a, b) for a, b in ranges])

    def comparison(self, first: int, last: int) -> Expr | None:
        """`call < column` or `column < call`, the whole of the range."""
        tokens = self.tokens
        marks = [i for i in tokens.top_level(first, last) if tokens[i].kind in _COMPARISONS]
        if not self.of_rows or len(marks) != 1:
            return None
        sides = [(first, marks[0]), (marks[0] + 1, last)]
        for one, other in (sides, sides[::-1]):
            if one[0] >= one[1] or not self.is_column(*other):
                continue
            if self.calls.at(tokens.span(*one)) is not None:
                return self.make(Kind.COMPARE, first, last, [self.leaf(*one), self.leaf(*other)])
        return None

    def is_column(self, first: int, last: int) -> bool:
        """Whether a range is a name, or two with a dot between them."""
        kinds = [self.tokens[i].is_name for i in range(first, last)]
        dotted = last - first == 3 and self.tokens[first + 1].kind is TokenType.DOT
        return kinds == [True] or (dotted and kinds[0] and kinds[2])

    def is_call(self, opening: int) -> bool:
        """Whether the bracket holds the arguments of an AI call."""
        end = self.tokens[opening - 1].end if opening else -1
        return self.calls.named_before(end)

    def case(self, first: int, last: int) -> Expr | None:
        """A CASE with or without an operand; None where a part is missing."""
        marks = [
            i
            for i, depth in self.case_depths(first, last)
            if depth == 1 and self.tokens[i].word in ("WHEN", "THEN", "ELSE")
        ]
        if not marks:
            return None
        kind = Kind.CASE
        if marks[0] > first + 1:
            # What stands between CASE and the first WHEN is the operand.
            kind, marks = Kind.CASE_OF, [first, *marks]
        ends = [*marks[1:], last - 1]
        parts = [self.below(a + 1, b) for a, b in zip(marks, ends, strict=True) if a + 1 < b]
        if len(parts) < len(marks):
            return None
        return self.make(kind, first, last, parts)

    def case_depths(self, first: int, last: int) -> list[tuple[int, int]]:
        """Top-level token indexes with the number of CASEs open around each."""
        depth, depths = 0, []
        for i in self.tokens.top_level(first, last):
            after_dot = i > first and self.tokens[i - 1].kind is TokenType.DOT
            word = "" if after_dot else self.tokens[i].word
            if word == "CASE":
                depth += 1
            depths.append((i, depth))
            if word == "END":
                depth -= 1
        return depths

    def split(self, first: int, last: int, word: str) -> list[tuple[int, int]]:
        """Ranges between the ANDs or ORs that belong to this level."""
        parts, begin, between = [], first, 0
        for i, depth in self.case_depths(first, last):
            if depth:
                continue
            found = self.tokens[i].word
            if found == "BETWEEN":
                between += 1
            elif found == "AND" and between:
                between -= 1
            elif found == word:
                parts.append((begin, i))
                begin = i + 1
        parts.append((begin, last))
        return parts

    def make(self, kind: Kind, first: int, last: int, parts: list[Expr]) -> Expr:
        span = self.tokens.span(first, last)
        return Expr(kind, span, tuple(parts), self.inside(span))

    def inside(self, span: TextSpan) -> frozenset[int]:
        return self.calls.inside(span)
