"""Find the names of tables and views that a statement reads."""

from __future__ import annotations

from sqlglot import TokenType

from covey.sql.text import TokenList

# Words that end what FROM began, at the same depth of brackets.
_CLAUSES = ("WHERE", "GROUP BY", "HAVING", "QUALIFY", "WINDOW", "ORDER BY", "LIMIT", "OFFSET")
_QUERIES = ("SELECT", "WITH", "VALUES", "UNION", "INTERSECT", "EXCEPT", "SET", "RETURNING")
_PIVOTS = ("PIVOT", "UNPIVOT")
# Functions whose arguments are separated by FROM.
_FROM_FUNCTIONS = ("EXTRACT", "SUBSTRING", "TRIM", "OVERLAY")


class _Level:
    """What is known inside one bracket.

    Attributes:
        expects: whether a relation comes next.
        in_from: whether a comma is followed by one.
        plain: whether FROM is a clause here.
        using: whether USING is one, as in DELETE and MERGE.
    """

    def __init__(self, expects: bool, plain: bool) -> None:
        self.expects = expects
        self.in_from = expects
        self.plain = plain
        self.using = False


def relation_names(tokens: TokenList) -> list[tuple[int, int]]:
    """The token range of every table or view name that is read: `v`, `main.v`, `db.main.v`.

    Names that a WITH clause defines are among them; table functions are not.
    """
    found = []
    levels = [_Level(False, True)]
    i = 0
    while i < len(tokens):
        level, token = levels[-1], tokens[i]
        if tokens.is_open(i):
            plain = not i or tokens[i - 1].word not in _FROM_FUNCTIONS
            levels.append(_Level(level.expects, plain))
            level.expects = False
        elif i in tokens.partner:
            levels.pop()
        elif token.kind is TokenType.COMMA:
            level.expects = level.in_from
        elif _starts_relation(tokens, i, level):
            level.expects = level.in_from = True
        elif token.word in (*_CLAUSES, *_QUERIES, *_PIVOTS):
            level.in_from = False
            level.expects = token.word in _PIVOTS
        elif level.expects and token.word != "LATERAL":
            end = _path_end(tokens, i)
            if end > i and not (end < len(tokens) and tokens.is_open(end)):
                found.append((i, end))
            level.expects = False
            i = max(i, end - 1)
        level.using = level.using or token.word in ("DELETE", "MERGE")
        i += 1
    return found


def _starts_relation(tokens: TokenList, i: int, level: _Level) -> bool:
    """Whether the word at i is a FROM, JOIN or USING with a relation behind it."""
    word = tokens[i].word
    if word == "FROM":
        return level.plain and not (i and tokens[i - 1].word == "DISTINCT")
    if word == "JOIN":
        return level.in_from
    return word == "USING" and level.using and not tokens.is_open(min(i + 1, len(tokens) - 1))


def _path_end(tokens: TokenList, i: int) -> int:
    """Index behind the dotted name at i; i itself where there is none."""

    def is_name(at: int) -> bool:
        if at >= len(tokens):
            return False
        return tokens[at].kind is TokenType.IDENTIFIER or bool(tokens[at].word)

    if not is_name(i):
        return i
    while i + 1 < len(tokens) and tokens[i + 1].kind is TokenType.DOT and is_name(i + 2):
        i += 2
    return i + 1
