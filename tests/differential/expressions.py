"""Strategies for expressions over the columns in scope: plain ones and AI calls."""

from __future__ import annotations

from hypothesis import strategies as st

from differential.tables import Column
from differential.tree import Bare, Call, Kind, Options, Pieces, Prompt, Sql, Template, sql

Scope = list[Column]

IF_NAMES = ["AI.IF", "AI_IF", "AI_FILTER", "ai.if"]
NAMES = {
    Kind.IF: IF_NAMES,
    Kind.SCORE: ["AI.SCORE", "AI_SCORE"],
    Kind.CLASSIFY: ["AI.CLASSIFY", "AI_CLASSIFY"],
}
LABELS = [("yes", "no"), ("red", "green", "blue"), ("Art School", "Art", "it's", "{0}")]
OPENINGS = ["Q1? ", "Q2? ", "Q3 {{0}} ", "", "Q4's { "]
OPTIONS = [
    Options(),
    Options(),
    Options(),
    Options(threshold=0.25),
    Options(threshold=0.75, named=" => "),
    Options(threshold=0.75, selectivity=0.01, named=" := "),
    Options(selectivity=0.9),
]
MIDDLES = [" and ", " {nothing} ", ""]


def pick(draw: st.DrawFn, scope: Scope, *types: str) -> Sql:
    """A column of one of the types; any column where none is named."""
    found = [column for column in scope if not types or column.type in types]
    return draw(st.sampled_from(found)).sql


@st.composite
def documents(draw: st.DrawFn, scope: Scope) -> Sql:
    """What a prompt may take: mostly text columns, else other types and expressions."""
    form = draw(st.integers(0, 9))
    if form < 6:
        return pick(draw, scope, "text")
    if form == 6:
        return pick(draw, scope)
    if form == 7:
        return sql("upper(", pick(draw, scope, "text"), ")")
    if form == 8:
        return sql("coalesce(", pick(draw, scope, "text"), ", 'none')")
    return sql(pick(draw, scope, "text"), " || '-' || ", pick(draw, scope, "int", "text"))


@st.composite
def prompts(draw: st.DrawFn, scope: Scope, sides: list[Scope] | None = None) -> Prompt:
    """A prompt over one or two documents, now and then none.

    Args:
        scope: the columns that it may take.
        sides: where given, one document of each of these scopes instead.
    """
    if sides is None:
        count = draw(st.sampled_from([1, 1, 1, 1, 2, 2, 0]))
        taken = [draw(documents(scope)) for _ in range(count)]
    else:
        taken = [draw(documents(side)) for side in sides]
    opening = draw(st.sampled_from(OPENINGS))
    if not taken:
        return Template(opening + "constant", ())
    form = draw(st.sampled_from(["template", "template", "pieces", "bare"]))
    if form == "bare" and len(taken) == 1:
        return Bare(taken[0])
    middle = draw(st.sampled_from(MIDDLES))
    if form == "pieces":
        pieces: list[str | Sql] = [opening] if opening else ["P "]
        for i, document in enumerate(taken):
            pieces.extend([middle or "/", document] if i else [document])
        return Pieces(tuple(pieces))
    order = draw(st.permutations(range(len(taken))))
    return Template(opening + middle.join(f"{{{i}}}" for i in order), tuple(taken))


@st.composite
def calls(draw: st.DrawFn, kind: Kind, scope: Scope, sides: list[Scope] | None = None) -> Call:
    """An AI call of the kind."""
    prompt = draw(prompts(scope, sides))
    options = Options()
    labels: tuple[str, ...] = ()
    if kind is Kind.IF:
        options = draw(st.sampled_from(OPTIONS))
    if kind is Kind.CLASSIFY:
        labels = draw(st.sampled_from(LABELS))
        if not prompt.documents():
            prompt = Bare(pick(draw, scope, "text"))
    return Call(kind, draw(st.sampled_from(NAMES[kind])), prompt, options, labels)


@st.composite
def plain_conditions(draw: st.DrawFn, scope: Scope) -> Sql:
    """A condition that needs no model; true for about half of the rows."""
    form = draw(st.integers(0, 7))
    if form == 0:
        return sql(pick(draw, scope, "int"), draw(st.sampled_from([" > 0", " <= 1", " <> 1"])))
    if form == 1:
        return sql(pick(draw, scope), draw(st.sampled_from([" IS NULL", " IS NOT NULL"])))
    if form == 2:
        return sql(pick(draw, scope, "text"), " IN ('a', 'b', '', 'refund', 'é')")
    if form == 3:
        return sql(pick(draw, scope, "date"), " >= DATE '2026-01-01'")
    if form == 4:
        return sql(pick(draw, scope, "double"), " BETWEEN 0 AND 3")
    if form == 5:
        return sql("length(", pick(draw, scope, "text"), ") <= 1")
    if form == 6:
        return sql("NOT ", pick(draw, scope, "text"), " LIKE '%a%'")
    return sql("(", pick(draw, scope, "int"), " = 1 OR ", pick(draw, scope, "text"), " < 'b')")
