"""Stage A: AI filters in a WHERE conjunction, over one table or a join of two.

Around them stand GROUP BY, HAVING, ORDER BY, LIMIT and CTEs that need no model.
"""

from __future__ import annotations

from hypothesis import strategies as st

from differential.expressions import calls, pick, plain_conditions
from differential.harness import Case
from differential.sources import JOINS, Files, Source, items, joins, single
from differential.tree import Call, Kind, Sql, joined, sql

DIRECTIONS = ["", " DESC", " ASC NULLS FIRST", " DESC NULLS LAST"]


@st.composite
def sources(draw: st.DrawFn, files: Files) -> Source:
    """One table or a join."""
    if draw(st.booleans()):
        return draw(single(files))
    return draw(joins(JOINS))


@st.composite
def filters(draw: st.DrawFn, source: Source) -> tuple[list[Sql], list[Call], Sql]:
    """The conjuncts in some order, the calls among them, and the relation without calls."""
    plain = source.conditions + draw(st.lists(plain_conditions(source.scope), max_size=2))
    found = draw(st.lists(calls(Kind.IF, source.scope), min_size=1, max_size=3))
    conjuncts = draw(st.permutations([*plain, *(sql(call) for call in found)]))
    candidates = sql("FROM ", source.text, where(plain))
    return list(conjuncts), found, candidates


def where(conjuncts: list[Sql]) -> Sql:
    """A WHERE clause, or nothing."""
    return sql(" WHERE ", joined(" AND ", conjuncts)) if conjuncts else sql("")


def order_by(draw: st.DrawFn, columns: int) -> Sql:
    """A total order: all columns by position."""
    order = draw(st.permutations(range(1, columns + 1)))
    keys = [sql(f"{i}{draw(st.sampled_from(DIRECTIONS))}") for i in order]
    return sql(" ORDER BY ", joined(", ", keys))


def limit(draw: st.DrawFn) -> Sql:
    """A LIMIT and now and then an OFFSET, or nothing."""
    text = draw(st.sampled_from(["", "", " LIMIT 3", " LIMIT 0", " LIMIT 2 OFFSET 1", " OFFSET 2"]))
    return sql(text)


@st.composite
def plain_selects(draw: st.DrawFn, files: Files) -> Case:
    """SELECT columns FROM … WHERE …, perhaps ordered, perhaps limited."""
    source = draw(sources(files))
    conjuncts, found, candidates = draw(filters(source))
    columns = items(draw, source)
    distinct = draw(st.sampled_from(["", "", "DISTINCT "]))
    query = sql(
        f"SELECT {distinct}", joined(", ", columns), " FROM ", source.text, where(conjuncts)
    )
    bounds = tuple((call, candidates) for call in found)
    ending = draw(st.sampled_from(["none", "order", "limit"]))
    if ending == "limit":
        return Case(query, source.tables, limit=draw(st.integers(0, 4)), bounds=bounds)
    if ending == "order":
        query = sql(query, order_by(draw, len(columns)), limit(draw))
    return Case(query, source.tables, ordered=ending == "order", bounds=bounds)


AGGREGATES = ["count(*)", "count(DISTINCT {})", "min({})", "max({})", "count({})"]


@st.composite
def grouped_selects(draw: st.DrawFn, files: Files) -> Case:
    """SELECT keys, aggregates FROM … WHERE … GROUP BY … HAVING … ORDER BY … LIMIT."""
    source = draw(sources(files))
    conjuncts, found, candidates = draw(filters(source))
    keys = [pick(draw, source.scope) for _ in range(draw(st.integers(0, 2)))]
    values = []
    for i in range(draw(st.integers(1, 2))):
        form = draw(st.sampled_from(AGGREGATES))
        before, _, after = form.partition("{}")
        inside = pick(draw, source.scope) if "{}" in form else sql("")
        values.append(sql(before, inside, after, f" AS v{i}"))
    query = sql("SELECT ", joined(", ", keys + values), " FROM ", source.text, where(conjuncts))
    if keys:
        by = draw(st.sampled_from(["ALL", "positions", "columns"]))
        positions = joined(", ", [sql(str(i + 1)) for i in range(len(keys))])
        shown = {"ALL": sql("ALL"), "positions": positions, "columns": joined(", ", keys)}
        query = sql(query, " GROUP BY ", shown[by])
        query = sql(query, draw(st.sampled_from(["", " HAVING count(*) > 1"])))
    ordered = draw(st.booleans())
    if ordered:
        query = sql(query, order_by(draw, len(keys) + len(values)), limit(draw))
    bounds = tuple((call, candidates) for call in found)
    return Case(query, source.tables, ordered=ordered, bounds=bounds)


@st.composite
def selects_with_ctes(draw: st.DrawFn, files: Files) -> Case:
    """An AI filter inside a CTE, around one, or on both sides of it."""
    inner = draw(single(files))
    conjuncts, found, candidates = draw(filters(inner))
    in_the_cte = draw(st.booleans())
    outside = draw(calls(Kind.IF, inner.scope))
    bounds = [(outside, sql("FROM ", inner.text))]
    body = sql("SELECT * FROM ", inner.text)
    if in_the_cte:
        body = sql(body, where(conjuncts))
        bounds.extend((call, candidates) for call in found)
    query = sql("WITH c AS (", body, ") SELECT a.id, a.s FROM c AS a")
    if not in_the_cte or draw(st.booleans()):
        query = sql(query, where([sql(outside), draw(plain_conditions(inner.scope))]))
    ordered = draw(st.booleans())
    if ordered:
        query = sql(query, order_by(draw, 2), limit(draw))
    return Case(query, inner.tables, ordered=ordered, bounds=tuple(bounds))
