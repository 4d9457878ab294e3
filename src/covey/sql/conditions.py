"""Refuse a call that stands as a condition and is none: a text, a number or a struct."""

from __future__ import annotations

from sqlglot import TokenType

from covey.errors import QueryError
from covey.logical.calls import AICall, OnError, Reading
from covey.sql.dialect import function_name, style_of
from covey.sql.functions import BY_SPELLING
from covey.sql.text import TokenList, quote_text

# What a condition stands behind, and what may stand behind it, but for brackets.
_BEFORE = ("WHERE", "ON", "HAVING", "QUALIFY", "AND", "OR", "NOT")
_OPENINGS = ("SELECT", "WHEN", "THEN", "ELSE", "CASE")
_AFTER = frozenset(
    """
    AND OR AS FROM WHERE GROUP HAVING QUALIFY WINDOW ORDER LIMIT OFFSET FETCH USING UNION EXCEPT
    INTERSECT RETURNING THEN ELSE END JOIN NATURAL INNER CROSS LEFT RIGHT FULL SEMI ANTI ASOF
    POSITIONAL WHEN
    """.split()
)
_ENDS = (TokenType.R_PAREN, TokenType.COMMA, TokenType.SEMICOLON)


def refuse_as_condition(call: AICall, spelling: str, tokens: TokenList) -> None:
    """Refuse a call that is a whole condition, or an operand of AND, OR or NOT.

    Raises:
        QueryError: it is one and gives something else than TRUE or FALSE.
    """
    is_struct = call.options.on_error is OnError.VALUE
    if call.reading is Reading.TRUTH and not is_struct:
        return
    first, last = tokens.index_at(call.span[0]), tokens.index_at(call.span[1])
    if not _is_condition(tokens, first, last):
        return
    value = f"{spelling}(…){'.value' if is_struct else ''}"
    judge = function_name(BY_SPELLING["AI.IF"], style_of(spelling))
    what, test = _gives(call, value, judge)
    if is_struct:
        what = "a struct of value and error"
    raise QueryError(
        f"{spelling} gives {what} here, and a condition is TRUE or FALSE",
        sql=tokens.text,
        span=call.span,
        hint=test,
    )


def _gives(call: AICall, value: str, judge: str) -> tuple[str, str]:
    """What a call gives, and a condition on it."""
    label = quote_text(call.question.labels[0].text) if call.question.labels else ""
    return {
        Reading.TRUTH: ("TRUE or FALSE", f"Add .value: {value}."),
        Reading.SCORE: ("a number", f"Compare it, {value} > 0.5, or use {judge}."),
        Reading.MARGIN: ("a number", f"Compare it, {value} > 0, or use {judge}."),
        Reading.LABEL: ("a text", f"Compare it: {value} = {label}."),
        Reading.LABELS: ("a list", f"Look into it: list_contains({value}, {label})."),
        Reading.PROBABILITIES: ("a map", f"Compare one of it: {value}[{label}] > 0.5."),
    }[call.reading]


def _is_condition(tokens: TokenList, first: int, last: int) -> bool:
    """Whether the range [first, last), brackets around it aside, stands as a condition."""
    while first and last < len(tokens) and tokens.partner.get(first - 1) == last:
        if tokens[first - 1].kind is not TokenType.L_PAREN:
            return False
        first, last = first - 1, last + 1
    if not first or not _ends(tokens, last):
        return False
    before = tokens[first - 1]
    if before.word not in _BEFORE:
        joined = last < len(tokens) and tokens[last].word in ("AND", "OR")
        opens = before.word in _OPENINGS or before.kind in (TokenType.L_PAREN, TokenType.COMMA)
        return joined and opens
    earlier = tokens[first - 2].word if first > 1 else ""
    if (before.word, earlier) in (("ON", "DISTINCT"), ("NOT", "IS")):
        return False
    if before.word == "ON" and _names_columns(tokens, first - 1):
        return False
    return before.word != "AND" or not _ends_between(tokens, first - 1)


def _names_columns(tokens: TokenList, i: int) -> bool:
    """Whether the ON at token i is that of PIVOT or UNPIVOT, and no join's."""
    i -= 1
    while i >= 0 and not tokens.is_open(i):
        if i in tokens.partner:
            i = tokens.partner[i]
        elif tokens[i].word in ("JOIN", "PIVOT", "UNPIVOT"):
            return tokens[i].word != "JOIN"
        i -= 1
    return False


def _ends(tokens: TokenList, i: int) -> bool:
    if i >= len(tokens) or tokens[i].kind in _ENDS:
        return True
    return tokens[i].word.partition(" ")[0] in _AFTER


def _ends_between(tokens: TokenList, i: int) -> bool:
    """Whether the AND at token i is that of a BETWEEN."""
    i -= 1
    while i >= 0 and not tokens.is_open(i):
        if i in tokens.partner:
            i = tokens.partner[i]
        elif tokens[i].word == "BETWEEN":
            return True
        elif tokens[i].word in (*_BEFORE, *_OPENINGS) or tokens[i].kind is TokenType.COMMA:
            return False
        i -= 1
    return False
