"""Join the final statement with the pairs that passed, instead of looking each row up.

    FROM r JOIN a ON AI.IF(… r, a) JOIN s ON AI.IF(… s, a)

    before  FROM r JOIN a ON udf(r, a) JOIN s ON udf(s, a)
            DuckDB makes all rows of r, a and s of which r and a match, and calls Python for each
    after   FROM pairs_1 CROSS JOIN pairs_2 CROSS JOIN r
            JOIN a ON pairs_1 names r and a  JOIN s ON pairs_2 names s and a
            hash joins in an order that DuckDB chooses

Only where two pairs of sources or more are judged, so that rows are more than pairs; where all
calls of the statement are in the block and asked ahead; and where no `*` would show the columns
of the pairs. LIMIT is left alone: it may stop long before all pairs were looked at.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from covey.errors import QueryError
from covey.logical.query_blocks import QueryBlock
from covey.optimizer.block_rows import BlockRows
from covey.optimizer.pipeline_planner import PipelinePlanner
from covey.optimizer.workspace import Workspace
from covey.plan.join_graph import Target
from covey.plan.nodes import Ask, Match, Operator


def plan_matches(rows: BlockRows, pipeline: PipelinePlanner) -> None:
    """Add the steps that gather pairs, and put the pairs into a statement that is planned."""
    work, block = rows.work, rows.block
    pairs = _pairs(pipeline.operators)
    judged = {places for _, places in pairs}
    if len(judged) < 2 or not _allows(block, work) or not _all_planned(rows):
        return
    # Behind a comma an ON sees only its own entry of FROM: there it does not bind.
    with suppress(QueryError), work.attempt():
        names = [_match(ask, places, pipeline, work) for ask, places in pairs]
        # In front of FROM, where every ON can see them.
        first = rows.loaded[0].source.span
        tables = "".join(f"{name} CROSS JOIN " for name in names)
        work.edited.replace(first, tables, *work.edited.replacement(first))
        work.binder.check()


def _pairs(operators: list[Operator]) -> list[tuple[Ask, tuple[int, ...]]]:
    """The calls that are a condition on two sources each, and which sources."""
    return [
        (ask, tuple(sorted(operator.passes.sources)))
        for operator in operators
        if operator.passes is not None and len(operator.passes.sources) == 2
        for ask in operator.asks
        if ask.call == operator.call
    ]


def _all_planned(rows: BlockRows) -> bool:
    """Whether every call of the statement is in the block and asked ahead."""
    work = rows.work
    direct = work.direct(rows.block)
    return len(direct) == len(work.calls) and direct <= work.planned


def _allows(block: QueryBlock, work: Workspace) -> bool:
    """Whether the block shows nothing but what it names, and all of it."""
    if not block.top or "SELECT" not in block.clauses or "LIMIT" in block.clauses:
        return False
    text = [token.text.upper() for token in work.tokens.inside(block.span)]
    stars = [i for i, each in enumerate(text) if each == "*"]
    return "COLUMNS" not in text and all(text[i - 2 : i] == ["COUNT", "("] for i in stars)


def _match(ask: Ask, places: tuple[int, ...], pipeline: PipelinePlanner, work: Workspace) -> str:
    """Add the step for one condition and put its pairs in its place; returns their table."""
    graph = pipeline.graph
    own = tuple(c for c in (*graph.conditions, *pipeline.decided) if c.sources <= set(places))
    pairs = replace(graph, outer=0, conditions=own).query(Target(places), [])
    name = work.new_name("match")
    names = (f"{name}_left", f"{name}_right")
    columns = ", ".join(names)
    work.create_empty(name, [(column, "BIGINT") for column in names])
    query = f"SELECT {columns} FROM ({pairs}) AS pairs({columns})"
    work.steps.append(Match(name, query, ask.condition))
    same = " AND ".join(
        f"{name}.{column} = {graph.relations[place].row_id}"
        for column, place in zip(names, places, strict=True)
    )
    work.edited.replace(work.calls[ask.call].span, f"({same})")
    return name
