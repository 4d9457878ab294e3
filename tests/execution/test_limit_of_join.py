"""LIMIT over a join: what was not asked is not looked at either, and time counts meanwhile."""

from __future__ import annotations

import pytest

import covey
from covey.errors import BudgetError
from covey.execution.answers import AnswerTable
from covey.testing import PlantedModel

ROWS, PARTNERS = 400, 300
QUERY = (
    "SELECT a.id FROM big a JOIN small b ON AI.IF(PROMPT('{0} with {1}?', a.body, b.txt)) LIMIT 5"
)


def planted() -> covey.Connection:
    con = covey.connect(
        model=PlantedModel(lambda q, d: float(sum(map(ord, "".join(d))) % 3 == 0)),
        progress=False,
        cache=False,
    )
    con.run(f"CREATE TABLE big AS SELECT i AS id, 'text ' || i AS body FROM range({ROWS}) r(i)")
    con.run(f"CREATE TABLE small AS SELECT 'b ' || i AS txt FROM range({PARTNERS}) r(i)")
    return con


def test_pairs_of_later_batches_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []
    find = AnswerTable.find

    def counting(self, documents):
        looked_up.append(len(documents))
        return find(self, documents)

    monkeypatch.setattr(AnswerTable, "find", counting)
    with planted() as con:
        query = con.sql(QUERY)
        assert len(query.fetchall()) == 5
        assert query.report.counters.prompts < 50
    # A batch has 16 rows; each look at it is of so many pairs at most.
    assert sum(looked_up) < ROWS * PARTNERS / 2


def test_time_counts_between_the_rounds_of_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def late(self, answered, tokens):
        seen.append((answered, tokens))
        if answered == 0:
            raise BudgetError("late")

    monkeypatch.setattr("covey.execution.budget.BudgetGuard.after", late)
    with planted() as con, pytest.raises(BudgetError, match="late"):
        con.sql(QUERY, max_seconds=1e6).run()
    assert seen == [(0, 0)]
