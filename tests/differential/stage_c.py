"""Stage C: AI conditions between tables, in ON clauses and in subqueries.

Joins of every kind with equality, range and AI conditions mixed; chains and stars of
three tables; self-joins; EXISTS, IN and scalar subqueries, correlated and not.
"""

from __future__ import annotations

from hypothesis import strategies as st

from differential.expressions import Scope, calls, pick, plain_conditions
from differential.harness import Case
from differential.sources import Source, ids, items
from differential.stage_a import limit, order_by, where
from differential.tables import columns_of, some_tables, tables
from differential.tree import Call, Kind, Sql, Template, joined, sql
from differential.values import aggregate, conditions, pools, value

ROWS = 6
EQUALITIES = [
    "{0}.k = {1}.k",
    "{0}.s = {1}.s",
    "{0}.id = {1}.id",
    "{0}.k = {1}.k AND {0}.d = {1}.d",
]
RANGES = ["{0}.id < {1}.id", "{0}.id >= {1}.k", "{0}.s <> {1}.s"]


@st.composite
def on_conditions(draw: st.DrawFn, left: str, right: str) -> Sql:
    """What joins two aliases: an AI condition, mostly, and plain ones beside it."""
    sides = [columns_of(left), columns_of(right)]
    scope = sides[0] + sides[1]
    conjuncts: list[Sql] = []
    if draw(st.booleans()):
        conjuncts.append(sql(draw(st.sampled_from(EQUALITIES)).format(left, right)))
    if draw(st.integers(0, 3)) == 3:
        conjuncts.append(sql(draw(st.sampled_from(RANGES)).format(left, right)))
    form = draw(st.integers(0, 9))
    if form <= 5 or (form == 9 and not conjuncts):
        conjuncts.append(sql(draw(calls(Kind.IF, scope, sides))))
    elif form == 6:
        side = draw(st.sampled_from(sides))
        conjuncts.append(sql(draw(calls(Kind.IF, side))))
        conjuncts.append(sql(draw(calls(Kind.IF, scope, sides))))
    elif form <= 8:
        pool = draw(pools(scope, sides))
        conjuncts.append(sql("(", draw(conditions(pool, 2)), ")"))
    if draw(st.integers(0, 4)) == 4:
        conjuncts.append(draw(plain_conditions(scope)))
    return joined(" AND ", list(draw(st.permutations(conjuncts))))


@st.composite
def table_sets(draw: st.DrawFn, count: int) -> tuple[dict[str, object], list[str]]:
    """`count` table names for the aliases of a join, some of them the same."""
    names = [f"t{draw(st.integers(0, i))}" for i in range(count)]
    return {name: draw(tables(ROWS)) for name in sorted(set(names))}, names


OUTER = ["INNER", "LEFT", "RIGHT", "FULL"]


@st.composite
def pair_joins(draw: st.DrawFn, kinds: list[str]) -> Source:
    """Two tables joined by conditions with AI calls."""
    found, names = draw(table_sets(2))
    if names[1] == "t1":
        found["t1"] = draw(some_tables(ROWS))
    kind = draw(st.sampled_from(kinds))
    on = draw(on_conditions("a", "b"))
    if kind == "comma":
        return Source(
            sql(f"{names[0]} AS a, {names[1]} AS b"),
            found,
            [columns_of("a"), columns_of("b")],
            [on],
        )
    text = sql(f"{names[0]} AS a {kind} JOIN {names[1]} AS b ON ", on)
    shown = [columns_of("a")] if kind in ("SEMI", "ANTI") else [columns_of("a"), columns_of("b")]
    return Source(text, found, shown)


@st.composite
def triple_joins(draw: st.DrawFn) -> Source:
    """Three tables as a chain (a-b, b-c) or a star (a-b, a-c), or by commas."""
    found, names = draw(table_sets(3))
    scopes = [columns_of(alias) for alias in "abc"]
    hub = draw(st.sampled_from("ab"))
    first, second = draw(on_conditions("a", "b")), draw(on_conditions(hub, "c"))
    if draw(st.integers(0, 3)) == 3:
        text = sql(", ".join(f"{n} AS {a}" for n, a in zip(names, "abc", strict=True)))
        return Source(text, found, scopes, [first, second])
    kinds = [draw(st.sampled_from(["INNER", "INNER", "INNER", *OUTER])) for _ in range(2)]
    text = sql(
        f"{names[0]} AS a {kinds[0]} JOIN {names[1]} AS b ON ",
        first,
        f" {kinds[1]} JOIN {names[2]} AS c ON ",
        second,
    )
    return Source(text, found, scopes)


@st.composite
def selects_from(draw: st.DrawFn, source: Source) -> Case:
    """Columns, AI values or aggregates over a source, with or without a WHERE."""
    pool = draw(pools(source.scope))
    conjuncts = list(source.conditions)
    if draw(st.integers(0, 2)) == 2:
        conjuncts.append(draw(plain_conditions(source.scope)))
    if draw(st.integers(0, 3)) == 3:
        conjuncts.append(sql("(", draw(conditions(pool, 1)), ")"))
    form = draw(st.sampled_from(["columns", "columns", "values", "aggregates"]))
    grouping = sql("")
    if form == "aggregates":
        key = pick(draw, source.scope)
        columns = [key, sql(aggregate(draw, pool, ids(source)), " AS v")]
        grouping = sql(" GROUP BY ", key)
    else:
        columns = items(draw, source)
        if form == "values":
            columns = [*columns, sql(value(draw, pool), " AS v")]
    query = sql("SELECT ", joined(", ", columns), " FROM ", source.text, where(conjuncts), grouping)
    ending = draw(st.sampled_from(["none", "none", "order", "limit"]))
    if ending == "limit":
        return Case(query, source.tables, limit=draw(st.integers(0, 4)))
    if ending == "order":
        query = sql(query, order_by(draw, len(columns)), limit(draw))
    return Case(query, source.tables, ordered=ending == "order")


@st.composite
def inner_joins(draw: st.DrawFn) -> Case:
    return draw(selects_from(draw(pair_joins(["INNER", "comma"]))))


@st.composite
def outer_joins(draw: st.DrawFn) -> Case:
    return draw(selects_from(draw(pair_joins(["LEFT", "RIGHT", "FULL"]))))


@st.composite
def semi_joins(draw: st.DrawFn) -> Case:
    return draw(selects_from(draw(pair_joins(["SEMI", "ANTI"]))))


@st.composite
def joins_of_three(draw: st.DrawFn) -> Case:
    return draw(selects_from(draw(triple_joins())))


def _correlated(draw: st.DrawFn, outer: Scope) -> Sql:
    """FROM t1 AS b WHERE …, with conditions on both sides."""
    conjuncts = [draw(on_conditions("a", "b"))]
    if draw(st.booleans()):
        inner = columns_of("b")
        conjuncts.append(draw(plain_conditions(inner)))
    if draw(st.integers(0, 4)) == 4:
        conjuncts.append(sql(draw(calls(Kind.IF, outer))))
    return sql("FROM t1 AS b", where(list(draw(st.permutations(conjuncts)))))


def _uncorrelated(draw: st.DrawFn) -> Sql:
    inner = columns_of("b")
    conjuncts = [sql(draw(calls(Kind.IF, inner)))]
    if draw(st.booleans()):
        conjuncts.append(draw(plain_conditions(inner)))
    return sql("FROM t1 AS b", where(conjuncts))


SCALARS = ["count(*)", "max(b.s)", "min(b.id)", "sum(b.k)"]


@st.composite
def subquery_conditions(draw: st.DrawFn) -> Sql:
    """EXISTS, IN, comparisons with a scalar subquery; over a in the outer query."""
    outer = columns_of("a")
    body = _correlated(draw, outer) if draw(st.integers(0, 2)) else _uncorrelated(draw)
    negated = draw(st.sampled_from(["", "NOT "]))
    form = draw(st.sampled_from(["exists", "exists", "in", "scalar", "any"]))
    if form == "exists":
        return sql(f"{negated}EXISTS (SELECT 1 ", body, ")")
    if form == "in":
        return sql(pick(draw, outer, "text"), f" {negated}IN (SELECT b.s ", body, ")")
    if form == "any":
        return sql(pick(draw, outer, "int"), " >= ANY (SELECT b.k ", body, ")")
    scalar = draw(st.sampled_from(["count(*)", "min(b.id)"]))
    return sql(f"(SELECT {scalar} ", body, ") >= 1")


@st.composite
def subqueries_in_where(draw: st.DrawFn) -> Case:
    """Conditions with a subquery, alone or beside others."""
    found = {"t0": draw(tables(ROWS)), "t1": draw(some_tables(ROWS))}
    source = Source(sql("t0 AS a"), found, [columns_of("a")])
    conjuncts = [draw(subquery_conditions())]
    extra = draw(st.sampled_from(["none", "plain", "ai", "or"]))
    if extra == "plain":
        conjuncts.append(draw(plain_conditions(source.scope)))
    if extra == "ai":
        conjuncts.append(sql(draw(calls(Kind.IF, source.scope))))
    if extra == "or":
        pool = draw(pools(source.scope))
        conjuncts = [sql("(", conjuncts[0], " OR ", draw(conditions(pool, 1)), ")")]
    query = sql(
        "SELECT ",
        joined(", ", items(draw, source)),
        " FROM t0 AS a",
        where(list(draw(st.permutations(conjuncts)))),
    )
    if draw(st.integers(0, 3)) == 3:
        return Case(query, found, limit=draw(st.integers(0, 3)))
    return Case(query, found)


@st.composite
def subqueries_in_select(draw: st.DrawFn) -> Case:
    """Scalar subqueries and EXISTS as values, and calls about a scalar subquery."""
    found = {"t0": draw(tables(ROWS)), "t1": draw(some_tables(ROWS))}
    outer = columns_of("a")
    body = _correlated(draw, outer) if draw(st.integers(0, 2)) else _uncorrelated(draw)
    form = draw(st.sampled_from(["scalar", "exists", "array", "call"]))
    if form == "exists":
        shown = sql("EXISTS (SELECT 1 ", body, ")")
    elif form == "array":
        shown = sql("ARRAY(SELECT b.id ", body, " ORDER BY b.id)")
    else:
        shown = sql("(SELECT ", draw(st.sampled_from(SCALARS)), " ", body, ")")
    if form == "call":
        shown = sql(
            Call(Kind.SCORE, "AI.SCORE", Template("Is {0} like {1}?", (outer[2].sql, shown)))
        )
    query = sql("SELECT a.id, ", shown, " AS v FROM t0 AS a")
    return Case(query, found)
