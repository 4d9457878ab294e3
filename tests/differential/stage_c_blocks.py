"""Stage C, second half: AI calls below, beside and between query blocks.

Subqueries in FROM, CTEs used twice, set operations, VALUES, lateral joins and
recursive CTEs.
"""

from __future__ import annotations

from hypothesis import strategies as st

from differential.expressions import calls, plain_conditions
from differential.harness import Case
from differential.stage_a import limit, order_by, where
from differential.stage_c import ROWS, on_conditions
from differential.tables import columns_of, tables
from differential.tree import Bare, Call, Kind, Sql, Template, joined, sql
from differential.values import Pool, conditions, pools, value

NAMED = ["id", "k", "s", "u", "d", "x", "l", '"Course Name"']


@st.composite
def blocks(draw: st.DrawFn, table: str, alias: str) -> Sql:
    """A query with the columns of a random table, some of them made by a call."""
    scope = columns_of(alias)
    pool = draw(pools(scope))
    columns = [sql(f"{alias}.{name}") for name in NAMED]
    form = draw(st.integers(0, 3))
    if form == 1:
        columns[2] = sql(pool.call(draw, Kind.CLASSIFY), " AS s")
    if form == 2:
        columns[5] = sql(pool.call(draw, Kind.SCORE), " AS x")
    if form == 3:
        label = pool.call(draw, Kind.CLASSIFY)
        columns[2] = sql("CASE WHEN ", pool.call(draw, Kind.IF), " THEN ", label, " END AS s")
    text = sql("SELECT ", joined(", ", columns), f" FROM {table} AS {alias}")
    if form == 0 or draw(st.booleans()):
        text = sql(text, " WHERE ", draw(conditions(pool, 1)))
    return text


def _around(draw: st.DrawFn, pool: Pool, source: Sql, tables_: dict[str, object]) -> Case:
    """A query over a source of one alias, a, that holds calls already."""
    columns = [sql("a.id"), sql("a.s")]
    if draw(st.booleans()):
        columns.append(sql(value(draw, pool), " AS v"))
    conjuncts = []
    if draw(st.booleans()):
        conjuncts.append(draw(plain_conditions(pool.scope)))
    if draw(st.booleans()):
        conjuncts.append(sql("(", draw(conditions(pool, 1)), ")"))
    query = sql("SELECT ", joined(", ", columns), " FROM ", source, where(conjuncts))
    return Case(query, tables_)


@st.composite
def derived_tables(draw: st.DrawFn) -> Case:
    """FROM (SELECT … AI …) AS a, alone or joined."""
    found = {"t0": draw(tables(ROWS))}
    pool = draw(pools(columns_of("a")))
    source = sql("(", draw(blocks("t0", "i")), ") AS a")
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["INNER", "LEFT", "FULL", "SEMI", "ANTI"]))
        found["t1"] = draw(tables(ROWS))
        source = sql(source, f" {kind} JOIN t1 AS b ON ", draw(on_conditions("a", "b")))
    return _around(draw, pool, source, found)


@st.composite
def shared_ctes(draw: st.DrawFn) -> Case:
    """A CTE with calls, used twice; perhaps materialised, perhaps one CTE over another."""
    found = {"t0": draw(tables(ROWS))}
    pool = draw(pools(columns_of("a")))
    hint = draw(st.sampled_from(["", "MATERIALIZED ", "NOT MATERIALIZED "]))
    head = sql(f"WITH c AS {hint}(", draw(blocks("t0", "i")), ")")
    second = "c"
    if draw(st.booleans()):
        head = sql(head, ", e AS (", draw(blocks("c", "i")), ")")
        second = "e"
    kind = draw(st.sampled_from(["INNER", "LEFT", "ANTI"]))
    equality = draw(st.sampled_from(["a.id = b.id", "a.k = b.k", "a.s = b.s"]))
    on = draw(on_conditions("a", "b")) if draw(st.booleans()) else sql(equality)
    source = sql(f"c AS a {kind} JOIN {second} AS b ON ", on)
    case = _around(draw, pool, source, found)
    return Case(sql(head, " ", case.query), found)


OPERATIONS = ["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "UNION ALL BY NAME", "EXCEPT ALL"]


@st.composite
def set_operations(draw: st.DrawFn) -> Case:
    """Two or three blocks with calls under set operations, perhaps ordered as a whole."""
    found = {"t0": draw(tables(ROWS)), "t1": draw(tables(ROWS))}
    parts: list[Sql] = []
    count = draw(st.integers(2, 3))
    for i in range(count):
        table = draw(st.sampled_from(["t0", "t1"]))
        if i:
            parts.append(sql(f" {draw(st.sampled_from(OPERATIONS))} "))
        parts.append(sql("(", draw(blocks(table, "a")), ")"))
    query = sql(*parts)
    ordered = draw(st.booleans())
    if ordered:
        query = sql(query, order_by(draw, len(NAMED)), limit(draw))
    return Case(query, found, ordered=ordered)


@st.composite
def values_lists(draw: st.DrawFn) -> Case:
    """Calls about rows written in the query."""
    rows = ["(1, 'a')", "(2, NULL)", "(3, '')", "(4, 'b')", "(1, 'a')"]
    count = draw(st.integers(1, len(rows)))
    text = f"(VALUES {', '.join(rows[:count])}) AS a(id, s)"
    if draw(st.booleans()):
        text = "(SELECT 'hi' AS s, 1 AS id) AS a"
    scope = [c for c in columns_of("a") if c.text in ("a.id", "a.s")]
    found = [call for call in draw(st.lists(calls(Kind.IF, scope), min_size=1, max_size=2))]
    query = sql("SELECT a.id, ", found[0], f" AS v FROM {text}")
    if draw(st.booleans()):
        query = sql(query, " WHERE ", found[-1])
    return Case(query, {})


@st.composite
def lateral_joins(draw: st.DrawFn) -> Case:
    """A subquery in FROM that reads an earlier alias."""
    found = {"t0": draw(tables(ROWS)), "t1": draw(tables(ROWS))}
    inner = sql("SELECT b.id, b.s FROM t1 AS b WHERE ", draw(on_conditions("a", "b")))
    form = draw(st.sampled_from(["rows", "limit", "value", "aggregate"]))
    if form == "limit":
        inner = sql(inner, " ORDER BY b.id LIMIT 1")
    if form == "value":
        inner = sql("SELECT 0 AS id, ", draw(calls(Kind.CLASSIFY, columns_of("a"))), " AS s")
    if form == "aggregate":
        body = sql(" FROM t1 AS b WHERE ", draw(on_conditions("a", "b")))
        inner = sql("SELECT count(*) AS id, max(b.s) AS s", body)
    kind = draw(st.sampled_from([", LATERAL (", " CROSS JOIN LATERAL (", " LEFT JOIN LATERAL ("]))
    after = ") AS c ON TRUE" if "LEFT" in kind else ") AS c"
    query = sql("SELECT a.id, c.id AS n, c.s FROM t0 AS a", kind, inner, after)
    if draw(st.integers(0, 2)) == 2:
        query = sql(query, " WHERE ", draw(plain_conditions(columns_of("a"))))
    return Case(query, found)


@st.composite
def recursive_ctes(draw: st.DrawFn) -> Case:
    """A recursion whose step, start or reader asks the model."""
    found = {"t0": draw(tables(ROWS))}
    step = draw(calls(Kind.IF, columns_of("a")))
    where_ = sql("a.id = r.n + 1 AND ", step)
    if draw(st.booleans()):
        between = Template("From {0} to {1}?", (sql("r.s"), sql("a.s")))
        where_ = sql("a.id > r.n AND ", Call(Kind.IF, "AI.IF", between))
    start = sql("SELECT a.id AS n, a.s FROM t0 AS a WHERE a.id = 0")
    if draw(st.booleans()):
        start = sql(
            "SELECT a.id AS n, a.s FROM t0 AS a WHERE ", draw(calls(Kind.IF, columns_of("a")))
        )
    union = draw(st.sampled_from(["UNION ALL", "UNION"]))
    query = sql(
        "WITH RECURSIVE r AS (",
        start,
        f" {union} SELECT a.id AS n, a.s FROM r, t0 AS a WHERE ",
        where_,
        ") SELECT r.n, r.s FROM r",
    )
    if draw(st.booleans()):
        query = sql(query, " WHERE ", Call(Kind.IF, "AI.IF", Bare(sql("r.s"))))
    return Case(query, found)
