"""Rows without an answer: in the report's table, and judged over the whole query."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.execution.report import Report, RowError
from covey.testing import PlantedModel


def model() -> PlantedModel:
    return PlantedModel(lambda _, documents: None if "bad" in documents[0] else 0.9)


def query(ratio: float) -> str:
    return f"SELECT count(*) FROM t WHERE AI.IF(PROMPT('? {{0}}', s), max_error_ratio => {ratio})"


def test_the_error_table_names_call_documents_and_reason():
    with covey.connect(model()) as con:
        con.register("t", pa.table({"s": ["fine", "bad 1", "bad " + "x" * 500]}))
        report = con.run("SELECT AI.SCORE(PROMPT('? {0}', s)) FROM t").report
    table = report.error_table()
    assert table.column_names == ["call", "documents", "reason"]
    rows = table.to_pylist()
    assert [row["documents"][0][:5] for row in rows] == ["bad 1", "bad x"]
    assert max(len(row["documents"][0]) for row in rows) <= 60
    assert {row["reason"] for row in rows} == {"the planted answer is None"}
    assert report.operators[0].failed == 2


def test_a_bad_beginning_does_not_fail_a_query_that_is_good_on_the_whole(monkeypatch):
    # Small batches: the first one is bad from end to end.
    monkeypatch.setattr("covey.execution.batch_size.FIRST_BATCH", 8)
    texts = [f"bad {i}" for i in range(8)] + [f"good {i}" for i in range(792)]
    with covey.connect(model()) as con:
        con.register("t", pa.table({"s": texts}))
        assert con.run(query(0.01)).fetchall() == [(792,)]
        with pytest.raises(covey.RunError, match=r"8 of 800 prompts .* max_error_ratio 0.005"):
            con.run(query(0.005))


def test_too_many_failures_stop_a_statement_before_it_changes_anything():
    with covey.connect(model()) as con:
        con.register("t", pa.table({"s": ["bad", "good"]}))
        with pytest.raises(covey.RunError, match="max_error_ratio"):
            con.run(f"CREATE TABLE u AS {query(0.4)}")
        assert not con.run("FROM duckdb_tables() WHERE table_name = 'u'").fetchall()


def test_a_printed_report_names_the_commonest_reasons_only() -> None:
    report = Report()
    for number in range(40):
        reason = "common" if number < 20 else f"rare {number}"
        report.errors.append(RowError("AI.IF", ("x",), reason))
    lines = [line for line in str(report).splitlines() if line.startswith("failed")]
    assert lines[0] == "failed: 20 x common" and len(lines) == 6
    assert lines[-1] == "failed: 16 more, for 16 other reasons; see error_table()"
