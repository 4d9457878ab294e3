"""Who has to be asked: exact bounds on the model calls of simple queries.

Where a condition holds one AI.IF, a row needs its answer exactly when the row's fate
differs between the answers TRUE, FALSE and NULL. The oracle can tell by putting each
in the call's place. Where tables are joined, only pairs that the plain conditions
leave may be asked.
"""

from __future__ import annotations

from hypothesis import strategies as st

from differential.expressions import Scope, calls, pick, plain_conditions
from differential.harness import Case
from differential.sources import ids, joins, single
from differential.stage_a import where
from differential.stage_c import EQUALITIES, RANGES, table_sets
from differential.tables import columns_of
from differential.tree import Call, Kind, Sql, joined, sql

ANSWERS = ["TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"]


@st.composite
def plain_trees(draw: st.DrawFn, scope: Scope) -> Sql:
    """A condition without a call that may be TRUE, FALSE or NULL."""
    one = draw(plain_conditions(scope))
    form = draw(st.sampled_from(["one", "one", "not", "and", "constant"]))
    if form == "not":
        return sql("NOT (", one, ")")
    if form == "and":
        return sql("(", one, " AND ", pick(draw, scope, "int"), " > 0)")
    if form == "constant":
        return sql(draw(st.sampled_from(["TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"])))
    return one


@st.composite
def conditions_with_one_call(draw: st.DrawFn, scope: Scope, call: Call, depth: int = 3) -> Sql:
    """A condition in which the call stands once."""
    if depth == 0:
        return sql(call)
    inner = draw(conditions_with_one_call(scope, call, depth - 1))
    other = draw(plain_trees(scope))
    form = draw(st.sampled_from(["", "AND", "OR", "NOT", "CASE", "COALESCE"]))
    if form == "":
        return inner
    if form == "NOT":
        return sql("NOT (", inner, ")")
    if form == "CASE":
        last = draw(plain_trees(scope))
        return sql("CASE WHEN ", other, " THEN ", inner, " ELSE ", last, " END")
    if form == "COALESCE":
        first = depth == 1 and draw(st.booleans())
        parts = [inner, other] if first else [other, inner]
        return sql("coalesce(", joined(", ", parts), ")")
    parts = draw(st.permutations([inner, other]))
    return sql("(", joined(f" {form} ", list(parts)), ")")


def undecided(condition: Sql) -> Sql:
    """True for rows that are in or out depending on the call in the condition."""
    yes, no, null = (sql("((", condition.with_calls_as(a), ") IS TRUE)") for a in ANSWERS)
    return sql("(", yes, " <> ", no, " OR ", yes, " <> ", null, ")")


@st.composite
def decided_rows(draw: st.DrawFn) -> Case:
    """A filter with one call."""
    source = draw(single(at_most=6)) if draw(st.booleans()) else draw(joins(["comma"], 4))
    call = draw(calls(Kind.IF, source.scope))
    condition = draw(conditions_with_one_call(source.scope, call))
    conjuncts = where([*source.conditions, sql("(", condition, ")")])
    query = sql("SELECT ", joined(", ", ids(source)), " FROM ", source.text, conjuncts)
    candidates = where([*source.conditions, undecided(condition)])
    bound = (call, sql("FROM ", source.text, candidates))
    return Case(query, source.tables, bounds=(bound,), planned=True)


KINDS = ["INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "EXISTS", "NOT EXISTS", "IN"]


@st.composite
def candidate_pairs(draw: st.DrawFn) -> Case:
    """A join of two tables whose ON holds plain conditions and calls."""
    found, names = draw(table_sets(2))
    sides = [columns_of("a"), columns_of("b")]
    plain = [
        sql(each.format("a", "b"))
        for each in draw(st.lists(st.sampled_from(EQUALITIES + RANGES), max_size=2))
    ]
    plain += draw(st.lists(plain_conditions(sides[0] + sides[1]), max_size=1))
    asked = draw(st.lists(calls(Kind.IF, sides[0] + sides[1], sides), min_size=1, max_size=2))
    conjuncts = joined(" AND ", list(draw(st.permutations([*plain, *map(sql, asked)]))))
    left, right = f"{names[0]} AS a", f"{names[1]} AS b"
    kind = draw(st.sampled_from(KINDS))
    if "EXISTS" in kind:
        query = sql(
            f"SELECT a.id FROM {left} WHERE {kind} (SELECT 1 FROM {right} WHERE ", conjuncts, ")"
        )
    elif kind == "IN":
        query = sql(
            f"SELECT a.id FROM {left} WHERE a.k IN (SELECT b.k FROM {right} WHERE ", conjuncts, ")"
        )
    else:
        shown = "a.id" if kind in ("SEMI", "ANTI") else "a.id, b.id"
        query = sql(f"SELECT {shown} FROM {left} {kind} JOIN {right} ON ", conjuncts)
    relation = sql(f"FROM {left}, {right}", where(plain))
    return Case(query, found, bounds=tuple((call, relation) for call in asked), planned=True)
