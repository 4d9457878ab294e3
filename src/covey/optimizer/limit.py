"""LIMIT: stop asking when there are enough rows, and ask nothing about rows it drops."""

from __future__ import annotations

from covey.logical.query_blocks import QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.block_rows import BlockRows
from covey.optimizer.nulls import reject_unanswered
from covey.optimizer.row_by_row import row_by_row
from covey.optimizer.workspace import Workspace
from covey.plan.nodes import Prune


def enough_rows(rows: BlockRows) -> int | None:
    """How many rows are enough, where LIMIT or EXISTS lets a block stop asking; else None."""
    block = rows.block
    if not rows.wanted or rows.open or "ORDER BY" in block.clauses:
        return None
    if not reject_unanswered(rows.wanted, rows.work.calls, rows.work.tokens):
        return None
    needed = _needed(block, rows.work)
    if needed is None and block.exists and "LIMIT" not in block.clauses:
        needed = 1
    return needed if needed is not None and row_by_row(block, rows.work) else None


def can_prune(rows: BlockRows, direct: frozenset[int]) -> bool:
    """Whether LIMIT picks rows of one source that outputs are then asked about."""
    block = rows.block
    outputs = frozenset[int]().union(*(e.calls for e in block.outputs.get("SELECT", ())))
    return (
        bool(outputs & direct)
        and not rows.open
        # What the statement shows would not be what the rows were picked by.
        and not rows.work.draws(block.clauses["SELECT"], block)
        and len(block.sources or ()) == 1
        and _needed(block, rows.work) is not None
        and row_by_row(block, rows.work)
    )


def plan_prune(rows: BlockRows) -> None:
    """Drop the rows that LIMIT keeps out before outputs are asked.

    The query that picks them is the block itself with its row ids as one more column; a
    call in its ORDER BY is thereby answered for every row, as it must be.
    """
    block, work = rows.block, rows.work
    source = rows.loaded[0]
    end = block.clauses["SELECT"][1]
    name = f"{source.load.table}_row"
    mark = work.mark()
    place = TextSpan(end, end)
    work.edited.replace(place, *work.edited.replacement(place), f", {source.row_id} AS {name}")
    # The statement skips the rows of OFFSET itself, so they must still be there.
    work.edited.replace(block.clauses["LIMIT"], str(_needed(block, work)))
    if "OFFSET" in block.clauses:
        work.edited.replace(block.clauses["OFFSET"], "0")
    query = f"SELECT {name} FROM ({work.with_clause(block)}{work.edited.render(block.span)})"
    work.revert(mark)
    if work.binder.columns(query) is not None:
        work.steps.append(Prune(source.load.table, query))


def _needed(block: QueryBlock, work: Workspace) -> int | None:
    """LIMIT plus OFFSET where both are constant numbers of rows."""
    limit = block.clauses.get("LIMIT")
    parts = [span for span in (limit, block.clauses.get("OFFSET")) if span is not None]
    if limit is None or any(work.draws(span, block) for span in parts):
        return None
    value = work.binder.constant(limit)
    offset = block.clauses.get("OFFSET")
    skipped = work.binder.constant(offset) if offset is not None else 0
    if type(value) is not int or type(skipped) is not int or value < 0 or skipped < 0:
        return None
    return value + skipped
