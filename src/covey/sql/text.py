"""SQL as text: tokens with exact places."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, overload

import duckdb
from sqlglot import TokenType
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from covey.errors import QueryError
from covey.logical.text_span import TextSpan

_PAIRS = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}
# Words that DuckDB takes for no table or alias: its reserved ones, and those of joins.
_RESERVED = frozenset(
    """
    ALL ANALYSE ANALYZE AND ANTI ANY ARRAY AS ASC ASOF ASYMMETRIC AT BOTH CASE CAST CHECK
    COLLATE COLUMN CONSTRAINT CREATE CROSS DEFAULT DEFERRABLE DESC DESCRIBE DISTINCT DO ELSE
    END EXCEPT FALSE FETCH FOR FOREIGN FROM FULL GROUP HAVING IN INITIALLY INNER INTERSECT
    INTO IS JOIN LAMBDA LATERAL LEADING LEFT LIKE LIMIT NATURAL NOT NULL OFFSET ON ONLY OR
    ORDER OUTER PIVOT PIVOT_LONGER PIVOT_WIDER PLACING POSITIONAL PRIMARY QUALIFY REFERENCES
    RETURNING RIGHT SELECT SEMI SHOW SOME SUMMARIZE SYMMETRIC TABLE TABLESAMPLE THEN TO
    TRAILING TRUE UNION UNIQUE UNPIVOT USING VALUES VARIADIC WHEN WHERE WINDOW WITH
    """.split()
)
# What a query may begin with.
QUERY_STARTS = ("SELECT", "WITH", "FROM", "VALUES")
# What a subquery may begin with besides; DuckDB takes them for no column.
_ALSO_QUERIES = ("TABLE", "PIVOT", "UNPIVOT", "SUMMARIZE", "DESCRIBE", "SHOW")
# The clauses that may stand behind FROM.
CLAUSES = ("WHERE", "GROUP BY", "HAVING", "QUALIFY", "WINDOW", "ORDER BY", "LIMIT", "OFFSET")
SET_OPERATIONS = ("UNION", "INTERSECT", "EXCEPT")
# What may stand in front of JOIN.
JOIN_PREFIXES = frozenset(
    "NATURAL INNER CROSS LEFT RIGHT FULL OUTER SEMI ANTI ASOF POSITIONAL".split()
)
COMPARISONS = frozenset(
    {
        TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE,
    }
)  # fmt: skip
# DuckDB takes no expression of more levels, and brackets beyond may be too many for its stack.
_MOST_BRACKETS = 1000
_OPEN = set(_PAIRS)
_CLOSE = set(_PAIRS.values())


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        kind: as sqlglot's DuckDB tokenizer sees it; of a text in dollars that of one in quotes.
        text: unquoted, where it is a name or a literal.
        start, end: character offsets, end exclusive.
        word: the upper-cased text of a bare word, "" for quoted names and literals.
    """

    kind: TokenType
    text: str
    start: int
    end: int
    word: str

    @property
    def span(self) -> TextSpan:
        return TextSpan(self.start, self.end)

    @property
    def name(self) -> str:
        """The upper-cased text of a name, quoted or not; "" for literals and marks."""
        return self.text.upper() if self.kind is TokenType.IDENTIFIER else self.word

    @property
    def is_name(self) -> bool:
        """Whether it may name a table or stand as an alias."""
        if self.kind is TokenType.IDENTIFIER:
            return True
        return bool(self.word) and self.word.partition(" ")[0] not in _RESERVED


@lru_cache(maxsize=16)
def read_tokens(text: str) -> TokenList:
    """The tokens of a text; the same list for the same text.

    Raises:
        QueryError: the text cannot be tokenised or its brackets do not match.
    """
    return TokenList(text)


class TokenList(Sequence[Token]):
    """The tokens of one text.

    Attributes:
        partner: of the index of every bracket that of its partner.
        opening: of every token that of the bracket around it; None outside of all.

    Raises:
        QueryError: the text cannot be tokenised or its brackets do not match.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokenize(text)
        self.starts = [token.start for token in self.tokens]
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for token in self.tokens:
            self._places[token.text.lower()].append(token.start)
        self.partner = self._match_brackets()

    @property
    def whole(self) -> TextSpan:
        """The place of the whole text."""
        return TextSpan(0, len(self.text))

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, index: int) -> Token: ...

    @overload
    def __getitem__(self, index: slice) -> list[Token]: ...

    def __getitem__(self, index: int | slice) -> Token | list[Token]:
        return self.tokens[index]

    def _match_brackets(self) -> dict[int, int]:
        partner: dict[int, int] = {}
        stack: list[int] = []
        self.opening: list[int | None] = []
        cases = 0
        for i, token in enumerate(self.tokens):
            if token.word in ("CASE", "END"):
                cases = cases + 1 if token.word == "CASE" else max(cases - 1, 0)
            if len(stack) + cases > _MOST_BRACKETS:
                raise self.error(
                    f"Brackets and CASE are nested deeper than {_MOST_BRACKETS:,} levels here",
                    token.span,
                    "Leave out those around nothing else, or store a part of the query first, "
                    "CREATE TEMP TABLE … AS SELECT …, and query the table.",
                )
            if token.kind not in _CLOSE:
                self.opening.append(stack[-1] if stack else None)
            if token.kind in _OPEN:
                stack.append(i)
            elif token.kind in _CLOSE:
                if not stack or _PAIRS[self.tokens[stack[-1]].kind] is not token.kind:
                    what = "This bracket closes nothing" if not stack else "Brackets cross here"
                    raise self.error(what, token.span, "Remove it, or open it before.")
                opened = stack.pop()
                partner[opened], partner[i] = i, opened
                self.opening.append(stack[-1] if stack else None)
        if stack:
            span = self.tokens[stack[-1]].span
            raise self.error("This bracket is never closed", span, "Close it.")
        return partner

    def error(self, reason: str, span: TextSpan, hint: str | None = None) -> QueryError:
        """A mistake at a place of the text."""
        return QueryError(reason, sql=self.text, span=span, hint=hint)

    def cut(self, span: TextSpan) -> str:
        """What stands at a place, as written."""
        return self.text[slice(*span)]

    def word(self, index: int) -> str:
        """The word of a token; "" before the first and behind the last."""
        return self.tokens[index].word if 0 <= index < len(self.tokens) else ""

    def kind(self, index: int) -> TokenType | None:
        """The kind of a token; None before the first and behind the last."""
        return self.tokens[index].kind if 0 <= index < len(self.tokens) else None

    def is_open(self, index: int) -> bool:
        return self.tokens[index].kind in _OPEN

    def begins_query(self, index: int) -> bool:
        """Whether a query begins at a token behind a bracket, and no expression."""
        if self.word(index) == "VALUES":
            return self.kind(index + 1) in _OPEN
        return self.word(index) in (*QUERY_STARTS, *_ALSO_QUERIES)

    def in_brackets(self, start: int, end: int) -> bool:
        """Whether [start, end) is one bracket and what it holds."""
        return self.partner.get(start) == end - 1

    def top_level(self, start: int, end: int) -> Iterable[int]:
        """Indexes of the tokens in [start, end) that stand inside no further bracket.

        An opening bracket is given, what it holds and its partner are not.
        """
        i = start
        while i < end:
            yield i
            i = self.partner[i] + 1 if self.is_open(i) else i + 1

    def words_at(self, start: int, end: int, words: Container[str]) -> Iterator[int]:
        """Indexes of some words among the tokens of `top_level`."""
        return (i for i in self.top_level(start, end) if self.tokens[i].word in words)

    def level_before(self, index: int) -> Iterable[int]:
        """Indexes of the tokens before one, backwards, as far as the bracket around it.

        Of brackets on the way only the opening one is given.
        """
        i = index - 1
        while i >= 0 and not self.is_open(i):
            i = self.partner.get(i, i)
            yield i
            i -= 1

    def word_before(self, index: int, words: Container[str]) -> str:
        """The nearest of some words among the tokens of `level_before`; "" for none."""
        behind = (self.tokens[i].word for i in self.level_before(index))
        return next((word for word in behind if word in words), "")

    def level_end(self, index: int) -> int:
        """Index of the closing bracket around a token; their number outside of all."""
        opening = self.opening[index]
        return len(self.tokens) if opening is None else self.partner[opening]

    def split(self, start: int, end: int, kind: TokenType) -> list[tuple[int, int]]:
        """Token ranges between the top-level separators of `kind` in [start, end)."""
        parts, begin = [], start
        for i in self.top_level(start, end):
            if self.tokens[i].kind is kind:
                parts.append((begin, i))
                begin = i + 1
        parts.append((begin, end))
        return parts

    def index_at(self, offset: int) -> int:
        """Index of the first token that begins at or behind a character offset."""
        return bisect_left(self.starts, offset)

    def indexes(self, span: TextSpan) -> tuple[int, int]:
        """The range of the tokens that begin inside a span."""
        return self.index_at(span.start), self.index_at(span.end)

    def inside(self, span: TextSpan) -> list[Token]:
        """The tokens that begin inside a span."""
        return self.tokens[slice(*self.indexes(span))]

    def words(self, span: TextSpan) -> set[str]:
        """The bare words inside a span, upper case."""
        return {token.word for token in self.inside(span)} - {""}

    def is_inside(self, span: TextSpan, word: str) -> bool:
        """Whether a span stands inside a bracket, at any depth, behind a word."""
        opening = self.opening[self.index_at(span.start)]
        while opening is not None:
            if opening and self.tokens[opening - 1].name == word:
                return True
            opening = self.opening[opening]
        return False

    def named_outside(self, name: str, span: TextSpan) -> bool:
        """Whether a name stands anywhere but inside `span`."""
        return any(not span.start <= place < span.end for place in self._places[name.lower()])

    def tables_named(self, name: str, span: TextSpan) -> list[int]:
        """Where a name stands outside `span` that may be a table's: no dot behind it."""
        outside = (p for p in self._places[name.lower()] if not span.start <= p < span.end)
        return [p for p in outside if self.kind(self.index_at(p) + 1) is not TokenType.DOT]

    def qualifiers(self, span: TextSpan) -> set[str]:
        """The names before a dot inside a span, lower case: aliases, among others."""
        first, last = self.indexes(span)
        return {
            self.tokens[i].text.lower()
            for i in range(first, last - 1)
            if self.tokens[i + 1].kind is TokenType.DOT
        }

    def span(self, start: int, end: int) -> TextSpan:
        """Character span of the tokens [start, end), which must not be empty.

        It reaches back to the token before, so that a prefix which the tokenizer
        leaves out of a literal's place (the E of E'…') is not lost.
        """
        lower = self.tokens[start - 1].end if start else 0
        text = self.text[lower : self.tokens[end - 1].end]
        begin = self.tokens[start].start
        if self.tokens[start].kind is TokenType.BYTE_STRING:
            begin = lower + len(text) - len(text.lstrip())
        return TextSpan(begin, self.tokens[end - 1].end)


# What the tokenizer reads for the $ and the ? of a place for a value: outside of quotes DuckDB
# takes neither character.
_MARKS = {"$": "\x01", "?": "\x02"}


class _Tokenizer(DuckDB.Tokenizer):
    # What stands behind EXPLAIN, PREPARE, CALL … is SQL too, not one opaque text.
    COMMANDS: ClassVar[set[TokenType]] = set()
    SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
        **DuckDB.Tokenizer.SINGLE_TOKENS,
        _MARKS["$"]: TokenType.PARAMETER,
        _MARKS["?"]: TokenType.PLACEHOLDER,
    }


_UNCLOSED = re.compile(r"Missing (?P<mark>.+) from \d+:(?P<start>\d+)")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _tokenize(text: str) -> list[Token]:
    half = _SURROGATE.search(text)
    if half is not None:
        raise QueryError(
            f"U+{ord(half[0]):04X} is half of a surrogate pair and no character",
            sql=text,
            span=half.span(),
            hint="Decode the text again from its bytes.",
        )
    try:
        raw = _Tokenizer(dialect="duckdb").tokenize(_marked(text))
    except SqlglotError as error:
        raise _unreadable(text, error) from None
    marks = set(_MARKS.values())
    return [
        Token(
            TokenType.STRING if t.token_type is TokenType.HEREDOC_STRING else t.token_type,
            text[t.start] if t.start == t.end and t.text in marks else t.text,
            t.start,
            t.end + 1,
            _word(t.token_type, t.text),
        )
        for t in raw
    ]


def _marked(text: str) -> str:
    """The text with a mark for each $ and ? that is a place for a value.

    sqlglot would take the `$1,$` of `$1,$2` for the beginning of a quoted text, and `?::` for
    an operator. Which is which DuckDB itself says.
    """
    if "$" not in text and "?" not in text:
        return text
    encoded = text.encode()
    parts, at = [], 0
    for start, kind in duckdb.tokenize(text):
        sign = chr(encoded[start])
        # In what is no SQL one place may come twice.
        if start >= at and kind == duckdb.token_type.operator and sign in _MARKS:
            parts += [encoded[at:start].decode(), _MARKS[sign]]
            at = start + 1
    return "".join([*parts, encoded[at:].decode()])


def _word(kind: TokenType, text: str) -> str:
    if kind is TokenType.IDENTIFIER or kind.name.endswith("STRING") or not text:
        return ""
    return text.upper() if text[0].isalpha() or text[0] == "_" else ""


def _unreadable(text: str, error: SqlglotError) -> QueryError:
    """The tokenizer's error, at what is never closed."""
    unclosed = _UNCLOSED.search(str(error.__cause__))
    if unclosed is not None:
        start, mark = int(unclosed["start"]), unclosed["mark"]
        span, what = (start, start + 1), "name" if mark == '"' else "text"
        hint = f"End it with {mark}{'; inside it a quote is written twice' * (len(mark) == 1)}."
    elif (start := text.rfind("/*")) >= 0:
        span, what, hint = (start, start + 2), "comment", "End it with */."
    else:
        reason = str(error).split("\n")[0]
        return QueryError(
            f"The text cannot be read as SQL: {reason}", hint="Look for a stray quote."
        )
    return QueryError(f"This {what} is never closed", sql=text, span=span, hint=hint)


def one_line(text: str) -> str:
    """A text with its line breaks and runs of blanks made one blank."""
    return " ".join(text.split())


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like another; None where none is as like as `cutoff`, of 1."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def quote_name(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
