"""Whether the rows of a block's result are rows of its FROM."""

from __future__ import annotations

from covey.logical.query_blocks import QueryBlock
from covey.optimizer.workspace import Workspace

# A row of FROM is a row of the result only without these.
_NOT_ROW_BY_ROW = ("GROUP BY", "HAVING", "QUALIFY", "WINDOW")


def row_by_row(block: QueryBlock, work: Workspace) -> bool:
    """Whether every row of the result is a row of FROM, and LIMIT counts those."""
    return block.alone and made_of_rows(block, work)


def made_of_rows(block: QueryBlock, work: Workspace) -> bool:
    """Whether every row that a block gives is a row of FROM, as an operand of UNION too."""
    span = block.clauses.get("SELECT")
    if span is None:
        return False
    if any(clause in block.clauses for clause in _NOT_ROW_BY_ROW) or work.samples(block):
        return False
    words = work.tokens.words(span)
    if words & {"DISTINCT", "OVER", "UNNEST"}:
        return False
    return not work.binder.any_aggregate(span)
