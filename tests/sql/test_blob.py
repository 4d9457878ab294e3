"""A BLOB is refused as a document wherever the call stands."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t WHERE AI.IF(b)",
        "SELECT AI.IF(b) FROM t",
        "SELECT AI.IF(b) FROM t LIMIT 1",
        "SELECT count(*) FROM t HAVING AI.IF(any_value(b))",
        "SELECT id, row_number() OVER (ORDER BY AI.SCORE(b)) FROM t",
        "SELECT id FROM t ORDER BY AI.SCORE(PROMPT('Q {0} {1}', s, b)) LIMIT 1",
    ],
)
def test_a_blob_is_refused_at_its_place(query):
    with covey.connect(model=PlantedModel(lambda question, documents: 0.9)) as con:
        con.register("t", pa.table({"id": [1], "s": ["x"], "b": [b"x"]}))
        with pytest.raises(covey.QueryError, match="BLOB") as caught:
            con.sql(query)
        start, end = caught.value.span or (0, 0)
        assert "b" in query[start:end]
