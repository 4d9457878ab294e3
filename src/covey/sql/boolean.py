"""Read an expression into the parts whose evaluation SQL lets one skip.

AND, OR, NOT, CASE and COALESCE decide early; everything else needs all its operands.
Precedence: OR binds weakest, then AND, then NOT.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import TokenType

from covey.logical.calls import CallPlaces
from covey.logical.query_blocks import Expr, Kind
from covey.sql.text import COMPARISONS, QUERY_STARTS, TokenList

# Levels of CASE, COALESCE, NOT, functions and AND in OR that are looked into. What is inside
# deeper ones is asked for every row that comes to them, which is exact.
DEEPEST_PART = 40

# Functions that DuckDB makes a CASE or COALESCE of.
_LAZY = {"COALESCE": Kind.COALESCE, "IFNULL": Kind.COALESCE, "IF": Kind.CASE}

# Of tokens, end exclusive.
_Range = tuple[int, int]


def conjuncts(tokens: TokenList, first: int, last: int, calls: CallPlaces) -> tuple[Expr, ...]:
    """The conjuncts of a condition, brackets around conjunctions opened."""
    expr = _ExpressionReader(tokens, calls, of_rows=True).read(first, last)
    return expr.parts if expr.kind is Kind.AND else (expr,)


def read_expression(tokens: TokenList, first: int, last: int, calls: CallPlaces) -> Expr:
    """Read the token range [first, last), which must not be empty."""
    return _ExpressionReader(tokens, calls).read(first, last)


class _ExpressionReader:
    """Reads token ranges [first, last).

    Args:
        of_rows: whether a name means the column of a row, and not perhaps another output.
        depth: levels around what is read.
    """

    def __init__(
        self, tokens: TokenList, calls: CallPlaces, of_rows: bool = False, depth: int = 0
    ) -> None:
        self.tokens = tokens
        self.calls = calls
        self.of_rows = of_rows
        self.depth = depth

    def read(self, first: int, last: int) -> Expr:
        first, last = self.opened(first, last)
        for word, kind in (("OR", Kind.OR), ("AND", Kind.AND)):
            operands = self.operands(first, last, word)
            if len(operands) > 1:
                return self.made(kind, first, last, operands) or self.leaf(first, last)
        if self.tokens[first].word == "NOT" and last - first > 1:
            found = self.made(Kind.NOT, first, last, [(first + 1, last)])
        else:
            found = self.case(first, last) or self.lazy(first, last) or self.filter(first, last)
        return found or self.comparison(first, last) or self.leaf(first, last)

    def below(self, first: int, last: int) -> Expr:
        """A part of what is read. What holds no call, or is nested too deep, is a leaf."""
        if self.depth >= DEEPEST_PART or not self.calls.inside(self.tokens.span(first, last)):
            return self.expr(Kind.LEAF, *self.opened(first, last), ())
        self.depth += 1
        try:
            return self.read(first, last)
        finally:
            self.depth -= 1

    def opened(self, first: int, last: int) -> _Range:
        """An expression without the brackets around all of it, and without NOT NOT."""
        tokens = self.tokens
        while last - first > 2:
            if tokens[first].word == tokens[first + 1].word == "NOT":
                first += 2
            elif (
                tokens[first].kind is TokenType.L_PAREN
                and tokens.in_brackets(first, last)
                and tokens[first + 1].word not in QUERY_STARTS
                and len(tokens.split(first + 1, last - 1, TokenType.COMMA)) == 1
            ):
                first, last = first + 1, last - 1
            else:
                break
        return first, last

    def operands(self, first: int, last: int, word: str) -> list[_Range]:
        """The operands of AND or OR, those of operands too; one where there are none."""
        found, left = list[_Range](), [(first, last)]
        while left:
            operand = left.pop()
            parts = self.split(*self.opened(*operand), word)
            if len(parts) > 1 and all(a < b for a, b in parts):
                left += reversed(parts)
            else:
                found.append(operand)
        return found

    def split(self, first: int, last: int, word: str) -> list[_Range]:
        """Ranges between the ANDs or ORs that belong to this level."""
        cuts, between = list[int](), 0
        for i in (i for i, depth in self.case_depths(first, last) if not depth):
            found = self.tokens[i].word
            if found == "BETWEEN":
                between += 1
            elif found == "AND" and between:
                between -= 1
            elif found == word:
                cuts.append(i)
        return list(zip([first, *(i + 1 for i in cuts)], [*cuts, last], strict=True))

    def case(self, first: int, last: int) -> Expr | None:
        """A CASE with or without an operand; None where a part is missing."""
        tokens = self.tokens
        if tokens[first].word != "CASE" or tokens[last - 1].word != "END":
            return None
        marks = [
            i
            for i, depth in self.case_depths(first, last)
            if depth == 1 and tokens[i].word in ("WHEN", "THEN", "ELSE")
        ]
        if not marks:
            return None
        kind = Kind.CASE
        if marks[0] > first + 1:
            # What stands between CASE and the first WHEN is the operand.
            kind, marks = Kind.CASE_OF, [first, *marks]
        ranges = zip((i + 1 for i in marks), [*marks[1:], last - 1], strict=True)
        return self.made(kind, first, last, ranges)

    def case_depths(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Top-level token indexes with the number of CASEs open around each."""
        depth = 0
        for i in self.tokens.top_level(first, last):
            after_dot = i > first and self.tokens[i - 1].kind is TokenType.DOT
            word = "" if after_dot else self.tokens[i].word
            depth += word == "CASE"
            yield i, depth
            depth -= word == "END"

    def lazy(self, first: int, last: int) -> Expr | None:
        """A function of `_LAZY`, the whole of the range."""
        kind = _LAZY.get(self.tokens[first].word)
        if kind is None or last - first <= 3 or not self.tokens.in_brackets(first + 1, last):
            return None
        parts = self.tokens.split(first + 2, last - 1, TokenType.COMMA)
        is_whole = kind is not Kind.CASE or len(parts) == 3
        return self.made(kind, first, last, parts) if is_whole else None

    def filter(self, first: int, last: int) -> Expr | None:
        """`aggregate(arguments) FILTER (WHERE condition)`, the whole of the range."""
        tokens = self.tokens
        word = next(tokens.words_at(first, last, ("FILTER",)), None)
        if word is None or word - first < 3 or not tokens.in_brackets(first + 1, word):
            return None
        if not tokens.in_brackets(word + 1, last) or tokens[word + 2].word != "WHERE":
            return None
        arguments = tokens.split(first + 2, word - 1, TokenType.COMMA)
        return self.made(Kind.FILTER, first, last, [(word + 3, last - 1), *arguments])

    def comparison(self, first: int, last: int) -> Expr | None:
        """`call < column` or `column < call`, the whole of the range."""
        tokens = self.tokens
        marks = [i for i in tokens.top_level(first, last) if tokens[i].kind in COMPARISONS]
        if not self.of_rows or len(marks) != 1:
            return None
        sides = [(first, marks[0]), (marks[0] + 1, last)]
        for one, other in (sides, sides[::-1]):
            if one[0] >= one[1] or not self.is_column(*other):
                continue
            if self.calls.at(tokens.span(*one)) is not None:
                parts = self.leaf(*one), self.leaf(*other)
                return self.expr(Kind.COMPARE, first, last, parts)
        return None

    def is_column(self, first: int, last: int) -> bool:
        """Whether a range is a name, or two with a dot between them."""
        kinds = [self.tokens[i].is_name for i in range(first, last)]
        dotted = last - first == 3 and self.tokens[first + 1].kind is TokenType.DOT
        return kinds == [True] or (dotted and kinds[0] and kinds[2])

    def leaf(self, first: int, last: int) -> Expr:
        """What has parts in brackets alone: `CASE … END > 3` and arguments may skip inside."""
        tokens, parts = self.tokens, list[Expr]()
        # In an argument a name may be the parameter of a lambda.
        inner = _ExpressionReader(tokens, self.calls, depth=self.depth)
        for i in (
            tokens.top_level(first, last) if self.calls.inside(tokens.span(first, last)) else ()
        ):
            is_call = i > 0 and self.calls.named_before(tokens[i - 1].end)
            if tokens.is_open(i) and not is_call and tokens.word(i + 1) not in QUERY_STARTS:
                for a, b in tokens.split(i + 1, tokens.partner[i], TokenType.COMMA):
                    if a < b and self.calls.inside(tokens.span(a, b)):
                        parts.append(inner.below(a, b))
        return self.expr(Kind.LEAF, first, last, parts)

    def made(self, kind: Kind, first: int, last: int, ranges: Iterable[_Range]) -> Expr | None:
        """An expression of some parts; None where one of them is missing."""
        found = list(ranges)
        if any(a >= b for a, b in found):
            return None
        return self.expr(kind, first, last, [self.below(a, b) for a, b in found])

    def expr(self, kind: Kind, first: int, last: int, parts: Iterable[Expr]) -> Expr:
        span = self.tokens.span(first, last)
        return Expr(kind, span, tuple(parts), self.calls.inside(span))
