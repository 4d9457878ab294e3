"""Estimates against what runs then do: the bounds hold, and known figures are met."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.estimate.figures import Range
from covey.estimate.scenarios import UNKNOWN, Selectivity, scenarios
from covey.testing import PlantedModel
from effort import examples

Answer = Callable[[str, tuple[str, ...]], float]

ROWS = 30
A = "AI.IF(PROMPT('A? {0}', t.body))"
B = "AI.IF(PROMPT('B? {0}', t.body))"
PAIR = "AI.IF(PROMPT('{0} with {1}?', t.body, p.text))"
QUERIES = {
    "one filter": f"SELECT id FROM t WHERE {A}",
    "a filter and a condition": f"SELECT id FROM t WHERE id < 7 AND {A}",
    "two filters": f"SELECT id FROM t WHERE {A} AND {B}",
    "either": f"SELECT id FROM t WHERE {A} OR {B}",
    "not both": f"SELECT id FROM t WHERE NOT ({A} AND {B})",
    "the same twice": f"SELECT {A} FROM t WHERE {A}",
    "a join": f"SELECT 1 FROM t JOIN p ON t.k = p.k AND {PAIR}",
    "a cross join of survivors": f"SELECT 1 FROM t, p WHERE {A} AND {PAIR}",
    "an outer join": f"SELECT 1 FROM t LEFT JOIN p ON t.k = p.k AND {PAIR}",
    "exists": f"SELECT id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE p.k = t.k AND {PAIR})",
    "a limit": f"SELECT id FROM t WHERE {A} LIMIT 2",
    "on demand": f"SELECT (SELECT count(*) FROM t WHERE {A} AND t.k = p.k) FROM p",
    "a score": "SELECT AI.SCORE(PROMPT('A? {0}', t.body)) FROM t",
    "no documents": "SELECT AI.IF('Is it Monday?') FROM t",
    "NULL documents": "SELECT AI.IF(PROMPT('A? {0}', nothing)) FROM t",
}


def planted(answer: Answer) -> covey.Connection:
    con = covey.connect(model=PlantedModel(answer), progress=False, cache=False)
    bodies = [f"body number {i % 25}" for i in range(ROWS)]
    kinds = [i % 4 for i in range(ROWS)]
    nothing = pa.array([None] * ROWS, pa.string())
    columns = {"id": range(ROWS), "k": kinds, "body": bodies, "nothing": nothing}
    con.register("t", pa.table(columns))
    con.register("p", pa.table({"k": [0, 1, 1, 3, 9], "text": list("abcde")}))
    return con


def by_number(modulus: int, remainder: int) -> Answer:
    """TRUE for documents whose letters add up to some remainder."""

    def answer(question: str, documents: tuple[str, ...]) -> float:
        total = sum(map(ord, question + "".join(documents)))
        return 1.0 if total % modulus == remainder else 0.0

    return answer


def within(found: float, bounds: Range) -> bool:
    return bounds.low <= found <= bounds.high


@pytest.mark.parametrize("answer", [(1, 0), (1, 1), (2, 0), (3, 1)])
def test_runs_stay_within_the_bounds(answer: tuple[int, int]) -> None:
    with planted(by_number(*answer)) as con:
        for name, text in QUERIES.items():
            query = con.sql(text)
            expected = json.loads(query.explain("json"))["statements"][0]["expected"]
            counters = query.report.counters
            assert within(counters.prompts, Range(**expected["calls"])), name
            assert within(counters.requested_tokens, Range(**expected["requested"])), name
            assert within(counters.fresh_tokens, Range(**expected["fresh"])), name


@pytest.mark.parametrize("name", ["one filter", "a join", "on demand", "no documents"])
def test_what_depends_on_no_answer_is_known_exactly(name: str) -> None:
    with planted(by_number(2, 0)) as con:
        query = con.sql(QUERIES[name])
        estimate = query.estimate()
        assert estimate.known
        assert estimate.calls == Range.exactly(query.report.counters.prompts)


def test_an_unknown_selectivity_is_bounds_and_no_figure() -> None:
    with planted(by_number(2, 0)) as con:
        query = con.sql(QUERIES["two filters"])
        estimate = query.estimate()
        assert not estimate.known
        assert (estimate.calls.low, estimate.calls.high) == (25, 50)
        text = query.explain()
        assert "selectivity not known before it runs: 0% to 100%" in text
        assert "model calls       25 to 50\n" in text and "about" not in text


def test_a_given_pass_rate_is_believed_and_named() -> None:
    with planted(by_number(2, 0)) as con:
        given_rate = A.replace(")) ", ")) ")[:-1] + ", {'selectivity': 0.4})"
        query = con.sql(f"SELECT id FROM t WHERE {given_rate} AND {B}")
        estimate = query.estimate()
        assert estimate.known
        assert estimate.calls == Range.exactly(25 + 10)
        assert "selectivity 40%, as the query says" in query.explain()


def test_samples_of_large_tables_stand_for_the_whole() -> None:
    with planted(by_number(2, 0)) as con:
        con.duckdb.execute(
            "CREATE TABLE big AS SELECT i % 9000 AS id, 'text ' || (i % 9000) AS body "
            "FROM range(20000) r(i)"
        )
        query = con.sql("SELECT 1 FROM big t WHERE " + A)
        text = query.explain()
        assert "load t: 20,000 rows, of which the estimate looked at 2,000" in text
        assert query.estimate().calls.low == pytest.approx(9000, rel=0.01)


def test_a_limit_over_a_large_table_asks_no_more_than_it_needs() -> None:
    with planted(by_number(1, 0)) as con:
        con.duckdb.execute("CREATE TABLE big AS SELECT 'text ' || i AS body FROM range(9000) r(i)")
        query = con.sql(f"SELECT 1 FROM big t WHERE {A} LIMIT 5")
        estimate = query.estimate()
        assert estimate.calls.low < 100 and estimate.calls.high == pytest.approx(9000, rel=0.01)
        assert within(query.report.counters.prompts, estimate.calls)


def test_analyze_says_what_happened_beside_what_was_expected() -> None:
    with planted(by_number(2, 0)) as con:
        query = con.sql(QUERIES["two filters"])
        text = query.explain(analyze=True)
        prompts = query.report.counters.prompts
        assert f"model calls       25 to 50; was {prompts}" in text
        statement = json.loads(query.explain("json", analyze=True))["statements"][0]
        assert statement["happened"]["calls"] == prompts
        asks = [ask for step in statement["steps"] for ask in step.get("asks", ())]
        assert [ask["happened"]["prompts"] for ask in asks] == [25, prompts - 25]


def test_analyze_of_a_query_that_has_run_runs_nothing_again() -> None:
    model = PlantedModel(by_number(2, 0))
    with covey.connect(model=model, progress=False) as con:
        con.run("CREATE TABLE t AS SELECT 'a' AS body")
        query = con.sql(f"SELECT {A} FROM t").run()
        calls = len(model.calls)
        assert "was: 1 prompt" in query.explain(analyze=True)
        assert len(model.calls) == calls


def test_analyze_of_a_statement_that_cannot_run_again_shows_its_report() -> None:
    with planted(by_number(2, 0)) as con:
        con.run("CREATE TABLE gone AS FROM t")
        query = con.sql(f"SELECT id FROM gone AS t WHERE {A}").run()
        con.run("DROP TABLE gone")
        text = query.explain(analyze=True)
        assert text.startswith("it has run, and cannot run again\n") and "25 prompts" in text
        assert json.loads(query.explain("json", analyze=True))["statements"][0]["report"]
        both = con.sql(f"CREATE TABLE x AS SELECT id FROM t WHERE {A}; SELECT {B} FROM t")
        assert both.explain(analyze=True).count("was: 25 prompts") == 2


def test_explaining_a_statement_with_effects_has_none() -> None:
    with planted(by_number(2, 0)) as con:
        con.run("CREATE TABLE u AS SELECT 1 AS i")
        con.explain(f"INSERT INTO u SELECT id FROM t WHERE {A}")
        con.explain(f"UPDATE u SET i = 2 WHERE {A.replace('t.body', 'i')}")
        con.explain(f"CREATE TABLE v AS SELECT (SELECT max(id) FROM t WHERE {A} AND k = i) FROM u")
        assert con.sql("FROM u").fetchall() == [(1,)]
        kept = con.duckdb.execute(
            "SELECT table_name FROM duckdb_tables() WHERE NOT temporary"
        ).fetchall()
        assert {name for (name,) in kept} <= {"t", "p", "u"}


def test_a_row_that_duckdb_cannot_compute_is_a_reason_and_no_failure() -> None:
    with planted(by_number(2, 0)) as con:
        text = con.explain(f"SELECT 1 FROM t WHERE body::INT > 3 AND {A}")
        assert "prompts not known before it runs: DuckDB could not finish" in text
        assert "model calls       not known" in text


def test_sources_that_take_long_to_count_are_not_counted(monkeypatch) -> None:
    monkeypatch.setattr("covey.execution.source_samples.SECONDS_TO_SAMPLE", 0.2)
    with planted(by_number(2, 0)) as con:
        slow = "(SELECT count(a.i * b.i) AS c FROM range(400000) a(i), range(400000) b(i))"
        text = con.explain(f"SELECT 1 FROM (SELECT body FROM t, {slow} WHERE c > 0) AS t WHERE {A}")
        assert "load t: rows not counted" in text
        assert "prompts not known before it runs: its sources take DuckDB too long to count" in text
        assert con.sql("SELECT 1").fetchall() == [(1,)]


def test_a_name_that_looks_like_ours_changes_no_estimate() -> None:
    with planted(by_number(2, 0)) as con:
        con.run("CREATE TABLE covey_t AS FROM t")
        assert con.explain(f"SELECT 1 FROM covey_t AS t WHERE {A}") == con.explain(
            f"SELECT 1 FROM t WHERE {A}"
        )


def test_rows_that_depend_on_answers_are_not_counted() -> None:
    inner = f"SELECT body, k FROM t WHERE {A}"
    with planted(by_number(2, 0)) as con:
        for text in (
            f"SELECT 1 FROM ({inner}) AS t WHERE {B}",
            f"WITH c AS ({inner}) SELECT 1 FROM c AS t WHERE {B}",
        ):
            found = con.explain(text)
            assert found.count("rows depend on earlier answers") == 1, found


REVERTED = (
    QUERIES["on demand"],
    f"SELECT count(*) FROM t GROUP BY k HAVING bool_or({A})",
    f"SELECT 1 FROM t JOIN (SELECT id, {B} AS b FROM t WHERE {A} LIMIT 3) u ON u.b AND u.id = t.id",
    "SELECT 1 FROM t, p WHERE AI.IF(PROMPT('A? {0}', CAST(t.body AS BLOB)))",
    f"SELECT 1 FROM (SELECT * FROM t WHERE {A}) u, p WHERE AI.IF(PROMPT('{{0}}', '1'::BLOB))",
)


@pytest.mark.parametrize("query", [*QUERIES.values(), *REVERTED])
def test_no_table_is_left_behind(query: str) -> None:
    with planted(by_number(2, 0)) as con:
        with suppress(covey.errors.QueryError):
            con.explain(query)
            con.run(query)
        left = con.duckdb.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert left == []


def test_a_plan_is_text_or_json() -> None:
    with planted(by_number(2, 0)) as con, pytest.raises(covey.errors.InputError, match="'yaml'"):
        con.explain("SELECT 1", "yaml")


RATES = st.builds(
    lambda a, b, c: Selectivity(*sorted((a, b, c)), source="stored"),
    *[st.floats(0, 1)] * 3,
)


@examples(30)
@given(st.dictionaries(st.integers(0, 5), st.one_of(RATES, st.just(UNKNOWN)), max_size=5))
def test_scenarios_begin_with_what_is_expected_and_hold_both_bounds(rates) -> None:
    found = scenarios(rates)
    assert found[0] == {call: rate.expected for call, rate in rates.items()}
    for call, rate in rates.items():
        drawn = {scenario[call] for scenario in found}
        assert {rate.low, rate.high} <= drawn and all(rate.low <= d <= rate.high for d in drawn)


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_rate_from_answers_has_its_uncertainty(true: int, false: int) -> None:
    rate = Selectivity.stored(true, true + false)
    if not true + false:
        assert rate == UNKNOWN
        return
    assert 0 <= rate.low <= rate.expected + 1e-9 and rate.expected <= rate.high + 1e-9 <= 1 + 2e-9
    wider = Selectivity.stored(true, true + false)
    narrower = Selectivity.stored(true * 4, (true + false) * 4)
    assert narrower.high - narrower.low <= wider.high - wider.low + 1e-9
