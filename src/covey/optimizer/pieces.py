"""The final statement for a stretch of rows, where a result is the sum of such pieces.

    SELECT t.id FROM t WHERE udf(t.rowid)
    SELECT t.id FROM t WHERE t.rowid BETWEEN first AND last AND (udf(t.rowid))

Rows of a piece are final as soon as its stretch of the pipeline's source is through. Not where a
clause looks at several rows of the result (ORDER BY, GROUP BY, DISTINCT, LIMIT, a window …), for
a subquery, which each piece would run anew, nor where a call is left to fixpoint re-execution.
"""

from __future__ import annotations

from covey.logical.query_blocks import QueryBlock
from covey.optimizer.result_rows import row_by_row
from covey.optimizer.workspace import Workspace
from covey.plan.nodes import Pipeline, RangeQuery

_CLAUSES = {"SELECT", "FROM", "WHERE"}


def plan_pieces(work: Workspace) -> RangeQuery | None:
    """The final statement confined to some rows; None where no such statement gives a piece."""
    pipeline = work.steps[-1] if work.steps else None
    if not isinstance(pipeline, Pipeline) or pipeline.needed is not None:
        return None
    if any(call.index not in work.planned for call in work.calls):
        return None
    block = next((block for block in work.blocks if block.top and block.alone), None)
    if block is None or not _is_sum(block, work):
        return None
    # The last pipeline may be that of a block inside.
    if pipeline.table not in work.tables_of(block):
        return None
    name = work.new_name("piece")
    where = block.clauses.get("WHERE")
    if where is not None:
        confined = {where: [f"{name} AND ({work.edited.render(where)})"]}
    else:
        relations = block.clauses["FROM"]
        confined = {relations: [f"{work.edited.render(relations)} WHERE {name}"]}
    before, after = work.edited.render(also=confined).split(name)
    piece = RangeQuery(before, pipeline.graph.relations[pipeline.source].row_id, after)
    return piece if work.binder.binds(piece.query(0, 0)) else None


def _is_sum(block: QueryBlock, work: Workspace) -> bool:
    """Whether the rows of the block are those of the stretches of a source, together."""
    if not set(block.clauses) <= _CLAUSES or not row_by_row(block, work):
        return False
    # A source that is a query is loaded by now.
    sources = [source.span for source in block.sources]
    inside = [b.span for b in work.blocks if b is not block and block.span.holds(b.span)]
    return all(any(source.holds(span) for source in sources) for span in inside)
