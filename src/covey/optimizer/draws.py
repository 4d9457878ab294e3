"""What draws its rows is evaluated once, and all that reads it sees the same rows.

    WITH s AS (SELECT * FROM t USING SAMPLE 10 ROWS) SELECT … FROM s a JOIN s b ON AI.IF(…)

    before  FROM s a, FROM s b and every round of look-ups draw ten rows each
    after   covey_source_1 holds ten rows, and s is SELECT * FROM covey_source_1

So it is with every query in brackets that can be evaluated by itself, with samples of tables,
and with views that draw. A table of WITH that several read is also kept where its rows may come
out otherwise without a draw: LIMIT, windows and aggregates over rows in no order. What the
body of a recursive table draws, it draws in every step; NOT MATERIALIZED asks for a draw by
each reader.
"""

from __future__ import annotations

from collections.abc import Sequence

from covey.errors import QueryError
from covey.logical.query_blocks import Expr, QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.workspace import LoadedSource, Workspace
from covey.sql.from_clause import NotPlanned
from covey.sql.structure import changes_rows
from covey.sql.text import QUERY_STARTS, quote_name
from covey.sql.volatile import Changes

# With rows in no order these may give others each time.
_UNSTABLE = frozenset(
    """
    LIMIT OFFSET FETCH OVER FIRST LAST ANY_VALUE ARBITRARY LIST ARRAY_AGG STRING_AGG GROUP_CONCAT
    LISTAGG ARG_MAX ARG_MIN MAX_BY MIN_BY ARGMAX ARGMIN MODE FIRST_VALUE RESERVOIR_QUANTILE
    APPROX_QUANTILE APPROX_TOP_K HISTOGRAM
    """.split()
)


def keep_draws(work: Workspace) -> None:
    """Keep what draws and needs no answer of the model, the outermost parts first.

    Only where the statement still binds with what was kept.
    """
    if changes_rows(work.tokens) and work.tokens[0].word == "WITH":
        # What the queries in it can see is not read.
        return
    mark = work.mark()
    _keep_queries(work)
    for block in work.blocks:
        if not _is_step(block):
            _keep_sources(work, block)
    if len(work.steps) > mark.steps:
        try:
            work.binder.check()
        except QueryError:
            work.revert(mark)


def keep_rows(
    work: Workspace,
    block: QueryBlock,
    sources: Sequence[LoadedSource],
    relations: str,
    conditions: Sequence[Expr],
) -> bool:
    """Draw once which combinations of rows pass conditions, and let these be a table.

        before  FROM a JOIN b ON a.k = b.k AND random() < 0.1
        after   covey_source_3 holds the row ids of a and b, and the draw is
                (a.rowid, b.rowid) IN (SELECT (r0, r1) FROM covey_source_3)

    Args:
        work: the statement.
        block: the block.
        sources: whose rows they are.
        relations: all their combinations, as FROM has them.
        conditions: that need no answer; some draw.

    Returns:
        False where DuckDB does not bind them over those sources alone.
    """
    ids = [f"coalesce({source.row_id}, -1)" for source in sources]
    names = [f"r{number}" for number in range(len(ids))]
    columns = ", ".join(f"{own} AS {name}" for own, name in zip(ids, names, strict=True))
    where = " AND ".join(f"({work.edited.render(c.span)})" for c in conditions)
    query = f"{work.with_clause(block)}SELECT {columns} FROM {relations} WHERE {where}"
    if work.binder.columns(query) is None:
        return False
    read = [*block.scope, *(c.span for c in conditions), *(s.source.span for s in sources)]
    load = work.add_load("drawn rows", query, [(name, "BIGINT") for name in names], read)
    drawn = f"(({', '.join(ids)}) IN (SELECT ({', '.join(names)}) FROM {load.table}))"
    for condition in conditions:
        if work.draws(condition.span, block):
            work.replace(condition.span, load.table, drawn)
            drawn = "TRUE"
    return True


def keep_shared(work: Workspace, block: QueryBlock) -> None:
    """Keep the tables of WITH that a block reads, that others read too, and that draw.

    They hold calls, since `keep_draws` left them; those are answered while they are filled.
    """
    for table in work.tables_read(block.span, block.scope):
        if work.readers(table) > 1 and work.draws(table, block):
            first = next((b for b in work.blocks if _inside(b.span, table)), None)
            opening = work.tokens.index_at(first.span[0]) - 1 if first is not None else 0
            if first is not None and work.tokens.is_open(opening) and not _is_step(first):
                _keep_query(work, opening, Changes.WITH_ROW, with_calls=True)


def _keep_queries(work: Workspace) -> None:
    tokens, i = work.tokens, 0
    while i < len(tokens):
        opens = tokens.is_open(i) and i + 1 < tokens.partner[i]
        if opens and tokens[i + 1].word in QUERY_STARTS and _keep_query(work, i):
            i = tokens.partner[i]
        i += 1


def _keep_query(
    work: Workspace, opening: int, least: Changes = Changes.WITH_ROW, with_calls: bool = False
) -> bool:
    """Evaluate the query in some brackets once, if it draws; whether it is."""
    tokens = work.tokens
    body = tokens.span(opening + 1, tokens.partner[opening])
    before = [token.word for token in tokens[max(opening - 2, 0) : opening]]
    if before[-1:] == ["MATERIALIZED"] and before[:1] == ["NOT"]:
        return False
    block = next((b for b in work.blocks if _inside(b.span, body)), None) or work.innermost(body)
    scope = [] if block is None else [s for s in block.scope if not _inside(s, body)]
    if (block is not None and _is_step(block)) or not _may_differ(work, body, block, scope):
        return False
    read = [body, *work.tables_read(body, scope)]
    if not with_calls and any(_inside(c.span, part) for c in work.calls for part in read):
        return False
    prefix = work.with_tables(scope, block is not None and block.recursive)
    columns = work.binder.columns(f"{prefix}SELECT * FROM ({work.edited.render(body)})")
    if columns is None:
        return False
    names = [f"c{number}" for number in range(len(columns))]
    relation = f"({work.edited.render(body)}) AS drawn({', '.join(names)})"
    typed = list(zip(names, (kind for _, kind in columns), strict=True))
    try:
        load = work.add_load(
            _name(work, body, block), f"{prefix}SELECT * FROM {relation}", typed, [body, *scope]
        )
    except NotPlanned:
        return False
    shown = ", ".join(
        f"{own} AS {quote_name(name)}" for own, (name, _) in zip(names, columns, strict=True)
    )
    work.replace(body, load.table, f"SELECT {shown} FROM {load.table}")
    return True


def _may_differ(
    work: Workspace, body: TextSpan, block: QueryBlock | None, scope: Sequence[TextSpan]
) -> bool:
    """Whether a query may give other rows the next time, which then matters."""
    if work.changes(body, scope) >= Changes.WITH_ROW:
        return True
    if block is None or block.cte is None or not _is_whole(work, body, block.cte[1]):
        return False
    return work.readers(block.cte[1]) > 1 and bool(work.tokens.words(body) & _UNSTABLE)


def _is_whole(work: Workspace, body: TextSpan, table: TextSpan) -> bool:
    """Whether a query is all that a table of WITH is."""
    return work.tokens.inside(table)[-2].end == body[1]


def _name(work: Workspace, body: TextSpan, block: QueryBlock | None) -> str:
    """What a query is called in the plan."""
    if block is not None and block.cte is not None and _is_whole(work, body, block.cte[1]):
        return block.cte[0]
    return "a subquery"


def _keep_sources(work: Workspace, block: QueryBlock) -> None:
    """Load the entries of FROM that draw, and a sample of the only one."""
    for number, source in enumerate(block.sources or ()):
        holds_calls = any(_inside(call.span, source.span) for call in work.calls)
        alone = "USING SAMPLE" in block.clauses and len(block.sources or ()) == 1
        if holds_calls or not (alone or work.draws(source.whole, block)):
            continue
        mark = work.mark()
        try:
            work.load(block, number, [])
        except NotPlanned:
            work.revert(mark)


def _is_step(block: QueryBlock) -> bool:
    """Whether a block may be run many times by a recursive table of WITH around it."""
    return block.recursive and block.cte is not None


def _inside(inner: TextSpan, outer: TextSpan) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
