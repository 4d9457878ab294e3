"""Asking stops early only where an unasked row cannot pass for an answered one."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

REFUND = "AI.IF(PROMPT('Refund? {0}', w.s))"
PAIR = "AI.IF(PROMPT('{0} {1}', w.s, p.text))"


@pytest.fixture(scope="module")
def connection():
    texts = [None if i % 3 == 0 else f"text {i}" for i in range(40)]
    with covey.connect(model=PlantedModel(lambda question, documents: 0.9)) as con:
        con.register("w", pa.table({"id": list(range(40)), "s": texts}))
        con.register("p", pa.table({"text": ["a", "b", "c"]}))
        yield con


@pytest.mark.parametrize(
    "condition",
    [
        f"{REFUND} IS NULL",
        f"{REFUND} IS NOT TRUE",
        f"coalesce({REFUND}, FALSE) = FALSE",
        f"NOT coalesce({REFUND}, FALSE)",
        f"CASE WHEN {REFUND} THEN FALSE ELSE TRUE END",
        f"{REFUND} IS DISTINCT FROM TRUE",
        f"NOT EXISTS (SELECT 1 FROM p WHERE {PAIR})",
        f"EXISTS (SELECT 1 FROM p WHERE {PAIR} IS NULL)",
        f"NOT EXISTS (SELECT 1 FROM p WHERE {PAIR} IS NULL)",
    ],
)
def test_a_condition_that_takes_null_for_an_answer_sees_every_answer(connection, condition):
    everything = connection.run(f"SELECT id FROM w WHERE {condition}").fetchall()
    some = connection.run(f"SELECT id FROM w WHERE {condition} LIMIT 5").fetchall()
    assert set(some) <= set(everything)
    assert len(some) == min(5, len(everything))


@pytest.mark.parametrize("condition", [REFUND, f"NOT ({REFUND} AND id < 0)", f"{REFUND} = TRUE"])
def test_a_condition_that_rejects_null_stops_early(connection, condition):
    query = connection.run(f"SELECT id FROM w WHERE {condition} LIMIT 2")
    assert len(query.fetchall()) == 2
    assert query.report.counters.prompts <= 4
