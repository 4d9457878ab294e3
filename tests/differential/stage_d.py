"""Stage D: features of DuckDB's SQL around AI calls, and everything at once.

Aliases used in the same SELECT, stars, natural joins, ROLLUP, PIVOT, as-of and
positional joins; nested and repeated subqueries; blocks of stages B and C inside
each other.
"""

from __future__ import annotations

from hypothesis import strategies as st

from differential.expressions import calls, pick, plain_conditions
from differential.harness import Case
from differential.sources import Source
from differential.stage_a import limit, order_by, where
from differential.stage_c import ROWS, on_conditions, pair_joins, selects_from, subquery_conditions
from differential.stage_c_blocks import blocks
from differential.tables import columns_of, tables
from differential.tree import Kind, joined, sql
from differential.values import aggregate, conditions, filled, pools, value


@st.composite
def alias_selects(draw: st.DrawFn) -> Case:
    """SELECT call AS v …, with v in later columns, WHERE, GROUP BY and ORDER BY."""
    found = {"t0": draw(tables(ROWS))}
    scope = columns_of("a")
    pool = draw(pools(scope))
    columns = [
        sql("a.id"),
        sql(pool.call(draw, Kind.IF), " AS v"),
        sql("NOT v AS w"),
        sql(pool.call(draw, Kind.SCORE), " AS p"),
    ]
    conjuncts = draw(
        st.lists(st.sampled_from(["v", "NOT v", "w", "p > 0.5", "a.id > 0"]), max_size=2)
    )
    query = sql(
        "SELECT ", joined(", ", columns), " FROM t0 AS a", where([sql(each) for each in conjuncts])
    )
    if draw(st.booleans()):
        query = sql(query, " ORDER BY p DESC, v, id", limit(draw))
        return Case(query, found, ordered=True)
    return Case(query, found)


STARS = [
    "*",
    "a.*",
    "* EXCLUDE (k)",
    "* REPLACE (upper(s) AS s)",
    "COLUMNS('[ks]')",
    "a",
    "count(*) OVER () AS n, *",
]


@st.composite
def star_selects(draw: st.DrawFn) -> Case:
    """Stars of all kinds: nothing of Covey's own may show."""
    found = {"t0": draw(tables(ROWS))}
    pool = draw(pools(columns_of("a")))
    star = draw(st.sampled_from(STARS))
    query = sql(
        f"SELECT {star} FROM t0 AS a",
        where([draw(conditions(pool, 1)), draw(plain_conditions(pool.scope))]),
    )
    if draw(st.booleans()):
        query = sql("SELECT * FROM (", query, ") AS a LIMIT 100")
    return Case(query, found)


@st.composite
def unusual_joins(draw: st.DrawFn) -> Case:
    """NATURAL, USING over two columns, POSITIONAL and ASOF, with calls around."""
    found = {"t0": draw(tables(ROWS)), "t1": draw(tables(ROWS))}
    kinds = [
        "a NATURAL JOIN t1 AS b",
        "a JOIN t1 AS b USING (k, s)",
        "a LEFT JOIN t1 AS b USING (id)",
    ]
    kinds += ["a POSITIONAL JOIN t1 AS b", "a ASOF JOIN t1 AS b ON a.k = b.k AND a.id >= b.id"]
    kinds += ["a FULL JOIN t1 AS b USING (id)", "a CROSS JOIN t1 AS b JOIN t0 AS c ON b.id = c.k"]
    scope = columns_of("a") + columns_of("b")
    pool = draw(pools(scope))
    source = Source(sql(f"t0 AS {draw(st.sampled_from(kinds))}"), found, [])
    columns = [pick(draw, scope) for _ in range(2)] + [sql(value(draw, pool), " AS v")]
    query = sql("SELECT ", joined(", ", columns), " FROM ", source.text)
    if draw(st.booleans()):
        query = sql(query, " WHERE ", draw(conditions(pool, 2)))
    return Case(query, found)


@st.composite
def group_shapes(draw: st.DrawFn) -> Case:
    """ROLLUP, CUBE, GROUPING SETS, DISTINCT ON and PIVOT over answers."""
    found = {"t0": draw(tables(ROWS))}
    pool = draw(pools(columns_of("a")))
    label = sql(pool.call(draw, Kind.CLASSIFY), " AS v")
    form = draw(
        st.sampled_from(["ROLLUP (v, k)", "CUBE (v, k)", "GROUPING SETS ((v), ())", "pivot"])
    )
    inner = sql("SELECT a.id, a.k, ", label, " FROM t0 AS a")
    if form == "pivot":
        return Case(sql("PIVOT (", inner, ") ON v IN ('yes', 'no', 'red') USING count(*)"), found)
    keys = "v" if form.startswith("GROUPING") else "v, k"
    amount = aggregate(draw, pool, [sql("a.id")])
    query = sql(
        "SELECT ",
        label,
        ", a.k, " if "k" in keys else ", ",
        amount,
        f" AS n FROM t0 AS a GROUP BY {form}",
    )
    return Case(query, found)


@st.composite
def nested_subqueries(draw: st.DrawFn) -> Case:
    """Two subqueries in one condition, one inside the other, in CASE, in ON, in HAVING."""
    found = {"t0": draw(tables(ROWS)), "t1": draw(tables(ROWS))}
    one, other = draw(subquery_conditions()), draw(subquery_conditions())
    form = draw(st.sampled_from(["and", "or", "case", "inside", "having", "value", "order"]))
    head = sql("SELECT a.id FROM t0 AS a WHERE ")
    if form == "and":
        query = sql(head, one, " AND ", other)
    elif form == "or":
        query = sql(head, "(", one, ") OR (", other, ")")
    elif form == "case":
        query = sql(head, "CASE WHEN ", one, " THEN a.id > 0 ELSE ", other, " END")
    elif form == "inside":
        deep = draw(on_conditions("b", "c"))
        pair = draw(on_conditions("a", "b"))
        inner = sql("EXISTS (SELECT 1 FROM t0 AS c WHERE ", deep, ")")
        query = sql(head, "EXISTS (SELECT 1 FROM t1 AS b WHERE ", pair, " AND ", inner, ")")
    elif form == "having":
        query = sql("SELECT a.k, count(*) FILTER (WHERE ", one, ") AS n FROM t0 AS a GROUP BY a.k")
    elif form == "value":
        query = sql(
            "SELECT a.id, ", one, " AS v, CASE WHEN ", other, " THEN a.s END AS w FROM t0 AS a"
        )
    else:
        query = sql("SELECT a.id FROM t0 AS a ORDER BY (", one, ") DESC, a.id")
        return Case(query, found, ordered=True)
    return Case(query, found)


@st.composite
def blocks_in_blocks(draw: st.DrawFn) -> Case:
    """A join of a derived table and a CTE, filtered, grouped, ordered and limited."""
    found = {"t0": draw(tables(ROWS)), "t1": draw(tables(ROWS))}
    left, right = draw(blocks("t0", "i")), draw(blocks("t1", "i"))
    kind = draw(st.sampled_from(["INNER", "LEFT", "FULL", "SEMI", "ANTI"]))
    text = sql("(", left, f") AS a {kind} JOIN c AS b ON ", draw(on_conditions("a", "b")))
    shown = [columns_of("a")] if kind in ("SEMI", "ANTI") else [columns_of("a"), columns_of("b")]
    case = draw(selects_from(Source(text, found, shown)))
    query = sql("WITH c AS (", right, ") ", case.query)
    return Case(query, found, ordered=case.ordered, limit=case.limit)


@st.composite
def limited_blocks(draw: st.DrawFn) -> Case:
    """Ordered and limited blocks inside others: the limit belongs to its block."""
    found = {"t0": draw(tables(ROWS))}
    inside, outside = draw(pools(columns_of("a"))), draw(pools(columns_of("a")))
    block = sql("SELECT a.* FROM t0 AS a")
    if draw(st.booleans()):
        block = sql(block, " WHERE ", draw(conditions(inside, 1)))
    key = sql("a.id") if draw(st.booleans()) else sql(inside.call(draw, Kind.SCORE), ", a.id")
    block = sql(block, " ORDER BY ", key, f" LIMIT {draw(st.integers(0, 4))}")
    if draw(st.booleans()):
        block = sql(block, " OFFSET 1")
    form = draw(st.sampled_from(["from", "union", "in", "lateral"]))
    if form == "union":
        query = sql("(", block, ") UNION ALL (", block, ")")
        return Case(sql(query, order_by(draw, 8)), found, ordered=True)
    if form == "in":
        query = sql("SELECT a.id FROM t0 AS a WHERE a.id IN (SELECT id FROM (", block, "))")
        return Case(sql(query, " AND ", draw(conditions(outside, 1))), found)
    shown = filled(draw, "{if} AS v, {score} AS p", outside, [])
    query = sql("SELECT a.id, ", shown, " FROM (", block, ") AS a")
    return Case(sql(query, " WHERE ", draw(conditions(outside, 1))), found)


@st.composite
def joins_beside_limits(draw: st.DrawFn) -> Case:
    """A join of stage C beside the best-scored row of the same tables."""
    source = draw(pair_joins(["INNER", "LEFT"]))
    case = draw(selects_from(source))
    if case.ordered or case.limit is not None:
        return case
    best = sql("SELECT ", draw(calls(Kind.SCORE, source.scope)), " AS best FROM ", source.text)
    best = sql(best, where(source.conditions), " ORDER BY ALL LIMIT 1")
    return Case(sql("SELECT * FROM (", case.query, ") AS q, (", best, ") AS r"), case.tables)
