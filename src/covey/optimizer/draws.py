"""What draws its rows is evaluated once, and all that reads it sees the same rows.

    WITH s AS (SELECT * FROM t USING SAMPLE 10 ROWS) SELECT … FROM s a JOIN s b ON AI.IF(…)

    before  FROM s a, FROM s b and every round of UDF calls draw ten rows each
    after   covey_source_1 holds ten rows, and s is SELECT * FROM covey_source_1

So it is with every query in brackets that can be evaluated by itself, with samples of tables,
and with views that draw. A table of WITH that several read is so, too, where its rows may come
out otherwise without a draw: LIMIT, windows and aggregates over rows in no order. What the
body of a recursive table draws, it draws in every step; NOT MATERIALIZED asks for a draw by
each reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from covey.errors import QueryError
from covey.logical.query_blocks import Expr, QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.workspace import LoadedSource, Workspace
from covey.sql.from_clause import NotPlanned
from covey.sql.statements import changes_rows
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


def materialize_draws(work: Workspace) -> None:
    """Materialize what draws and needs no answer of the model, the outermost parts first.

    Only where the statement still binds with its tables.
    """
    if changes_rows(work.tokens) and work.tokens[0].word == "WITH":
        # What the queries in it can see is not read.
        return
    with suppress(QueryError), work.attempt():
        _materialize_queries(work)
        for block in work.blocks:
            if not _is_step(block):
                _materialize_sources(work, block)
        if work.steps:
            work.binder.check()


def materialize_rows(
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
    if not work.binder.binds(query):
        return False
    read = [*block.scope, *(c.span for c in conditions), *(s.source.span for s in sources)]
    load = work.add_load("drawn rows", query, [(name, "BIGINT") for name in names], read)
    drawn = f"(({', '.join(ids)}) IN (SELECT ({', '.join(names)}) FROM {load.table}))"
    for condition in conditions:
        if work.draws(condition.span, block):
            work.materialize(condition.span, load.table, drawn)
            drawn = "TRUE"
    return True


def materialize_shared(work: Workspace, block: QueryBlock) -> None:
    """Materialize the tables of WITH that a block reads, that others read too, and that draw.

    They hold calls, since `materialize_draws` left them; those are answered while they are filled.
    """
    for table in work.tables_read(block.span, block.scope):
        if work.readers(table) > 1 and work.draws(table, block):
            first = next((b for b in work.blocks if table.holds(b.span)), None)
            if first is not None and not _is_step(first):
                opening = work.tokens.index_at(first.span.start) - 1
                if work.tokens.is_open(opening):
                    _materialize_query(work, opening, with_calls=True)


def _materialize_queries(work: Workspace) -> None:
    tokens, i = work.tokens, 0
    while i < len(tokens):
        opens = tokens.is_open(i) and tokens.word(i + 1) in QUERY_STARTS
        if opens and _materialize_query(work, i):
            i = tokens.partner[i]
        i += 1


def _materialize_query(work: Workspace, opening: int, with_calls: bool = False) -> bool:
    """Evaluate the query in some brackets once, if it draws; whether it is."""
    tokens = work.tokens
    body = tokens.span(opening + 1, tokens.partner[opening])
    if [tokens.word(opening - 2), tokens.word(opening - 1)] == ["NOT", "MATERIALIZED"]:
        return False
    block = next((b for b in work.blocks if body.holds(b.span)), None) or work.innermost(body)
    scope = [] if block is None else [s for s in block.scope if not body.holds(s)]
    if (block is not None and _is_step(block)) or not _may_differ(work, body, block, scope):
        return False
    read = [body, *work.tables_read(body, scope)]
    if not with_calls and any(part.holds(c.span) for c in work.calls for part in read):
        return False
    prefix = work.with_tables(scope, block is not None and block.recursive)
    columns = work.binder.columns(f"{prefix}SELECT * FROM ({work.edited.render(body)})")
    if columns is None:
        return False
    names = [f"c{number}" for number in range(len(columns))]
    relation = f"({work.edited.render(body)}) AS drawn({', '.join(names)})"
    typed = list(zip(names, (kind for _, kind in columns), strict=True))
    cte = None if block is None else block.cte
    name = cte[0] if cte is not None and _is_whole(work, body, cte[1]) else "a subquery"
    try:
        load = work.add_load(name, f"{prefix}SELECT * FROM {relation}", typed, [body, *scope])
    except NotPlanned:
        return False
    shown = ", ".join(
        f"{own} AS {quote_name(name)}" for own, (name, _) in zip(names, columns, strict=True)
    )
    work.materialize(body, load.table, f"SELECT {shown} FROM {load.table}")
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
    return work.tokens.inside(table)[-2].end == body.end


def _materialize_sources(work: Workspace, block: QueryBlock) -> None:
    """Load the entries of FROM that draw, and a sample of the only one."""
    for number, source in enumerate(block.sources):
        holds_calls = any(source.span.holds(call.span) for call in work.calls)
        alone = "USING SAMPLE" in block.clauses and len(block.sources) == 1
        if holds_calls or not (alone or work.draws(source.whole, block)):
            continue
        with suppress(NotPlanned), work.attempt():
            work.load(block, number, [])


def _is_step(block: QueryBlock) -> bool:
    """Whether a block may be run many times by a recursive table of WITH around it."""
    return block.recursive and block.cte is not None
