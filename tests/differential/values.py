"""Strategies for values made of AI calls: conditions, scores, labels and mixtures.

The calls come from a small pool, so that one query uses the same call in several
places: it must be asked once and show one answer everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from differential.expressions import Scope, calls, pick, plain_conditions
from differential.tree import Call, Kind, Sql, Template, joined, quoted, sql


@dataclass(frozen=True, slots=True)
class Pool:
    """What a query's expressions are made of."""

    scope: Scope
    calls: tuple[Call, ...]

    def call(self, draw: st.DrawFn, kind: Kind) -> Call:
        """One of the pool's calls, or a new one where there is none of the kind."""
        found = [call for call in self.calls if call.kind is kind]
        return draw(st.sampled_from(found)) if found else draw(calls(kind, self.scope))


@st.composite
def pools(draw: st.DrawFn, scope: Scope, sides: list[Scope] | None = None) -> Pool:
    """One to three calls over a scope; of one document a side where sides are given."""
    kinds = draw(st.lists(st.sampled_from(list(Kind)), min_size=1, max_size=3))
    return Pool(scope, tuple(draw(calls(kind, scope, sides)) for kind in kinds))


def _leaf(draw: st.DrawFn, pool: Pool) -> Sql:
    form = draw(st.integers(0, 7))
    if form <= 2:
        return sql(pool.call(draw, Kind.IF))
    if form == 3:
        return draw(plain_conditions(pool.scope))
    if form == 4:
        call = pool.call(draw, Kind.SCORE)
        return sql(call, draw(st.sampled_from([" > 0.5", " <= 0.25", " BETWEEN 0.25 AND 0.75"])))
    if form == 5:
        call = pool.call(draw, Kind.CLASSIFY)
        return sql(call, draw(st.sampled_from([" = ", " <> "])), quoted(call.labels[0]))
    if form == 6:
        call = pool.call(draw, Kind.CLASSIFY)
        negated = draw(st.sampled_from(["", "NOT "]))
        return sql(call, f" {negated}IN ('yes', ", quoted(call.labels[-1]), ")")
    kind = draw(st.sampled_from(list(Kind)))
    return sql(pool.call(draw, kind), draw(st.sampled_from([" IS NULL", " IS NOT NULL"])))


CONNECTIVES = ["AND", "OR", "NOT", "CASE", "COALESCE", "IS", "=", "IN"]


@st.composite
def conditions(draw: st.DrawFn, pool: Pool, depth: int = 3) -> Sql:
    """A condition over the pool's calls and plain conditions."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return _leaf(draw, pool)
    form = draw(st.sampled_from(CONNECTIVES))
    one = draw(conditions(pool, depth - 1))
    if form == "NOT":
        return sql("NOT (", one, ")")
    if form == "IS":
        test = draw(st.sampled_from(["TRUE", "NOT TRUE", "FALSE", "NULL", "NOT NULL"]))
        return sql("(", one, f") IS {test}")
    other = draw(conditions(pool, depth - 1))
    if form == "CASE":
        last = draw(st.sampled_from([sql(""), sql(" ELSE FALSE"), sql(" ELSE NULL")]))
        if draw(st.booleans()):
            last = sql(" ELSE ", draw(conditions(pool, depth - 1)))
        return sql("CASE WHEN ", one, " THEN ", other, last, " END")
    if form == "COALESCE":
        return sql("coalesce(", one, ", ", other, draw(st.sampled_from(["", ", TRUE"])), ")")
    if form == "=":
        compared = draw(st.sampled_from([" = ", " <> ", " IS DISTINCT FROM "]))
        return sql("((", one, ")", compared, "(", other, "))")
    if form == "IN":
        return sql("((", one, ") IN (TRUE, ", other, "))")
    return sql("(", one, f" {form} ", other, ")")


def value(draw: st.DrawFn, pool: Pool) -> Sql:
    """A value of any type for a SELECT list."""
    form = draw(st.integers(0, 8))
    if form <= 2:
        return sql(pool.call(draw, draw(st.sampled_from(list(Kind)))))
    if form == 3:
        return draw(conditions(pool, 2))
    if form == 4:
        return sql("coalesce(", pool.call(draw, Kind.CLASSIFY), " || '!', 'none')")
    if form == 5:
        return sql("1 - 2 * ", pool.call(draw, Kind.SCORE))
    if form == 6:
        text = pick(draw, pool.scope, "text")
        return sql("CASE WHEN ", draw(conditions(pool, 1)), " THEN ", text, " ELSE 'no' END")
    if form == 7:
        return sql("CAST(", pool.call(draw, Kind.IF), " AS INTEGER)")
    return _nested(draw, pool)


def _nested(draw: st.DrawFn, pool: Pool) -> Sql:
    """A call about the answer of another call."""

    inner = pool.call(draw, Kind.CLASSIFY)
    prompt = Template("Is {0} {1}?", (pick(draw, pool.scope, "text"), sql(inner)))
    return sql(Call(Kind.SCORE, "AI.SCORE", prompt))


AGGREGATES = [
    "count(*) FILTER (WHERE {if})",
    "count({label})",
    "count(DISTINCT {label})",
    "sum(CASE WHEN {if} THEN 1 ELSE 0 END)",
    "avg({score})",
    "max({score})",
    "min({label})",
    "bool_or({if})",
    "list({text} ORDER BY {score}, {id}) FILTER (WHERE {if})",
    "string_agg({label}, '-' ORDER BY {id})",
    "count(*)",
    "min({text})",
]


def aggregate(draw: st.DrawFn, pool: Pool, ids: list[Sql]) -> Sql:
    """An aggregate with calls inside, or a call about an aggregate."""
    form = draw(st.integers(0, len(AGGREGATES)))
    if form == len(AGGREGATES):
        return _about_aggregate(draw, pool)
    return filled(draw, AGGREGATES[form], pool, ids)


def filled(draw: st.DrawFn, form: str, pool: Pool, ids: list[Sql]) -> Sql:
    """A form with its {if}, {score}, {label}, {text}, {condition} and {id} filled in."""

    parts: list[Sql] = []
    for piece in form.replace("}", "{").split("{"):
        if piece == "if":
            parts.append(sql(pool.call(draw, Kind.IF)))
        elif piece == "score":
            parts.append(sql(pool.call(draw, Kind.SCORE)))
        elif piece == "label":
            parts.append(sql(pool.call(draw, Kind.CLASSIFY)))
        elif piece == "text":
            parts.append(pick(draw, pool.scope, "text"))
        elif piece == "condition":
            parts.append(draw(conditions(pool, 1)))
        elif piece == "id":
            parts.append(joined(", ", ids))
        else:
            parts.append(sql(piece))
    return sql(*parts)


def _about_aggregate(draw: st.DrawFn, pool: Pool) -> Sql:

    function = draw(st.sampled_from(["max", "min"]))
    document = sql(function, "(", pick(draw, pool.scope, "text"), ")")
    kind = draw(st.sampled_from([Kind.IF, Kind.SCORE]))
    return sql(Call(kind, kind.value, Template("Of all: {0}?", (document,))))
