"""[NOT] EXISTS over a pair: a semi or anti AI join that stops at the first match."""

from __future__ import annotations

from covey.logical.query_blocks import Expr, QueryBlock
from covey.optimizer.block_rows import DRAWS, BlockRows
from covey.optimizer.demand import Demand
from covey.optimizer.limit import reject_unanswered
from covey.optimizer.pipeline_planner import PipelinePlanner
from covey.optimizer.workspace import Workspace
from covey.sql.from_clause import NotPlanned

_ALLOWED = {"SELECT", "FROM", "WHERE"}


def plan_semi_join(
    outer: BlockRows, pipeline: PipelinePlanner | None, leaf: Expr, texts: list[str]
) -> None:
    """Plan the calls of one EXISTS inside a condition of the outer block.

    The subquery's sources are loaded and joined to the outer FROM, so that its calls
    are asked for pairs of row ids; the last of them stops asking for an outer row once
    the whole subquery has a row for it.

    Args:
        outer: the block around it, its sources loaded.
        pipeline: its operators; None where it has outer joins.
        leaf: the EXISTS.
        texts: what must hold of an outer row for the EXISTS to matter, as SQL.

    Raises:
        NotPlanned: the subquery has another form.
    """
    work = outer.work
    if leaf.calls <= work.planned:
        return
    block = exists_block(leaf, work)
    if block is None or not block.inner:
        raise NotPlanned("it stands in a subquery that is not planned")
    direct = work.direct(block)
    inner = BlockRows(work, block, outer.guards.for_calls(direct))
    items = [(c, item) for c in inner.wanted for item in inner.guards.sequence(c)]
    if {item for _, item in items} != set(leaf.calls):
        raise NotPlanned("it is not in a condition of its subquery")
    if any(map(inner.draws, block.conditions)):
        raise NotPlanned(DRAWS)
    inner.load()
    names = [source.alias.lower() for source in (*outer.loaded, *inner.loaded)]
    if len(set(names)) < len(names):
        raise NotPlanned("the subquery hides a name of the query around it")
    for number, (condition, item) in enumerate(items):
        if number and items[number - 1][0] is not condition:
            inner.asked.append(items[number - 1][0])
        if not isinstance(item, int):
            raise NotPlanned("it stands in a subquery of a subquery")
        demand = _pairs(outer, pipeline, inner, [*texts, *inner.path(condition, item)])
        demand.ask(work.calls[item], [*outer.loaded, *inner.loaded])
    inner.asked = inner.wanted
    if reject_unanswered(inner.wanted, work):
        _pairs(outer, pipeline, inner, texts).stop_last_ask()


def exists_block(leaf: Expr, work: Workspace) -> QueryBlock | None:
    """The block inside a leaf that is EXISTS (SELECT … FROM … WHERE …) and nothing else."""
    inside = work.tokens.inside(leaf.span)
    if len(inside) < 4 or inside[0].word != "EXISTS":
        return None
    body = (inside[2].start, inside[-2].end)
    found = (b for b in work.blocks if b.span == body and set(b.clauses) <= _ALLOWED)
    return next(found, None)


def _pairs(
    outer: BlockRows, pipeline: PipelinePlanner | None, inner: BlockRows, texts: list[str]
) -> Demand:
    """Rows of the outer block with the rows of the subquery that may match them."""
    if pipeline is not None:
        return pipeline.pairs(inner, texts)
    conditions = [*outer.conditions(), *inner.conditions(), *texts]
    relations = f"{outer.relations()}, {inner.relations()}"
    return Demand(outer.work, outer.block, relations, conditions, outer.loaded)
