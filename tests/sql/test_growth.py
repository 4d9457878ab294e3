"""Planning does about as much for each call as for the first, and never more than a stack holds."""

from __future__ import annotations

import pytest

import covey
from covey.errors import QueryError
from covey.estimate.scenarios import UNKNOWN, scenarios
from covey.sql.bind import Binder
from covey.sql.boolean import DEEPEST_PART
from covey.testing import PlantedModel


def ask(k: int, column: str = "b") -> str:
    return f"AI.IF(PROMPT('question {k} {{0}}', {column}))"


def chain(word: str, n: int) -> str:
    return "SELECT id FROM t WHERE " + f" {word} ".join(ask(k) for k in range(n))


def case(n: int) -> str:
    parts = " ".join(f"WHEN {ask(k)} THEN {k}" for k in range(n))
    return f"SELECT CASE {parts} END AS c FROM t"


SHAPES = {
    "and": lambda n: chain("AND", n),
    "or": lambda n: chain("OR", n),
    "case": case,
    "select": lambda n: f"SELECT {', '.join(ask(k) for k in range(n))} FROM t",
    "union": lambda n: " UNION ALL ".join(f"SELECT id FROM t WHERE {ask(k)}" for k in range(n)),
    "values": lambda n: "VALUES " + ", ".join(f"({ask(k, repr('x'))})" for k in range(n)),
    "ctes": lambda n: (
        "WITH "
        + ", ".join(f"c{k} AS (SELECT id FROM t WHERE {ask(k)})" for k in range(n))
        + " SELECT count(*) FROM "
        + ", ".join(f"c{k}" for k in range(n))
    ),
}


@pytest.fixture
def con():
    model = PlantedModel(lambda question, documents: 1.0)
    with covey.connect(model=model, cache=False) as connection:
        connection.duckdb.execute("CREATE TABLE t AS SELECT 1 AS id, 'x' AS b")
        yield connection


@pytest.mark.parametrize("shape", SHAPES)
def test_a_call_more_takes_as_many_bindings_as_the_one_before(con, monkeypatch, shape):
    bound: list[str] = []
    columns, check = Binder.columns, Binder.check

    def counted(self: Binder, query: str) -> list[tuple[str, str]] | None:
        bound.append(query)
        return columns(self, query)

    def checked(self: Binder, *span: tuple[int, int]) -> None:
        bound.append("the statement")
        check(self, *span)

    monkeypatch.setattr(Binder, "columns", counted)
    monkeypatch.setattr(Binder, "check", checked)
    counts = []
    for n in (5, 10, 20):
        bound.clear()
        con.sql(SHAPES[shape](n))
        counts.append(len(bound))
    small, middle, large = counts
    assert large - middle <= 2 * (middle - small) + 4
    assert large <= 10 + 6 * 20


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_thousands_of_conditions_beside_a_call_are_bound_together(con, monkeypatch, word):
    bound: list[str] = []
    columns = Binder.columns

    def counted(self: Binder, query: str) -> list[tuple[str, str]] | None:
        bound.append(query)
        return columns(self, query)

    monkeypatch.setattr(Binder, "columns", counted)
    sign = "<>" if word == "AND" else "="
    terms = f" {word} ".join(f"id {sign} {k + 100}" for k in range(2000))
    query = con.sql(f"SELECT id FROM t WHERE {terms} {word} {ask(0)}")
    # By hundreds, and by halves where one of them names what only the statement has.
    assert len(bound) < 200
    assert query.fetchall() == [(1,)]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500 + ask(0) + ")" * 500,
        "NOT " * 500 + ask(0),
        "NOT (" * 500 + ask(0) + ")" * 500,
        "(id = 1 AND " * 500 + ask(0) + ")" * 500,
        "(id = 2 OR " * 500 + ask(0) + ")" * 500,
        "CASE WHEN id = 1 THEN " * 300 + ask(0) + " END" * 300,
        "coalesce(NULL, " * 300 + ask(0) + ")" * 300,
    ],
    ids=["brackets", "not", "not in brackets", "and", "or", "case", "coalesce"],
)
def test_what_duckdb_takes_is_planned_however_deep(con, text):
    assert con.sql(f"SELECT id FROM t WHERE {text}").fetchall() == [(1,)]


def test_queries_in_queries_are_planned_however_deep(con):
    inner = "(SELECT * FROM " * 300 + "t" + ")" * 300
    query = con.sql(f"SELECT id FROM {inner} AS s WHERE {ask(0)}")
    assert query.fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("opening", "inside", "closing"),
    [
        ("(", ask(0), ")"),
        ("[", ask(0), "]"),
        ("{'k': ", ask(0), "}"),
        ("lower(", "b", ")"),
        ("CASE WHEN true THEN ", ask(0), " END"),
        ("NOT ", ask(0), ""),
        ("- ", "AI.SCORE(b)", ""),
        ("", "AI.SCORE(b)", "::DOUBLE"),
        ("(SELECT ", ask(0), ")"),
    ],
)
def test_what_is_too_deep_is_refused_in_words(con, opening, inside, closing):
    count = 2000
    with pytest.raises(QueryError, match=r"nested deeper|depth limit"):
        con.sql(f"SELECT {opening * count}{inside}{closing * count} FROM t")


def test_a_type_too_deep_for_a_result_is_refused_before_anything_is_asked(con):
    with pytest.raises(covey.CoveyError, match="60 levels"):
        con.sql(f"SELECT {'[' * 100}{ask(0)}{']' * 100} AS x FROM t").arrow()


def test_what_is_nested_too_deep_to_look_into_is_a_leaf():
    depth = DEEPEST_PART + 10
    text = "CASE WHEN a THEN " * depth + "x" + " END" * depth
    with covey.connect(model=PlantedModel(lambda question, documents: 1.0)) as con:
        con.sql("CREATE TABLE t AS SELECT true AS a, 'x' AS b").run()
        query = con.sql(f"SELECT {text.replace('x', ask(0))} AS r FROM t")
        assert query.fetchall() == [(True,)]


def test_labels_beyond_the_limit_are_counted_and_not_read(con):
    labels = ", ".join(f"'l{k}'" for k in range(5000))
    with pytest.raises(QueryError, match="at most 1,000 labels, not 5,000"):
        con.sql(f"SELECT AI.CLASSIFY(b, [{labels}]) FROM t")
    with pytest.raises(QueryError, match="at most 1,000 labels, not 100,000"):
        con.sql("SELECT AI.CLASSIFY(b, (SELECT i::VARCHAR FROM range(100000) r(i))) FROM t")


def test_a_long_line_is_shown_around_the_mistake(con):
    with pytest.raises(QueryError) as caught:
        con.sql(f"SELECT {', '.join(['id'] * 5000)}, AI.IFF(b), {', '.join(['id'] * 5000)} FROM t")
    message = str(caught.value)
    assert "AI.IFF(b)" in message and len(message) < 1000


@pytest.mark.parametrize("calls", [4, 10, 50, 300])
def test_an_estimate_runs_a_bounded_number_of_times(calls):
    found = scenarios(dict.fromkeys(range(calls), UNKNOWN))
    assert len(found) <= 15
    for call in range(calls):
        assert {0.0, 1.0} <= {scenario[call] for scenario in found}


def test_calls_that_are_the_same_pass_together_in_an_estimate():
    alike = {call: call % 2 for call in range(50)}
    for scenario in scenarios(dict.fromkeys(range(50), UNKNOWN), alike)[1:]:
        assert all(scenario[call] == scenario[first] for call, first in alike.items())


SPELLINGS = [
    "AI.IF(PROMPT('odd {0}', b))",
    "ai.if(prompt('odd {0}', t.b))",
    "AI_FILTER(PROMPT('odd {0}', \"b\"))",
    "AI.IF( PROMPT('odd {0}', T.\"B\") )",
    "AI.IF(('odd ', B))",
    "(AI.IF(PROMPT('odd {0}', (b))))",
]
EQUAL = [SPELLINGS[k % len(SPELLINGS)] for k in range(25)]
BOTH, EITHER = " AND ".join(EQUAL), " OR ".join(EQUAL)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (f"SELECT id FROM t WHERE {BOTH}", 4),
        (f"SELECT id FROM t WHERE {EITHER}", 4),
        (f"SELECT id FROM t WHERE {BOTH} AND NOT {EQUAL[1]}", 0),
        (f"SELECT CASE WHEN {BOTH} THEN 1 END FROM t", 10),
        (f"SELECT CASE WHEN {EITHER} THEN 1 END FROM t", 10),
        ("SELECT CASE " + " ".join(f"WHEN {c} THEN 1" for c in EQUAL) + " END FROM t", 10),
        (f"SELECT {', '.join(EQUAL)} FROM t", 10),
        (f"SELECT {BOTH}, {EITHER} FROM t", 10),
        (f"SELECT b, count(*) FROM t GROUP BY b HAVING {BOTH}", 2),
        (f"SELECT b, count(*) FROM t GROUP BY b HAVING {EITHER}", 2),
        (f"SELECT id FROM t ORDER BY {', '.join(EQUAL)}", 10),
    ],
    ids=["and", "or", "not", "case-and", "case-or", "case", "select", "select-and", "having",
         "having-or", "order"],
)  # fmt: skip
def test_equal_conditions_are_asked_once_wherever_they_stand(query, rows):
    model = PlantedModel(lambda question, documents: 0.9 if documents[0] in "13" else 0.1)
    with covey.connect(model=model, cache=False) as con:
        con.sql("CREATE TABLE t AS SELECT i AS id, (i % 5)::VARCHAR AS b FROM range(10) r(i)").run()
        assert len(con.sql(query).fetchall()) == rows
    assert len(model.calls) == 5


@pytest.mark.parametrize(
    "text",
    ["id" + "::INT" * 1500, "- " * 1500 + "id", "id" + " + 1" * 1500, "b" + " IS NULL" * 1500],
    ids=["casts", "minus", "plus", "is null"],
)
def test_a_chain_too_long_for_duckdb_is_refused_with_a_mend(con, text):
    with pytest.raises(QueryError, match=r"nested deeper than 1000 levels.*\n.*CREATE TEMP TABLE"):
        con.sql(f"SELECT {text} FROM t WHERE {ask(0)}")


@pytest.mark.parametrize(
    ("word", "sign", "value", "calls"), [("AND", "<>", False, 0), ("OR", "=", True, 2)]
)
def test_many_conditions_that_share_guards_keep_rows_from_the_model(word, sign, value, calls):
    model = PlantedModel(lambda question, documents: 1.0)
    # Eight of ten rows are decided by one of them.
    terms = f" {word} ".join(f"id {sign} {k if k < 8 else k + 100}" for k in range(300))
    if word == "AND":
        terms += " AND id < 8"
    with covey.connect(model=model, cache=False) as con:
        con.sql("CREATE TABLE t AS SELECT i AS id, i::VARCHAR AS b FROM range(10) r(i)").run()
        rows = con.sql(f"SELECT {terms} {word} {ask(0)} FROM t").fetchall()
    assert rows == [(value,)] * 10
    assert len(model.calls) == calls
