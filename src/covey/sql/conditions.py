"""Refuse a call that stands as a condition and is none: a text, a number or a struct."""

from __future__ import annotations

from sqlglot import TokenType

from covey.logical.calls import AICall, OnError, Reading
from covey.sql.functions import BY_SPELLING, function_name, style_of
from covey.sql.text import CLAUSES, JOIN_PREFIXES, SET_OPERATIONS, TokenList, quote_text

# What a condition stands behind, and what may stand behind it, but for brackets.
_BEFORE = ("WHERE", "ON", "HAVING", "QUALIFY", "AND", "OR", "NOT")
_OPENINGS = ("SELECT", "WHEN", "THEN", "ELSE", "CASE")
_AFTER = frozenset(
    "AND OR AS FROM FETCH USING RETURNING THEN ELSE END WHEN JOIN".split()
    + [clause.partition(" ")[0] for clause in CLAUSES]
) | {*SET_OPERATIONS, *JOIN_PREFIXES}
# Whose an ON is: a join's holds a condition, the others' names columns.
_OWNERS = ("JOIN", "PIVOT", "UNPIVOT")
_ENDS = (TokenType.R_PAREN, TokenType.COMMA, TokenType.SEMICOLON)


def refuse_as_condition(call: AICall, spelling: str, tokens: TokenList) -> None:
    """Refuse a call that is a whole condition, or an operand of AND, OR or NOT.

    Raises:
        QueryError: it is one and gives something else than TRUE or FALSE.
    """
    is_struct = call.options.on_error is OnError.VALUE
    if call.reading is Reading.TRUTH and not is_struct:
        return
    first, last = tokens.indexes(call.span)
    if not _is_condition(tokens, first, last):
        return
    value = f"{spelling}(…){'.value' if is_struct else ''}"
    judge = function_name(BY_SPELLING["AI.IF"], style_of(spelling))
    what, test = _gives(call, value, judge)
    if is_struct:
        what = "a struct of value and error"
    raise tokens.error(
        f"{spelling} gives {what} here, and a condition is TRUE or FALSE", call.span, test
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
        joined = tokens.word(last) in ("AND", "OR")
        opens = before.word in _OPENINGS or before.kind in (TokenType.L_PAREN, TokenType.COMMA)
        return joined and opens
    earlier = tokens.word(first - 2)
    if (before.word, earlier) in (("ON", "DISTINCT"), ("NOT", "IS")):
        return False
    if before.word == "ON" and tokens.word_before(first - 1, _OWNERS) in ("PIVOT", "UNPIVOT"):
        return False
    return before.word != "AND" or not _ends_between(tokens, first - 1)


def _ends(tokens: TokenList, i: int) -> bool:
    ended = tokens.kind(i) in (None, *_ENDS)
    return ended or tokens.word(i).partition(" ")[0] in _AFTER


def _ends_between(tokens: TokenList, i: int) -> bool:
    """Whether the AND at token i is that of a BETWEEN."""
    for before in tokens.level_before(i):
        if tokens[before].word == "BETWEEN":
            return True
        if tokens[before].word in (*_BEFORE, *_OPENINGS) or tokens.kind(before) is TokenType.COMMA:
            return False
    return False
