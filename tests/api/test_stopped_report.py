"""The report of a query that did not end tells what it did; asking for it asks no model."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

ROWS = 40
QUERY = "SELECT id FROM t WHERE AI.IF(PROMPT('Good? {0}', s))"


@pytest.fixture
def failing() -> PlantedModel:
    """A model that fails once it has answered ten prompts."""

    def answer(question: str, documents: tuple[str, ...]) -> float:
        if len(model.calls) > 10:
            raise RuntimeError("the device is lost")
        return 0.9

    model = PlantedModel(answer)
    return model


@pytest.mark.parametrize("form", ["fetchall", "batches", "early"])
def test_a_stopped_query_keeps_its_report(failing: PlantedModel, form: str) -> None:
    with covey.connect(model=failing, cache=False) as con:
        con.register("t", pa.table({"id": range(ROWS), "s": [f"text {i}" for i in range(ROWS)]}))
        query = con.sql(f"SELECT 1; {QUERY}")
        with pytest.raises(RuntimeError, match="device is lost"):
            query.fetchall() if form == "fetchall" else list(query.batches(early=form == "early"))
        asked = len(failing.calls)
        report = query.report
        assert len(failing.calls) == asked
        assert [operator.call for operator in report.operators]
        assert report.counters.prompts < ROWS
        assert "not run yet" not in repr(query)


def test_a_query_that_has_not_run_is_run_for_its_report() -> None:
    model = PlantedModel(lambda question, documents: 0.9)
    with covey.connect(model=model, cache=False) as con:
        con.register("t", pa.table({"id": [1], "s": ["a"]}))
        assert con.sql(QUERY).report.counters.prompts == 1
