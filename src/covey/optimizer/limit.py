"""LIMIT and EXISTS: stop asking when there are enough rows, and ask nothing about rows they drop.

Asking may stop early only under conditions that reject a row whose calls are not all answered:
their UDF calls give NULL, and `AI.IF(…) IS NULL` would take that for an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from covey.logical.query_blocks import Expr, Kind, QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.block_rows import BlockRows
from covey.optimizer.result_rows import row_by_row
from covey.optimizer.workspace import Workspace
from covey.plan.nodes import Prune
from covey.sql.edited_text import Replacement


def enough_rows(rows: BlockRows) -> int | None:
    """How many rows are enough, where LIMIT or EXISTS lets a block stop asking; else None."""
    block = rows.block
    if not rows.wanted or rows.open or "ORDER BY" in block.clauses:
        return None
    if not reject_unanswered(rows.wanted, rows.work):
        return None
    needed = _needed(block, rows.work)
    if needed is None and block.exists and "LIMIT" not in block.clauses:
        needed = 1
    return needed if needed is not None and row_by_row(block, rows.work) else None


def can_prune(rows: BlockRows, direct: frozenset[int]) -> bool:
    """Whether LIMIT picks rows of one source that outputs are then asked about."""
    block = rows.block
    return (
        any(e.calls & direct for e in block.outputs.get("SELECT", ()))
        and not rows.open
        # What the statement shows would not be what the rows were picked by.
        and not rows.work.draws(block.clauses["SELECT"], block)
        and len(block.sources) == 1
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
    place = TextSpan(end, end)
    # The statement skips the rows of OFFSET itself, so they must still be there.
    picking: dict[TextSpan, Replacement] = {
        place: [*work.edited.replacement(place), f", {source.row_id} AS {name}"],
        block.clauses["LIMIT"]: [str(_needed(block, work))],
    }
    if "OFFSET" in block.clauses:
        picking[block.clauses["OFFSET"]] = ["0"]
    picked = work.edited.render(block.span, picking)
    query = f"SELECT {name} FROM ({work.with_clause(block)}{picked})"
    read = work.tables_in(work.applied(*block.scope, block.span))
    if work.binder.binds(query):
        work.steps.append(Prune(source.load.table, query, read))


def _needed(block: QueryBlock, work: Workspace) -> int | None:
    """LIMIT plus OFFSET where both are constant numbers of rows."""
    parts = [block.clauses[word] for word in ("LIMIT", "OFFSET") if word in block.clauses]
    if "LIMIT" not in block.clauses or any(work.draws(span, block) for span in parts):
        return None
    numbers = [work.binder.constant(span) for span in parts]
    return sum(numbers) if all(type(n) is int and n >= 0 for n in numbers) else None


# Words that make something else than NULL out of NULL.
_ACCEPTING = {"IS", "ISNULL", "NOTNULL", "CASE", "DISTINCT"}


def reject_unanswered(conditions: Iterable[Expr], work: Workspace) -> bool:
    """Whether every condition, with a call that gives NULL, is TRUE only if it is anyway."""
    return all(_rejects(condition, work) for condition in conditions)


def _rejects(expr: Expr, work: Workspace) -> bool:
    if not expr.calls:
        return True
    if expr.kind in (Kind.AND, Kind.OR, Kind.NOT):
        return all(_rejects(part, work) for part in expr.parts)
    tokens = work.tokens
    if expr.kind not in (Kind.LEAF, Kind.COMPARE) or tokens.words(expr.span) & _ACCEPTING:
        return False
    # An operand of the leaf itself, and no argument of a function in it or in a subquery: EXISTS
    # makes FALSE of what it does not find.
    operands = {tokens[i].start for i in tokens.top_level(*tokens.indexes(expr.span))}
    return all(work.calls[i].span.start in operands for i in expr.calls)
