"""What has no answer is never read as the answer NULL: the query fails, or the row is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import covey
from covey.engine.base import Answers
from covey.errors import RunError
from covey.execution.udf import AnswerUDFs
from covey.testing import PlantedModel
from covey.testing.planted import PlantedSession

QUERY = "SELECT id, AI.SCORE(PROMPT('late? {0}', body)) AS s FROM t"


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    model = PlantedModel(lambda question, documents: 0.9, lambda question, labels, documents: 1)
    with covey.connect(model=model, cache=False, progress=False) as connection:
        connection.register("t", pa.table({"id": [1, 2, 3], "body": ["a", "b", None]}))
        yield connection


@pytest.mark.parametrize(
    "read",
    [
        lambda con: con.sql(QUERY).fetchall(),
        lambda con: con.sql(f"{QUERY} WHERE AI.IF(PROMPT('x {{0}}', body))").fetchall(),
        lambda con: list(con.sql(QUERY).batches()),
        lambda con: list(con.sql(QUERY).batches(early=True)),
        lambda con: con.run(f"CREATE TABLE u AS {QUERY}"),
        lambda con: con.run("UPDATE t2 SET body = 'c' WHERE AI.IF(PROMPT('late? {0}', body))"),
    ],
)
def test_a_planned_call_that_was_given_no_rows_fails_the_query(
    con: covey.Connection, read: Callable[[covey.Connection], object], monkeypatch
) -> None:
    con.run("CREATE TABLE t2 AS FROM t")
    monkeypatch.setattr(AnswerUDFs, "set_rows", lambda *arguments: None)
    monkeypatch.setattr(AnswerUDFs, "begin", lambda *arguments: None)
    monkeypatch.setattr(AnswerUDFs, "_by_text", AnswerUDFs._by_row)
    with pytest.raises(RunError, match=r"AI\.\w+ was planned and never asked"):
        read(con)
    assert not con.sql("FROM duckdb_tables() WHERE table_name = 'u'").fetchall()
    assert con.sql("SELECT body FROM t2 WHERE id = 1").fetchall() == [("a",)]


def test_a_call_that_no_row_comes_to_is_none_that_was_given_no_rows(con: covey.Connection) -> None:
    con.model.source = PlantedModel(lambda question, documents: 0.1)
    never = "WHERE AI.IF(PROMPT('x {0}', body)) AND AI.IF(PROMPT('y {0}', body))"
    assert con.sql(f"SELECT id FROM t {never}").fetchall() == []
    assert con.sql(f"SELECT id, AI.SCORE(body) FROM t {never}").fetchall() == []
    assert not sum(b.num_rows for b in con.sql(f"SELECT id FROM t {never}").batches(early=True))


def test_a_model_that_leaves_prompts_unanswered_fails_the_query(con, monkeypatch) -> None:
    monkeypatch.setattr(PlantedSession, "run", lambda self: iter(()))
    with pytest.raises(RunError, match=r"left 2 prompts of AI.SCORE\(.*\) unanswered"):
        con.run(QUERY)


@pytest.fixture
def broken(monkeypatch) -> None:
    """A model that gives no number for the first prompt, and no reason."""

    def run(self: PlantedSession) -> Iterator[Answers]:
        for found in run_as_before(self):
            found.scores[0, -1] = np.nan
            yield found

    run_as_before = PlantedSession.run
    monkeypatch.setattr(PlantedSession, "run", run)


@pytest.mark.parametrize(
    "call",
    [
        "AI.SCORE(PROMPT('late? {0}', body), on_error => '%s')",
        "AI.CLASSIFY(body, ['x', 'y'], on_error => '%s')",
        "AI.CLASSIFY(body, ['x', 'y'], on_error => '%s', output_mode => 'multi')",
    ],
)
def test_an_answer_that_is_no_number_is_a_failed_row(con, broken, call: str) -> None:
    query = con.sql(f"SELECT id, ({call % 'null'}) IS NULL FROM t ORDER BY id")
    assert query.fetchall() == [(1, True), (2, False), (3, True)]
    assert [error.reason for error in query.report.errors] == ["the model's answer is no number"]
    assert query.report.operators[0].failed == 1
    with pytest.raises(RunError, match="the model's answer is no number"):
        con.run(f"SELECT {call % 'fail'} FROM t")
    values = con.sql(f"SELECT ({call % 'value'}).error FROM t ORDER BY id").fetchall()
    assert values == [("the model's answer is no number",), (None,), (None,)]
