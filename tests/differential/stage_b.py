"""Stage B: AI calls wherever an expression may stand in one query block.

OR, NOT, CASE, COALESCE, IN and comparisons over them in WHERE; the SELECT list;
aggregates, FILTER, HAVING and GROUP BY; ORDER BY with LIMIT; windows and QUALIFY.
"""

from __future__ import annotations

from hypothesis import strategies as st

from differential.expressions import pick, plain_conditions
from differential.harness import Case
from differential.sources import Source, ids, items, joins, single
from differential.stage_a import DIRECTIONS, limit, order_by, where
from differential.tree import Kind, Sql, joined, sql
from differential.values import Pool, aggregate, conditions, filled, pools, value


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """Mostly one table."""
    if draw(st.integers(0, 2)) < 2:
        return draw(single())
    return draw(joins(["inner", "comma", "left"], at_most=6))


def some_where(draw: st.DrawFn, source: Source, pool: Pool) -> Sql:
    """No WHERE, a plain one, or one with AI calls."""
    conjuncts = list(source.conditions)
    form = draw(st.sampled_from(["none", "plain", "ai"]))
    if form == "plain":
        conjuncts.append(draw(plain_conditions(source.scope)))
    if form == "ai":
        conjuncts.append(sql("(", draw(conditions(pool, 2)), ")"))
    return where(conjuncts)


@st.composite
def boolean_filters(draw: st.DrawFn) -> Case:
    """SELECT columns FROM … WHERE any condition."""
    source = draw(sources())
    pool = draw(pools(source.scope))
    conjuncts = [*source.conditions, sql("(", draw(conditions(pool)), ")")]
    query = sql(
        "SELECT ", joined(", ", items(draw, source)), " FROM ", source.text, where(conjuncts)
    )
    limited = draw(st.integers(0, 5)) == 5
    return Case(query, source.tables, limit=draw(st.integers(0, 4)) if limited else None)


@st.composite
def value_selects(draw: st.DrawFn) -> Case:
    """AI values in the SELECT list, also under DISTINCT, ordered by position."""
    source = draw(sources())
    pool = draw(pools(source.scope))
    values = [value(draw, pool) for _ in range(draw(st.integers(1, 3)))]
    columns = [sql(each, f" AS v{i}") for i, each in enumerate(values)]
    distinct = draw(st.sampled_from(["", "", "DISTINCT "]))
    if not distinct or draw(st.booleans()):
        columns = draw(st.permutations([*columns, *items(draw, source)]))
    query = sql(
        f"SELECT {distinct}",
        joined(", ", columns),
        " FROM ",
        source.text,
        some_where(draw, source, pool),
    )
    ordered = draw(st.booleans())
    if ordered:
        query = sql(query, order_by(draw, len(columns)), limit(draw))
    return Case(query, source.tables, ordered=ordered)


KEYS = ["{if}", "{label}", "{score}", "{condition}", "upper({label})", "{score} > 0.5"]
HAVINGS = [
    "count(*) > 1",
    "count(*) FILTER (WHERE {if}) > 0",
    "avg({score}) > 0.503",
    "bool_or({if}) AND count(*) < 5",
    "max({label}) <> 'no' OR count(*) > 2",
]


@st.composite
def grouped_values(draw: st.DrawFn) -> Case:
    """GROUP BY with AI calls in keys, aggregates, FILTER and HAVING."""
    source = draw(sources())
    pool = draw(pools(source.scope))
    keys = []
    for i in range(draw(st.integers(0, 2))):
        plain = draw(st.booleans())
        key = pick(draw, source.scope) if plain else filled(draw, _one(draw, KEYS), pool, [])
        keys.append((key, f"k{i}"))
    values = [
        sql(aggregate(draw, pool, ids(source)), f" AS v{i}") for i in range(draw(st.integers(1, 2)))
    ]
    columns = [sql(key, f" AS {name}") for key, name in keys] + values
    query = sql(
        "SELECT ",
        joined(", ", columns),
        " FROM ",
        source.text,
        some_where(draw, source, pool),
    )
    if keys:
        query = sql(query, " GROUP BY ", _by(draw, keys))
    if draw(st.booleans()):
        query = sql(query, " HAVING ", filled(draw, _one(draw, HAVINGS), pool, []))
    ordered = draw(st.booleans())
    if ordered:
        query = sql(query, order_by(draw, len(columns)), limit(draw))
    return Case(query, source.tables, ordered=ordered)


def _one(draw: st.DrawFn, forms: list[str]) -> str:
    return draw(st.sampled_from(forms))


def _by(draw: st.DrawFn, keys: list[tuple[Sql, str]]) -> Sql:
    form = draw(st.sampled_from(["ALL", "positions", "aliases", "expressions"]))
    if form == "ALL":
        return sql("ALL")
    if form == "positions":
        return joined(", ", [sql(str(i + 1)) for i in range(len(keys))])
    if form == "aliases":
        return joined(", ", [sql(name) for _, name in keys])
    return joined(", ", [key for key, _ in keys])


@st.composite
def ordered_selects(draw: st.DrawFn) -> Case:
    """ORDER BY AI expressions that may not be selected, ids last, with LIMIT."""
    source = draw(sources())
    pool = draw(pools(source.scope))
    keys: list[Sql] = []
    for _ in range(draw(st.integers(1, 2))):
        keys.append(sql(value(draw, pool), draw(st.sampled_from(DIRECTIONS))))
    keys.extend(ids(source))
    columns = items(draw, source)
    if draw(st.booleans()):
        columns = [*columns, sql(pool.call(draw, draw(st.sampled_from(list(Kind)))), " AS v")]
    query = sql(
        "SELECT ",
        joined(", ", columns),
        " FROM ",
        source.text,
        some_where(draw, source, pool),
        " ORDER BY ",
        joined(", ", keys),
        limit(draw),
    )
    return Case(query, source.tables, ordered=True)


WINDOWS = [
    "row_number() OVER (PARTITION BY {label} ORDER BY {score}, {id})",
    "rank() OVER (ORDER BY {score} DESC NULLS LAST)",
    "count(*) FILTER (WHERE {if}) OVER (PARTITION BY {text})",
    "sum({score}) OVER (ORDER BY {id} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "lag({label}) OVER (ORDER BY {id})",
    "first_value({text}) OVER (PARTITION BY {if} ORDER BY {id})",
    "max({score}) OVER w",
]
QUALIFIERS = [
    "row_number() OVER (PARTITION BY {label} ORDER BY {score}, {id}) <= 2",
    "count(*) OVER (PARTITION BY {if}) > 1",
    "{if} AND row_number() OVER (ORDER BY {id}) < 4",
    "lag({if}) OVER (ORDER BY {id})",
]


@st.composite
def window_selects(draw: st.DrawFn) -> Case:
    """Windows over AI values, and QUALIFY."""
    source = draw(sources())
    pool = draw(pools(source.scope))
    shown = [
        sql(filled(draw, _one(draw, WINDOWS), pool, ids(source)), f" AS v{i}")
        for i in range(draw(st.integers(0, 2)))
    ]
    columns = [*ids(source), *shown]
    query = sql(
        "SELECT ",
        joined(", ", columns),
        " FROM ",
        source.text,
        some_where(draw, source, pool),
        filled(draw, " WINDOW w AS (PARTITION BY {label} ORDER BY {id})", pool, ids(source)),
    )
    if not shown or draw(st.booleans()):
        query = sql(query, " QUALIFY ", filled(draw, _one(draw, QUALIFIERS), pool, ids(source)))
    ordered = draw(st.booleans())
    if ordered:
        query = sql(query, order_by(draw, len(columns)), limit(draw))
    return Case(query, source.tables, ordered=ordered)
