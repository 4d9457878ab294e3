"""What is refused when a connection or a query is made, and how a query shows itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

QUERY = "SELECT s FROM t WHERE AI.IF(s)"


def model() -> PlantedModel:
    return PlantedModel(lambda question, documents: 0.9)


def test_a_path_without_a_model_is_refused_at_once(tmp_path: Path) -> None:
    for path in (tmp_path / "nope", str(tmp_path / "nope"), "/nope", tmp_path / "nope.gguf"):
        with pytest.raises(covey.ModelError, match=r"There is no model at .*nope"):
            covey.connect(path)
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(covey.ModelError, match="GGUF and safetensors only"):
        covey.connect(tmp_path / "weights.bin")


def test_a_limit_of_money_without_a_price_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COVEY_PRICE_PER_HOUR", raising=False)
    with covey.connect(model(), cache=False) as con:
        con.register("t", pa.table({"s": ["a"]}))
        with pytest.raises(covey.InputError, match="price_per_hour"):
            con.sql(QUERY, max_cost=1.0)
        assert con.run(QUERY).fetchall() == [("a",)]
    with covey.connect(model(), cache=False, max_cost=1.0, price_per_hour=2.0) as con:
        con.register("t", pa.table({"s": ["a"]}))
        assert con.run(QUERY).fetchall() == [("a",)]


def test_a_query_shows_its_text_and_whether_it_has_run() -> None:
    planted = model()
    with covey.connect(planted, cache=False) as con:
        con.register("t", pa.table({"s": ["a", "b"]}))
        query = con.sql(f"SELECT 1;\n{QUERY}")
        assert repr(query) == f"<covey.Query: {QUERY}; not run yet>"
        assert not planted.calls, "to show it runs nothing"
        read = con.sql(QUERY)
        list(read.batches())
        assert repr(read) == f"<covey.Query: {QUERY}; read in batches, or stopped>"
        query.run()
        assert repr(query) == f"<covey.Query: {QUERY}; 2 rows>"
        assert len(repr(con.sql(f"SELECT '{'x ' * 900}'"))) < 200
