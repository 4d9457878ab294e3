"""Conditions of HAVING that hold of all rows of a group, or of none.

    before  SELECT k, count(*) FROM t WHERE AI.IF(…) GROUP BY k HAVING k < 3 AND count(*) > 1
    asked   for the rows of t with k < 3

A column that stands there outside an aggregate is a key of the group. Rows whose group is
rejected in any case need no answer; the statement itself stays as it is. It must not be done
under ROLLUP, CUBE and GROUPING SETS, where a key is NULL that is not NULL in the rows, nor
for anything but comparisons: values that GROUP BY takes for one compare alike, but a
function may tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import TokenType

from covey.logical.query_blocks import QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.constants import is_constant
from covey.optimizer.workspace import LoadedSource, Workspace
from covey.sql.text import COMPARISONS

_SEVERAL_GROUPINGS = {"ROLLUP", "CUBE", "SETS", "GROUPING"}
_WORDS = frozenset("AND OR NOT IN BETWEEN IS NULL TRUE FALSE".split())
_OPERANDS = frozenset({TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN})
_MARKS = COMPARISONS | _OPERANDS | {TokenType.DOT, TokenType.COMMA}
_RENAMING = {"COLUMNS", "REPLACE", "RENAME", "EXCLUDE"}


def conditions_on_groups(
    block: QueryBlock, work: Workspace, loaded: Sequence[LoadedSource]
) -> list[str]:
    """Conditions on rows of FROM that follow from HAVING, as SQL over the loaded sources."""
    constants = [c for c in block.having if c.calls <= work.planned and is_constant(c, work)]
    found = [work.edited.render(c.span) for c in constants]
    group, aliases = block.clauses.get("GROUP BY"), _aliases(block, work)
    if group is None or aliases is None or not block.having:
        return found
    words = {part for word in work.tokens.words(group) for part in word.split()}
    relations = ", ".join(source.relation for source in loaded)
    for condition in block.having if not words & _SEVERAL_GROUPINGS else ():
        if condition.calls or not _compares_keys(condition.span, aliases, work):
            continue
        text = work.edited.render(condition.span)
        if work.columns(block, f"SELECT ({text}) FROM {relations}") is not None:
            found.append(text)
    return found


def _compares_keys(span: TextSpan, aliases: set[str], work: Workspace) -> bool:
    """Whether a condition only compares columns, which are keys, and constants."""
    tokens = work.tokens
    for i in range(*tokens.indexes(span)):
        token, before = tokens[i], tokens[i - 1]
        if token.kind is TokenType.L_PAREN:
            if before.is_name and before.word not in _WORDS:
                return False
        elif token.word in _WORDS or token.kind in _MARKS:
            continue
        elif not token.is_name or before.is_name or before.kind in _OPERANDS:
            return False  # an operator in letters, such as LIKE, stands behind an operand
        elif before.kind is not TokenType.DOT and token.text.strip('"').lower() in aliases:
            return False
    return True


def _aliases(block: QueryBlock, work: Workspace) -> set[str] | None:
    """Names that the block's output gives to something: in HAVING they may mean that.

    None where the output names what cannot be seen in the text.
    """
    tokens, select = work.tokens, block.clauses.get("SELECT")
    if select is None or tokens.words(select) & _RENAMING:
        return None
    found = set()
    for begin, end in tokens.split(*tokens.indexes(select), TokenType.COMMA):
        if end - begin > 1 and tokens[end - 2].kind is not TokenType.DOT:
            found.add(tokens[end - 1].text.strip('"').lower())
        if end - begin > 1 and tokens[begin + 1].kind is TokenType.COLON:
            found.add(tokens[begin].text.strip('"').lower())  # `name: expression`
    return found
