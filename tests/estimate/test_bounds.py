"""The bounds of an estimate hold, whatever the answers are."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.testing import PlantedModel
from effort import examples


def one(name: str, text: str) -> str:
    return f"AI.IF(PROMPT('{name}? {{0}}', {text}))"


def two(first: str, second: str) -> str:
    return f"AI.IF(PROMPT('{{0}} of {{1}}?', {first}, {second}))"


TABLE = "CREATE TABLE u AS SELECT i AS id, 'text ' || i AS txt FROM range({rows}) r(i)"
SHARED = (
    "SELECT 1 FROM u a {join} JOIN u b "
    f"ON CASE WHEN {one('A', 'b.txt')} "
    f"THEN {two('b.txt', 'a.txt')} ELSE {two('a.txt', 'b.txt')} END"
)
DERIVED = (
    "SELECT 1 FROM u a {join} "
    f"JOIN (SELECT * FROM u c WHERE {one('A', 'c.txt')}) b "
    f"ON a.id > 2 WHERE {one('B', 'b.txt')} OR {two('b.txt', 'a.txt')}"
)
MANY = (
    "SELECT 1 FROM u a {join} "
    f"JOIN u b ON a.id > b.id AND {two('a.txt', 'b.txt')} "
    f"WHERE {one('A', 'a.txt')} AND NOT {one('B', 'a.txt')} AND {one('C', 'b.txt')}"
)
LIMITED = f"SELECT 1 FROM u a JOIN u b ON {two('a.txt', 'b.txt')} LIMIT " + "{limit}"


@examples(15)
@given(
    text=st.sampled_from([SHARED, DERIVED, MANY, LIMITED]),
    join=st.sampled_from(["INNER", "LEFT", "RIGHT"]),
    rows=st.integers(1, 9),
    limit=st.integers(1, 6),
    share=st.sampled_from([0, 10, 50, 90, 100]),
    seed=st.integers(0, 1000),
)
def test_runs_stay_within_the_bounds(text, join, rows, limit, share, seed) -> None:
    def answer(question: str, documents: tuple[str, ...]) -> float:
        drawn = zlib.crc32("|".join((str(seed), question, *documents)).encode()) % 100
        return float(drawn < share)

    with covey.connect(model=PlantedModel(answer), progress=False, cache=False) as con:
        con.duckdb.execute(TABLE.format(rows=rows))
        query = con.sql(text.replace("{join}", join).replace("{limit}", str(limit)))
        bounds = query.estimate().calls
        assert bounds.low <= query.report.counters.prompts <= bounds.high


def test_a_limit_over_a_sampled_join_keeps_to_its_bounds_and_a_budget_that_fits() -> None:
    def answer(question: str, documents: tuple[str, ...]) -> float:
        return float(zlib.crc32("|".join(documents).encode()) % 3 == 0)

    with covey.connect(model=PlantedModel(answer), progress=False, cache=False) as con:
        con.duckdb.execute(TABLE.format(rows=400))
        text = LIMITED.replace("{limit}", "5")
        bounds = con.sql(text).estimate().calls
        asked = con.sql(text, max_calls=100).report.counters.prompts
        assert 1 <= bounds.low <= asked < 100
        assert bounds.high == 400 * 400
